"""From the stock executor to this one with tasks in flight, and back with callback pods in every state."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from kubernetes_tests.airflow_env import wait_for
from kubernetes_tests.scenario import STOCK

if TYPE_CHECKING:
    from kubernetes_tests.airflow_env import AirflowProcess
    from kubernetes_tests.scenario import MissedDeadline, Scenario

pytestmark = pytest.mark.extended

#: What in a scheduler's log says that something is broken. Stock warns about much else.
BROKEN = re.compile(r"Traceback|KeyError|NotImplementedError|Unknown error in KubernetesJobWatcher")
#: A pod that waits keeps its first attempt for the time of the test.
PATIENT = {"kubernetes_callbacks.pending_timeout": 1800, "kubernetes_callbacks.start_error_grace": 1800}


@dataclass(frozen=True)
class Task:
    """A task in flight: the Dag run, and its key in the ledger."""

    run: dict[str, Any]
    key: str


def start_task(scenario: Scenario, sleep: float) -> Task:
    key = f"task-{secrets.token_hex(6)}"
    conf = {"ledger": scenario.ledger.url, "key": key, "sleep": sleep}
    return Task(scenario.run_dag("slow_task", conf), key)


def task_pods(scenario: Scenario) -> list[dict[str, Any]]:
    return scenario.namespace.pods("kubernetes_executor=True")


def wait_for_begin(scenario: Scenario, *keys: str) -> None:
    wait_for(
        f"{', '.join(keys)} begin",
        lambda: all(scenario.ledger.runs(key) for key in keys),
        180,
        otherwise=scenario.describe,
    )


def assert_healthy(scheduler: AirflowProcess) -> None:
    assert scheduler.running, scheduler.tail()
    assert not BROKEN.search(scheduler.log()), scheduler.log()


def test_tasks_of_a_stock_scheduler_are_adopted_and_finish_once(scenario: Scenario) -> None:
    stock = scenario.start_scheduler("stock", config={"core.executor": STOCK})
    runs_on = start_task(scenario, sleep=45)
    ends_alone = start_task(scenario, sleep=8)
    wait_for_begin(scenario, runs_on.key, ends_alone.key)
    scenario.hold_pods()
    waits = start_task(scenario, sleep=0)
    wait_for("a task's pod waits", lambda: len(task_pods(scenario)) == 3, otherwise=scenario.describe)
    stock.terminate()
    wait_for(
        "a task ends while no scheduler runs",
        lambda: scenario.ledger.entries(ends_alone.key, "end"),
        60,
        otherwise=scenario.describe,
    )

    ours = scenario.start_scheduler("ours")
    (callback,) = scenario.miss("succeed")
    scenario.release_pods()
    for task in (ends_alone, waits, runs_on):
        scenario.wait_for_run(task.run)
    scenario.wait_for_state(callback, "success")
    wait_for("no task's pod is left", lambda: not task_pods(scenario), 60, otherwise=scenario.describe)
    for task in (ends_alone, waits, runs_on):
        assert scenario.ledger.runs(task.key) == 1
    assert_healthy(ours)


def callback_pods(scenario: Scenario) -> dict[str, tuple[str, str]]:
    """Return uid and owner of each callback pod by its callback's id."""
    return {
        pod["metadata"]["annotations"]["callback_id"]: (
            pod["metadata"]["uid"],
            pod["metadata"]["labels"]["airflow-worker"],
        )
        for pod in scenario.namespace.callback_pods()
    }


def test_stock_scheduler_passes_over_callback_pods_in_every_state_and_ours_records_them(
    scenario: Scenario,
) -> None:
    # Nobody deletes anything in between: pods of every state are there for the stock executor to see.
    ours = scenario.start_scheduler(
        "ours", config={**PATIENT, "kubernetes_executor.delete_worker_pods": False}
    )
    (kept,) = scenario.miss("succeed")
    (kept_failed,) = scenario.miss("fail")
    scenario.wait_for_state(kept, "success")
    scenario.wait_for_state(kept_failed, "failed")
    wait_for("kept pods are done", lambda: done(scenario, kept, kept_failed), otherwise=scenario.describe)

    (runs_on,) = scenario.miss("succeed", sleep=75)
    (succeeds,) = scenario.miss("succeed", sleep=15)
    (fails,) = scenario.miss("fail", sleep=15)
    task = start_task(scenario, sleep=60)
    wait_for_begin(scenario, runs_on.key, succeeds.key, fails.key, task.key)
    scenario.hold_pods()
    (waits,) = scenario.miss("succeed")
    scenario.wait_for_pod(waits, "Pending")
    ours.terminate()
    scenario.wait_for_pod(succeeds, "Succeeded")
    scenario.wait_for_pod(fails, "Failed")
    scenario.release_template()
    before, states = callback_pods(scenario), row_states(scenario)
    assert len(before) == 6

    stock = scenario.start_scheduler("stock", config={"core.executor": STOCK})
    scenario.wait_for_run(task.run)
    assert scenario.ledger.runs(task.key) == 1
    scenario.wait_for_run(scenario.run_dag("some_tasks"))
    scenario.wait_for_pod(runs_on, "Succeeded", timeout=120)
    wait_for_looks(stock)
    assert_healthy(stock)
    assert callback_pods(scenario) == before
    # The pod itself may have told that it runs (3.4); nobody has recorded an end.
    ended = {id for id, state in row_states(scenario).items() if state in ("success", "failed")}
    assert ended == {id for id, state in states.items() if state in ("success", "failed")}
    stock.terminate()

    back = scenario.start_scheduler("ours", config=PATIENT)
    scenario.wait_for_state([runs_on, succeeds], "success")
    (row,) = scenario.wait_for_state(fails, "failed")
    assert "ValueError: the webhook refused the alert" in (row.output or "")
    scenario.release_pods()
    scenario.wait_for_state(waits, "success")
    for callback in (kept, kept_failed, runs_on, succeeds, fails, waits):
        assert scenario.ledger.runs(callback.key) == 1
    for callback in (runs_on, succeeds, waits):
        scenario.wait_for_clean_up(callback)
    assert_healthy(back)


def done(scenario: Scenario, *callbacks: MissedDeadline) -> bool:
    pods = [scenario.namespace.pod_of(callback.id) for callback in callbacks]
    return all(pod and pod["metadata"]["labels"].get("airflow_executor_done") == "True" for pod in pods)


def row_states(scenario: Scenario) -> dict[str, str | None]:
    return {id: row.state for id, row in scenario.rows().items()}


def wait_for_looks(scheduler: AirflowProcess) -> None:
    """Wait until the scheduler has looked for orphans three more times."""

    def looks() -> int:
        return scheduler.log().count("Adopting or resetting orphaned tasks")

    before = looks()
    wait_for("looks for orphans", lambda: looks() >= before + 3, otherwise=scheduler.tail)
