"""Ways in which a pod is taken away, and how to hold it in a phase before: for the tests of pod loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubernetes import client

from kubernetes_tests.airflow_env import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubernetes_tests.scenario import MissedDeadline, Scenario


def delete(scenario: Scenario, pod: str) -> None:
    scenario.namespace.delete_pod(pod)


def delete_at_once(scenario: Scenario, pod: str) -> None:
    scenario.namespace.delete_pod(pod, grace_seconds=0)


def evict(scenario: Scenario, pod: str) -> None:
    """Ask for an eviction, as ``kubectl drain`` does."""
    namespace = scenario.namespace.name
    eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name=pod, namespace=namespace))
    scenario.cluster.core.create_namespaced_pod_eviction(pod, namespace, eviction)


#: What people and tools do to a pod. A test does each of them to the pod of one callback.
DEEDS: tuple[Callable[[Scenario, str], None], ...] = (delete, delete_at_once, evict)
#: What the rows of running callbacks say of them, where the end of the pod was seen.
SEEN = ("deleted", "deleted", "Eviction")


def pod_name(scenario: Scenario, callback: MissedDeadline) -> str:
    return str(scenario.wait_for_pod(callback)["metadata"]["name"])


def disrupt(scenario: Scenario, callbacks: list[MissedDeadline]) -> None:
    """Do each deed to the pod of one callback."""
    for deed, callback in zip(DEEDS, callbacks, strict=True):
        deed(scenario, pod_name(scenario, callback))


# --- phases ---

#: How far a pod can be held back before its callback begins.
HELD_PHASES = ("unscheduled", "on_a_node")


def hold(scenario: Scenario, phase: str) -> None:
    """Have new pods come no further than to this phase: without a node, or in an init container there."""
    if phase == "unscheduled":
        scenario.hold_pods()
        return
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


def wait_for_phase(scenario: Scenario, callbacks: list[MissedDeadline], phase: str) -> None:
    for callback in callbacks:
        scenario.wait_for_pod(callback, "Pending", timeout=120)  # the scheduler may be just starting
        if phase == "on_a_node":
            wait_for(
                "it waits on its node",
                lambda one=callback: _on_a_node(scenario, one),  # type: ignore[misc]
                otherwise=scenario.describe,
            )


def _on_a_node(scenario: Scenario, callback: MissedDeadline) -> bool:
    pod: dict[str, Any] = scenario.namespace.pod_of(callback.id) or {"status": {}}
    return any("running" in status["state"] for status in pod["status"].get("initContainerStatuses", []))


def wait_until_running(scenario: Scenario, callbacks: list[MissedDeadline]) -> None:
    """Wait until the callbacks have begun and their rows say so."""
    for callback in callbacks:
        scenario.wait_for_begin(callback)
    scenario.wait_for_state(callbacks, "running")


def wait_until_gone(scenario: Scenario, callbacks: list[MissedDeadline]) -> None:
    wait_for(
        "the pods are gone",
        lambda: all(scenario.namespace.pod_of(callback.id) is None for callback in callbacks),
        otherwise=scenario.describe,
    )


# --- what becomes of the callbacks ---


def assert_succeeded(scenario: Scenario, callbacks: list[MissedDeadline], *, attempt: int) -> None:
    """Assert that each ran once, in the pod of this attempt, and that nothing is left."""
    scenario.wait_for_state(callbacks, "success", timeout=240)
    scenario.wait_for_no_pods()
    for callback in callbacks:
        assert scenario.ledger.runs(callback.key) == 1
        assert scenario.events(callback)[-1] == "success"
    # of earlier pods the cluster may know nothing: one that was never scheduled leaves no event
    earlier = {f"callback-{one.id}-{number}" for one in callbacks for number in range(1, attempt)}
    assert scenario.launched_pods() - earlier == {f"callback-{one.id}-{attempt}" for one in callbacks}


def assert_failed(scenario: Scenario, callbacks: list[MissedDeadline], *words: str, runs: int) -> None:
    """Assert that each failed, once, with its words or with those of all, and was not launched again."""
    rows = scenario.wait_for_state(callbacks, "failed", timeout=240)
    each = words if len(words) > 1 else words * len(callbacks)
    for callback, row, expected in zip(callbacks, rows, each, strict=True):
        assert expected in (row.output or ""), row
        assert scenario.events(callback)[-1] == "failed"
        assert scenario.ledger.runs(callback.key) == runs
        scenario.wait_for_clean_up(callback)
    assert scenario.launched_pods() <= {f"callback-{callback.id}-1" for callback in callbacks}
