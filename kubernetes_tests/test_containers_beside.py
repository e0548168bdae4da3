"""Containers beside the callback's own do not decide how it ended, nor how long it takes; the budget of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kubernetes_tests.airflow_env import wait_for

if TYPE_CHECKING:
    from kubernetes_tests.scenario import Scenario

FOR_EVER = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_DFL); time.sleep(3600)"


def beside(scenario: Scenario, name: str, program: str, **more: object) -> dict[str, Any]:
    return {
        "name": name,
        "image": scenario.cluster.image,
        "imagePullPolicy": scenario.cluster.image_pull_policy,
        "args": ["python", "-c", program],
        **more,
    }


@pytest.mark.parametrize(
    ("native", "function", "state"),
    [
        pytest.param(False, "succeed", "success", id="ordinary-succeed", marks=pytest.mark.extended),
        pytest.param(False, "fail", "failed", id="ordinary-fail"),
        pytest.param(True, "succeed", "success", id="native-succeed"),
        pytest.param(True, "fail", "failed", id="native-fail", marks=pytest.mark.extended),
    ],
)
def test_sidecar_that_never_ends_does_not_hold_the_slot(
    scenario: Scenario, native: bool, function: str, state: str
) -> None:
    spec = scenario.template["spec"]
    if native:
        spec["initContainers"] = [beside(scenario, "proxy", FOR_EVER, restartPolicy="Always")]
    else:
        spec["containers"].insert(0, beside(scenario, "proxy", FOR_EVER))  # the base container stands second
    scenario.write_template(scenario.template)
    first, second = scenario.miss(function, count=2)
    scenario.start_scheduler(
        config={
            "core.parallelism": 1,
            "kubernetes_executor.delete_worker_pods": True,
            "kubernetes_executor.delete_worker_pods_on_failure": True,
        }
    )
    rows = scenario.wait_for_state([first, second], state)
    scenario.wait_for_no_pods()
    for callback, row in zip((first, second), rows, strict=True):
        assert scenario.ledger.runs(callback.key) == 1
        assert ("ValueError" in (row.output or "")) == (state == "failed")


def test_sidecar_that_fails_does_not_fail_the_callback(scenario: Scenario) -> None:
    scenario.template["spec"]["containers"].append(beside(scenario, "broken", "raise SystemExit(1)"))
    scenario.write_template(scenario.template)
    (callback,) = scenario.miss("succeed", sleep=3)
    scenario.start_scheduler()
    scenario.wait_for_state(callback, "success")
    assert scenario.ledger.runs(callback.key) == 1


@pytest.mark.extended
def test_storm_of_alerts_leaves_slots_to_tasks(scenario: Scenario) -> None:
    callbacks = scenario.miss("succeed", count=6, sleep=30)
    scenario.start_scheduler(config={"core.parallelism": 4, "kubernetes_callbacks.max_active_callbacks": 2})
    wait_for(
        "two callbacks run", lambda: len(scenario.begun(callbacks)) == 2, 240, otherwise=scenario.describe
    )
    run = scenario.run_dag("some_tasks")
    scenario.wait_for_run(run)
    assert len(scenario.launched_callbacks()) < len(callbacks), "the tasks were to be done before the storm"
    scenario.wait_for_state(callbacks, "success", timeout=400)
    for callback in callbacks:
        assert scenario.ledger.runs(callback.key) == 1
