"""Pods are taken away in each phase of their life, while the scheduler looks and while it is away.

The same deeds for each phase: deletion with and without a grace period, and the eviction API. With
``pod_finalizer`` what a pod had come to outlives them; without it, a loss that nobody saw is told as such.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client

from kubernetes_tests.airflow_env import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubernetes_tests.scenario import MissedDeadline, Scenario

#: Every deed in every phase: a quarter of an hour.
pytestmark = pytest.mark.slow

FINALIZER: dict[str, object] = {"kubernetes_callbacks.pod_finalizer": True}


def delete(scenario: Scenario, pod: str) -> None:
    scenario.namespace.delete_pod(pod)


def delete_at_once(scenario: Scenario, pod: str) -> None:
    scenario.namespace.delete_pod(pod, grace_seconds=0)


def evict(scenario: Scenario, pod: str) -> None:
    namespace = scenario.namespace.name
    eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name=pod, namespace=namespace))
    scenario.cluster.core.create_namespaced_pod_eviction(pod, namespace, eviction)


DEEDS: tuple[Callable[[Scenario, str], None], ...] = (delete, delete_at_once, evict)


def name_of(scenario: Scenario, callback: MissedDeadline) -> str:
    return str(scenario.wait_for_pod(callback)["metadata"]["name"])


def disrupt(scenario: Scenario, callbacks: list[MissedDeadline]) -> None:
    """Do each deed to the pod of one callback."""
    for deed, callback in zip(DEEDS, callbacks, strict=True):
        deed(scenario, name_of(scenario, callback))


def wait_until_kept_or_gone(scenario: Scenario, callbacks: list[MissedDeadline], *, kept: bool) -> None:
    """Wait until every pod is gone, or has ended and is kept by the finalizer."""

    def settled(callback: MissedDeadline) -> bool:
        pod = scenario.namespace.pod_of(callback.id)
        if not kept or pod is None:
            return pod is None and not kept
        ended = pod["status"].get("phase") in ("Succeeded", "Failed") or not pod["spec"].get("nodeName")
        return bool(pod["metadata"].get("deletionTimestamp")) and ended

    wait_for(
        "the pods are kept" if kept else "the pods are gone",
        lambda: all(settled(callback) for callback in callbacks),
        otherwise=scenario.describe,
    )


def hold_on_a_node(scenario: Scenario) -> None:
    """Have pods wait on their node, in an init container, until :func:`release`."""
    scenario.template["spec"]["initContainers"] = [
        {
            **{key: scenario.base_container[key] for key in ("image", "imagePullPolicy")},
            "name": "wait",
            "command": ["sleep", "600"],
        }
    ]
    scenario.write_template(scenario.template)


def release(scenario: Scenario) -> None:
    """Let new pods begin; those that are held stay held."""
    scenario.template["spec"].pop("initContainers", None)
    scenario.release_template()


def on_a_node(scenario: Scenario, callback: MissedDeadline) -> bool:
    pod: dict[str, Any] = scenario.namespace.pod_of(callback.id) or {"status": {}}
    return any("running" in status["state"] for status in pod["status"].get("initContainerStatuses", []))


def hold(scenario: Scenario, phase: str) -> None:
    """Have pods come no further than to a phase before their callback begins."""
    if phase == "unscheduled":
        scenario.hold_pods()
    else:
        hold_on_a_node(scenario)


def wait_for_phase(scenario: Scenario, callbacks: list[MissedDeadline], phase: str) -> None:
    for callback in callbacks:
        scenario.wait_for_pod(callback, "Pending")
        if phase == "on_a_node":
            wait_for("it waits on its node", lambda one=callback: on_a_node(scenario, one))  # type: ignore[misc]


def assert_launched_again(scenario: Scenario, callbacks: list[MissedDeadline]) -> None:
    scenario.wait_for_state(callbacks, "success", timeout=240)
    for callback in callbacks:
        assert scenario.ledger.runs(callback.key) == 1
    scenario.wait_for_no_pods()


def assert_failed(scenario: Scenario, callbacks: list[MissedDeadline], *, runs: int, words: str = "") -> None:
    for row in scenario.wait_for_state(callbacks, "failed", timeout=240):
        assert words in (row.output or ""), row
        assert row.output
    for callback in callbacks:
        assert scenario.ledger.runs(callback.key) == runs
        scenario.wait_for_clean_up(callback)
        pods = {name for name in scenario.launched_pods() if callback.id in name}
        assert pods == {f"callback-{callback.id}-1"}


# --- while the scheduler looks ---


@pytest.mark.parametrize("finalizer", [False, True], ids=["plain", "finalizer"])
@pytest.mark.parametrize("phase", ["unscheduled", "on_a_node"])
def test_callback_whose_pod_goes_before_it_begins_is_launched_again(
    scenario: Scenario, phase: str, finalizer: bool
) -> None:
    hold(scenario, phase)
    scenario.start_scheduler(config=FINALIZER if finalizer else {})
    callbacks = scenario.miss("succeed", count=len(DEEDS))
    wait_for_phase(scenario, callbacks, phase)
    release(scenario)
    disrupt(scenario, callbacks)
    assert_launched_again(scenario, callbacks)


@pytest.mark.parametrize("finalizer", [False, True], ids=["plain", "finalizer"])
def test_callback_whose_pod_goes_while_it_runs_fails_and_is_not_repeated(
    scenario: Scenario, finalizer: bool
) -> None:
    scenario.start_scheduler(config=FINALIZER if finalizer else {})
    callbacks = scenario.miss("succeed", count=len(DEEDS), sleep=300)
    for callback in callbacks:
        scenario.wait_for_begin(callback)
    disrupt(scenario, callbacks)
    assert_failed(scenario, callbacks, runs=1)


# --- while it is away ---


@pytest.mark.parametrize("phase", ["unscheduled", "on_a_node"])
def test_pod_that_went_unseen_before_it_began_is_not_taken_for_one_that_did(
    scenario: Scenario, airflow_version: tuple[int, ...], phase: str
) -> None:
    """3.3: nobody can say whether it began. Later the row says so: a pod that begins writes RUNNING itself."""
    hold(scenario, phase)
    scheduler = scenario.start_scheduler()
    callbacks = scenario.miss("succeed", count=len(DEEDS))
    wait_for_phase(scenario, callbacks, phase)
    release(scenario)
    scheduler.kill()
    disrupt(scenario, callbacks)
    wait_until_kept_or_gone(scenario, callbacks, kept=False)
    scenario.start_scheduler()
    if airflow_version < (3, 4):
        assert_failed(scenario, callbacks, runs=0, words="nobody saw how it ended")
    else:
        assert_launched_again(scenario, callbacks)


@pytest.mark.parametrize("phase", ["unscheduled", "on_a_node"])
def test_finalizer_tells_that_a_pod_that_went_had_not_begun(scenario: Scenario, phase: str) -> None:
    hold(scenario, phase)
    scheduler = scenario.start_scheduler(config=FINALIZER)
    callbacks = scenario.miss("succeed", count=len(DEEDS))
    wait_for_phase(scenario, callbacks, phase)
    release(scenario)
    scheduler.kill()
    disrupt(scenario, callbacks)
    wait_until_kept_or_gone(scenario, callbacks, kept=True)
    scenario.start_scheduler(config=FINALIZER)
    assert_launched_again(scenario, callbacks)


@pytest.mark.parametrize("finalizer", [False, True], ids=["plain", "finalizer"])
def test_callback_that_was_ended_unseen_while_it_ran_fails_and_is_not_repeated(
    scenario: Scenario, finalizer: bool
) -> None:
    config = FINALIZER if finalizer else {}
    scheduler = scenario.start_scheduler(config=config)
    callbacks = scenario.miss("succeed", count=len(DEEDS), sleep=300)
    for callback in callbacks:
        scenario.wait_for_begin(callback)
    scenario.wait_for_state(callbacks, "running")
    scheduler.kill()
    disrupt(scenario, callbacks)
    wait_until_kept_or_gone(scenario, callbacks, kept=finalizer)
    scenario.start_scheduler(config=config)
    assert_failed(scenario, callbacks, runs=1, words="Ran and failed" if finalizer else "disappeared")


def finish_unseen(scenario: Scenario, config: dict[str, object]) -> list[MissedDeadline]:
    """Have callbacks succeed while no scheduler runs."""
    scheduler = scenario.start_scheduler(config=config)
    callbacks = scenario.miss("succeed", count=len(DEEDS), sleep=8)
    for callback in callbacks:
        scenario.wait_for_begin(callback)
    scenario.wait_for_state(callbacks, "running")
    scheduler.kill()
    for callback in callbacks:
        scenario.wait_for_pod(callback, "Succeeded")
    return callbacks


def test_result_of_a_pod_that_went_unseen_is_lost_without_a_finalizer_and_told_as_such(
    scenario: Scenario,
) -> None:
    callbacks = finish_unseen(scenario, {})
    disrupt(scenario, callbacks)
    wait_until_kept_or_gone(scenario, callbacks, kept=False)
    scenario.start_scheduler()
    assert_failed(scenario, callbacks, runs=1, words="disappeared")


def test_finalizer_keeps_the_result_of_a_pod_until_it_is_recorded(scenario: Scenario) -> None:
    callbacks = finish_unseen(scenario, FINALIZER)
    disrupt(scenario, callbacks)
    wait_until_kept_or_gone(scenario, callbacks, kept=True)
    # the option may be off again: pods that have the finalizer are let go all the same
    scenario.start_scheduler()
    assert_launched_again(scenario, callbacks)
    for callback in callbacks:
        assert f"callback-{callback.id}-2" not in scenario.launched_pods()


def test_finalizer_keeps_the_result_of_a_pod_whose_node_is_lost(scenario: Scenario) -> None:
    local = scenario.cluster.local
    if local is None:
        pytest.skip("only the local cluster can lose its node")
    callbacks = finish_unseen(scenario, FINALIZER)
    local.lose_node()
    try:
        wait_until_kept_or_gone(scenario, callbacks, kept=True)
    finally:
        local.restore_node()
    scenario.start_scheduler(config=FINALIZER)
    assert_launched_again(scenario, callbacks)
