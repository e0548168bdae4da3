"""The node of a running callback is lost, for a while or for good, or is emptied."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from kubernetes_tests.airflow_env import wait_for
from kubernetes_tests.disruptions import assert_failed, hold, wait_for_phase, wait_until_running
from kubernetes_tests.kind import run, tool

if TYPE_CHECKING:
    from kubernetes_tests.cluster.launcher import LocalCluster
    from kubernetes_tests.scenario import MissedDeadline, Scenario

#: A cluster takes its time before it says that a node is lost.
pytestmark = pytest.mark.slow

GRACE = 2
TIMEOUT = 4
#: What a busy machine needs beyond the two.
SLACK = 10

GIVE_UP_SOON: dict[str, object] = {"kubernetes_callbacks.node_lost_timeout": TIMEOUT}


def delete_unconfirmed(scenario: Scenario, callback: MissedDeadline) -> str:
    """Delete a pod, with grace, that nobody can confirm the end of; return its node."""
    pod = scenario.wait_for_pod(callback)
    scenario.namespace.delete_pod(pod["metadata"]["name"], grace_seconds=GRACE)
    node: str = pod["spec"]["nodeName"]
    return node


def test_callback_of_a_node_that_never_answers_fails_within_the_timeout(
    scenario: Scenario, losable: LocalCluster
) -> None:
    (callback,) = scenario.miss("succeed", sleep=300)
    scheduler = scenario.start_scheduler(config={**GIVE_UP_SOON, "core.parallelism": 1})
    wait_until_running(scenario, [callback])
    losable.lose_node()
    node = delete_unconfirmed(scenario, callback)
    begin = time.monotonic()
    (row,) = scenario.wait_for_state(callback, "failed", timeout=60)
    assert GRACE + TIMEOUT - 1 <= time.monotonic() - begin < GRACE + TIMEOUT + SLACK
    assert f"was deleted and node {node} has not confirmed that" in (row.output or "")
    # nobody has confirmed it; its slot is free all the same
    assert scenario.namespace.pod_of(callback.id) is not None
    (after,) = scenario.miss("succeed")
    scenario.wait_for_pod(after, "Pending")
    losable.restore_node()
    scenario.wait_for_state(after, "success")
    scenario.wait_for_no_pods()
    assert scenario.row(callback) == row
    assert scenario.events(callback)[-1] == "failed"
    assert scenario.ledger.runs(callback.key) == 1
    assert scenario.launched_pods() == {f"callback-{one.id}-1" for one in (callback, after)}
    assert scheduler.running


def test_kubernetes_itself_deletes_the_pods_of_a_lost_node_and_their_callbacks_fail(
    scenario: Scenario, losable: LocalCluster
) -> None:
    (callback,) = scenario.miss("succeed", sleep=300)
    scenario.start_scheduler(config=GIVE_UP_SOON)
    wait_until_running(scenario, [callback])
    node = scenario.wait_for_pod(callback)["spec"]["nodeName"]
    losable.lose_node()
    (row,) = scenario.wait_for_state(callback, "failed")
    assert f"was deleted and node {node} has not confirmed that" in (row.output or "")
    losable.restore_node()
    assert_failed(scenario, [callback], "has not confirmed that", runs=1)


def test_callback_that_waited_on_a_node_that_never_answers_fails_and_is_not_launched_beside_it(
    scenario: Scenario, losable: LocalCluster
) -> None:
    hold(scenario, "on_a_node")
    (callback,) = scenario.miss("succeed")
    scenario.start_scheduler(config=GIVE_UP_SOON)
    wait_for_phase(scenario, [callback], "on_a_node")
    losable.lose_node()
    node = delete_unconfirmed(scenario, callback)
    (row,) = scenario.wait_for_state(callback, "failed", timeout=60)
    assert f"was deleted and node {node} has not confirmed that" in (row.output or "")
    assert scenario.launched_pods() == {f"callback-{callback.id}-1"}


@pytest.mark.parametrize("finalizer", [False, True], ids=["plain", "finalizer"])
def test_node_that_was_lost_while_no_scheduler_looked_is_given_up_too(
    scenario: Scenario, losable: LocalCluster, finalizer: bool
) -> None:
    config = {**GIVE_UP_SOON, "kubernetes_callbacks.pod_finalizer": finalizer}
    (callback,) = scenario.miss("succeed", sleep=300)
    scheduler = scenario.start_scheduler(config=config)
    wait_until_running(scenario, [callback])
    scheduler.kill()
    losable.lose_node()
    node = delete_unconfirmed(scenario, callback)
    scenario.start_scheduler(config=config)
    (row,) = scenario.wait_for_state(callback, "failed", timeout=60)
    assert f"was deleted and node {node} has not confirmed that" in (row.output or "")
    losable.restore_node()
    assert_failed(scenario, [callback], "has not confirmed that", runs=1)


def test_running_callback_of_a_node_that_restarts_fails_and_is_not_repeated(scenario: Scenario) -> None:
    """What ran on it has ended, and it says so itself when it is back."""
    (callback,) = scenario.miss("succeed", sleep=300)
    scenario.start_scheduler()
    wait_until_running(scenario, [callback])
    if scenario.cluster.local is not None:
        scenario.cluster.local.lose_node()
        scenario.cluster.local.restore_node()
    elif scenario.cluster.name == "kind":
        run(tool("docker"), "restart", "--time", "0", kind_node(scenario))
        wait_for("the node is ready", lambda: node_ready(scenario), 240, interval=2)
    else:
        pytest.skip("no way to stop a node of this cluster")
    (row,) = scenario.wait_for_state(callback, "failed", timeout=300)
    assert row.output
    assert scenario.ledger.runs(callback.key) == 1
    assert scenario.launched_pods() == {f"callback-{callback.id}-1"}
    (after,) = scenario.miss("succeed")
    scenario.wait_for_state(after, "success", timeout=300)


@pytest.mark.kind
def test_drained_node_gives_running_callbacks_their_grace_period(scenario: Scenario) -> None:
    """``kubectl drain`` evicts the pod; a callback that ends within its grace period has succeeded."""
    scenario.template["spec"]["terminationGracePeriodSeconds"] = 60
    scenario.write_template(scenario.template)
    (callback,) = scenario.miss("ignore_sigterm", sleep=10)
    scenario.start_scheduler()
    scenario.wait_for_begin(callback)
    node = kind_node(scenario)
    kubectl = (tool("kubectl"), "--kubeconfig", scenario.cluster.kubeconfig)
    selector = f"--pod-selector=callback-id={callback.id}"
    try:
        run(*kubectl, "drain", node, "--force", selector, "--timeout=120s")
    finally:
        run(*kubectl, "uncordon", node)
    (row,) = scenario.wait_for_state(callback, "success", "failed")
    ended = bool(scenario.ledger.entries(callback.key, "end"))
    assert (row.state == "success") == ended, row
    assert scenario.ledger.runs(callback.key) == 1


def kind_node(scenario: Scenario) -> str:
    """Return the name of kind's only node, which is that of its container too."""
    name = str(scenario.cluster.context).removeprefix("kind-")
    (node,) = run(tool("kind"), "get", "nodes", "--name", name).split()
    return node


def node_ready(scenario: Scenario) -> bool:
    try:
        (node,) = scenario.cluster.core.list_node(_request_timeout=5).items
    except Exception:
        return False
    return any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)
