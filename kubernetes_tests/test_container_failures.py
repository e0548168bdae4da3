"""What the kubelet and the container runtime do to a pod, and what the row then says.

The local node imitates kind here: these tests are what holds the two together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kubernetes import client

from kubernetes_tests.airflow_env import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubernetes_tests.scenario import MissedDeadline, Scenario


def test_image_that_cannot_be_pulled(scenario: Scenario) -> None:
    scenario.base_container["imagePullPolicy"] = "IfNotPresent"
    scenario.write_template(scenario.template)
    (callback,) = scenario.miss("succeed")
    scenario.start_scheduler(
        config={
            "kubernetes_callbacks.image": "offline.invalid/absent:1",
            "kubernetes_callbacks.launch_retries": 1,
        }
    )
    (row,) = scenario.wait_for_state(callback, "failed")
    output = row.output or ""
    assert "ErrImagePull" in output or "ImagePullBackOff" in output
    assert "offline.invalid/absent:1" in output
    assert "2 times" in output
    assert scenario.ledger.runs(callback.key) == 0
    scenario.wait_for_no_pods()


@pytest.mark.extended
def test_image_that_must_not_be_pulled_and_is_not_there(scenario: Scenario) -> None:
    scenario.base_container["imagePullPolicy"] = "Never"
    scenario.write_template(scenario.template)
    (callback,) = scenario.miss("succeed")
    scenario.start_scheduler(
        config={
            "kubernetes_callbacks.image": "offline.invalid/absent:1",
            "kubernetes_callbacks.launch_retries": 0,
        }
    )
    (row,) = scenario.wait_for_state(callback, "failed")
    assert "ErrImageNeverPull" in (row.output or "")
    scenario.wait_for_no_pods()


@pytest.mark.extended
def test_secret_that_the_template_wants_and_is_not_there(scenario: Scenario) -> None:
    scenario.base_container["env"].append(
        {"name": "X", "valueFrom": {"secretKeyRef": {"name": "no-such-secret", "key": "x"}}}
    )
    scenario.write_template(scenario.template)
    (callback,) = scenario.miss("succeed")
    scenario.start_scheduler(config={"kubernetes_callbacks.launch_retries": 0})
    (row,) = scenario.wait_for_state(callback, "failed")
    assert "CreateContainerConfigError" in (row.output or "")
    assert "no-such-secret" in (row.output or "")


@pytest.mark.extended
def test_pod_that_no_node_can_take(scenario: Scenario) -> None:
    scenario.template["spec"]["nodeSelector"] = {"no-such-label": "x"}
    scenario.write_template(scenario.template)
    (callback,) = scenario.miss("succeed")
    scenario.start_scheduler(
        config={"kubernetes_callbacks.launch_retries": 0, "kubernetes_callbacks.pending_timeout": 5}
    )
    (row,) = scenario.wait_for_state(callback, "failed")
    assert "Unschedulable" in (row.output or "")
    assert "node" in (row.output or "")
    scenario.wait_for_no_pods()


def test_container_that_uses_more_memory_than_its_limit(scenario: Scenario) -> None:
    scenario.base_container["resources"] = {"limits": {"memory": "512Mi"}}
    scenario.write_template(scenario.template)
    (callback,) = scenario.miss("use_memory")
    scenario.start_scheduler()
    (row,) = scenario.wait_for_state(callback, "failed")
    output = row.output or ""
    assert output.startswith("Ran and failed: ")
    assert "OOMKilled (memory limit 512Mi)" in output
    assert scenario.ledger.runs(callback.key) == 1


def test_program_that_the_image_does_not_have(scenario: Scenario) -> None:
    scenario.base_container["command"] = ["/no/such/entrypoint"]
    scenario.write_template(scenario.template)
    (callback,) = scenario.miss("succeed")
    scenario.start_scheduler(config={"kubernetes_callbacks.launch_retries": 1})
    (row,) = scenario.wait_for_state(callback, "failed")
    output = row.output or ""
    assert output.startswith("Could not start: ")
    assert "StartError" in output
    assert "/no/such/entrypoint" in output
    assert "2 times" in output
    assert scenario.ledger.runs(callback.key) == 0


@pytest.mark.extended
def test_init_container_that_fails(scenario: Scenario) -> None:
    scenario.template["spec"]["initContainers"] = [
        {
            "name": "wait-for-proxy",
            "image": scenario.cluster.image,
            "imagePullPolicy": scenario.cluster.image_pull_policy,
            "args": ["python", "-c", "raise SystemExit('no proxy here')"],
        }
    ]
    scenario.write_template(scenario.template)
    (callback,) = scenario.miss("succeed")
    scenario.start_scheduler(config={"kubernetes_callbacks.launch_retries": 0})
    (row,) = scenario.wait_for_state(callback, "failed")
    output = row.output or ""
    assert output.startswith("Could not start: init container wait-for-proxy failed: Error, exit code 1")
    assert "no proxy here" in output
    assert scenario.ledger.runs(callback.key) == 0


@pytest.mark.extended
def test_deadline_that_is_over_before_the_container_begins(scenario: Scenario) -> None:
    scenario.template["spec"]["activeDeadlineSeconds"] = 5
    scenario.base_container["imagePullPolicy"] = "IfNotPresent"
    scenario.write_template(scenario.template)
    (callback,) = scenario.miss("succeed")
    scenario.start_scheduler(
        config={
            "kubernetes_callbacks.image": "offline.invalid/absent:1",
            "kubernetes_callbacks.launch_retries": 0,
            # longer than the deadline, which is to end it
            "kubernetes_callbacks.start_error_grace": 60,
        }
    )
    (row,) = scenario.wait_for_state(callback, "failed")
    output = row.output or ""
    assert output.startswith("Could not start: ")
    assert "DeadlineExceeded" in output
    assert "offline.invalid/absent:1" in output


def assert_lost(scenario: Scenario, callback: MissedDeadline, *words: str) -> None:
    """Assert that the callback, which had begun, failed with these words and was not run again."""
    (row,) = scenario.wait_for_state(callback, "failed")
    output = row.output or ""
    assert output.startswith("Ran and failed: "), output
    for word in words:
        assert word in output, output
    assert scenario.ledger.runs(callback.key) == 1
    assert scenario.launched_pods() >= {f"callback-{callback.id}-1"}
    assert f"callback-{callback.id}-2" not in scenario.launched_pods()


@pytest.mark.extended
def test_pod_that_the_kubelet_evicts_for_its_use_of_the_disk(scenario: Scenario) -> None:
    scenario.template["spec"]["volumes"] = [{"name": "scratch", "emptyDir": {"sizeLimit": "5Mi"}}]
    scenario.base_container["volumeMounts"] = [{"name": "scratch", "mountPath": "/scratch"}]
    scenario.base_container["env"].append({"name": "SCRATCH", "value": "/scratch"})
    scenario.write_template(scenario.template)
    (callback,) = scenario.miss("use_disk", megabytes=20)
    scenario.start_scheduler()
    assert_lost(scenario, callback, 'Evicted: Usage of EmptyDir volume "scratch" exceeds the limit "5Mi"')


@pytest.mark.extended
def test_running_pod_that_outlives_its_deadline(scenario: Scenario) -> None:
    scenario.template["spec"]["activeDeadlineSeconds"] = 15
    scenario.write_template(scenario.template)
    (callback,) = scenario.miss("succeed", sleep=120)
    scenario.start_scheduler()
    assert_lost(scenario, callback, "DeadlineExceeded: Pod was active on the node longer than")


@pytest.mark.extended
def test_running_pod_that_is_evicted_through_the_api(scenario: Scenario) -> None:
    (callback,) = scenario.miss("succeed", sleep=120)
    scenario.start_scheduler()
    scenario.wait_for_begin(callback)
    name = scenario.wait_for_pod(callback)["metadata"]["name"]
    eviction = {"metadata": {"name": name, "namespace": scenario.namespace.name}}
    scenario.cluster.core.create_namespaced_pod_eviction(name, scenario.namespace.name, eviction)
    assert_lost(scenario, callback, "EvictionByEvictionAPI: Eviction API: evicting")


@pytest.fixture
def scarce_resource(scenario: Scenario) -> Iterator[dict[str, str]]:
    """One piece of a resource that no other pod asks for."""
    core = scenario.cluster.core
    # only of nodes that take ordinary pods
    (node,) = [one.metadata.name for one in core.list_node().items if not one.spec.taints]
    capacity = "/status/capacity/tests.example~1scarce"
    core.patch_node_status(node, [{"op": "add", "path": capacity, "value": "1"}])
    wait_for(
        "the node offers the resource",
        lambda: core.read_node(node).status.allocatable.get("tests.example/scarce") == "1",
        60,
    )
    yield {"tests.example/scarce": "1"}
    core.patch_node_status(node, [{"op": "remove", "path": capacity}])


@pytest.fixture
def urgent(scenario: Scenario) -> Iterator[str]:
    """A priority class above that of callbacks."""
    scheduling = client.SchedulingV1Api(scenario.cluster.core.api_client)
    name = f"urgent-{scenario.namespace.name}"
    scheduling.create_priority_class({"metadata": {"name": name}, "value": 1000})
    yield name
    scheduling.delete_priority_class(name)


@pytest.mark.extended
def test_running_pod_that_makes_room_for_a_more_important_one(
    scenario: Scenario, scarce_resource: dict[str, str], urgent: str
) -> None:
    scenario.base_container["resources"] = {"limits": scarce_resource}
    scenario.write_template(scenario.template)
    (callback,) = scenario.miss("succeed", sleep=120)
    scenario.start_scheduler()
    scenario.wait_for_begin(callback)
    container = {"name": "main", "image": scenario.cluster.image, "resources": {"limits": scarce_resource}}
    scenario.cluster.core.create_namespaced_pod(
        scenario.namespace.name,
        {
            "metadata": {"name": "more-important"},
            "spec": {"priorityClassName": urgent, "containers": [container]},
        },
    )
    assert_lost(
        scenario, callback, "PreemptionByScheduler", "preempting to accommodate a higher priority pod"
    )


def test_end_of_the_log_is_the_termination_message(scenario: Scenario) -> None:
    (callback,) = scenario.miss("fail", text="the webhook said: quota exceeded")
    scenario.start_scheduler()
    (row,) = scenario.wait_for_state(callback, "failed")
    assert "ValueError: the webhook said: quota exceeded" in (row.output or "")
    pod = scenario.wait_for_pod(callback, "Failed")
    (status,) = pod["status"]["containerStatuses"]
    terminated = status["state"]["terminated"]
    assert terminated["exitCode"] == 1
    assert terminated["reason"] == "Error"
    assert "the webhook said: quota exceeded" in terminated["message"]
    assert len(terminated["message"].encode()) <= 4096


@pytest.mark.extended
def test_pod_of_a_failed_callback_is_deleted_where_that_is_asked_for(scenario: Scenario) -> None:
    (callback,) = scenario.miss("fail")
    scenario.start_scheduler(config={"kubernetes_executor.delete_worker_pods_on_failure": True})
    scenario.wait_for_state(callback, "failed")
    scenario.wait_for_no_pods()


@pytest.mark.extended
def test_pod_of_a_successful_callback_is_kept_where_that_is_asked_for(scenario: Scenario) -> None:
    (callback,) = scenario.miss("succeed")
    scenario.start_scheduler(config={"kubernetes_executor.delete_worker_pods": False})
    scenario.wait_for_state(callback, "success")
    pod = scenario.wait_for_pod(callback, "Succeeded")
    scenario.wait_for_done_label(callback)
    assert pod["status"]["phase"] == "Succeeded"
