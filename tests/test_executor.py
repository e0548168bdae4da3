"""The executor as core drives it, on a fake API server: callbacks from end to end, and tasks untouched."""

from __future__ import annotations

import itertools
import json
import re
import threading
import time

import pytest
from airflow.executors.executor_loader import ExecutorLoader
from airflow.models.callback import CallbackKey
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import KubernetesExecutor as Stock
from kubernetes.client import models as k8s
from sqlalchemy.exc import OperationalError

import airflow_kubernetes_callbacks
from airflow_kubernetes_callbacks.callback_store import CallbackStore
from airflow_kubernetes_callbacks.errors import ExecutorConflictError, SettingsError
from tests.fakes.api_server import FakeApiServer
from tests.fakes.life import bring_to, launched, other_scheduler, pod_of, running
from tests.fakes.scheduler import (
    data_of,
    output_of,
    pod_tells_api_that_it_runs,
    set_row,
    state_of,
    wait_until,
)
from tests.fakes.tasks import queued_tasks

QUEUED, RUNNING, SUCCESS, FAILED = "queued", "running", "success", "failed"
PODS = "/pods$"


@pytest.fixture(params=["False", "True"], ids=["sequential", "async"])
def creation(request):
    """Both stock paths of creating pods."""
    return {"KUBERNETES_EXECUTOR__ASYNC_POD_CREATION": request.param}


# The life of a callback -----------------------------------------------------------------------------


def test_callback_that_succeeds_ends_in_success(api_server, new_scheduler, new_callback, creation):
    scheduler = new_scheduler(**creation)
    callback_id = new_callback()
    [pod] = scheduler.until(api_server.pods, "pod is created")
    assert pod["metadata"]["annotations"]["callback_id"] == callback_id
    api_server.node.bind(pod)
    assert pod_tells_api_that_it_runs(callback_id)
    api_server.node.start(pod)
    scheduler.until(lambda: state_of(callback_id) == RUNNING, "running")
    api_server.node.finish(pod)
    scheduler.until(lambda: state_of(callback_id) == SUCCESS, "success")
    scheduler.until(lambda: not api_server.pods(), "pod is deleted")
    assert scheduler.running == set()
    assert api_server.count("POST", PODS) == 1
    assert api_server.count("DELETE") == 1


def test_callback_that_raises_ends_in_failure_with_its_own_words(api_server, new_scheduler, new_callback):
    scheduler = new_scheduler()
    callback_id = new_callback()
    pod = running(api_server, scheduler, callback_id)
    api_server.node.finish_callback(pod, "ValueError: kein Kanal „alerts“")
    scheduler.until(lambda: state_of(callback_id) == FAILED, "failure is recorded")
    assert "ValueError: kein Kanal „alerts“" in output_of(callback_id)
    scheduler.settle(rounds=2)
    [kept] = api_server.pods(labels="airflow_executor_done=True")
    assert kept["metadata"]["name"] == pod["metadata"]["name"]
    assert scheduler.running == set()


def test_failure_that_the_status_does_not_explain_is_explained_by_the_log(
    api_server, new_scheduler, new_callback
):
    """E11: the termination message is missing; the container's log is not."""
    scheduler = new_scheduler()
    callback_id = new_callback()
    pod = running(api_server, scheduler, callback_id)
    line = {"event": "Callback failed", "error": "Callback execution failed: KeyError: 'channel'"}
    api_server.logs[pod["metadata"]["name"]] = json.dumps(line).encode() + b"\n"
    api_server.node.finish(pod, 1)
    scheduler.until(lambda: state_of(callback_id) == FAILED, "failure is recorded")
    assert "KeyError: 'channel'" in output_of(callback_id)


@pytest.mark.parametrize(
    "answer", [{"status": 404}, {"status": 500}, {"reset": True}], ids=["404", "500", "reset"]
)
def test_log_that_cannot_be_read_holds_up_nothing(api_server, new_scheduler, new_callback, answer):
    api_server.fail("GET", "/log", times=None, **answer)
    api_server.fail("LIST", "/events", times=None, **answer)
    scheduler = new_scheduler()
    callback_id = new_callback()
    pod = running(api_server, scheduler, callback_id)
    api_server.node.finish(pod, 1)
    scheduler.until(lambda: state_of(callback_id) == FAILED, "failure is recorded")
    assert "exit code 1" in output_of(callback_id)


def test_failure_of_a_pod_that_is_gone_is_explained_once_and_recorded(
    api_server, new_scheduler, new_callback
):
    scheduler = new_scheduler()
    callback_id = new_callback()
    pod = running(api_server, scheduler, callback_id)
    with api_server.store.unseen(but_the_last=True):
        api_server.node.finish(pod, 137, reason="OOMKilled")
        api_server.store.delete("pods", "airflow", pod["metadata"]["name"], {"gracePeriodSeconds": 0})
    scheduler.until(lambda: state_of(callback_id) == FAILED, "failure is recorded", resync=True)
    assert api_server.count("LIST", "/events") <= 1


def test_life_of_a_callback_leaves_nothing_in_memory(api_server, new_scheduler, new_callback, creation):
    scheduler = new_scheduler(KUBERNETES_EXECUTOR__DELETE_WORKER_PODS_ON_FAILURE="True", **creation)
    ids = [new_callback() for _ in range(3)]
    for number, callback_id in enumerate(ids):
        bring_to(
            api_server,
            launched(api_server, scheduler, callback_id),
            ["succeeded", "failed", "succeeded"][number],
        )
    scheduler.until(lambda: all(state_of(one) in (SUCCESS, FAILED) for one in ids), "all end")
    scheduler.settle(rounds=3)
    callbacks = scheduler.callbacks
    assert (len(callbacks.cache), callbacks.cache._tracks, callbacks._records) == (0, {}, {})
    assert callbacks.cache._seen_at == {}
    launcher = scheduler.executor.kube_scheduler
    assert (launcher._plans, launcher._created) == ({}, {})
    assert scheduler.executor.slots_occupied == 0


def test_launch_is_recorded_in_the_row_beside_what_is_there(api_server, new_scheduler, new_callback):
    scheduler = new_scheduler()
    callback_id = new_callback()
    before = data_of(callback_id)
    launched(api_server, scheduler, callback_id)
    scheduler.settle(rounds=1)
    after = data_of(callback_id)
    assert {key: value for key, value in after.items() if key in before} == before
    assert set(after) - set(before) <= {"kubernetes_pod"}


def test_fifty_callbacks_at_once_end_well(api_server, new_scheduler, new_callback, creation):
    scheduler = new_scheduler(**creation)
    ids = [new_callback() for _ in range(50)]

    def done():
        for pod in api_server.pods():
            if pod["status"]["phase"] == "Pending":
                bring_to(api_server, pod, "succeeded")
        return all(state_of(callback_id) == SUCCESS for callback_id in ids)

    wait_until(done, "all are recorded", step=scheduler.loop)
    assert api_server.count("POST", PODS) == 50


# What the executor is made of -----------------------------------------------------------------------


def test_executor_that_is_not_started_opens_nothing(kube_environment, executor_names):
    """The API server constructs it to read task logs, and never starts it."""
    kube_environment()
    [executor] = ExecutorLoader.init_executors()
    assert executor.kube_scheduler is None
    assert executor._callbacks is None
    executor.end()


def test_executor_that_is_not_started_survives_every_call(kube_environment, executor_names, session):
    kube_environment()
    [executor] = ExecutorLoader.init_executors()
    executor.debug_dump()
    assert executor.get_event_buffer() == {}
    assert executor.slots_available > 0
    executor.terminate()
    executor.end()


@pytest.mark.parametrize(
    "executors",
    ["KubernetesExecutor,airflow_kubernetes_callbacks.KubernetesExecutor", "{ours},stock:KubernetesExecutor"],
    ids=["first", "second"],
)
def test_start_beside_a_stock_executor_is_refused_with_the_remedy(
    new_scheduler, monkeypatch, executors, kube_environment
):
    ours = "pods:airflow_kubernetes_callbacks.KubernetesExecutor"
    scheduler = new_scheduler(start=False, CORE__EXECUTOR=executors.format(ours=ours))
    executor = next(
        e for e in scheduler.executors if type(e) is airflow_kubernetes_callbacks.KubernetesExecutor
    )
    with pytest.raises(ExecutorConflictError, match="KubernetesExecutor:airflow_kubernetes_callbacks"):
        executor.start()


def test_option_that_cannot_be_used_is_named_at_the_start(new_scheduler):
    scheduler = new_scheduler(start=False, KUBERNETES_CALLBACKS__PENDING_TIMEOUT="soon")
    with pytest.raises(SettingsError, match="pending_timeout"):
        scheduler.start()


def test_subclass_of_another_kubernetes_executor_can_have_callbacks(
    api_server, new_scheduler, new_callback, monkeypatch
):
    """``class X(CallbackPodsMixin, AwsEksExecutor)``."""

    class Eks(Stock):
        def start(self):
            self.started_here = True
            super().start()

    class Mixed(airflow_kubernetes_callbacks.CallbackPodsMixin, Eks):
        pass

    Mixed.__name__ = "KubernetesExecutor"
    monkeypatch.setattr(airflow_kubernetes_callbacks, "KubernetesExecutor", Mixed, raising=False)
    scheduler = new_scheduler()
    assert type(scheduler.executor) is Mixed
    assert scheduler.executor.started_here
    callback_id = new_callback()
    bring_to(api_server, launched(api_server, scheduler, callback_id), "succeeded")
    scheduler.until(lambda: state_of(callback_id) == SUCCESS, "success is recorded")


def test_f13_everything_is_keyed_by_callback_key(api_server, new_scheduler, new_callback):
    scheduler = new_scheduler()
    callback_id = new_callback()
    pod = running(api_server, scheduler, callback_id)
    executor = scheduler.executor
    assert executor.running == {CallbackKey(callback_id)}
    assert callback_id not in executor.running
    api_server.node.finish(pod)
    wait_until(lambda: executor.event_buffer, "event is buffered", step=scheduler.heartbeat)
    assert set(executor.event_buffer) == {CallbackKey(callback_id)}


def test_g1_only_listed_namespaces_are_asked_for(api_server, new_scheduler, new_callback):
    """A Role per namespace: every cluster-wide request is refused."""
    refused = api_server.fail("GET", r"^/api/v1/pods\?", status=403, reason="Forbidden", times=None)
    scheduler = new_scheduler(
        KUBERNETES_EXECUTOR__MULTI_NAMESPACE_MODE="True",
        KUBERNETES_EXECUTOR__MULTI_NAMESPACE_MODE_NAMESPACE_LIST="a,b",
        KUBERNETES_EXECUTOR__NAMESPACE="a",
    )
    stranger = pod_of(
        api_server, new_callback(state=SUCCESS), other_scheduler(3600), "succeeded", namespace="c"
    )
    callback_id = new_callback()
    bring_to(api_server, launched(api_server, scheduler, callback_id), "succeeded")
    scheduler.until(lambda: state_of(callback_id) == SUCCESS, "success is recorded")
    scheduler.settle(rounds=2)
    assert refused.hits == 0
    asked = {found[1] for r in api_server.requests if (found := re.search("/namespaces/([^/]+)/", r.path))}
    assert asked == {"a", "b"}
    assert api_server.store.find("pods", "c", stranger["metadata"]["name"])


def test_g1_namespace_that_is_not_listed_is_told_with_what_to_do_and_not_asked(
    api_server, new_scheduler, new_callback
):
    scheduler = new_scheduler(
        KUBERNETES_EXECUTOR__MULTI_NAMESPACE_MODE="True",
        KUBERNETES_EXECUTOR__MULTI_NAMESPACE_MODE_NAMESPACE_LIST="a,b",
        KUBERNETES_EXECUTOR__NAMESPACE="own",
    )
    callback_id = new_callback()
    scheduler.until(lambda: state_of(callback_id) == FAILED, "failure is recorded")
    assert "The pod would go to namespace 'own'" in output_of(callback_id)
    assert "Set [kubernetes_callbacks] namespace" in output_of(callback_id)
    assert not [request.path for request in api_server.made("LIST") if "/namespaces/own/" in request.path]


def test_all_namespaces_are_one_list(api_server, new_scheduler, new_callback):
    scheduler = new_scheduler(KUBERNETES_EXECUTOR__MULTI_NAMESPACE_MODE="True")
    scheduler.settle(rounds=1)
    lists = api_server.made("LIST", labelSelector="airflow-workload-type=callback")
    assert lists
    assert {request.path for request in lists} == {"/api/v1/pods"}


# The API server at its worst ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        {"status": 500},
        {"status": 502, "body": b"<html>Bad Gateway</html>"},
        {"status": 403, "reason": "Forbidden"},
        {"status": 410, "reason": "Expired"},
        {"status": 200, "body": b"no json"},
        {"status": 200, "body": b"[]"},
        {"status": 200, "body": b'{"kind": "Status", "status": "Success"}'},
        {"reset": True},
    ],
    ids=["500", "502-html", "403", "410", "no-json", "no-object", "no-list", "reset"],
)
def test_c7_list_that_fails_is_tried_again_and_ends_nothing(api_server, new_scheduler, new_callback, answer):
    scheduler = new_scheduler()
    callback_id = new_callback()
    pod = running(api_server, scheduler, callback_id)
    fault = api_server.fail("LIST", "airflow-workload-type", times=None, **answer)
    for _ in range(3):
        before = fault.hits
        scheduler.resync()
        scheduler.until(lambda before=before: fault.hits > before, "list is tried")
    assert (state_of(callback_id), scheduler.events) == (RUNNING, {})
    api_server.heal()
    with api_server.store.unseen():
        api_server.node.finish(pod)
    scheduler.until(lambda: state_of(callback_id) == SUCCESS, "success is recorded", resync=True)


def test_list_that_never_answers_does_not_hold_up_the_loop(api_server, new_scheduler, new_callback):
    gate = threading.Event()
    scheduler = new_scheduler()
    stuck = api_server.fail("LIST", "airflow-workload-type", gate=gate, times=None)
    scheduler.resync()
    wait_until(lambda: stuck.hits, "list is under way", step=scheduler.loop)
    callback_id = new_callback()
    pod = launched(api_server, scheduler, callback_id)
    bring_to(api_server, pod, "succeeded")
    scheduler.until(lambda: state_of(callback_id) == SUCCESS, "success is recorded")
    gate.set()


def test_api_server_that_is_not_there_at_the_start_is_waited_for(
    api_server, new_scheduler, new_callback, kube_environment, tmp_path
):
    """The scheduler lives, and goes on when the API server comes."""
    with FakeApiServer() as gone:
        nowhere = gone.write_kubeconfig(tmp_path / "nowhere")
    retries = {"KUBERNETES_EXECUTOR__API_CLIENT_RETRY_CONFIGURATION": '{"total": 0}'}
    scheduler = new_scheduler(KUBERNETES_EXECUTOR__CONFIG_FILE=str(nowhere), **retries)
    callback_id = new_callback()
    for _ in range(5):
        scheduler.loop()
    assert state_of(callback_id) == QUEUED
    scheduler.crash()
    kube_environment(KUBERNETES_EXECUTOR__CONFIG_FILE=str(api_server.write_kubeconfig(tmp_path / "there")))
    second = new_scheduler()
    launched(api_server, second, callback_id)


def test_g6_list_goes_page_by_page_and_one_that_expires_concludes_nothing(
    api_server, new_scheduler, new_callback, monkeypatch
):
    from airflow_kubernetes_callbacks import pod_client

    monkeypatch.setattr(pod_client, "LIST_PAGE_SIZE", 2)
    ids = [new_callback(state=RUNNING) for _ in range(5)]
    dead = other_scheduler(3600)
    for callback_id in ids:
        pod_of(api_server, callback_id, dead, "running")
    expired = api_server.fail("LIST", "continue=", status=410, reason="Expired", message="continue too old")
    scheduler = new_scheduler()
    scheduler.until(lambda: expired.hits, "second page is refused", resync=True)
    scheduler.until(lambda: scheduler.running == set(ids), "all are adopted", resync=True)
    assert scheduler.events == {}
    assert all(state_of(callback_id) == RUNNING for callback_id in ids)


# The database at its worst --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", ["rows", "record_launches", "active_states", "alive_schedulers", "make_workload"]
)
def test_g10_database_that_fails_is_tried_again(api_server, new_scheduler, new_callback, monkeypatch, method):
    """A deadlock, a failover: nothing raises out of the loop, and nothing is lost."""
    original = getattr(CallbackStore, method)
    failures = itertools.chain([True] * 3, itertools.repeat(False))

    def fail_at_first(self, *args, **kwargs):
        if next(failures):
            raise OperationalError("SELECT", {}, Exception("1213 Deadlock found"))
        return original(self, *args, **kwargs)

    orphan = new_callback(state=QUEUED)
    scheduler = new_scheduler()
    monkeypatch.setattr(CallbackStore, method, fail_at_first)
    scheduler.until(lambda: api_server.count("POST", PODS), "launched", resync=True)
    pod = launched(api_server, scheduler, orphan)
    bring_to(api_server, pod, "succeeded")
    scheduler.until(lambda: state_of(orphan) == SUCCESS, "success is recorded", resync=True)
    assert api_server.count("POST", PODS) == 1


# The end --------------------------------------------------------------------------------------------


def test_g8_end_is_bounded_and_what_was_not_created_is_found_by_the_next_scheduler(
    api_server, new_scheduler, new_callback, creation
):
    first = new_scheduler(**creation)
    ids = [new_callback() for _ in range(3)]
    gate = threading.Event()
    stuck = api_server.fail("POST", PODS, gate=gate, times=None, status=503)
    first.until(lambda: stuck.hits, "creates are under way")
    start = time.monotonic()
    first.stop()
    assert time.monotonic() - start < 10
    assert {state_of(callback_id) for callback_id in ids} == {QUEUED}
    api_server.heal()
    gate.set()
    second = new_scheduler(**creation)
    for callback_id in ids:
        launched(api_server, second, callback_id)
    assert len(api_server.pods()) == 3


def test_end_can_be_called_twice(new_scheduler):
    scheduler = new_scheduler()
    scheduler.executor.end()
    scheduler.executor.end()


# A budget for callbacks -----------------------------------------------------------------------------


def test_callbacks_beyond_their_budget_wait_and_leave_slots_to_tasks(api_server, new_scheduler, new_callback):
    scheduler = new_scheduler(KUBERNETES_CALLBACKS__MAX_ACTIVE_CALLBACKS="2", CORE__PARALLELISM="8")
    ids = [new_callback() for _ in range(5)]
    scheduler.until(lambda: len(api_server.pods()) == 2, "two pods")
    scheduler.settle(rounds=3)
    assert len(api_server.pods()) == 2
    assert scheduler.executor.slots_available == 6

    def next_turn():
        for pod in api_server.pods():
            if pod["status"]["phase"] == "Pending":
                bring_to(api_server, pod, "succeeded")
        assert len(scheduler.running) <= 2
        return all(state_of(callback_id) == SUCCESS for callback_id in ids)

    wait_until(next_turn, "all get their turn", step=scheduler.loop)
    assert api_server.count("POST", PODS) == 5


def test_parked_callback_that_ended_meanwhile_gets_no_pod(api_server, new_scheduler, new_callback):
    scheduler = new_scheduler(KUBERNETES_CALLBACKS__MAX_ACTIVE_CALLBACKS="1")
    first, second = new_callback(), new_callback()
    scheduler.until(api_server.pods, "one pod")
    [pod] = api_server.pods()
    waiting = {first, second} - {pod["metadata"]["annotations"]["callback_id"]}
    set_row(next(iter(waiting)), state=FAILED, output="cancelled")
    bring_to(api_server, pod, "succeeded")
    scheduler.until(lambda: not api_server.pods(), "pod is deleted")
    scheduler.settle(rounds=2)
    assert api_server.count("POST", PODS) == 1
    assert scheduler.executor.slots_occupied == 0


# Tasks are untouched --------------------------------------------------------------------------------


def told_by(executor, server, workloads):
    """Drive the executor through the life of some tasks; return all that can be seen of it from outside."""
    events = []

    def drain():
        events.append(
            [
                (str(key), str(state), undated(info))
                for key, (state, info) in executor.get_event_buffer().items()
            ]
        )

    def until(condition, what):
        wait_until(condition, what, step=executor.heartbeat)

    def pods():
        return {pod["metadata"]["annotations"]["task_id"]: pod for pod in server.pods()}

    by_task = {workload.ti.task_id: workload for workload in workloads}
    first = [by_task[task_id] for task_id in ("succeeds", "fails", "lost", "overridden")]
    for workload in first:
        executor.queue_workload(workload, session=None)
    until(lambda: len(pods()) == 4, "pods of tasks")
    drain()
    for stage in ("bind", "start"):
        for task_id in ("succeeds", "fails", "lost"):
            getattr(server.node, stage)(pods()[task_id])
    server.node.finish(pods()["succeeds"])
    until(lambda: executor.event_buffer, "success")
    drain()
    server.node.finish(pods()["fails"], 1)
    until(lambda: executor.event_buffer, "failure")
    drain()
    lost = pods()["lost"]
    server.store.delete("pods", "airflow", lost["metadata"]["name"], {})
    server.node.remove(lost)
    until(lambda: server.count("POST", PODS) == 5, "the lost one is launched again")
    drain()
    server.fail("POST", PODS, status=422, reason="Invalid", message="no such thing")
    executor.queue_workload(by_task["refused"], session=None)
    until(lambda: any(state == "failed" for state, _ in executor.event_buffer.values()), "refusal")
    drain()
    adopted = json.loads(json.dumps(pods()["overridden"]))
    adopted["metadata"] |= {
        "name": "left-behind",
        "labels": {**adopted["metadata"]["labels"], "airflow-worker": "1"},
    }
    server.node.finish(server.store.create("pods", "airflow", adopted))
    executor._last_completed_pod_adoption = -1e9
    until(lambda: "left-behind" not in {pod["metadata"]["name"] for pod in server.pods()}, "adoption")
    drain()
    posts = [normal(r.body) for r in server.made("POST", PODS)]
    changes = [
        (r.method, named(r.path), normal(r.body)) for r in server.requests if r.method in ("PATCH", "DELETE")
    ]
    return {
        "pods": sorted(posts, key=str),
        "changes": changes,
        "events": events,
        "running": sorted(map(str, executor.running)),
        "slots": executor.slots_available,
    }


def undated(info):
    return re.sub("Date': '[^']*'", "Date': ''", str(info))


def named(text):
    """Without the random end of pod names."""
    return re.sub(r"(tasks-[a-z]+)-[a-z0-9]{8}", r"\1-RANDOM", text)


def normal(body):
    return json.loads(named(json.dumps(body, sort_keys=True)))


@pytest.mark.parametrize("asynchronous", ["False", "True"], ids=["sequential", "async"])
def test_tasks_get_the_pods_and_events_of_the_stock_executor(
    session, kube_environment, in_one_process, executor_names, tmp_path, asynchronous
):
    override = k8s.V1Pod(
        metadata=k8s.V1ObjectMeta(labels={"release": "stable"}),
        spec=k8s.V1PodSpec(containers=[k8s.V1Container(name="base", env=[k8s.V1EnvVar("A", "1")])]),
    )
    kube_environment(KUBERNETES_EXECUTOR__ASYNC_POD_CREATION=asynchronous)
    job_id = int(other_scheduler())
    names = ["succeeds", "fails", "lost", "overridden", "refused"]
    workloads = queued_tasks(
        "tasks", names, job_id, overridden={"executor_config": {"pod_override": override}}
    )
    told = {}
    for kind in (Stock, airflow_kubernetes_callbacks.KubernetesExecutor):
        with FakeApiServer() as server:
            kube_environment(
                KUBERNETES_EXECUTOR__CONFIG_FILE=str(server.write_kubeconfig(tmp_path / "config"))
            )
            executor = kind()
            executor.job_id = job_id
            executor.start()
            try:
                told[kind] = told_by(executor, server, workloads)
            finally:
                executor.end()
    stock, ours = told.values()
    assert len(stock["pods"]) == 6
    assert [len(step) for step in stock["events"]] == [4, 1, 1, 0, 1, 1]
    for aspect, seen in stock.items():
        assert ours[aspect] == seen, aspect


def test_tasks_and_callbacks_in_one_heartbeat_go_their_own_ways(
    api_server, new_scheduler, new_callback, creation
):
    scheduler = new_scheduler(**creation)
    tasks = queued_tasks("tasks", ["one", "two"], scheduler.job_id)
    ids = [new_callback() for _ in range(2)]
    for workload in tasks:
        scheduler.executor.queue_workload(workload, session=None)
    scheduler.until(lambda: len(api_server.pods()) == 4, "all are created")
    labels = [pod["metadata"]["labels"] for pod in api_server.pods()]
    assert sum("kubernetes_executor" in pod for pod in labels) == 2
    assert {pod["callback-id"] for pod in labels if "kubernetes_executor" not in pod} == set(ids)
    for pod in api_server.pods():
        bring_to(api_server, pod, "succeeded")
    scheduler.until(lambda: all(state_of(callback_id) == SUCCESS for callback_id in ids), "recorded")
    scheduler.until(lambda: not api_server.pods(), "pods are deleted")
    assert scheduler.executor.running == set()


def test_event_of_a_callback_that_cannot_be_read_spins_nothing(new_scheduler, new_callback, api_server):
    """The stock loop puts a result whose handling failed back into the queue that it drains."""
    from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_types import KubernetesResults

    scheduler = new_scheduler()
    callback_id = new_callback()
    bad = KubernetesResults(CallbackKey(callback_id), "succeeded", "x", "airflow", "1", {"outcome": "?"})
    scheduler.executor.result_queue.put(bad)
    scheduler.heartbeat()
    assert scheduler.executor.result_queue.empty()
    launched(api_server, scheduler, callback_id)


def test_task_that_is_annotated_like_a_callback_is_created_and_told_of_as_a_task(
    api_server, new_scheduler, creation
):
    scheduler = new_scheduler(**creation)
    marks = k8s.V1ObjectMeta(
        annotations={"callback_id": "018f0000-0000-7000-8000-00000000000a"}, labels={"callback-id": "42"}
    )
    [workload] = queued_tasks(
        "tasks",
        ["one"],
        scheduler.job_id,
        one={"executor_config": {"pod_override": k8s.V1Pod(metadata=marks)}},
    )
    scheduler.executor.queue_workload(workload, session=None)
    scheduler.until(api_server.pods, "it is created")
    [pod] = api_server.pods()
    assert pod["metadata"]["annotations"]["callback_id"]
    bring_to(api_server, pod, "succeeded")
    scheduler.until(lambda: not api_server.pods(), "its pod is deleted")
    assert scheduler.executor.running == set()
