"""What the kubelet and the container runtime do to a pod, and what the row then says.

The local node imitates kind here: these tests are what holds the two together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubernetes_tests.scenario import Scenario


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
    assert "OOMKilled" in (row.output or "")
    assert scenario.ledger.runs(callback.key) == 1


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


def test_pod_of_a_failed_callback_is_deleted_where_that_is_asked_for(scenario: Scenario) -> None:
    (callback,) = scenario.miss("fail")
    scenario.start_scheduler(config={"kubernetes_executor.delete_worker_pods_on_failure": True})
    scenario.wait_for_state(callback, "failed")
    scenario.wait_for_no_pods()


def test_pod_of_a_successful_callback_is_kept_where_that_is_asked_for(scenario: Scenario) -> None:
    (callback,) = scenario.miss("succeed")
    scenario.start_scheduler(config={"kubernetes_executor.delete_worker_pods": False})
    scenario.wait_for_state(callback, "success")
    pod = scenario.wait_for_pod(callback, "Succeeded")
    scenario.wait_for_done_label(callback)
    assert pod["status"]["phase"] == "Succeeded"
