"""Requests about callback pods: what is sent, with which preconditions, and what the answers become."""

from __future__ import annotations

import contextlib
import itertools
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from kubernetes import client, config
from kubernetes.client.rest import ApiException
from urllib3.exceptions import MaxRetryError, NewConnectionError
from urllib3.util import Retry

from airflow_kubernetes_callbacks import pod_client
from airflow_kubernetes_callbacks.api_errors import classify
from airflow_kubernetes_callbacks.errors import SecretTakenError
from airflow_kubernetes_callbacks.identity import OWNER_LABEL, RESULT_FINALIZER
from airflow_kubernetes_callbacks.outcome import pod_view
from airflow_kubernetes_callbacks.pod_client import PodClient
from tests.fakes.life import pod_document, pod_of

ID = "018f0000-0000-7000-8000-00000000000a"


@pytest.fixture
def core(api_server, tmp_path):
    configuration = client.Configuration()
    config.load_kube_config(
        str(api_server.write_kubeconfig(tmp_path / "kubeconfig")), client_configuration=configuration
    )
    configuration.retries = False
    with client.ApiClient(configuration) as api_client:
        yield client.CoreV1Api(api_client)


@pytest.fixture
def pods(core):
    return PodClient(core, namespaces=["airflow"])


def view_of(pod):
    view = pod_view(pod)
    assert view is not None
    return view


def ids(number):
    return [f"018f0000-0000-7000-8000-{index:012}" for index in range(number)]


# Lists ----------------------------------------------------------------------------------------------


def test_g6_list_is_complete_over_many_pages(api_server, pods, monkeypatch):
    monkeypatch.setattr(pod_client, "LIST_PAGE_SIZE", 7)
    for callback_id in ids(23):
        pod_of(api_server, callback_id, "7")
    assert sorted(view.callback_id for view in pods.list_pods()) == ids(23)
    assert api_server.count("LIST", "/pods$") == 4


def test_g6_page_that_has_expired_raises(api_server, pods, monkeypatch):
    monkeypatch.setattr(pod_client, "LIST_PAGE_SIZE", 2)
    for callback_id in ids(5):
        pod_of(api_server, callback_id, "7")
    listed = pods.list_pods()
    next(listed)
    api_server.store.forget_history()
    with pytest.raises(ApiException) as raised:
        list(listed)
    assert raised.value.status == 410


def test_b10_done_pods_are_left_out_by_the_server(api_server, pods):
    kept, done = (pod_of(api_server, callback_id, "7", "failed") for callback_id in ids(2))
    pods.mark_done(view_of(done))
    assert [view.uid for view in pods.list_pods()] == [kept["metadata"]["uid"]]
    [request] = api_server.made("LIST", "/pods$")
    assert "airflow_executor_done!=True" in request.query["labelSelector"]


def test_list_can_be_narrowed_to_some_callbacks(api_server, pods):
    first, second, _ = ids(3)
    for callback_id in ids(3):
        pod_of(api_server, callback_id, "7")
    assert {view.callback_id for view in pods.list_pods(callback_ids=[first, second])} == {first, second}


def test_pods_of_tasks_and_strangers_are_not_callbacks(api_server, pods):
    pod_of(api_server, ID, "7")
    strange = pod_document(ID, "7", attempt=2)
    strange["metadata"]["annotations"] = {"dag_id": "d", "task_id": "t"}
    api_server.store.create("pods", "airflow", strange)
    assert len(list(pods.list_pods())) == 1


@pytest.mark.parametrize(
    ("namespaces", "paths"),
    [
        (["a", "b"], ["/api/v1/namespaces/a/pods", "/api/v1/namespaces/b/pods"]),
        (None, ["/api/v1/pods"]),
        ([], []),
    ],
    ids=["G1-listed", "all", "none"],
)
def test_list_asks_these_paths(api_server, core, namespaces, paths):
    list(PodClient(core, namespaces=namespaces).list_pods())
    assert [request.path for request in api_server.made("LIST")] == paths


@pytest.mark.parametrize("body", [b"[]", b'{"kind": "Status"}', b"null", b'{"items": {}}', b"", b"<html>"])
def test_answer_that_is_no_list_raises(api_server, pods, body):
    """It would read as: there are no pods; and every running callback would be lost."""
    api_server.fail("LIST", "/pods", status=200, body=body)
    with pytest.raises(ValueError):
        list(pods.list_pods())


def test_list_whose_items_are_null_is_empty(api_server, pods):
    api_server.fail("LIST", "/pods", status=200, body=b'{"kind": "PodList", "items": null}')
    assert list(pods.list_pods()) == []


# Single pods ----------------------------------------------------------------------------------------


def test_pod_that_is_not_there_reads_as_none(pods):
    assert pods.read_pod("airflow", "nothing") is None


def test_adoption_changes_the_owner_and_nothing_else(api_server, pods):
    before = pod_of(api_server, ID, "5", "running")
    adopted = pods.adopt_pod(view_of(before), "7")
    after = api_server.pods()[0]
    assert adopted.owner == "7"
    before["metadata"]["labels"][OWNER_LABEL] = "7"
    before["metadata"]["resourceVersion"] = after["metadata"]["resourceVersion"]
    assert after == before


def test_adoption_of_a_pod_that_changed_is_a_conflict(api_server, pods):
    seen = pod_of(api_server, ID, "5")
    api_server.node.bind(seen)
    with pytest.raises(ApiException) as raised:
        pods.adopt_pod(view_of(seen), "7")
    assert raised.value.status == 409


@pytest.mark.parametrize("only_if_unchanged", [False, True])
def test_deletion_of_a_pod_that_began_meanwhile(api_server, pods, only_if_unchanged):
    seen = pod_of(api_server, ID, "7", "bound")
    api_server.node.start(seen)
    if only_if_unchanged:
        with pytest.raises(ApiException) as raised:
            pods.delete_pod(view_of(seen), only_if_unchanged=True)
        assert raised.value.status == 409
    else:
        assert pods.delete_pod(view_of(seen)) is True
    [pod] = api_server.pods()
    assert ("deletionTimestamp" in pod["metadata"]) is not only_if_unchanged


def test_a5_new_pod_of_the_same_name_is_not_hit(api_server, pods):
    old = pod_of(api_server, ID, "7")
    api_server.store.delete("pods", "airflow", old["metadata"]["name"], {})
    new = pod_of(api_server, ID, "7")
    with pytest.raises(ApiException) as raised:
        pods.delete_pod(view_of(old))
    assert raised.value.status == 409
    assert [pod["metadata"]["uid"] for pod in api_server.pods()] == [new["metadata"]["uid"]]


def test_deletion_of_a_pod_that_is_gone_is_fine(api_server, pods):
    pod = view_of(pod_of(api_server, ID, "7"))
    assert pods.delete_pod(pod) is True
    assert pods.delete_pod(pod) is False


def test_only_our_finalizer_is_taken_off(api_server, pods):
    pod = pod_of(api_server, ID, "7", finalizer=True)
    api_server.store.update(
        "pods",
        "airflow",
        pod["metadata"]["name"],
        lambda document: document["metadata"]["finalizers"].append("someone.else/keep"),
    )
    pods.remove_finalizer(view_of(pod))
    [kept] = api_server.pods()
    assert kept["metadata"]["finalizers"] == ["someone.else/keep"]


def test_finalizer_of_a_pod_that_is_gone_is_off(api_server, pods):
    pod = view_of(pod_of(api_server, ID, "7", finalizer=True))
    pods.remove_finalizer(pod)
    pods.delete_pod(pod)
    pods.remove_finalizer(pod)


NOT_OF_THE_SERVER = [
    pytest.param(b"404 page not found\n", id="path-is-not-served"),
    pytest.param(b"<html><h1>404 Not Found</h1></html>", id="html-of-a-proxy"),
    pytest.param(b"", id="empty"),
]


@pytest.mark.parametrize("body", NOT_OF_THE_SERVER)
@pytest.mark.parametrize(
    ("method", "request_of"),
    [
        pytest.param("GET", lambda pods, pod: pods.read_pod(pod.namespace, pod.name), id="read"),
        pytest.param("DELETE", lambda pods, pod: pods.delete_pod(pod), id="delete"),
        pytest.param("PATCH", lambda pods, pod: pods.remove_finalizer(pod), id="finalizer"),
        pytest.param("PATCH", lambda pods, pod: pods.mark_done(pod), id="mark-done"),
    ],
)
def test_404_that_is_not_the_servers_does_not_say_that_a_pod_is_gone(
    api_server, pods, method, request_of, body
):
    pod = view_of(pod_of(api_server, ID, "7", finalizer=True))
    api_server.fail(method, "/pods/", status=404, body=body)
    with pytest.raises(ApiException) as raised:
        request_of(pods, pod)
    assert classify(raised.value).retryable


def test_pod_with_our_finalizer_outlives_its_deletion(api_server, pods):
    pod = view_of(pod_of(api_server, ID, "7", "succeeded", finalizer=True))
    pods.delete_pod(pod)
    [kept] = api_server.pods()
    assert RESULT_FINALIZER in kept["metadata"]["finalizers"]
    pods.remove_finalizer(pod)
    assert api_server.pods() == []


@pytest.mark.parametrize(
    ("retries", "may_have_arrived"),
    [
        pytest.param(False, False, id="off"),
        pytest.param(Retry(1, other=0), False, id="what-was-not-sent-only"),
        pytest.param(Retry(1), True, id="the-deployments-own"),
        pytest.param(None, True, id="urllib3s-own"),
    ],
)
def test_creation_that_may_have_been_sent_before_the_last_try_may_have_arrived(
    api_server, core, pods, monkeypatch, retries, may_have_arrived
):
    monkeypatch.setattr(core.api_client.configuration, "retries", retries)
    refused = NewConnectionError(None, "refused")

    def create(*args, **kwargs):
        raise MaxRetryError(None, "/api", refused)

    monkeypatch.setattr(core, "create_namespaced_pod", create)
    with pytest.raises(MaxRetryError) as raised:
        pods.create_pod("airflow", {})
    failure = classify(raised.value)
    assert (failure.retryable, failure.may_have_arrived) == (True, may_have_arrived)


def test_creation_that_the_server_refuses_has_not_arrived(api_server, core, pods, monkeypatch):
    monkeypatch.setattr(core.api_client.configuration, "retries", Retry(1))
    api_server.fail("POST", "/pods", status=403, reason="Forbidden", message="no")
    with pytest.raises(ApiException) as raised:
        pods.create_pod("airflow", {})
    assert classify(raised.value).may_have_arrived is False


@pytest.mark.parametrize("offset", [0.0, 360.0, -360.0])
def test_creation_tells_how_far_the_api_servers_clock_is_away(api_server, pods, monkeypatch, offset):
    monkeypatch.setattr(api_server.store, "clock", lambda: datetime.now(UTC) - timedelta(seconds=offset))
    assert pods.clock.offset == 0.0
    pods.create_pod("airflow", pod_document(ID, "7"))
    assert pods.clock.offset == pytest.approx(offset, abs=2.0)


def test_pod_that_was_there_before_tells_nothing_about_the_clock(api_server, pods):
    pod_of(api_server, ID, "7", age=3600.0)
    with pytest.raises(ApiException):
        pods.create_pod("airflow", pod_document(ID, "7"))
    assert pods.read_pod("airflow", pod_document(ID, "7")["metadata"]["name"]) is not None
    assert list(pods.list_pods())
    assert pods.clock.offset == 0.0


# What else is asked ---------------------------------------------------------------------------------


def test_secret_that_is_there_already_is_fine(api_server, pods):
    body = {"metadata": {"name": "one"}, "data": {}}
    pods.create_secret("airflow", body)
    pods.create_secret("airflow", body)
    assert len(api_server.secrets()) == 1


def secret_of(pod_uid):
    return {"metadata": {"name": "one", "ownerReferences": [{"kind": "Pod", "uid": pod_uid}]}, "data": {}}


def test_secret_of_an_earlier_pod_of_the_name_is_not_the_pods_own(api_server, pods):
    """It holds another token, and goes when Kubernetes sees that its pod is gone."""
    pods.create_secret("airflow", secret_of("old"))
    with pytest.raises(SecretTakenError) as raised:
        pods.create_secret("airflow", secret_of("new"))
    assert classify(raised.value).retryable
    api_server.store.delete("secrets", "airflow", "one", {})
    pods.create_secret("airflow", secret_of("new"))
    assert [secret["metadata"]["ownerReferences"][0]["uid"] for secret in api_server.secrets()] == ["new"]


def test_secret_of_the_same_pod_that_is_there_already_is_fine(api_server, pods):
    pods.create_secret("airflow", secret_of("new"))
    pods.create_secret("airflow", secret_of("new"))
    assert len(api_server.secrets()) == 1


@pytest.mark.parametrize(
    ("status", "reason", "error"),
    [
        pytest.param(403, "Forbidden", None, id="may-not-read"),
        pytest.param(404, "NotFound", SecretTakenError, id="gone-meanwhile"),
        pytest.param(503, "ServiceUnavailable", ApiException, id="no-answer"),
    ],
)
def test_secret_that_is_there_and_cannot_be_read(api_server, pods, status, reason, error):
    pods.create_secret("airflow", secret_of("new"))
    api_server.fail("GET", "/secrets/", status=status, reason=reason)
    with pytest.raises(error) if error else contextlib.nullcontext() as raised:
        pods.create_secret("airflow", secret_of("new"))
    assert error is None or classify(raised.value).retryable


def test_log_is_cut_to_its_end(api_server, pods):
    pod = pod_of(api_server, ID, "7", "failed")
    api_server.logs[pod["metadata"]["name"]] = b"x" * 5000 + b"the end"
    assert pods.log_tail(view_of(pod), limit_bytes=100) == b"x" * 93 + b"the end"


def test_log_that_never_ends_is_cut_when_its_time_is_over(core, pods, monkeypatch):
    """Each piece comes in time, but there is no end of them."""
    clock, ended = itertools.count(step=1.0), []
    answer = SimpleNamespace(
        stream=lambda size: itertools.repeat(b"x"),
        close=lambda: ended.append("closed"),
        release_conn=lambda: ended.append("released"),
    )
    monkeypatch.setattr(pod_client, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(core, "read_namespaced_pod_log", lambda *args, **kwargs: answer)
    view = view_of({**pod_document(ID, "7"), "status": {"phase": "Failed"}})
    log = pods.log_tail(view, limit_bytes=1000)
    assert log.startswith(b"x" * 20)
    assert log.endswith(b"(The rest of the log did not come in time.)\n")
    assert ended == ["closed", "released"]


@pytest.mark.parametrize("allowed", [True, False])
def test_api_server_is_asked_what_is_allowed(api_server, pods, allowed):
    api_server.allowed = lambda verb, resource, namespace: allowed
    assert pods.may("create", "secrets", "airflow") is allowed


def test_who_may_not_ask_is_taken_to_lack_it(api_server, pods):
    api_server.fail("POST", "selfsubjectaccessreviews", status=403, reason="Forbidden")
    assert pods.may("create", "secrets", "airflow") is False


def test_question_that_is_not_answered_is_asked_again_by_the_caller(api_server, pods):
    api_server.fail("POST", "selfsubjectaccessreviews", status=503)
    with pytest.raises(ApiException):
        pods.may("create", "secrets", "airflow")


@pytest.mark.parametrize(
    "body",
    [b"{}", b'{"kind": "Status"}', b'{"message": "hello from a proxy"}'],
    ids=["empty", "status", "foreign"],
)
def test_answer_that_is_no_pod_is_not_taken_for_a_pod_that_is_gone(api_server, pods, body):
    api_server.fail("GET", "/pods/", status=200, body=body)
    with pytest.raises(ValueError, match="no pod"):
        pods.read_pod("airflow", "callback-x-1")
