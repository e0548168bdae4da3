"""What happens to pods when something happens to the cluster: the node, its memory, the API server."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from kubernetes import watch
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from kubernetes_tests.cluster.pods import container, pod, terminated, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubernetes_tests.cluster.launcher import LocalCluster
    from kubernetes_tests.cluster.pods import Namespace

pytestmark = pytest.mark.extended

pytest_plugins = ["kubernetes_tests.cluster.fixtures"]

LONG = "sleep 300"
NODE = "127.0.0.1"


@pytest.fixture
def losable(local_cluster: LocalCluster) -> Iterator[LocalCluster]:
    """The cluster, with its node and its API server back at the end."""
    yield local_cluster
    local_cluster.start_apiserver()
    local_cluster.restore_node()


def _ready(namespace: Namespace) -> str:
    node = namespace.core.read_node(NODE)
    status: str = next(condition.status for condition in node.status.conditions if condition.type == "Ready")
    return status


def test_pods_of_a_lost_node_are_given_up_and_go_when_it_is_back(
    namespace: Namespace, losable: LocalCluster
) -> None:
    namespace.create(pod("lost", container("base", LONG)))
    namespace.wait_for_phase("lost", "Running")
    losable.lose_node()
    until("the node is not ready", lambda: _ready(namespace) == "Unknown")
    # Nobody is there who could say that the pod has ended.
    deleted = namespace.wait("lost", lambda pod: pod["metadata"].get("deletionTimestamp"))
    assert deleted["status"]["phase"] == "Running"
    conditions = {condition["type"]: condition for condition in deleted["status"]["conditions"]}
    assert conditions["Ready"]["status"] == "False"
    assert conditions["DisruptionTarget"]["reason"] == "DeletionByTaintManager"
    losable.restore_node()
    namespace.wait_until_gone("lost")


def test_pod_of_a_node_that_restarts_fails_and_is_not_run_again(
    namespace: Namespace, losable: LocalCluster
) -> None:
    namespace.create(pod("reboot", container("base", f"echo started; {LONG}")))
    namespace.wait_for_log("reboot", "started")
    losable.lose_node()
    losable.restore_node()
    ended = namespace.wait_for_end("reboot")
    assert ended["status"]["phase"] == "Failed"
    assert terminated(ended)["exitCode"] == 255
    assert terminated(ended)["reason"] == "Unknown"
    assert namespace.log("reboot").split() == ["started"]


def test_forced_deletion_works_while_the_node_is_lost(namespace: Namespace, losable: LocalCluster) -> None:
    namespace.create(pod("stuck", container("base", LONG)))
    namespace.wait_for_phase("stuck", "Running")
    losable.lose_node()
    namespace.delete("stuck")
    time.sleep(1)
    assert namespace.pod("stuck") is not None
    namespace.delete("stuck", 0)
    namespace.wait_until_gone("stuck", 2)


def test_pod_created_while_the_node_is_lost_runs_when_it_is_back(
    namespace: Namespace, losable: LocalCluster
) -> None:
    losable.lose_node()
    namespace.create(pod("waits", container("base", "exit 0")))
    time.sleep(1)
    assert (namespace.pod("waits") or {})["status"]["phase"] == "Pending"
    losable.restore_node()
    assert namespace.wait_for_end("waits")["status"]["phase"] == "Succeeded"


def test_evicted_pod_fails_and_others_stay(namespace: Namespace, local_cluster: LocalCluster) -> None:
    requests = {"requests": {"memory": "1Mi"}}
    namespace.create(pod("victim", container("base", LONG, resources=requests)))
    namespace.create(pod("bystander", container("base", LONG)))
    namespace.wait_for_phase("victim", "Running")
    namespace.wait_for_phase("bystander", "Running")
    local_cluster.evict(namespace.name, "victim")
    evicted = namespace.wait_for_end("victim")
    assert evicted["status"]["phase"] == "Failed"
    assert evicted["status"]["reason"] == "Evicted"
    assert evicted["status"]["message"].startswith("The node was low on resource: memory.")
    assert (namespace.pod("bystander") or {})["status"]["phase"] == "Running"
    namespace.wait_for_event("victim", "Evicted")
    local_cluster.wait_for_node()


def test_containers_outlive_the_api_server(namespace: Namespace, losable: LocalCluster) -> None:
    namespace.create(pod("lasting", container("base", "sleep 4; echo end")))
    namespace.wait_for_phase("lasting", "Running")
    losable.restart_apiserver()
    ended = namespace.wait_for_end("lasting")
    assert terminated(ended)["exitCode"] == 0
    assert namespace.log("lasting") == "end\n"


def test_watch_ends_with_the_api_server_and_cannot_be_resumed_from_before(
    namespace: Namespace, losable: LocalCluster
) -> None:
    namespace.create(pod("seen", container("base", LONG)))
    namespace.wait_for_phase("seen", "Running")
    pods = namespace.core.list_namespaced_pod
    version = pods(namespace.name).metadata.resource_version
    ended: list[BaseException | None] = []

    def follow() -> None:
        stream = pods(namespace.name, watch=True, resource_version=version, _preload_content=False)
        try:
            for _ in stream.stream():
                pass
        except HTTPError as error:
            ended.append(error)
        else:
            ended.append(None)
        finally:
            stream.close()

    follower = threading.Thread(target=follow)
    follower.start()
    # Changes that only the API server which is about to end has in its cache.
    for number in range(3):
        name = {"metadata": {"name": f"later-{number}"}}
        namespace.core.create_namespaced_config_map(namespace.name, name)
    time.sleep(0.5)
    losable.stop_apiserver()
    follower.join(10)
    assert len(ended) == 1
    losable.start_apiserver()
    # Its cache begins anew, at a version that is later than the watch's.
    with pytest.raises(ApiException) as raised:
        list(watch.Watch().stream(pods, namespace.name, resource_version=version, timeout_seconds=5))
    assert raised.value.status == 410
    newer = pods(namespace.name).metadata.resource_version
    namespace.delete("seen", 0)
    stream = watch.Watch().stream(pods, namespace.name, resource_version=newer, timeout_seconds=10)
    deleted = next(event for event in stream if event["type"] == "DELETED")
    stream.close()
    assert deleted["raw_object"]["metadata"]["name"] == "seen"
