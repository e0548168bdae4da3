"""Pods are taken away: by a person, by an eviction, with their node. The scheduler runs all the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kubernetes import client

from kubernetes_tests.airflow_env import wait_for
from kubernetes_tests.kind import run, tool

if TYPE_CHECKING:
    from kubernetes_tests.scenario import MissedDeadline, Scenario


def launches(scenario: Scenario, callback: MissedDeadline) -> int:
    return len([name for name in scenario.launched_pods() if callback.id in name])


def running_callback(scenario: Scenario, seconds: float = 60) -> tuple[MissedDeadline, str]:
    """Start a scheduler and a callback that takes some time; return it and its pod's name when it runs."""
    (callback,) = scenario.miss("succeed", sleep=seconds)
    scenario.start_scheduler()
    scenario.wait_for_begin(callback)
    scenario.wait_for_state(callback, "running")
    pod = scenario.wait_for_pod(callback)
    return callback, pod["metadata"]["name"]


def assert_lost(scenario: Scenario, callback: MissedDeadline, *words: str) -> None:
    """Assert that the callback failed once, with a reason, and was not run again."""
    (row,) = scenario.wait_for_state(callback, "failed")
    assert any(word in (row.output or "") for word in words), row.output
    assert scenario.events(callback)[-1] == "failed"
    assert scenario.ledger.runs(callback.key) == 1
    assert launches(scenario, callback) == 1


def test_running_pod_deleted_at_once(scenario: Scenario) -> None:
    callback, pod = running_callback(scenario)
    scenario.namespace.delete_pod(pod, grace_seconds=0)
    assert_lost(scenario, callback, "disappeared", "deleted")


def test_running_pod_deleted_with_a_grace_period_that_is_too_short(scenario: Scenario) -> None:
    callback, pod = running_callback(scenario)
    scenario.namespace.delete_pod(pod, grace_seconds=2)
    assert_lost(scenario, callback, "deleted", "SIGTERM", "SIGKILL", "137", "143")


def test_pending_pod_deleted_by_a_person_is_launched_again(scenario: Scenario) -> None:
    scenario.hold_pods()
    (callback,) = scenario.miss("succeed")
    scenario.start_scheduler()
    pod = scenario.wait_for_pod(callback, "Pending")
    scenario.release_template()
    scenario.namespace.delete_pod(pod["metadata"]["name"])
    scenario.wait_for_state(callback, "success")
    assert scenario.ledger.runs(callback.key) == 1
    assert f"callback-{callback.id}-2" in scenario.launched_pods()
    scenario.wait_for_no_pods()


def test_pod_of_a_dag_run_that_is_deleted_goes_too(scenario: Scenario) -> None:
    callback, _ = running_callback(scenario)
    scenario.installation.call("delete_dag_runs")
    scenario.wait_for_no_pods()
    assert callback.id not in scenario.rows()
    assert all(scheduler.running for scheduler in scenario.schedulers)


def test_running_pod_that_is_evicted_through_the_api(scenario: Scenario) -> None:
    callback, pod = running_callback(scenario)
    scenario.cluster.core.create_namespaced_pod_eviction(
        pod,
        scenario.namespace.name,
        client.V1Eviction(metadata=client.V1ObjectMeta(name=pod, namespace=scenario.namespace.name)),
    )
    assert_lost(scenario, callback, "deleted", "evicted", "Evict", "SIGTERM", "SIGKILL", "137", "143")


def test_running_pod_that_outlives_its_active_deadline(scenario: Scenario) -> None:
    scenario.template["spec"]["activeDeadlineSeconds"] = 15
    scenario.write_template(scenario.template)
    (callback,) = scenario.miss("succeed", sleep=120)
    scenario.start_scheduler()
    assert_lost(scenario, callback, "DeadlineExceeded")


@pytest.mark.slow
def test_running_pod_of_a_node_that_is_lost(scenario: Scenario) -> None:
    """The node stops dead, and comes back: what ran on it has ended."""
    callback, _ = running_callback(scenario, 300)
    if scenario.cluster.local is not None:
        scenario.cluster.local.lose_node()
        scenario.cluster.local.restore_node()
    elif scenario.cluster.name == "kind":
        name = str(scenario.cluster.context).removeprefix("kind-")
        (node,) = run(tool("kind"), "get", "nodes", "--name", name).split()
        run(tool("docker"), "restart", "--time", "0", node)
        wait_for("the node is ready", lambda: node_ready(scenario), 240, interval=2)
    else:
        pytest.skip("no way to stop a node of this cluster")
    (row,) = scenario.wait_for_state(callback, "failed", timeout=300)
    assert row.output
    assert scenario.ledger.runs(callback.key) == 1
    assert launches(scenario, callback) == 1
    (after,) = scenario.miss("succeed")
    scenario.wait_for_state(after, "success", timeout=300)


def node_ready(scenario: Scenario) -> bool:
    try:
        (node,) = scenario.cluster.core.list_node(_request_timeout=5).items
    except Exception:
        return False
    return any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)


@pytest.mark.slow
@pytest.mark.kind
def test_drained_node_gives_running_callbacks_their_grace_period(scenario: Scenario) -> None:
    """``kubectl drain`` evicts the pod; a callback that ends within its grace period has succeeded."""
    scenario.template["spec"]["terminationGracePeriodSeconds"] = 60
    scenario.write_template(scenario.template)
    (callback,) = scenario.miss("ignore_sigterm", sleep=10)
    scenario.start_scheduler()
    scenario.wait_for_begin(callback)
    name = str(scenario.cluster.context).removeprefix("kind-")
    (node,) = run(tool("kind"), "get", "nodes", "--name", name).split()
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
