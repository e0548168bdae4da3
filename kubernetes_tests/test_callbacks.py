"""A missed deadline becomes a pod, and what came of it is recorded.

A real scheduler, a real database, a real API server. Each test asserts the row, the event that the
scheduler took from the executor and the ledger, not the pod's phase.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kubernetes_tests.airflow_env import wait_for

if TYPE_CHECKING:
    from kubernetes_tests.scenario import MissedDeadline, Scenario

pytestmark = pytest.mark.usefixtures("described")


def ended(scenario: Scenario, callback: MissedDeadline, state: str, airflow: tuple[int, ...]) -> str:
    """Wait for the callback's end in *state*, assert how it came there, and return its output."""
    (row,) = scenario.wait_for_state(callback, state)
    events = scenario.events(callback)
    assert events[-1:] == [state]
    assert events.count(state) == 1
    # 3.3: the executor reports that the container runs; later the pod itself does.
    assert events[:-1] in ([], ["running"] if airflow < (3, 4) else [])
    scenario.wait_for_clean_up(callback)
    return row.output or ""


#: How a pod was created does not matter to what becomes of it.
mostly_one_by_one = pytest.mark.parametrize(
    "running", ["one_by_one", pytest.param("batches", marks=pytest.mark.extended)], indirect=True
)


@mostly_one_by_one
def test_missed_deadline_of_a_dag_is_called_back_from_a_pod(
    running: Scenario, airflow_version: tuple[int, ...]
) -> None:
    before = set(running.rows())
    run = running.run_dag("missed_deadline")
    (new,) = wait_for("the deadline's callback", lambda: set(running.rows()) - before)
    row = wait_for(
        "callback succeeds",
        lambda: (row := running.rows()[new]).state == "success" and row,
        otherwise=running.describe,
    )
    assert row.data["dag_id"] == "missed_deadline"
    assert running.ledger.runs("missed_deadline") >= 1
    running.wait_for_run(run)
    assert all(scheduler.running for scheduler in running.schedulers)


def test_success_is_recorded(running: Scenario, airflow_version: tuple[int, ...]) -> None:
    (callback,) = running.miss("succeed")
    ended(running, callback, "success", airflow_version)
    assert running.ledger.runs(callback.key) == 1
    assert len(running.ledger.entries(callback.key, "end")) == 1


@mostly_one_by_one
def test_row_says_running_while_the_callback_runs(
    running: Scenario, airflow_version: tuple[int, ...]
) -> None:
    (callback,) = running.miss("succeed", sleep=6)
    running.wait_for_begin(callback)
    running.wait_for_state(callback, "running", timeout=20)
    assert running.ledger.entries(callback.key, "end") == []
    ended(running, callback, "success", airflow_version)
    if airflow_version < (3, 4):
        assert running.events(callback) == ["running", "success"]


@mostly_one_by_one
def test_exception_text_is_the_output_of_a_callback_that_fails(
    running: Scenario, airflow_version: tuple[int, ...]
) -> None:
    (callback,) = running.miss("fail", text="die Meldung kam nicht an: 503 ☎")
    output = ended(running, callback, "failed", airflow_version)
    assert "ValueError" in output
    assert "die Meldung kam nicht an: 503 ☎" in output
    assert running.ledger.runs(callback.key) == 1


@mostly_one_by_one
def test_process_that_exits_by_itself_fails_the_callback(
    running: Scenario, airflow_version: tuple[int, ...]
) -> None:
    (callback,) = running.miss("exit_hard", status=3)
    output = ended(running, callback, "failed", airflow_version)
    assert "exit" in output.lower()
    assert running.ledger.runs(callback.key) == 1


@mostly_one_by_one
def test_killed_container_fails_the_callback_with_its_exit_code(
    running: Scenario, airflow_version: tuple[int, ...]
) -> None:
    (callback,) = running.miss("kill_supervisor")
    output = ended(running, callback, "failed", airflow_version)
    assert "137" in output or "SIGKILL" in output
    assert running.ledger.runs(callback.key) == 1


@mostly_one_by_one
def test_notifier_is_constructed_and_called(running: Scenario, airflow_version: tuple[int, ...]) -> None:
    (callback,) = running.miss("LedgerNotifier", message="the report is late")
    ended(running, callback, "success", airflow_version)
    (entry,) = running.ledger.entries(callback.key)
    assert entry.details["message"] == "the report is late"
    assert entry.details["run_id"].startswith("manual__")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("ä 漢字 🚨 \u0000 \" ' \\ \n {{ x }} $HOME $(HOME) %s", id="unicode_and_quotes"),
        pytest.param("x" * 300_000, id="larger_than_an_argument"),
        pytest.param("漢" * 60_000, id="larger_in_bytes_than_in_characters"),
    ],
)
def test_kwargs_and_context_arrive_unchanged(
    running: Scenario, airflow_version: tuple[int, ...], text: str
) -> None:
    if "\u0000" in text and running.installation.database == "postgresql":
        pytest.skip("PostgreSQL's JSON has no NUL")
    values = {"text": text, "number": 1.5, "nothing": None, "list": [1, {"deep": ["ü"]}], "yes": True}
    conf = {"region": "Zürich", "size": 3}
    (callback,) = running.miss("echo", values=values, conf=conf)
    ended(running, callback, "success", airflow_version)
    (entry,) = running.ledger.entries(callback.key)
    assert entry.details["kwargs"] == {"values": values}
    assert entry.details["context"]["dag_run"]["conf"] == conf
    assert entry.details["context"]["dag_run"]["dag_id"] == "no_tasks_to_run"
    assert entry.details["context"]["deadline"]["id"]


@mostly_one_by_one
def test_callback_reads_connections_and_variables(
    running: Scenario, airflow_version: tuple[int, ...]
) -> None:
    running.installation.call("set_connection", conn_id="alerts", uri="http://:pass-word@alerts.example/")
    running.installation.call("set_variable", name="recipient", value="on-call")
    (connection,) = running.miss("read_connection", conn_id="alerts")
    (variable,) = running.miss("read_variable", name="recipient")
    ended(running, connection, "success", airflow_version)
    ended(running, variable, "success", airflow_version)
    (entry,) = running.ledger.entries(connection.key)
    assert (entry.details["host"], entry.details["password"]) == ("alerts.example", "pass-word")
    (entry,) = running.ledger.entries(variable.key)
    assert entry.details["value"] == "on-call"


def test_tasks_and_callbacks_run_side_by_side(running: Scenario, airflow_version: tuple[int, ...]) -> None:
    run = running.run_dag("some_tasks")
    good = running.miss("succeed", count=3)
    bad = running.miss("fail", count=2)
    running.wait_for_state(good, "success")
    running.wait_for_state(bad, "failed")
    running.wait_for_run(run)
    for callback in (*good, *bad):
        assert running.ledger.runs(callback.key) == 1
        running.wait_for_clean_up(callback)


@mostly_one_by_one
def test_fifty_callbacks_at_once(running: Scenario) -> None:
    callbacks = running.miss("succeed", count=50)
    running.wait_for_state(callbacks, "success", timeout=600)
    for callback in callbacks:
        assert running.ledger.runs(callback.key) == 1
        assert running.events(callback)[-1] == "success"
    for callback in callbacks:
        running.wait_for_clean_up(callback)
