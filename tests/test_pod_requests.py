"""Requests that threads make: launches go on however slow the database is; one bad thing keeps nothing else."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace

import pytest
from kubernetes.client.rest import ApiException
from sqlalchemy.exc import OperationalError

from airflow_kubernetes_callbacks import launches, pod_requests
from airflow_kubernetes_callbacks.actions import LookFor
from airflow_kubernetes_callbacks.errors import LaunchError, SecretRefusedError
from airflow_kubernetes_callbacks.pod_launcher import Launched, LaunchOrder
from airflow_kubernetes_callbacks.pod_requests import Requests
from airflow_kubernetes_callbacks.situation import PodRequest, RowState, RowView
from tests.fakes.scheduler import wait_until
from tests.test_cache import view


class SlowStore:
    """Rows that are QUEUED, read and made into workloads as slowly as is asked for."""

    def __init__(self, clock, reading=0.0, making=0.0):
        self.clock, self.reading, self.making = clock, reading, making
        self.reads = []
        self.failing = {}

    def rows(self, callback_ids):
        self.clock.now += self.reading
        self.reads.append(list(callback_ids))
        return {cid: RowView(cid, RowState.QUEUED) for cid in callback_ids}

    def make_workload(self, callback_id, generator):
        self.clock.now += self.making
        if callback_id in self.failing:
            raise self.failing[callback_id]
        return callback_id


class Launcher:
    def __init__(self, clock, seconds=0.0):
        self.clock, self.seconds = clock, seconds
        self.launched = []

    def launch(self, orders):
        self.clock.now += self.seconds
        self.launched.append([order.callback_id for order, _ in orders])
        return [Launched(view(callback_id=order.callback_id)) for order, _ in orders]


class Immediate:
    """A pool that does nothing by itself."""

    def __init__(self, size, name):
        pass

    def submit(self, work):
        pass


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(launches, "time", SimpleNamespace(monotonic=lambda: clock.now))
    for module in (launches, pod_requests):
        monkeypatch.setattr(module, "WorkerPool", Immediate)
    return clock


def requests_of(store, launcher, **options):
    return Requests(
        client=None,
        store=store,
        launcher=launcher,
        token_generator=lambda: None,
        me="7",
        **{"concurrency": 1, **options},
    )


def order(requests, count, workload=None):
    for number in range(count):
        requests.launch(LaunchOrder(f"id-{number}", 1, workload))


def launch_all(requests, count):
    """Do what the pool is given to do for *count* launches."""
    for _ in range(count):
        requests._launches._launch_some()


@pytest.mark.parametrize(
    ("store", "options"),
    [
        pytest.param({"reading": 1.05}, {}, id="rows-are-read-slowly"),
        pytest.param({"reading": 30.0}, {}, id="rows-are-read-very-slowly"),
        pytest.param({"making": 0.2}, {}, id="workloads-are-made-slowly"),
        pytest.param({"making": 0.05}, {"batch_size": 100}, id="in-batches"),
        pytest.param({"reading": 1.05, "making": 0.2}, {"batch_size": 3}, id="both-in-batches"),
    ],
)
def test_slow_database_slows_launches_down_and_does_not_stop_them(clock, store, options):
    store, launcher = SlowStore(clock, **store), Launcher(clock)
    requests = requests_of(store, launcher, **options)
    order(requests, 8)
    launch_all(requests, 8)
    assert sorted(cid for some in launcher.launched for cid in some) == [f"id-{n}" for n in range(8)]
    assert len(store.reads) <= 8


def test_rows_that_were_read_a_while_ago_are_read_again_before_their_launch(clock):
    store, launcher = SlowStore(clock), Launcher(clock, seconds=0.6)
    requests = requests_of(store, launcher)
    order(requests, 4, "workload")
    launch_all(requests, 4)
    assert launcher.launched == [["id-0"], ["id-1"], ["id-2"], ["id-3"]]
    assert store.reads == [["id-0", "id-1", "id-2", "id-3"], ["id-2", "id-3"]]


def test_rows_that_were_read_slowly_do_for_one_launch_of_each_thread(clock):
    store, launcher = SlowStore(clock, reading=1.05), Launcher(clock)
    requests = requests_of(store, launcher, concurrency=4)
    order(requests, 8, "workload")
    launch_all(requests, 8)
    assert len(launcher.launched) == 8
    assert [len(read) for read in store.reads] == [8, 4]


def test_threads_go_on_beside_one_whose_connection_hangs(clock, monkeypatch):
    monkeypatch.setattr(launches, "_HANGS_AFTER", 0.01)
    store, launcher = SlowStore(clock), Launcher(clock)
    requests = requests_of(store, launcher)
    order(requests, 2, "workload")
    with requests._launches._taking:  # by the one that hangs
        launch_all(requests, 2)
    assert launcher.launched == [["id-0"], ["id-1"]]


def test_error_of_a_driver_while_rows_are_read_is_no_reason_to_give_up(clock):
    def rows(callback_ids):
        raise AttributeError("'NoneType' object has no attribute 'read'")

    requests = requests_of(SimpleNamespace(rows=rows), Launcher(clock))
    order(requests, 3, "workload")
    launch_all(requests, 3)
    assert [answer.failure.retryable for answer in requests.answers()] == [True] * 3


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        pytest.param(LaunchError("no such Dag run"), False, id="never"),
        pytest.param(OperationalError("SELECT", {}, Exception("gone away")), True, id="no-database"),
        pytest.param(AttributeError("'NoneType' has no attribute 'read'"), True, id="driver"),
    ],
)
def test_callback_whose_workload_cannot_be_made_costs_itself_only(clock, error, retryable):
    store, launcher = SlowStore(clock), Launcher(clock)
    store.failing["bad"] = error
    requests = requests_of(store, launcher)
    requests.launch(LaunchOrder("bad", 1, None))
    order(requests, 2)
    launch_all(requests, 3)
    answers = {answer.callback_id: answer for answer in requests.answers()}
    assert str(error).splitlines()[0] in answers["bad"].failure.message
    assert answers["bad"].failure.retryable is retryable
    assert {cid for cid, answer in answers.items() if answer.view is not None} == {"id-0", "id-1"}


@pytest.mark.parametrize(
    ("error", "condemned"),
    [
        pytest.param(
            SecretRefusedError("Could not start: the Secret was refused"), True, id="secret-refused"
        ),
        pytest.param(LaunchError("the template is broken just now"), False, id="cannot-be-planned-now"),
        pytest.param(ConnectionResetError(104, "reset"), False, id="no-answer"),
    ],
)
def test_only_a_refused_secret_condemns_the_pod_that_waits_for_it(error, condemned):
    class Refusing(Launcher):
        def ensure_payload(self, pod, make_workload):
            raise error

    clock = SimpleNamespace(now=time.monotonic())
    requests = requests_of(SlowStore(clock), Refusing(clock))
    pod = view()
    requests.ensure_payload(pod)
    wait_until(lambda: not requests._answers.empty(), "answered")
    [answer] = requests.answers()
    requests.stop()
    assert answer.condemned == (pod if condemned else None)
    assert answer.failure.retryable is not condemned
    assert str(error) in answer.failure.message


def told(status, body=""):
    error = ApiException(status=status)
    error.body = body
    return error


@pytest.mark.parametrize(
    ("answer", "gone"),
    [
        pytest.param(view(owner="", version="101"), False, id="there-without-labels"),
        pytest.param(view(uid="another"), True, id="a-new-pod-of-that-name"),
        pytest.param(None, True, id="not-there"),
        pytest.param(told(403, '{"kind": "Status", "reason": "Forbidden"}'), True, id="list-has-to-do"),
        pytest.param(told(404, "<html>"), None, id="404-of-a-proxy"),
        pytest.param(told(503), None, id="503"),
    ],
)
def test_pod_that_a_list_did_not_have_is_gone_if_its_name_is_free_or_a_new_pods(clock, answer, gone):
    def read_pod(namespace, name, *, id_of):
        if isinstance(answer, Exception):
            raise answer
        assert id_of({}) == view().callback_id  # whatever has become of its annotations
        return answer

    requests = requests_of(None, None)
    requests._client = SimpleNamespace(read_pod=read_pod)
    if gone is None:
        with pytest.raises(ApiException):
            requests._look_for(view())
    else:
        assert requests._look_for(view()).gone is gone


@pytest.mark.parametrize(
    ("found", "failed"),
    [
        pytest.param(view(owner=""), False, id="there"),
        pytest.param(None, False, id="not-there"),
        pytest.param(told(503), True, id="no-answer-yet"),
    ],
)
def test_look_by_name_is_answered_as_made_unless_it_failed(found, failed):
    def read_pod(namespace, name, *, id_of):
        if isinstance(found, Exception):
            raise found
        return found

    requests = requests_of(None, None)
    requests._client = SimpleNamespace(read_pod=read_pod)
    requests.find(view().callback_id, LookFor("airflow", view().name))
    wait_until(lambda: not requests._answers.empty(), "answered")
    [answer] = requests.answers()
    requests.stop()
    assert answer.callback_id == view().callback_id
    if failed:
        assert (answer.looked_for, answer.view, answer.failure.retryable) == (None, None, True)
        assert f"airflow/{view().name} failed: 503" in answer.failure.message
    else:
        assert (answer.looked_for, answer.view) == (("airflow", view().name), found)


ROLES = 'cannot get resource "pods" ... RBAC: role.rbac.authorization.k8s.io "scheduler" not found'


def test_pod_that_may_not_be_read_for_lack_of_roles_is_gone_when_they_stay_away(clock, monkeypatch):
    """The API server may have just started; or they were deleted, and its callback must come to an end."""
    monkeypatch.setattr(pod_requests, "time", SimpleNamespace(monotonic=lambda: clock.now))
    answers = [ROLES, ROLES, None, ROLES, ROLES]

    def read_pod(*_, **__):
        if (answer := answers.pop(0)) is None:
            return view()
        raise told(403, json.dumps({"kind": "Status", "message": answer}))

    requests = requests_of(None, None)
    requests._client = SimpleNamespace(read_pod=read_pod)
    seen = []
    for later in (0, 30, 10, 50, 60):
        clock.now += later
        try:
            seen.append(requests._look_for(view()).gone)
        except ApiException:
            seen.append(None)
    assert seen == [None, None, False, None, True]


def test_look_by_name_that_lacks_a_role_for_long_has_found_nothing(clock, monkeypatch):
    monkeypatch.setattr(pod_requests, "time", SimpleNamespace(monotonic=lambda: clock.now))

    class AtOnce(Immediate):
        def submit(self, work):
            work()

    monkeypatch.setattr(pod_requests, "WorkerPool", AtOnce)

    def read_pod(*_, **__):
        raise told(403, json.dumps({"kind": "Status", "message": ROLES}))

    requests = requests_of(None, None)
    requests._client = SimpleNamespace(read_pod=read_pod)
    looked_for = []
    for later in (0, 59, 1):
        clock.now += later
        requests.find(view().callback_id, LookFor("airflow", view().name))
        looked_for += [answer.looked_for for answer in requests.answers()]
    assert looked_for == [None, None, ("airflow", view().name)]


WEBHOOK = 'admission webhook "x.y" denied the request: Get "https://registry": dial tcp: no such host'


@pytest.mark.parametrize(
    ("asked", "retryable"), [(PodRequest.ADOPT, False), (None, True)], ids=["other-way", "none"]
)
@pytest.mark.parametrize("message", [WEBHOOK, ROLES], ids=["admission", "roles-are-not-read"])
def test_refusal_that_may_pass_is_not_waited_out_where_there_is_another_way(message, asked, retryable):
    body = json.dumps({"kind": "Status", "code": 403, "message": message})
    answer = pod_requests._failed(view(), told(403, body), asked)
    assert answer.failure.retryable is retryable
    assert message in answer.failure.message


@pytest.mark.parametrize("status", [None, 403], ids=["done", "refused"])
def test_answer_tells_what_was_asked_for(clock, status):
    requests = requests_of(None, None)

    def adopt():
        if status:
            raise told(status)
        return view()

    requests._pool = SimpleNamespace(submit=lambda work: work())
    requests._client = SimpleNamespace(read_pod=lambda *_, **__: view())
    requests._submit(view(), adopt, asked=PodRequest.ADOPT)
    assert [answer.asked for answer in requests.answers()] == [(PodRequest.ADOPT, view().uid)]


def test_pod_that_goes_with_its_finalizer_is_known_to_be_gone():
    requests = requests_of(None, None)
    requests._client = SimpleNamespace(remove_finalizer=lambda pod: None, read_pod=lambda *_, **__: None)
    assert requests._remove_finalizer(view(finalizer=True)).gone


def test_pod_that_cannot_be_read_has_lost_its_finalizer_all_the_same():
    def read_pod(*_, **__):
        raise told(403)

    requests = requests_of(None, None)
    requests._client = SimpleNamespace(remove_finalizer=lambda pod: None, read_pod=read_pod)
    after = requests._remove_finalizer(view(finalizer=True))
    assert (after.finalizer, after.gone) == (False, False)
