"""A pod whose image has remote logging uploads its callback's log, to the path at which Airflow looks for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kubernetes_tests.scenario import Scenario

FOLDER = Path(__file__).with_name("remote_logs")


@pytest.mark.parametrize(
    ("function", "state", "line"),
    [
        pytest.param(
            *("succeed", "success", "Callback executed successfully"),
            id="success",
            marks=pytest.mark.extended,
        ),
        pytest.param("fail", "failed", "the webhook refused the alert", id="failure"),
    ],
)
def test_pod_uploads_the_log_of_its_callback(
    scenario: Scenario, tmp_path: Path, function: str, state: str, line: str
) -> None:
    if scenario.cluster.local is None:
        pytest.skip("the storage is a folder of this machine: only on the local cluster")
    storage = tmp_path / "storage"
    base, *_ = scenario.template["spec"]["containers"]
    base["env"] = [
        *base.get("env", []),
        {"name": "AIRFLOW__LOGGING__LOGGING_CONFIG_CLASS", "value": "folder_log_config.LOGGING_CONFIG"},
        {"name": "PYTHONPATH", "value": os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")])},
        {"name": "REMOTE_LOGS", "value": str(storage)},
    ]
    scenario.write_template(scenario.template)
    (callback,) = scenario.miss(function)
    scenario.start_scheduler()
    scenario.wait_for_state(callback, state)
    (uploaded,) = (path for path in storage.rglob("*") if path.is_file())
    assert uploaded.relative_to(storage).parts[0] == "executor_callbacks"
    assert uploaded.name == callback.id
    assert line in uploaded.read_text(encoding="utf-8")
