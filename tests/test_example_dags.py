"""The example Dags parse as the Dag processor parses them, and their callbacks run as a worker runs them."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
import structlog
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import SyncCallback
from airflow.sdk.execution_time.callback_supervisor import execute_callback
from airflow.serialization.serialized_objects import DagSerialization

FOLDER = Path(__file__).parent.parent / "example_dags"
FILES = sorted(FOLDER.glob("*.py"))

#: As the scheduler makes it when the deadline is missed.
CONTEXT = {
    "dag_run": {"dag_id": "reports", "dag_run_id": "manual__2026-06-07", "conf": {"region": "äöü"}},
    "deadline": {"id": str(uuid.UUID(int=1)), "deadline_time": "2026-06-07T01:50:23Z"},
}


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def example(request):
    return request.param


@pytest.fixture
def dag(example):
    """The Dag of one example, parsed as from a bundle whose folder is ``example_dags``."""
    # No example relies on the heuristics that leave files out, so they stay as Airflow has them.
    bag = DagBag(example, bundle_path=FOLDER, bundle_name="examples")
    assert bag.import_errors == {}
    assert list(bag.dags) == [example.stem]
    return bag.dags[example.stem]


def test_there_are_examples():
    assert len(FILES) >= 3


def test_example_has_documentation_and_executor_callbacks(dag):
    assert dag.deadline
    for alert in dag.deadline:
        assert isinstance(alert.callback, SyncCallback)
        assert alert.callback.executor in (None, "KubernetesExecutor")


def test_example_survives_serialization(dag):
    assert DagSerialization.from_dict(DagSerialization.to_dict(dag)).dag_id == dag.dag_id


def test_callbacks_of_example_run_as_on_a_worker(dag, example, monkeypatch):
    monkeypatch.delenv("ALERT_WEBHOOK", raising=False)
    for alert in dag.deadline:
        done = execute_callback(
            callback_path=alert.callback.path,
            callback_kwargs={**alert.callback.kwargs, "context": CONTEXT},
            dag_rel_path=example.relative_to(FOLDER),
            bundle_path=FOLDER,
            log=structlog.get_logger(),
        )
        assert done == (True, None)
