"""Creation of callback pods on both stock paths, whatever the API server answers. Cases C, D and E.

The real client speaks HTTP with a fake API server; ``async_pod_creation`` is off and on.
"""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time

import jwt
import pytest
from airflow import settings as airflow_settings
from airflow.models.log import Log
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_kubernetes_callbacks.version_compat import EXECUTION_API_OWNS_RUNNING
from tests.fakes.life import bring_to, launched, pod_document, pod_of
from tests.fakes.scheduler import data_of, output_of, set_row, state_of, wait_until

QUEUED, SUCCESS, FAILED = "queued", "success", "failed"
OTHER_ID = "018f0000-0000-7000-8000-00000000000b"
PODS = "/pods$"


@pytest.fixture(params=["False", "True"], ids=["sequential", "async"])
def creation(request):
    """Both stock paths of creating pods."""
    return {"KUBERNETES_EXECUTOR__ASYNC_POD_CREATION": request.param}


@pytest.fixture
def scheduler(new_scheduler, creation):
    return new_scheduler(**creation)


@pytest.fixture
def hook(monkeypatch):
    """Set the deployment's ``pod_mutation_hook``."""

    def set_hook(function):
        monkeypatch.setattr(airflow_settings, "pod_mutation_hook", function, raising=False)

    return set_hook


def callback_of(pod):
    return pod["metadata"]["annotations"]["callback_id"]


def fails_for_good(scheduler, api_server, callback_id, *words, requests=1):
    scheduler.until(lambda: state_of(callback_id) == FAILED, "failure is recorded")
    for word in words:
        assert word in output_of(callback_id)
    scheduler.settle(rounds=2)
    assert scheduler.running == set()
    assert api_server.count("POST", PODS) == requests


# Refused for now ------------------------------------------------------------------------------------

QUOTA = 'pods "callback" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=5, limited: pods=5'
MODIFIED = (
    'Operation cannot be fulfilled on resourcequotas "pods": the object has been modified; please apply'
)
QUOTA_IS_NEW = 'pods "callback" is forbidden: status unknown for quota: alerts, resources: limits.cpu,pods'
FOR_NOW = [
    pytest.param({"status": 403, "reason": "Forbidden", "message": QUOTA}, id="C1-quota"),
    pytest.param({"status": 403, "reason": "Forbidden", "message": QUOTA_IS_NEW}, id="quota-is-new"),
    pytest.param({"status": 409, "reason": "Conflict", "message": MODIFIED}, id="C3-conflict"),
    pytest.param({"status": 409, "body": MODIFIED.encode()}, id="C3-conflict-as-plain-text"),
    pytest.param({"status": 429, "body": b"Too many requests, please try again later.\n"}, id="429"),
    pytest.param(
        {"status": 429, "message": "slow down", "headers": {"Retry-After": "0"}}, id="429-retry-after"
    ),
    pytest.param(
        {"status": 500, "message": "failed calling webhook: connection refused"}, id="C15-webhook-down"
    ),
    pytest.param({"status": 502, "body": b"<html><h1>502 Bad Gateway</h1></html>"}, id="C7-html"),
    pytest.param({"status": 503}, id="503"),
    pytest.param({"status": 404, "body": b"404 page not found\n"}, id="404-that-is-not-the-servers"),
    pytest.param({"reset": True}, id="C4-reset-before-it-was-stored"),
]


@pytest.mark.parametrize("answer", FOR_NOW)
def test_creation_that_is_refused_for_now_is_tried_again_beside_other_work(
    api_server, scheduler, new_callback, answer
):
    refused = new_callback()
    fault = api_server.fail("POST", PODS, times=3, **answer)
    scheduler.until(lambda: fault.hits == 3, "refused three times", resync=True)
    other = new_callback()
    launched(api_server, scheduler, other)
    pod = launched(api_server, scheduler, refused)
    assert {callback_of(p) for p in api_server.pods()} == {refused, other}
    assert (state_of(refused), scheduler.events) == (QUEUED, {})
    bring_to(api_server, pod, "succeeded")
    scheduler.until(lambda: state_of(refused) == SUCCESS, "success is recorded")


@pytest.mark.parametrize("answer", FOR_NOW)
def test_creation_that_is_refused_too_often_fails_with_the_servers_words(
    api_server, new_scheduler, new_callback, creation, answer
):
    scheduler = new_scheduler(KUBERNETES_CALLBACKS__CREATE_RETRIES="1", **creation)
    callback_id = new_callback()
    api_server.fail("POST", PODS, times=None, **answer)
    fails_for_good(scheduler, api_server, callback_id, "2 tries", requests=2)


def test_c1_failure_names_the_quota(api_server, new_scheduler, new_callback, creation):
    scheduler = new_scheduler(KUBERNETES_CALLBACKS__CREATE_RETRIES="0", **creation)
    callback_id = new_callback()
    api_server.fail("POST", PODS, times=None, status=403, reason="Forbidden", message=QUOTA)
    fails_for_good(scheduler, api_server, callback_id, "exceeded quota: pods", "limited: pods=5")


@pytest.mark.parametrize(
    ("asked", "seconds"), [("120", 120), ("3600", 300)], ids=["as-asked", "no-longer-than-the-longest-delay"]
)
def test_delay_before_the_next_try_is_what_the_server_asks(
    api_server, new_scheduler, new_callback, creation, asked, seconds
):
    scheduler = new_scheduler(**creation)
    callback_id = new_callback()
    fault = api_server.fail("POST", PODS, status=429, headers={"Retry-After": asked})
    scheduler.until(lambda: fault.hits, "refused")
    scheduler.settle(rounds=2)
    track = scheduler.callbacks.cache.track(callback_id)
    assert seconds - 10 < track.retry_at - time.time() < seconds + 1
    assert api_server.count("POST", PODS) == 1
    assert scheduler.running == {callback_id}


# Refused for good -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param(
            {"status": 404, "reason": "NotFound", "message": 'namespaces "airflow" not found'},
            ('namespaces "airflow" not found', "Create the namespace"),
            id="C2-no-namespace",
        ),
        pytest.param(
            {"status": 403, "reason": "Forbidden", "message": "User scheduler cannot create resource pods"},
            ("User scheduler cannot create resource pods", "Grant"),
            id="C2-forbidden",
        ),
        pytest.param(
            {"status": 400, "message": "admission webhook denied the request: no latest tags"},
            ("no latest tags",),
            id="C15-denied",
        ),
        pytest.param(
            {"status": 422, "reason": "Invalid", "message": 'spec.volumes[1].name: Duplicate value: "logs"'},
            ("Duplicate value",),
            id="C17-invalid",
        ),
        pytest.param(
            {"status": 500, "message": "etcdserver: request is too large"},
            ("request is too large",),
            id="D2-etcd-limit",
        ),
        pytest.param({"status": 413, "body": b"Request entity too large"}, ("too large",), id="D2-413"),
    ],
)
def test_creation_that_is_refused_for_good_fails_at_once(api_server, scheduler, new_callback, answer, words):
    callback_id = new_callback()
    api_server.fail("POST", PODS, times=None, **answer)
    fails_for_good(scheduler, api_server, callback_id, "Could not start", *words)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        pytest.param(lambda found: found.pop("annotations"), "its annotations", id="annotations"),
        pytest.param(lambda found: found.pop("labels"), "label callback-attempt and label", id="labels"),
        *(
            pytest.param(lambda found, key=key: found["labels"].pop(key), f"its label {key} and", id=key)
            for key in ("airflow-worker", "airflow-workload-type", "callback-id", "callback-attempt")
        ),
        pytest.param(
            lambda found: found["labels"].update({"airflow-worker": "x"}),
            "airflow-worker",
            id="owner-changed",
        ),
        pytest.param(
            lambda found: found["annotations"].update({"callback_id": OTHER_ID}),
            "annotations",
            id="id-changed",
        ),
    ],
)
def test_pod_that_admission_makes_unrecognisable_is_deleted_at_once(
    api_server, scheduler, new_callback, monkeypatch, change, told
):
    """Nobody would find it again: it would send its alert, and its row would say that it did not start."""
    real = api_server.store.create

    def admit(plural, namespace, body):
        if plural == "pods":
            change(body["metadata"])
        return real(plural, namespace, body)

    monkeypatch.setattr(api_server.store, "create", admit)
    callback_id = new_callback()
    scheduler.until(lambda: state_of(callback_id) == FAILED, "failure is recorded")
    assert "admission webhooks" in output_of(callback_id)
    assert told in output_of(callback_id)
    assert api_server.count("POST", PODS) == 1
    assert api_server.pods() == []


def test_c2_one_bad_callback_costs_itself_only(api_server, scheduler, new_callback, hook):
    bad, good = new_callback(path="alerts.bad"), new_callback(path="alerts.good")
    api_server.fail("POST", PODS, status=422, reason="Invalid", message="no")
    scheduler.until(lambda: FAILED in (state_of(bad), state_of(good)), "one fails")
    [pod] = scheduler.until(api_server.pods, "the other is launched")
    assert state_of(callback_of(pod)) == QUEUED


# Stored, and the answer lost ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param({"reset": True}, id="C4-connection-reset"),
        pytest.param(
            {"status": 500, "reason": "ServerTimeout", "message": "timed out"}, id="C5-server-timeout"
        ),
        pytest.param({"status": 504, "body": b"<html>Gateway Timeout</html>"}, id="gateway-timeout"),
    ],
)
def test_pod_whose_answer_was_lost_is_found_and_not_made_twice(api_server, scheduler, new_callback, loss):
    callback_id = new_callback()
    api_server.fail("POST", PODS, after_storing=True, **loss)
    pod = launched(api_server, scheduler, callback_id)
    scheduler.until(
        lambda: api_server.count("POST", PODS) == 2 or scheduler.callbacks.cache.pods(callback_id), "found"
    )
    bring_to(api_server, pod, "succeeded")
    scheduler.until(lambda: state_of(callback_id) == SUCCESS, "success is recorded")
    assert len({p["metadata"]["uid"] for p in api_server.pods()} | {pod["metadata"]["uid"]}) == 1


TAKEN = {"status": 409, "reason": "AlreadyExists", "message": "already exists", "times": None}
NOT_NOW = {"status": 429, "message": "slow down", "times": None}


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param([("POST", "/secrets", NOT_NOW)], id="created-and-its-secret-is-refused"),
        pytest.param(
            [("POST", PODS, TAKEN), ("GET", "/pods/callback", NOT_NOW)], id="there-already-and-not-readable"
        ),
        pytest.param([("POST", PODS, TAKEN)], id="there-already-and-gone-when-read"),
    ],
)
def test_launch_that_fails_after_the_pod_was_there_is_remembered_as_one_that_created_it(
    api_server, scheduler, new_callback, faults
):
    """The failure's own answer, a refusal, says of itself that nothing was created."""
    for method, path, how in faults:
        api_server.fail(method, path, **how)
    callback_id = new_callback()
    track = scheduler.callbacks.cache.track(callback_id)
    scheduler.until(lambda: track.create_failures, "the launch has failed")
    assert track.may_be_created


@pytest.mark.parametrize(
    "answer",
    [{"status": 429}, {"status": 403, "reason": "Forbidden", "message": QUOTA}],
    ids=["429", "quota"],
)
def test_launch_that_is_refused_at_once_is_remembered_as_one_that_created_nothing(
    api_server, scheduler, new_callback, answer
):
    api_server.fail("POST", PODS, times=None, **answer)
    callback_id = new_callback()
    track = scheduler.callbacks.cache.track(callback_id)
    scheduler.until(lambda: track.create_failures, "the launch has failed")
    assert not track.may_be_created


def test_secret_of_a_pod_whose_answer_was_lost_is_made(api_server, scheduler, new_callback):
    """Without it the pod would wait for its volume until the pending timeout."""
    callback_id = new_callback()
    api_server.fail("POST", PODS, after_storing=True, reset=True)
    launched(api_server, scheduler, callback_id)
    [secret] = scheduler.until(api_server.secrets, "secret is made", resync=True)
    assert secret["metadata"]["name"].startswith(f"callback-{callback_id}")


def hold_name(api_server, callback_id, owner, *, attempt=1):
    """Put a pod of another callback, or of none where there is no owner, where this callback's pod would be."""
    pod = (
        pod_document(OTHER_ID, owner) if owner else {"metadata": {}, "spec": {"containers": [{"name": "x"}]}}
    )
    pod["metadata"]["name"] = f"callback-{callback_id}-{attempt}"
    return api_server.store.create("pods", "airflow", pod)


@pytest.mark.parametrize("lost", [False, True], ids=["at-once", "after-a-lost-answer"])
@pytest.mark.parametrize("whose", ["a-siblings", "with-our-label", "no-callbacks"])
def test_c4_launch_whose_name_another_pod_has_takes_the_next_name(
    api_server, scheduler, new_callback, whose, lost
):
    callback_id = new_callback()
    held = hold_name(api_server, callback_id, {"a-siblings": "99", "with-our-label": scheduler.me}.get(whose))
    if lost:
        api_server.fail("POST", PODS, reset=True)
    name = f"callback-{callback_id}-2"
    if lost and whose == "no-callbacks":
        # It may be this callback's, made by the try without answer and stripped: it may have begun.
        fails_for_good(scheduler, api_server, callback_id, "already exists", "no callback's", requests=2)
        return
    scheduler.until(lambda: api_server.store.find("pods", "airflow", name), "launched under another name")
    pod = api_server.store.get("pods", "airflow", name)
    assert pod["metadata"]["labels"]["callback-attempt"] == "2"
    [secret] = scheduler.until(api_server.secrets, "secret is made")
    assert secret["metadata"]["name"].startswith(name)
    bring_to(api_server, pod, "succeeded")
    scheduler.until(lambda: state_of(callback_id) == SUCCESS, "success is recorded")
    assert api_server.store.get("pods", "airflow", held["metadata"]["name"]) == held
    assert scheduler.executor.kube_scheduler._created == {}


def test_c4_further_launch_whose_name_another_pod_has_takes_the_next_name(
    api_server, scheduler, new_callback
):
    callback_id = new_callback()
    first = launched(api_server, scheduler, callback_id)
    hold_name(api_server, callback_id, "99", attempt=2)
    api_server.node.fail(first, "OutOfcpu", "Pod was rejected")
    name = f"callback-{callback_id}-3"
    scheduler.until(lambda: api_server.store.find("pods", "airflow", name), "launched under another name")


def test_c4_name_that_another_pod_has_is_told_where_no_try_is_left(
    api_server, new_scheduler, new_callback, creation
):
    """Nothing of that pod is touched."""
    scheduler = new_scheduler(KUBERNETES_CALLBACKS__CREATE_RETRIES="0", **creation)
    callback_id = new_callback()
    hold_name(api_server, callback_id, None)
    fails_for_good(scheduler, api_server, callback_id, "already exists", "no callback's")
    assert api_server.count("DELETE") == api_server.count("PATCH") == 0


def test_c4_name_of_another_pod_that_is_being_deleted_is_waited_for(api_server, scheduler, new_callback):
    callback_id = new_callback()
    held = hold_name(api_server, callback_id, "99")
    api_server.store.update(
        "pods",
        "airflow",
        held["metadata"]["name"],
        lambda pod: pod["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"),
    )
    scheduler.until(lambda: api_server.count("POST", PODS) > 1, "tried again")
    api_server.node.remove(held)
    pod = launched(api_server, scheduler, callback_id)
    assert pod["metadata"]["name"] == held["metadata"]["name"]


def test_b13_comparisons_during_a_slow_create_do_not_make_a_second_pod(api_server, scheduler, new_callback):
    """hail-is/hail#4608: a slow webhook, and the loop created again."""
    callback_id = new_callback()
    gate = threading.Event()
    slow = api_server.fail("POST", PODS, gate=gate)
    scheduler.until(lambda: slow.hits, "create is under way")
    for _ in range(3):
        before = api_server.count("LIST", "/pods")
        scheduler.resync()
        scheduler.until(lambda before=before: api_server.count("LIST", "/pods") > before, "compared")
    assert api_server.count("POST", PODS) == 0
    gate.set()
    launched(api_server, scheduler, callback_id)
    scheduler.settle(rounds=2)
    assert api_server.count("POST", PODS) == 1


def test_slow_create_does_not_keep_the_loop_waiting(api_server, scheduler, new_callback):
    gate = threading.Event()
    slow = api_server.fail("POST", PODS, gate=gate)
    new_callback()
    scheduler.until(lambda: slow.hits, "create is under way")
    import time

    start = time.monotonic()
    for _ in range(5):
        scheduler.loop()
    assert time.monotonic() - start < 5
    gate.set()


@pytest.mark.parametrize("state", ["success", "failed", "running"])
def test_c14_row_that_moved_on_while_the_create_waited_gets_no_pod(
    api_server, scheduler, new_callback, state
):
    """apache/airflow#69760: the job sat behind a 429, the row moved on, the pod started anyway."""
    callback_id = new_callback()
    fault = api_server.fail("POST", PODS, status=429, headers={"Retry-After": "1"})
    scheduler.until(lambda: fault.hits, "refused")
    set_row(callback_id, state=state)
    scheduler.until(lambda: not scheduler.running, "slot is free", resync=True)
    scheduler.settle(rounds=2)
    assert api_server.count("POST", PODS) == 1
    assert state_of(callback_id) == ("failed" if state == "running" else state)


def test_c14_row_that_moved_on_while_the_create_waited_for_a_thread_gets_no_pod(
    api_server, new_scheduler, new_callback, creation
):
    scheduler = new_scheduler(KUBERNETES_CALLBACKS__LAUNCH_CONCURRENCY="1", **creation)
    gate = threading.Event()
    slow = api_server.fail("POST", PODS, gate=gate)
    first = new_callback()
    scheduler.until(lambda: slow.hits, "a create is under way")
    second = new_callback()
    scheduler.until(lambda: second in scheduler.running, "the other waits")
    scheduler.heartbeat()
    set_row(second, state="failed", output="cancelled")
    gate.set()
    scheduler.until(lambda: scheduler.running == {first}, "slot is free")
    assert api_server.count("POST", PODS) == 1
    assert output_of(second) == "cancelled"


def test_c14_row_that_vanished_while_it_waited_gets_no_pod(api_server, scheduler, new_callback):
    from tests.fakes.scheduler import delete_row

    callback_id = new_callback()
    fault = api_server.fail("POST", PODS, status=429, headers={"Retry-After": "1"})
    scheduler.until(lambda: fault.hits, "refused")
    delete_row(callback_id)
    scheduler.until(lambda: not scheduler.running, "slot is free", resync=True)
    assert api_server.count("POST", PODS) == 1
    assert scheduler.events == {}


# The hook -------------------------------------------------------------------------------------------


class PanicException(BaseException):
    """As libraries that are written in Rust raise."""


def raising(error):
    def hook(pod):
        if pod.metadata.annotations.get("callback_path") == "alerts.bad":
            raise error

    return hook


@pytest.mark.parametrize(
    "error",
    [
        KeyError("task_id"),
        RuntimeError("nope"),
        SystemExit(3),
        asyncio.CancelledError(),
        KeyboardInterrupt(),
        PanicException("a Rust library's"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_c9_hook_that_fails_costs_one_callback(
    api_server, new_scheduler, new_callback, creation, hook, error
):
    hook(raising(error))
    scheduler = new_scheduler(**creation)
    bad, good = new_callback(path="alerts.bad"), new_callback(path="alerts.good")
    scheduler.until(lambda: state_of(bad) == FAILED, "failure is recorded")
    assert "pod_mutation_hook" in output_of(bad)
    assert type(error).__name__ in output_of(bad)
    assert callback_of(launched(api_server, scheduler, good)) == good


def test_c10_hook_that_changes_identity_changes_nothing_of_it(
    api_server, new_scheduler, new_callback, creation, hook
):
    def change(pod):
        pod.metadata.name = "renamed"
        pod.metadata.annotations = {"owner": "hook"}
        pod.metadata.labels = {"team": "hook"}
        pod.spec.restart_policy = "Always"

    hook(change)
    scheduler = new_scheduler(**creation)
    callback_id = new_callback()
    pod = launched(api_server, scheduler, callback_id)
    assert pod["metadata"]["name"] == f"callback-{callback_id}-1"
    assert pod["metadata"]["labels"]["team"] == "hook"
    assert pod["metadata"]["annotations"]["owner"] == "hook"
    assert pod["spec"]["restartPolicy"] == "Never"
    bring_to(api_server, pod, "succeeded")
    scheduler.until(lambda: state_of(callback_id) == SUCCESS, "success is recorded")


def test_c10_hook_that_leaves_what_cannot_be_sent_fails_the_callback_at_once(
    api_server, new_scheduler, new_callback, creation, hook
):
    def spoil(pod):
        pod.spec.node_selector = {"pool": object()}

    hook(spoil)
    scheduler = new_scheduler(**creation)
    callback_id = new_callback()
    fails_for_good(scheduler, api_server, callback_id, "Could not start", requests=0)


# Never started --------------------------------------------------------------------------------------


def test_pod_that_never_started_is_launched_again_when_it_is_gone(api_server, scheduler, new_callback):
    callback_id = new_callback()
    first = launched(api_server, scheduler, callback_id)
    api_server.node.fail(first, "OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu")
    [second] = scheduler.until(lambda: api_server.pods(labels="callback-attempt=2"), "launched again")
    assert second["metadata"]["name"] == f"callback-{callback_id}-2"
    assert [pod["metadata"]["name"] for pod in api_server.pods()] == [second["metadata"]["name"]]
    bring_to(api_server, second, "succeeded")
    scheduler.until(lambda: state_of(callback_id) == SUCCESS, "success is recorded")


def test_pod_that_never_starts_fails_after_the_last_launch(api_server, new_scheduler, new_callback, creation):
    scheduler = new_scheduler(KUBERNETES_CALLBACKS__LAUNCH_RETRIES="2", **creation)
    callback_id = new_callback()
    for attempt in (1, 2, 3):
        [pod] = scheduler.until(
            lambda attempt=attempt: api_server.pods(labels=f"callback-attempt={attempt}"), f"launch {attempt}"
        )
        api_server.node.fail(pod, "OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu")
    scheduler.until(lambda: state_of(callback_id) == FAILED, "failure is recorded")
    assert "enough resource: cpu" in output_of(callback_id)
    assert "launched 3 times" in output_of(callback_id)
    assert api_server.count("POST", PODS) == 3


def test_token_of_a_further_launch_is_a_fresh_one(api_server, scheduler, new_callback):
    """F8: the one that core made lives for ten minutes from when the callback was handed out."""
    callback_id = new_callback()
    first = launched(api_server, scheduler, callback_id)
    tokens = [token_of(api_server, first)]
    wait_until(lambda: jwt_claims(tokens[0])["iat"] < int(_now()), "a second has passed")
    api_server.store.delete("pods", "airflow", first["metadata"]["name"], {})
    [second] = scheduler.until(lambda: api_server.pods(labels="callback-attempt=2"), "launched again")
    scheduler.until(lambda: len(api_server.secrets()) == 2, "secret is made")
    tokens.append(token_of(api_server, second))
    claims = [jwt_claims(token) for token in tokens]
    assert [claim["sub"] for claim in claims] == [callback_id] * 2
    assert claims[1]["iat"] > claims[0]["iat"]
    assert all(
        claim["scope"] == ("callback" if EXECUTION_API_OWNS_RUNNING else "execution") for claim in claims
    )


def _now():
    import time

    return time.time()


def token_of(api_server, pod):
    secret = api_server.store.get("secrets", "airflow", pod["metadata"]["name"])
    return json.loads(base64.b64decode(secret["data"]["workload.json"]))["token"]


def jwt_claims(token):
    return jwt.decode(token, options={"verify_signature": False})


def test_e2_pending_pod_that_a_person_deletes_is_never_silent(
    api_server, new_scheduler, new_callback, creation
):
    scheduler = new_scheduler(KUBERNETES_CALLBACKS__LAUNCH_RETRIES="0", **creation)
    callback_id = new_callback()
    pod = launched(api_server, scheduler, callback_id)
    api_server.store.delete("pods", "airflow", pod["metadata"]["name"], {})
    scheduler.until(lambda: state_of(callback_id) == FAILED, "failure is recorded")
    assert "deleted" in output_of(callback_id)
    assert scheduler.running == set()


def test_e9_pod_that_the_provider_fails_is_launched_again(api_server, new_scheduler, new_callback, creation):
    """apache/airflow#41186: Pending with reason ProviderFailed, for ever."""
    scheduler = new_scheduler(KUBERNETES_CALLBACKS__START_ERROR_GRACE="0", **creation)
    callback_id = new_callback()
    pod = launched(api_server, scheduler, callback_id)
    for number in range(4):
        api_server.node.mark(pod, reason="ProviderFailed", message=f"no capacity {number}")
    [second] = scheduler.until(lambda: api_server.pods(labels="callback-attempt=2"), "launched again")
    bring_to(api_server, second, "succeeded")
    scheduler.until(lambda: state_of(callback_id) == SUCCESS, "success is recorded")


def test_e1_unschedulable_pod_is_deleted_and_the_scheduler_is_quoted(
    api_server, new_scheduler, new_callback, creation
):
    scheduler = new_scheduler(
        KUBERNETES_CALLBACKS__PENDING_TIMEOUT="5", KUBERNETES_CALLBACKS__LAUNCH_RETRIES="0", **creation
    )
    callback_id = new_callback()
    pod = launched(api_server, scheduler, callback_id)
    api_server.node.refuse(pod, "0/3 nodes are available: 3 Insufficient cpu.")
    scheduler.until(lambda: state_of(callback_id) == FAILED, "failure is recorded")
    assert "0/3 nodes are available" in output_of(callback_id)
    assert api_server.pods() == []


def test_pod_that_begins_while_it_is_condemned_is_not_deleted(
    api_server, new_scheduler, new_callback, creation
):
    """The deletion holds the version that was seen: the callback that began meanwhile runs on."""
    scheduler = new_scheduler(KUBERNETES_CALLBACKS__PENDING_TIMEOUT="4", **creation)
    callback_id = new_callback()
    pod = launched(api_server, scheduler, callback_id)
    api_server.node.bind(pod)
    gate = threading.Event()
    slow = api_server.fail("DELETE", gate=gate)
    scheduler.until(lambda: slow.hits, "deletion is under way")
    api_server.node.start(pod)
    gate.set()
    scheduler.settle(rounds=2)
    kept = api_server.store.get("pods", "airflow", pod["metadata"]["name"])
    assert "deletionTimestamp" not in kept["metadata"]
    api_server.node.finish(pod)
    scheduler.until(lambda: state_of(callback_id) == SUCCESS, "success is recorded")
    assert api_server.count("POST", PODS) == 1


# Slots and budget -----------------------------------------------------------------------------------


def test_f11_no_more_pods_than_slots(api_server, new_scheduler, new_callback, creation):
    """apache/airflow#72048."""
    scheduler = new_scheduler(CORE__PARALLELISM="2", **creation)
    for _ in range(5):
        new_callback()
    scheduler.until(lambda: len(api_server.pods()) == 2, "two pods")
    scheduler.settle(rounds=3)
    assert len(api_server.pods()) == 2
    assert scheduler.executor.slots_available == 0
    for _ in range(3):
        for pod in api_server.pods():
            if pod["status"]["phase"] == "Pending":
                bring_to(api_server, pod, "succeeded")
        scheduler.until(
            lambda: all(p["status"]["phase"] == "Pending" for p in api_server.pods()), "turn over"
        )
        scheduler.settle(rounds=1)
        assert len(api_server.pods()) <= 2
    assert api_server.count("POST", PODS) == 5


def test_many_callbacks_are_created_concurrently(api_server, scheduler, new_callback):
    gate = threading.Event()
    waiting = api_server.fail("POST", PODS, times=None, gate=gate)
    for _ in range(6):
        new_callback()
    expected = 1
    if scheduler.executor.kube_config.async_pod_creation is False:
        expected = 6
    scheduler.until(lambda: waiting.hits >= expected, "creates are under way at once")
    gate.set()
    scheduler.until(lambda: len(api_server.pods()) == 6, "all are created")


# Payload --------------------------------------------------------------------------------------------


def test_workload_travels_in_a_secret_that_belongs_to_the_pod(api_server, scheduler, new_callback):
    callback_id = new_callback(kwargs={"secret": "hush"})
    pod = launched(api_server, scheduler, callback_id)
    [secret] = scheduler.until(api_server.secrets, "secret is made")
    assert secret["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
    assert "hush" not in json.dumps(pod)
    workload = json.loads(base64.b64decode(secret["data"]["workload.json"]))
    assert workload["callback"]["id"] == callback_id
    assert workload["token"] not in json.dumps(pod)


def test_workload_travels_as_an_argument_where_secrets_may_not_be_made(
    api_server, new_scheduler, new_callback, creation
):
    api_server.allowed = lambda verb, resource, namespace: resource != "secrets"
    scheduler = new_scheduler(**creation)
    pod = launched(api_server, scheduler, new_callback(kwargs={"text": "visible"}))
    assert "--json-string" in pod["spec"]["containers"][0]["args"]
    assert api_server.count("POST", "/secrets") == 0


def test_workload_travels_as_an_argument_where_nobody_says_whether_secrets_may_be_made(
    api_server, new_scheduler, new_callback, creation
):
    review = api_server.fail("POST", "selfsubjectaccessreviews", status=403, reason="Forbidden", times=None)
    scheduler = new_scheduler(**creation)
    pod = launched(api_server, scheduler, new_callback())
    assert review.hits == 1
    assert "--json-string" in pod["spec"]["containers"][0]["args"]
    assert api_server.count("POST", "/secrets") == 0


def test_secret_that_is_refused_for_good_takes_the_pod_with_it(
    api_server, new_scheduler, new_callback, creation
):
    api_server.fail(
        "POST", "/secrets", status=403, reason="Forbidden", message="cannot create secrets", times=None
    )
    scheduler = new_scheduler(
        KUBERNETES_CALLBACKS__PAYLOAD_DELIVERY="secret",
        KUBERNETES_CALLBACKS__LAUNCH_RETRY_DELAY="0",
        **creation,
    )
    callback_id = new_callback()
    scheduler.until(lambda: state_of(callback_id) == FAILED, "failure is recorded")
    assert "cannot create secrets" in output_of(callback_id)
    scheduler.until(lambda: api_server.pods() == [], "pod is gone")
    scheduler.settle(rounds=2)
    assert api_server.count("POST", PODS) == 1, "launched while its failure waited to be recorded"


@pytest.mark.parametrize("fault", [{"status": 503}, {"reset": True}, {"reset": True, "after_storing": True}])
def test_secret_that_is_refused_for_now_leaves_its_pod(
    api_server, new_scheduler, new_callback, creation, fault
):
    fault = api_server.fail("POST", "/secrets", times=2, **fault)
    scheduler = new_scheduler(**creation)
    callback_id = new_callback()
    scheduler.until(lambda: fault.hits == 2 and api_server.secrets(), "secret is made", resync=True)
    pod = launched(api_server, scheduler, callback_id)
    assert [request.status for request in api_server.made("POST", PODS)].count(201) == 1
    assert api_server.count("DELETE", "/pods/") == 0
    bring_to(api_server, pod, "succeeded")
    scheduler.until(lambda: state_of(callback_id) == SUCCESS, "success is recorded")


def test_secret_of_an_earlier_pod_of_the_name_is_waited_out(api_server, scheduler, new_callback):
    """It has another token, and Kubernetes removes it a moment after its pod."""
    callback_id = new_callback()
    old = {"name": f"callback-{callback_id}-1", "ownerReferences": [{"kind": "Pod", "uid": "an-earlier-pod"}]}
    api_server.store.create("secrets", "airflow", {"metadata": old, "data": {}})
    pod = launched(api_server, scheduler, callback_id)
    scheduler.until(lambda: api_server.count("GET", "/secrets/"), "old secret is looked at")
    api_server.store.delete("secrets", "airflow", old["name"], {})
    [secret] = scheduler.until(api_server.secrets, "secret is made", resync=True)
    assert secret["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
    assert state_of(callback_id) == QUEUED
    assert len(api_server.pods()) == 1


def test_adopted_pod_without_its_secret_gets_it(api_server, new_scheduler, new_callback, creation):
    """Its creator died between the two requests."""
    first = new_scheduler(**creation)
    callback_id = new_callback()
    gate = threading.Event()
    stuck = api_server.fail("POST", "/secrets", gate=gate, reset=True)
    first.until(lambda: stuck.hits, "secret is under way")
    first.crash()
    second = new_scheduler(**creation)
    [secret] = second.until(api_server.secrets, "secret is made", resync=True)
    gate.set()
    assert json.loads(base64.b64decode(secret["data"]["workload.json"]))["callback"]["id"] == callback_id
    assert api_server.count("POST", PODS) == 1


def test_d2_payload_that_nothing_carries_fails_with_its_size(api_server, scheduler, new_callback):
    callback_id = new_callback(kwargs={"blob": "x" * 2_000_000})
    fails_for_good(scheduler, api_server, callback_id, "2,0", "bytes", requests=0)


@pytest.mark.parametrize("text", ["ä" * 70_000, '"' * 200_000], ids=["two-bytes-each", "doubled-in-json"])
def test_d1_large_payload_is_carried_whole(api_server, scheduler, new_callback, text):
    callback_id = new_callback(kwargs={"blob": text})
    launched(api_server, scheduler, callback_id)
    [secret] = scheduler.until(api_server.secrets, "secret is made")
    workload = json.loads(base64.b64decode(secret["data"]["workload.json"]))
    assert text in json.dumps(workload, ensure_ascii=False).replace('\\"', '"')


def test_pod_of_another_namespace_is_created_there(api_server, new_scheduler, new_callback, creation):
    scheduler = new_scheduler(KUBERNETES_CALLBACKS__NAMESPACE="alerts", **creation)
    callback_id = new_callback()
    pod = launched(api_server, scheduler, callback_id)
    assert pod["metadata"]["namespace"] == "alerts"
    bring_to(api_server, pod, "succeeded")
    scheduler.until(lambda: state_of(callback_id) == SUCCESS, "success is recorded")
    assert pod_of(api_server, new_callback(state="success"), scheduler.me)


# The audit log --------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_context", [True, False], ids=["of a deadline", "without a context"])
def test_failure_without_a_pod_is_in_the_audit_log_of_its_dag_run(
    new_scheduler, new_callback, creation, session, with_context
):
    scheduler = new_scheduler(**creation)
    kwargs = {"kubernetes_callback": "no-such-rule"}
    callback_id = new_callback(run_id="run-1", kwargs=kwargs)
    if with_context:
        kwargs = {**kwargs, "context": {"dag_run": {"dag_run_id": "run-1"}}}
        set_row(callback_id, data={**data_of(callback_id), "kwargs": kwargs})
    scheduler.until(lambda: state_of(callback_id) == FAILED, "failure is recorded")
    with create_session(scoped=False) as own:
        scheduler.runner._process_task_event_logs(scheduler.executor._task_event_logs, own)
    [entry] = session.scalars(select(Log).where(Log.event == "callback failed"))
    assert (entry.dag_id, entry.run_id) == ("reports", "run-1")
    assert "no-such-rule" in entry.extra
