"""The watch on pods: what it sends on, and that it outlives whatever the API server does. Cases B."""

from __future__ import annotations

import json
import pickle
import queue
import threading
from types import SimpleNamespace

import pytest
from airflow.providers.cncf.kubernetes.executors import kubernetes_executor_utils
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client import ApiClient, CoreV1Api, V1Pod
from kubernetes.client.rest import ApiException
from urllib3.exceptions import ProtocolError, ReadTimeoutError

from airflow_kubernetes_callbacks import watcher as module
from airflow_kubernetes_callbacks.identity import CALLBACK_ID_ANNOTATION
from airflow_kubernetes_callbacks.outcome import CallbackOutcome, pod_view
from airflow_kubernetes_callbacks.watcher import (
    MOVED,
    RESYNC,
    CallbackJobWatcher,
    is_callback_event,
    view_from_plain,
    view_to_plain,
)
from tests.fakes.api_server import FakeApiServer
from tests.fakes.faults import status_body
from tests.fakes.life import bring_to, launched, pod_document, pod_of, running, wait_for_watch
from tests.fakes.scheduler import output_of, state_of, wait_until

ID = "018f0000-0000-7000-8000-00000000000a"
OTHER = "018f0000-0000-7000-8000-00000000000b"
RUNNING, SUCCESS, FAILED, QUEUED = "running", "success", "failed", "queued"


# What is sent on ------------------------------------------------------------------------------------


def raw_pod(callback_id=ID, version=1, phase="Pending", node="node-1", **metadata):
    document = pod_document(callback_id, "7")
    document["spec"]["nodeName"] = node
    document["metadata"].update(
        uid=f"uid-{callback_id}", namespace="airflow", resourceVersion=str(version), **metadata
    )
    document["status"] = {"phase": phase}
    return document


def event(kind, raw):
    return {"type": kind, "object": SimpleNamespace(metadata=SimpleNamespace(name="x")), "raw_object": raw}


def task_event(version):
    return event("MODIFIED", {"metadata": {"annotations": {"dag_id": "d"}, "resourceVersion": str(version)}})


@pytest.fixture
def watcher():
    made = CallbackJobWatcher(
        namespace="airflow",
        watcher_queue=queue.Queue(),
        resource_version="0",
        scheduler_job_id="7",
        kube_config=SimpleNamespace(kube_client_request_args={}),
    )
    made.sent = lambda: [made.watcher_queue.get_nowait() for _ in range(made.watcher_queue.qsize())]
    return made


def stream(monkeypatch, *items):
    """Have the parent's stream yield these events, or raise what is an exception among them."""

    def events(self, kube_client, query_kwargs):
        for item in items:
            if isinstance(item, Exception):
                raise item
            yield item

    monkeypatch.setattr(kubernetes_executor_utils.KubernetesJobWatcher, "_pod_events", events)


def passed_on(watcher):
    return list(watcher._pod_events(None, {"resource_version": "0"}))


def test_events_of_tasks_are_passed_on_as_they_are(watcher, monkeypatch):
    tasks = [task_event(1), task_event(2), event("ERROR", {"code": 410})]
    stream(monkeypatch, tasks[0], event("ADDED", raw_pod()), tasks[1], tasks[2])
    assert passed_on(watcher) == tasks
    assert [message.annotations for message in watcher.sent()] == [{CALLBACK_ID_ANNOTATION: ID}]


@pytest.mark.parametrize(
    ("events", "states"),
    [
        pytest.param([event("ADDED", raw_pod())], ["pending"], id="added"),
        pytest.param(
            [event("ADDED", raw_pod(node=None))], [], id="added-as-the-answer-to-its-creation-has-it"
        ),
        pytest.param(
            [event("ADDED", raw_pod(node=None)), event("MODIFIED", raw_pod(version=2, node=None))],
            [],
            id="nothing-has-happened-to-it",
        ),
        pytest.param(
            [event("ADDED", raw_pod(node=None)), event("MODIFIED", raw_pod(version=2))],
            ["pending"],
            id="added-and-on-a-node",
        ),
        pytest.param(
            [event("ADDED", raw_pod(node=None, phase="Failed"))], ["never_started"], id="added-and-over"
        ),
        pytest.param(
            [event("ADDED", raw_pod()), event("MODIFIED", raw_pod(version=2))], ["pending"], id="no-news"
        ),
        pytest.param(
            [event("ADDED", raw_pod()), event("MODIFIED", raw_pod(version=2, phase="Succeeded"))],
            ["pending", "succeeded"],
            id="news",
        ),
        pytest.param(
            [event("ADDED", raw_pod()), event("ADDED", raw_pod(OTHER))], ["pending", "pending"], id="two-pods"
        ),
        pytest.param([event("DELETED", raw_pod())], [MOVED], id="left-the-selection"),
        pytest.param(
            [event("DELETED", raw_pod(deletionTimestamp="2026-11-30T00:00:00Z"))],
            ["never_started"],
            id="deleted",
        ),
        pytest.param(
            [event("DELETED", raw_pod(phase="Succeeded", deletionTimestamp="2026-11-30T00:00:00Z"))],
            ["succeeded"],
            id="B6-deleted-after-success",
        ),
        pytest.param([event("ADDED", raw_pod("no uuid"))], [], id="id-is-none"),
        pytest.param([event("ADDED", raw_pod(annotations=None))], [], id="annotations-were-taken-off"),
        pytest.param(
            [event("ADDED", raw_pod()), event("MODIFIED", raw_pod(version=2, annotations={"dag_id": "d"}))],
            ["pending"],
            id="annotation-was-taken-off-later",
        ),
        pytest.param([None, "text", {}, {"type": "ADDED"}, {"raw_object": None}], [], id="malformed"),
    ],
)
def test_events_of_callbacks_are_sent_as(watcher, monkeypatch, events, states):
    stream(monkeypatch, *events)
    passed_on(watcher)
    assert [message.state for message in watcher.sent()] == states


@pytest.mark.parametrize("annotations", [None, {}, {"dag_id": "d", "run_id": "r"}], ids=repr)
@pytest.mark.parametrize(
    "kept",
    [
        pytest.param({"airflow-workload-type", "callback-id"}, id="labels-are-there"),
        pytest.param({"airflow-workload-type"}, id="type-only"),
        pytest.param({"callback-id"}, id="id-only"),
    ],
)
def test_callback_pod_without_its_annotation_does_not_end_the_watch_of_tasks(
    watcher, monkeypatch, annotations, kept
):
    """The parent looks for a task's annotations in what is passed on to it."""
    raw = raw_pod(version=17, annotations=annotations)
    raw["metadata"]["labels"] = {
        key: value for key, value in raw["metadata"]["labels"].items() if key in kept
    }
    stream(monkeypatch, event("ADDED", raw))
    assert run(watcher) == "17"
    assert watcher.sent() == []


def test_task_whose_labels_are_those_of_a_callback_is_passed_on(watcher, monkeypatch):
    raw = raw_pod(annotations={"dag_id": "d", "task_id": "t", "try_number": "1"})
    stream(monkeypatch, event("ADDED", raw))
    assert passed_on(watcher) == [event("ADDED", raw)]
    assert watcher.sent() == []


def test_task_that_is_annotated_like_a_callback_is_passed_on(watcher, monkeypatch):
    raw = raw_pod(
        annotations={"dag_id": "d", "task_id": "t", "try_number": "1", CALLBACK_ID_ANNOTATION: ID}, labels={}
    )
    stream(monkeypatch, event("ADDED", raw))
    assert passed_on(watcher) == [event("ADDED", raw)]
    assert watcher.sent() == []


def test_callback_whose_template_has_the_annotations_of_a_task_is_a_callback(watcher, monkeypatch):
    raw = raw_pod()
    raw["metadata"]["annotations"] |= {"task_id": "t"}
    stream(monkeypatch, event("ADDED", raw))
    assert passed_on(watcher) == []
    assert [message.state for message in watcher.sent()] == ["pending"]


def test_tasks_come_with_models_and_callbacks_are_not_made_into_any(watcher, monkeypatch):
    task = raw_pod(annotations={"dag_id": "d", "task_id": "t", "try_number": "1"}, labels={})
    strange = raw_pod()
    strange["spec"]["containers"] = [{"image": "a container without a name, which no model takes"}]
    lines = [{"type": "ADDED", "object": raw} for raw in (strange, task)]

    class Answer:
        def stream(self, **_):
            yield "".join(f"{json.dumps(line)}\n" for line in lines).encode()

        def close(self): ...

        release_conn = close

    core = CoreV1Api(ApiClient())
    monkeypatch.setattr(core.api_client, "call_api", lambda *_, **__: Answer())
    query = {"resource_version": "0", "timeout_seconds": 1}
    [passed] = list(watcher._pod_events(core, query))
    assert isinstance(passed["object"], V1Pod)
    assert passed["object"].metadata.annotations["task_id"] == "t"
    assert len(watcher.sent()) == 1


def test_same_news_is_told_again_by_a_stream_that_begins_anew(watcher, monkeypatch):
    stream(monkeypatch, event("ADDED", raw_pod()))
    passed_on(watcher)
    passed_on(watcher)
    assert len(watcher.sent()) == 2


def test_message_is_plain_and_gives_the_view_back(watcher, monkeypatch):
    """C18: what crosses a process border is strings and numbers."""
    raw = raw_pod(phase="Failed")
    stream(monkeypatch, event("MODIFIED", raw))
    passed_on(watcher)
    [message] = pickle.loads(pickle.dumps(watcher.sent()))
    assert view_from_plain(message.failure_details) == pod_view(raw)
    assert len(repr(message.failure_details)) < 40
    assert all(
        value is None or isinstance(value, (str, int, float, bool))
        for value in message.failure_details.values()
    )


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.dictionaries(
                st.sampled_from(["raw_object", "metadata", "annotations", "labels", "callback_id", "type"]),
                inner,
            )
            | st.lists(inner)
        ),
    )
)
def test_any_event_can_be_told_apart(anything):
    assert is_callback_event(anything) in (True, False)


def test_view_survives_the_way_through_the_queue():
    view = pod_view(raw_pod(phase="Failed", finalizers=["airflow-kubernetes-callbacks/result"]))
    assert view_from_plain(dict(view_to_plain(view))) == view
    assert view.outcome is CallbackOutcome.NEVER_STARTED


# How a stream ends ----------------------------------------------------------------------------------


@pytest.fixture
def pauses(monkeypatch):
    waited = []
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=waited.append))
    return waited


def run(watcher):
    return watcher._run(None, "5", "7", watcher.kube_config)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ApiException(status=410, reason="Expired: too old"), id="410"),
        pytest.param(ApiException(status=403, reason="Forbidden"), id="403"),
        pytest.param(ApiException(status=500, reason="Internal"), id="500"),
        pytest.param(ApiException(status=401, reason="Unauthorized"), id="401"),
        pytest.param(ProtocolError("Connection broken"), id="reset"),
        pytest.param(ConnectionRefusedError(), id="refused"),
        pytest.param(json.JSONDecodeError("Expecting value", "<html>", 0), id="200-with-html"),
        pytest.param(ValueError("Invalid value for `image_id`, must not be `None`"), id="client-refuses-pod"),
        pytest.param(UnicodeDecodeError("utf-8", b"\xd0", 0, 1, "unexpected end"), id="cut-in-a-character"),
    ],
)
def test_stream_that_breaks_off_is_begun_anew_and_everything_is_compared(watcher, monkeypatch, pauses, error):
    """B1: and the process does not end, as the parent's does."""
    stream(monkeypatch, error)
    assert run(watcher) == "0"
    assert [message.state for message in watcher.sent()] == [RESYNC]


def test_expired_version_is_no_reason_to_wait(watcher, monkeypatch, pauses):
    stream(monkeypatch, ApiException(status=410))
    run(watcher)
    assert pauses == [0.0]


def test_pause_grows_while_the_watch_is_refused_and_is_forgotten_after(watcher, monkeypatch, pauses):
    """B16: not a new process and a new request at every heartbeat."""
    stream(monkeypatch, ApiException(status=403))
    for _ in range(8):
        run(watcher)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    stream(monkeypatch, task_event(6), ApiException(status=403))
    monkeypatch.setattr(watcher, "process_status", lambda **kwargs: None)
    run_through = lambda: list(watcher._pod_events(None, {"resource_version": "5"}))  # noqa: E731
    with pytest.raises(ApiException):
        run_through()
    stream(monkeypatch, ApiException(status=403))
    run(watcher)
    assert pauses[-1] == 1


@pytest.mark.parametrize(
    ("asked", "pause"),
    [
        pytest.param("7", 7.0, id="short"),
        pytest.param("60", 60.0, id="longest"),
        pytest.param("61", 60.0, id="too-long"),
        pytest.param("3600", 60.0, id="an-hour"),
        pytest.param("0", 1.0, id="none"),
    ],
)
def test_pause_is_as_long_as_the_server_asks_within_bounds(watcher, monkeypatch, pauses, asked, pause):
    """The process is the watcher of tasks too."""
    error = ApiException(status=429)
    error.headers = {"Retry-After": asked}
    stream(monkeypatch, error)
    run(watcher)
    assert pauses == [pause]


def test_refused_watch_names_verb_and_namespace(watcher, monkeypatch, pauses):
    """B16."""
    said = []
    monkeypatch.setattr(
        CallbackJobWatcher,
        "log",
        SimpleNamespace(error=lambda *a: said.append(a[0] % a[1:]), info=lambda *a: None),
    )
    refused = ApiException(status=403, reason="Forbidden")
    refused.body = status_body(403, "Forbidden", 'cannot watch resource "pods"')
    stream(monkeypatch, refused)
    run(watcher)
    assert len(said) == 1
    assert "namespace airflow" in said[0]
    assert "'watch'" in said[0]


@pytest.mark.parametrize("error", [TypeError("a defect"), KeyError("task_id")], ids=repr)
def test_defect_is_left_to_the_parent(watcher, monkeypatch, pauses, error):
    stream(monkeypatch, error)
    with pytest.raises(type(error)):
        run(watcher)


def test_idle_stream_goes_on_from_where_it_was(watcher, monkeypatch):
    stream(monkeypatch, event("ADDED", raw_pod(version=17)), ReadTimeoutError(None, None, "idle"))
    with pytest.raises(ReadTimeoutError):
        run(watcher)
    assert watcher.resource_version == "17"


@pytest.mark.parametrize(
    ("events", "version"),
    [
        pytest.param([], "5", id="nothing"),
        pytest.param([event("ADDED", raw_pod(version=17))], "17", id="callbacks-only"),
        pytest.param(
            [{"type": "BOOKMARK", "object": {}, "raw_object": {"metadata": {"resourceVersion": "23"}}}],
            "23",
            id="bookmark",
        ),
    ],
)
def test_stream_that_ends_is_continued_from_the_last_version(watcher, monkeypatch, events, version):
    """The parent knows no version when every event was a callback's."""
    stream(monkeypatch, *events)
    assert run(watcher) == version
    assert RESYNC not in [message.state for message in watcher.sent()]


# With an API server ---------------------------------------------------------------------------------


def test_b1_expired_stream_loses_nothing(api_server, new_scheduler, new_callback):
    scheduler = new_scheduler()
    lost, done = new_callback(), new_callback()
    pods = {callback_id: running(api_server, scheduler, callback_id) for callback_id in (lost, done)}
    with api_server.store.unseen():
        api_server.store.delete("pods", "airflow", pods[lost]["metadata"]["name"], {"gracePeriodSeconds": 0})
        api_server.node.finish(pods[done])
        api_server.store.forget_history()
    scheduler.until(lambda: state_of(done) == SUCCESS, "success is recorded")
    scheduler.until(lambda: state_of(lost) == FAILED, "loss is recorded")
    assert "disappeared while running" in output_of(lost)
    [watcher] = scheduler.executor.kube_scheduler.kube_watchers.values()
    assert watcher.is_alive()


def test_b2_list_that_began_before_a_pod_was_made_does_not_call_it_lost(
    api_server, new_scheduler, new_callback
):
    scheduler = new_scheduler()
    lost, alive, fresh = new_callback(), new_callback(), new_callback(state=None)
    pods = {callback_id: running(api_server, scheduler, callback_id) for callback_id in (lost, alive)}
    gate = threading.Event()
    listed = api_server.fail("LIST", "airflow-workload-type", answer_gate=gate)
    scheduler.resync()
    wait_until(lambda: listed.hits, "list is under way", step=scheduler.loop)
    with api_server.store.unseen():
        api_server.store.delete("pods", "airflow", pods[lost]["metadata"]["name"], {"gracePeriodSeconds": 0})
    from tests.fakes.scheduler import set_row

    set_row(fresh, state="pending")
    launched(api_server, scheduler, fresh)
    gate.set()
    scheduler.settle(rounds=2)
    assert state_of(alive) == RUNNING
    assert state_of(fresh) == QUEUED
    assert api_server.count("POST", "/pods$") == 3
    scheduler.until(lambda: state_of(lost) == FAILED, "loss is recorded")


@pytest.mark.parametrize("case", ["half-open", "silent"])
def test_b3_b11_watch_that_tells_nothing_is_made_up_for_by_the_list(
    api_server, new_scheduler, new_callback, case
):
    """The process lives and its stream is open; results come with the next comparison."""
    if case == "silent":
        api_server.fail("WATCH", silent=True, times=None)
    scheduler = new_scheduler(KUBERNETES_CALLBACKS__RECONCILE_INTERVAL="1")
    callback_id = new_callback()
    pod = launched(api_server, scheduler, callback_id)
    with api_server.store.unseen():
        bring_to(api_server, pod, "succeeded")
    scheduler.until(lambda: state_of(callback_id) == SUCCESS, "success is recorded")


def test_api_server_that_restarts_is_watched_again(api_server, new_scheduler, new_callback):
    scheduler = new_scheduler()
    callback_id = new_callback()
    pod = running(api_server, scheduler, callback_id)
    api_server.drop_watches()
    with api_server.store.unseen():
        api_server.node.finish(pod)
    scheduler.until(lambda: state_of(callback_id) == SUCCESS, "success is recorded")
    wait_for_watch(api_server)


def test_b6_success_that_is_first_seen_with_the_deletion_is_a_success(
    api_server, new_scheduler, new_callback
):
    """apache/airflow#41436: the node went away right after the success."""
    scheduler = new_scheduler()
    callback_id = new_callback()
    pod = running(api_server, scheduler, callback_id)
    with api_server.store.unseen(but_the_last=True):
        api_server.store.delete("pods", "airflow", pod["metadata"]["name"], {})
        api_server.node.finish(pod)
        api_server.node.remove(pod)
    scheduler.until(lambda: state_of(callback_id) == SUCCESS, "success is recorded")


def test_b7_pod_deleted_while_it_runs_fails_with_the_reason(api_server, new_scheduler, new_callback):
    scheduler = new_scheduler()
    callback_id = new_callback()
    pod = running(api_server, scheduler, callback_id)
    api_server.store.delete("pods", "airflow", pod["metadata"]["name"], {})
    api_server.node.remove(pod)
    scheduler.until(lambda: state_of(callback_id) == FAILED, "loss is recorded")
    assert "deleted" in output_of(callback_id)
    assert scheduler.running == set()
    assert api_server.count("POST", "/pods$") == 1


def test_b7_callback_gets_its_grace_period_and_the_exit_code_tells(api_server, new_scheduler, new_callback):
    """E14: a drain deletes the pod with grace, and the callback comes to its end in time."""
    scheduler = new_scheduler()
    callback_id = new_callback()
    pod = running(api_server, scheduler, callback_id)
    api_server.store.delete("pods", "airflow", pod["metadata"]["name"], {})
    scheduler.settle(rounds=2)
    assert (state_of(callback_id), scheduler.running) == (RUNNING, {callback_id})
    api_server.node.finish(pod)
    api_server.node.remove(pod)
    scheduler.until(lambda: state_of(callback_id) == SUCCESS, "success is recorded")
    scheduler.settle(rounds=2)
    assert api_server.count("DELETE") == 0


def test_b8_pending_pod_that_a_person_deleted_is_launched_again(api_server, new_scheduler, new_callback):
    """E2: without a node the deletion comes without a deletionTimestamp, as if the pod had moved."""
    scheduler = new_scheduler()
    callback_id = new_callback()
    pod = launched(api_server, scheduler, callback_id)
    api_server.store.delete("pods", "airflow", pod["metadata"]["name"], {})
    [second] = scheduler.until(api_server.pods, "launched again")
    assert second["metadata"]["name"].endswith("-2")
    bring_to(api_server, second, "succeeded")
    scheduler.until(lambda: state_of(callback_id) == SUCCESS, "success is recorded")


def test_b16_watch_that_is_forbidden_leaves_the_list(api_server, new_scheduler, new_callback):
    api_server.fail("WATCH", status=403, reason="Forbidden", times=None)
    scheduler = new_scheduler(KUBERNETES_CALLBACKS__RECONCILE_INTERVAL="1")
    callback_id = new_callback()
    pod = launched(api_server, scheduler, callback_id)
    bring_to(api_server, pod, "succeeded")
    scheduler.until(lambda: state_of(callback_id) == SUCCESS, "success is recorded")
    [watcher] = scheduler.executor.kube_scheduler.kube_watchers.values()
    assert watcher.is_alive()


def test_b17_pod_in_another_namespace_is_watched_read_and_deleted_there(
    api_server, new_scheduler, new_callback
):
    """apache/airflow#8546."""
    scheduler = new_scheduler(
        KUBERNETES_EXECUTOR__MULTI_NAMESPACE_MODE="True",
        KUBERNETES_EXECUTOR__MULTI_NAMESPACE_MODE_NAMESPACE_LIST="airflow,team-b",
        KUBERNETES_CALLBACKS__NAMESPACE="team-b",
    )
    callback_id = new_callback()
    pod = launched(api_server, scheduler, callback_id)
    assert pod["metadata"]["namespace"] == "team-b"
    bring_to(api_server, pod, "succeeded")
    scheduler.until(lambda: state_of(callback_id) == SUCCESS, "success is recorded")
    scheduler.until(lambda: not api_server.pods(), "pod is deleted")
    for verb in ("POST", "DELETE"):
        assert all("/namespaces/team-b/" in request.path for request in api_server.made(verb, "/pods")), verb


def test_b19_pod_that_is_being_deleted_already_is_not_deleted(api_server, new_scheduler, new_callback):
    scheduler = new_scheduler()
    callback_id = new_callback()
    pod = running(api_server, scheduler, callback_id)
    api_server.store.delete("pods", "airflow", pod["metadata"]["name"], {})
    api_server.node.finish(pod)
    scheduler.until(lambda: state_of(callback_id) == SUCCESS, "success is recorded")
    scheduler.settle(rounds=2)
    assert api_server.count("DELETE") == 0


def test_watch_of_tasks_and_callbacks_is_one_stream_per_namespace(api_server, new_scheduler):
    new_scheduler(
        KUBERNETES_EXECUTOR__MULTI_NAMESPACE_MODE="True",
        KUBERNETES_EXECUTOR__MULTI_NAMESPACE_MODE_NAMESPACE_LIST="a,b",
    )
    wait_for_watch(api_server, 2)
    assert {request.path for request in api_server.made("WATCH")} <= {
        "/api/v1/namespaces/a/pods",
        "/api/v1/namespaces/b/pods",
    }


def test_bookmarks_keep_the_version_of_a_quiet_watch_fresh(api_server, new_scheduler, new_callback):
    api_server.bookmarks = True
    scheduler = new_scheduler()
    [watcher] = scheduler.executor.kube_scheduler.kube_watchers.values()
    api_server.store.create("secrets", "airflow", {"metadata": {"name": "something-else"}})
    wait_until(lambda: watcher._latest_version == str(api_server.store.version), "bookmark has arrived")
    api_server.store.oldest = api_server.store.version
    api_server.drop_watches()
    callback_id = new_callback()
    running(api_server, scheduler, callback_id)


def test_real_watcher_process_sends_results(
    api_server, kube_environment, session, executor_names, new_callback
):
    """Once with the processes of production: manager, queues and watcher."""
    from tests.fakes.scheduler import Scheduler

    kube_environment()
    scheduler = Scheduler()
    try:
        scheduler.start()
        callback_id = new_callback()
        pod = running(api_server, scheduler, callback_id)
        api_server.node.finish_callback(pod, "ValueError: kaputt")
        scheduler.until(lambda: state_of(callback_id) == FAILED, "failure is recorded")
        assert "ValueError: kaputt" in output_of(callback_id)
        pod_of(api_server, new_callback(state=RUNNING), scheduler.me, "succeeded")
    finally:
        scheduler.stop()
    assert isinstance(api_server, FakeApiServer)


def test_pause_grows_where_each_stream_begins_with_what_the_last_one_failed_on(watcher, monkeypatch, pauses):
    """The client cannot read one pod of all: the stream from "0" has the others before it, each time."""
    stream(monkeypatch, event("ADDED", raw_pod()), ValueError("Invalid value for `x`, must not be `None`"))
    monkeypatch.setattr(
        kubernetes_executor_utils.KubernetesJobWatcher,
        "_run",
        lambda self, *args, **kwargs: (
            [None for _ in self._pod_events(None, {"resource_version": "0"})] and "0"
        ),
    )
    for _ in range(10):
        watcher._run()
    assert pauses[0] == 1.0
    assert pauses[-1] > 10.0
