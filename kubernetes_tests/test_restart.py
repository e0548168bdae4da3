"""The scheduler is killed and another one takes over: no result is lost, nothing runs twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kubernetes_tests.airflow_env import wait_for

if TYPE_CHECKING:
    from kubernetes_tests.scenario import MissedDeadline, Scenario


def owner(scenario: Scenario, callback: MissedDeadline) -> str:
    pod = scenario.namespace.pod_of(callback.id)
    assert pod is not None
    label: str = pod["metadata"]["labels"]["airflow-worker"]
    return label


def assert_once(scenario: Scenario, *callbacks: MissedDeadline) -> None:
    for callback in callbacks:
        assert scenario.ledger.runs(callback.key) == 1
    pods = [name for name in scenario.launched_pods() if name.startswith("callback-")]
    assert sorted(pods) == sorted(f"callback-{callback.id}-1" for callback in callbacks)


def test_pending_pod_of_a_killed_scheduler_is_adopted(scenario: Scenario) -> None:
    scenario.hold_pods()
    (callback,) = scenario.miss("succeed")
    scheduler = scenario.start_scheduler()
    scenario.wait_for_pod(callback, "Pending")
    first_owner = owner(scenario, callback)
    scheduler.kill()

    scenario.start_scheduler()
    wait_for(
        "the pod has another owner",
        lambda: owner(scenario, callback) != first_owner,
        otherwise=scenario.describe,
    )
    scenario.release_pods()
    scenario.wait_for_state(callback, "success")
    scenario.wait_for_no_pods()
    assert_once(scenario, callback)


@pytest.mark.parametrize(
    ("function", "state"),
    [("succeed", "success"), pytest.param("fail", "failed", marks=pytest.mark.extended)],
)
def test_running_pod_of_a_killed_scheduler_is_adopted(scenario: Scenario, function: str, state: str) -> None:
    (callback,) = scenario.miss(function, sleep=15)
    scheduler = scenario.start_scheduler()
    scenario.wait_for_begin(callback)
    first_owner = owner(scenario, callback)
    scheduler.kill()

    scenario.start_scheduler()
    wait_for(
        "the pod has another owner, or is gone",
        lambda: scenario.namespace.pod_of(callback.id) is None or owner(scenario, callback) != first_owner,
        otherwise=scenario.describe,
    )
    scenario.wait_for_state(callback, state)
    scenario.wait_for_clean_up(callback)
    assert scenario.events(callback)[-1] == state
    assert_once(scenario, callback)


@pytest.mark.parametrize(
    ("function", "phase", "state", "text"),
    [
        ("succeed", "Succeeded", "success", None),
        pytest.param(
            *("fail", "Failed", "failed", "ValueError: the webhook refused the alert"),
            marks=pytest.mark.extended,
        ),
    ],
)
def test_result_of_a_pod_that_ended_while_no_scheduler_ran_is_recorded(
    scenario: Scenario, function: str, phase: str, state: str, text: str | None
) -> None:
    (callback,) = scenario.miss(function, sleep=3)
    scheduler = scenario.start_scheduler()
    scenario.wait_for_begin(callback)
    scheduler.kill()
    scenario.wait_for_pod(callback, phase)

    scenario.start_scheduler()
    (row,) = scenario.wait_for_state(callback, state)
    if text:
        assert text in (row.output or "")
    scenario.wait_for_clean_up(callback)
    assert_once(scenario, callback)


@pytest.mark.extended
def test_pod_that_lost_its_labels_while_no_scheduler_ran_is_found_by_its_name(scenario: Scenario) -> None:
    (callback,) = scenario.miss("succeed", sleep=20)
    scheduler = scenario.start_scheduler()
    scenario.wait_for_begin(callback)
    scenario.wait_for_state(callback, "running")
    scheduler.kill()
    name = scenario.wait_for_pod(callback)["metadata"]["name"]
    labels = ("airflow-worker", "airflow-workload-type", "callback-id", "callback-attempt")
    scenario.namespace.patch_pod(name, {"metadata": {"labels": dict.fromkeys(labels)}})
    assert not scenario.namespace.callback_pods()

    scenario.start_scheduler()
    scenario.wait_for_state(callback, "success")
    wait_for(
        "the pod is gone",
        lambda: name not in {pod["metadata"]["name"] for pod in scenario.namespace.pods()},
        otherwise=scenario.describe,
    )
    assert "is not in the list of pods, and is there" in scenario.scheduler_logs()
    assert_once(scenario, callback)


@pytest.mark.extended
def test_pod_that_was_deleted_while_no_scheduler_ran_fails_its_callback(scenario: Scenario) -> None:
    (callback,) = scenario.miss("succeed", sleep=60)
    scheduler = scenario.start_scheduler()
    scenario.wait_for_begin(callback)
    scenario.wait_for_state(callback, "running")
    scheduler.kill()
    pod = scenario.wait_for_pod(callback)
    scenario.namespace.delete_pod(pod["metadata"]["name"], grace_seconds=0)
    wait_for("the pod is gone", lambda: scenario.namespace.pod_of(callback.id) is None)

    scenario.start_scheduler()
    (row,) = scenario.wait_for_state(callback, "failed")
    assert "disappeared" in (row.output or "")
    assert scenario.ledger.runs(callback.key) == 1


@pytest.mark.extended
def test_callbacks_that_waited_for_a_slot_are_launched_by_the_next_scheduler(scenario: Scenario) -> None:
    callbacks = scenario.miss("succeed", count=5, sleep=8)
    scheduler = scenario.start_scheduler(config={"core.parallelism": 2})
    wait_for("two callbacks run", lambda: len(scenario.begun(callbacks)) == 2, 90)
    assert len(scenario.namespace.callback_pods()) <= 2
    scheduler.kill()

    scenario.start_scheduler()
    scenario.wait_for_state(callbacks, "success", timeout=180)
    scenario.wait_for_no_pods()
    assert_once(scenario, *callbacks)


@pytest.mark.extended
def test_scheduler_that_is_asked_to_end_leaves_its_callbacks_to_the_next(scenario: Scenario) -> None:
    callbacks = scenario.miss("succeed", count=3, sleep=5)
    scheduler = scenario.start_scheduler(config={"core.parallelism": 1})
    scenario.wait_for_pod(callbacks[0])
    scheduler.terminate(60)

    scenario.start_scheduler()
    scenario.wait_for_state(callbacks, "success", timeout=180)
    scenario.wait_for_no_pods()
    assert_once(scenario, *callbacks)
