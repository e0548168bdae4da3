"""``pod_finalizer``: what a pod had come to outlives whoever takes the pod away, until it is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kubernetes_tests.airflow_env import wait_for
from kubernetes_tests.disruptions import (
    DEEDS,
    HELD_PHASES,
    SEEN,
    assert_failed,
    assert_succeeded,
    disrupt,
    hold,
    pod_name,
    release,
    wait_for_phase,
    wait_until_gone,
    wait_until_running,
)
from kubernetes_tests.test_cli import CommandLine

if TYPE_CHECKING:
    from kubernetes_tests.cluster.launcher import LocalCluster
    from kubernetes_tests.scenario import MissedDeadline, Scenario

#: Each starts a scheduler or two, and waits for Kubernetes' own clean-up.
pytestmark = pytest.mark.slow

FINALIZER: dict[str, object] = {"kubernetes_callbacks.pod_finalizer": True}

#: As documented, for the pods of an executor that is gone for good (``kubectl patch --type=json``).
WAY_OUT = [{"op": "remove", "path": "/metadata/finalizers"}]


def finish_unseen(scenario: Scenario, count: int = 1) -> list[MissedDeadline]:
    """Have callbacks succeed while no scheduler runs."""
    callbacks = scenario.miss("succeed", count=count, sleep=8)
    scheduler = scenario.start_scheduler(config=FINALIZER)
    wait_until_running(scenario, callbacks)
    scheduler.kill()
    for callback in callbacks:
        scenario.wait_for_pod(callback, "Succeeded")
    return callbacks


def wait_until_kept(scenario: Scenario, callbacks: list[MissedDeadline], timeout: float = 120.0) -> None:
    """Wait until every pod is to be deleted, has no process any more, and is kept by its finalizer."""

    def kept(pod: dict[str, Any] | None) -> bool:
        assert pod is not None, scenario.describe()
        ended = pod["status"].get("phase") in ("Succeeded", "Failed") or not pod["spec"].get("nodeName")
        return bool(pod["metadata"].get("deletionTimestamp")) and ended

    wait_for(
        "the pods are kept",
        lambda: all(kept(scenario.namespace.pod_of(callback.id)) for callback in callbacks),
        timeout,
        otherwise=scenario.describe,
    )


# --- while the scheduler looks: all is as without it ---


@pytest.mark.parametrize("phase", HELD_PHASES)
def test_callback_whose_pod_goes_before_it_begins_is_launched_again(scenario: Scenario, phase: str) -> None:
    hold(scenario, phase)
    callbacks = scenario.miss("succeed", count=len(DEEDS))
    scenario.start_scheduler(config=FINALIZER)
    wait_for_phase(scenario, callbacks, phase)
    release(scenario)
    disrupt(scenario, callbacks)
    assert_succeeded(scenario, callbacks, attempt=2)


def test_callback_whose_pod_goes_while_it_runs_fails_and_is_not_repeated(scenario: Scenario) -> None:
    callbacks = scenario.miss("succeed", count=len(DEEDS), sleep=300)
    scenario.start_scheduler(config=FINALIZER)
    wait_until_running(scenario, callbacks)
    disrupt(scenario, callbacks)
    assert_failed(scenario, callbacks, *SEEN, runs=1)


def test_pod_of_a_dag_run_that_is_deleted_goes_too(scenario: Scenario) -> None:
    callbacks = scenario.miss("succeed", sleep=60)
    scenario.start_scheduler(config=FINALIZER)
    wait_until_running(scenario, callbacks)
    scenario.installation.call("delete_dag_runs")
    scenario.wait_for_no_pods()


# --- while it is away ---


@pytest.mark.parametrize("phase", HELD_PHASES)
def test_pod_that_went_unseen_tells_that_it_had_not_begun(scenario: Scenario, phase: str) -> None:
    hold(scenario, phase)
    callbacks = scenario.miss("succeed", count=len(DEEDS))
    scheduler = scenario.start_scheduler(config=FINALIZER)
    wait_for_phase(scenario, callbacks, phase)
    release(scenario)
    scheduler.kill()
    disrupt(scenario, callbacks)
    wait_until_kept(scenario, callbacks)
    scenario.start_scheduler(config=FINALIZER)
    assert_succeeded(scenario, callbacks, attempt=2)


def test_callback_that_was_ended_unseen_while_it_ran_fails_with_the_reason(scenario: Scenario) -> None:
    callbacks = scenario.miss("succeed", count=len(DEEDS), sleep=300)
    scheduler = scenario.start_scheduler(config=FINALIZER)
    wait_until_running(scenario, callbacks)
    scheduler.kill()
    disrupt(scenario, callbacks)
    wait_until_kept(scenario, callbacks)
    scenario.start_scheduler(config=FINALIZER)
    assert_failed(scenario, callbacks, *SEEN, runs=1)


def test_result_outlives_deletion_and_eviction(scenario: Scenario) -> None:
    callbacks = finish_unseen(scenario, len(DEEDS))
    disrupt(scenario, callbacks)
    wait_until_kept(scenario, callbacks)
    # the option may be off again: pods that have the finalizer are let go all the same
    scenario.start_scheduler()
    assert_succeeded(scenario, callbacks, attempt=1)


def test_result_outlives_the_loss_of_the_node(scenario: Scenario, losable: LocalCluster) -> None:
    callbacks = finish_unseen(scenario)
    losable.lose_node()
    wait_until_kept(scenario, callbacks)
    losable.restore_node()
    scenario.start_scheduler(config=FINALIZER)
    assert_succeeded(scenario, callbacks, attempt=1)


def test_result_outlives_the_garbage_collection_of_the_pods_of_a_node_that_was_removed(
    scenario: Scenario, losable: LocalCluster
) -> None:
    """The machine is gone and somebody, or a cloud's controller, deletes the node: pod GC is forced."""
    callbacks = finish_unseen(scenario)
    pod = scenario.wait_for_pod(callbacks[0])
    losable.lose_node()
    scenario.cluster.core.delete_node(pod["spec"]["nodeName"])
    # Kubernetes looks every 20 seconds and gives a node 40 seconds to come back
    wait_until_kept(scenario, callbacks, timeout=180)
    scenario.start_scheduler(config=FINALIZER)
    assert_succeeded(scenario, callbacks, attempt=1)


# --- the way out ---


def test_pod_of_an_executor_that_is_gone_goes_when_its_finalizer_is_taken_off_by_hand(
    scenario: Scenario,
) -> None:
    callbacks = finish_unseen(scenario)
    pod = pod_name(scenario, callbacks[0])
    scenario.namespace.delete_pod(pod)
    wait_until_kept(scenario, callbacks)
    scenario.namespace.patch_pod(pod, WAY_OUT)
    wait_until_gone(scenario, callbacks)
    # and if a scheduler comes after all, it says that the result is lost
    scenario.start_scheduler()
    assert_failed(scenario, callbacks, "disappeared while running", runs=1)


@pytest.mark.parametrize("deleted", [False, True], ids=["finished", "deleted_already"])
def test_gc_removes_the_pod_of_a_callback_that_is_no_more(scenario: Scenario, deleted: bool) -> None:
    callbacks = finish_unseen(scenario)
    scenario.installation.call("delete_dag_runs")
    if deleted:
        scenario.namespace.delete_pod(pod_name(scenario, callbacks[0]))
        wait_until_kept(scenario, callbacks)
    done = CommandLine(scenario)("gc", "--older-than", "0s", "--yes", "--output", "json")
    assert done.status == 0, done.out + done.err
    assert [row["name"] for row in done.json if row["kind"] == "pod"] == [f"callback-{callbacks[0].id}-1"]
    wait_until_gone(scenario, callbacks)
