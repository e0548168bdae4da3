"""What answers to requests leave in a callback's track."""

from __future__ import annotations

import dataclasses
import json
import logging
import time

import pytest
from kubernetes.client.rest import ApiException

from airflow_kubernetes_callbacks import answers
from airflow_kubernetes_callbacks.answers import AnswerTaker
from airflow_kubernetes_callbacks.api_errors import ApiAnswer, ApiFailure
from airflow_kubernetes_callbacks.cache import CallbackCache
from airflow_kubernetes_callbacks.launch_failure import launch_failure
from airflow_kubernetes_callbacks.outcome import CallbackOutcome
from airflow_kubernetes_callbacks.pauses import LONGEST_PAUSE
from airflow_kubernetes_callbacks.request_answer import Answer
from airflow_kubernetes_callbacks.settings import CallbackSettings
from airflow_kubernetes_callbacks.situation import PodRequest
from tests.fakes.world import FakeTime, Nothing
from tests.test_cache import view

SETTINGS = CallbackSettings(create_retries=2, launch_retry_max_delay=120.0)
LOST = ApiFailure(ApiAnswer.TRANSIENT, None, "reset", may_have_arrived=True)
THROTTLED = ApiFailure(ApiAnswer.TRANSIENT, 429, "429: slow down")
NOT_CONNECTED = ApiFailure(ApiAnswer.TRANSIENT, None, "refused")
FORBIDDEN = ApiFailure(ApiAnswer.FORBIDDEN, 403, "403: no")
BAD = ApiFailure(ApiAnswer.PERMANENT, 422, "422: spec.x: invalid")


class Takes:
    """An answer taker with its cache, and how often it asked for a comparison."""

    def __init__(self) -> None:
        self.cache = CallbackCache()
        self.records = {}
        self.resyncs = 0
        self.taker = AnswerTaker(
            cache=self.cache, settings=SETTINGS, metrics=Nothing(), records=self.records, resync=self._resync
        )

    def _resync(self) -> None:
        self.resyncs += 1

    def launch_fails(self, failure, attempt=1):
        self.taker.take(Answer("one", failure=failure, launched_attempt=attempt))

    def request_fails(self, failure, **parts):
        self.taker.take(Answer("one", failure=failure, **parts))

    @property
    def track(self):
        return self.cache.track("one")


@pytest.fixture
def takes():
    return Takes()


@pytest.mark.parametrize(
    ("failures", "pod_may_exist"),
    [
        pytest.param([NOT_CONNECTED] * 3, False, id="never-connected"),
        pytest.param([THROTTLED] * 3, False, id="always-throttled"),
        pytest.param([THROTTLED, THROTTLED, LOST], True, id="last-one-lost"),
        pytest.param([LOST, THROTTLED, NOT_CONNECTED], True, id="first-one-lost"),
        pytest.param([LOST, BAD], True, id="first-one-lost-then-refused-for-good"),
        pytest.param([BAD], False, id="refused-for-good"),
    ],
)
def test_refusal_says_whether_any_try_may_have_created_the_pod(takes, failures, pod_may_exist):
    for failure in failures[:-1]:
        takes.launch_fails(failure)
        assert takes.track.refusal is None
    takes.launch_fails(failures[-1])
    assert takes.track.refusal.pod_may_exist is pod_may_exist
    assert takes.resyncs == pod_may_exist  # only a list tells


def test_success_forgets_the_failures_before_it(takes):
    takes.launch_fails(LOST)
    takes.taker.take(Answer("one", view=view(callback_id="one"), launched_attempt=1))
    assert (takes.track.create_failures, takes.track.may_be_created) == (0, False)
    assert takes.records["one"].attempt == 1


def test_requests_that_fail_wait_longer_and_longer_and_are_told_once(takes, caplog):
    pauses = []
    with caplog.at_level(logging.WARNING):
        for _ in range(12):
            takes.request_fails(FORBIDDEN)
            pauses.append(takes.track.ask_again_at - time.time())
    assert [round(pause) for pause in pauses] == sorted(round(pause) for pause in pauses)
    assert pauses[0] < 2
    assert LONGEST_PAUSE - 2 < pauses[-1] <= LONGEST_PAUSE
    assert len(caplog.records) == 1


def test_server_that_asks_for_an_hour_gets_a_minute(takes):
    takes.request_fails(dataclasses.replace(THROTTLED, retry_after=3600.0))
    assert LONGEST_PAUSE - 2 < takes.track.ask_again_at - time.time() <= LONGEST_PAUSE


@pytest.mark.parametrize(
    ("failure", "remembered"),
    [
        pytest.param(FORBIDDEN, {}, id="forbidden-for-the-first-time"),
        pytest.param(BAD, {(PodRequest.ADOPT, "uid-1"): "422: spec.x: invalid"}, id="invalid"),
        pytest.param(THROTTLED, {}, id="throttled"),
        pytest.param(LOST, {}, id="lost"),
        pytest.param(ApiFailure(ApiAnswer.CONFLICT, 409, "409: changed"), {}, id="conflict"),
    ],
)
def test_request_that_is_refused_for_good_is_remembered(takes, failure, remembered):
    takes.request_fails(failure, asked=(PodRequest.ADOPT, "uid-1"))
    assert takes.track.denied == remembered
    assert takes.track.ask_again_at > time.time()


SECOND_POD = (PodRequest.DELETE, "uid-2")


@pytest.mark.parametrize(
    ("asked", "steps", "denied"),
    [
        pytest.param(PodRequest.ADOPT, [(0, "no"), (1, "no")], False, id="just-now"),
        pytest.param(PodRequest.ADOPT, [(0, "no"), (6, "no")], True, id="still-after-a-while"),
        pytest.param(PodRequest.REMOVE_FINALIZER, [(0, "no"), (6, "no")], True, id="finalizer"),
        pytest.param(PodRequest.DELETE, [(0, "no")], False, id="deletion-once"),
        pytest.param(PodRequest.DELETE, [(0, "no"), (1, "no")], True, id="deletion-twice"),
        pytest.param(PodRequest.DELETE, [(0, "no"), (61, "yes"), (62, "no")], False, id="done-in-between"),
        pytest.param(PodRequest.DELETE, [(0, "no"), (30, "lost"), (61, "no")], True, id="lost-in-between"),
        pytest.param(PodRequest.DELETE, [(0, "another"), (61, "no")], False, id="another-pods"),
    ],
)
def test_missing_permission_counts_when_it_has_been_missing_for_a_while(
    takes, monkeypatch, asked, steps, denied
):
    """kubernetes/kubernetes#121635: an API server that has just started refuses what it allows later."""
    clock = FakeTime()
    monkeypatch.setattr(answers, "time", clock)
    begin = clock.now
    for later, what in steps:
        clock.now = begin + later
        if what == "yes":
            takes.taker.take(Answer("one", asked=(asked, "uid-1")))
        else:
            failure = LOST if what == "lost" else FORBIDDEN
            takes.request_fails(failure, asked=SECOND_POD if what == "another" else (asked, "uid-1"))
    assert ((asked, "uid-1") in takes.track.denied) is denied


def may_not_create(namespace):
    words = f'User "s" cannot create resource "pods" in API group "" in the namespace "{namespace}"'
    return launch_failure(told(403, f"pods is forbidden: {words}"))


def told(status, message):
    error = ApiException(status=status)
    error.body = json.dumps({"kind": "Status", "reason": "Forbidden", "message": message})
    return error


def launched(callback_id, namespace):
    return Answer(callback_id, view=view(callback_id=callback_id, namespace=namespace), launched_attempt=1)


@pytest.mark.parametrize(
    ("before", "tries"),
    [
        pytest.param([], 1, id="never-created"),
        pytest.param(["elsewhere"], 1, id="created-in-another-namespace"),
        pytest.param(["alerts"], SETTINGS.create_retries + 1, id="created-there"),
    ],
)
def test_permission_that_was_there_may_come_back(takes, before, tries):
    for number, namespace in enumerate(before):
        takes.taker.take(launched(f"before-{number}", namespace))
    for _ in range(tries):
        assert takes.track.refusal is None
        takes.launch_fails(may_not_create("alerts"))
    assert takes.track.refusal.reason.startswith("Could not start: the API server refused the pod (403: ")
    assert takes.track.refusal.reason.endswith("Grant the scheduler's service account the verb named here.")
    assert takes.track.refusal.pod_may_exist is False


def test_permission_that_did_not_come_back_for_one_is_not_waited_for_by_the_next(takes):
    takes.taker.take(launched("before", "alerts"))
    for _ in range(SETTINGS.create_retries + 1):
        takes.launch_fails(may_not_create("alerts"))
    other = takes.cache.track("other")
    takes.taker.take(Answer("other", failure=may_not_create("alerts"), launched_attempt=1))
    assert other.refusal is not None


def test_request_that_works_ends_the_pauses(takes):
    takes.request_fails(FORBIDDEN)
    takes.taker.take(Answer("one", view=view(callback_id="one")))
    assert (takes.track.failed_requests, takes.track.failure_told) == (0, "")


def test_pod_whose_secret_is_refused_for_good_is_condemned_with_the_reason(takes):
    waiting = view(callback_id="one", outcome=CallbackOutcome.PENDING)
    takes.track.repeat_attempt = 1
    takes.request_fails(
        ApiFailure(ApiAnswer.PERMANENT, None, "Could not start: no Secret"), condemned=waiting
    )
    assert takes.track.condemned == {waiting.uid: "Could not start: no Secret"}
    assert takes.track.repeat_attempt is None
    assert takes.track.retry_at > time.time()


def test_refusal_of_the_secret_is_remembered_until_the_pod_has_it(takes):
    takes.request_fails(THROTTLED, unsupplied=True)
    assert takes.track.supply_refusal == THROTTLED.message
    takes.taker.take(Answer("one"))  # the pod is explained meanwhile
    assert takes.track.supply_refusal == THROTTLED.message
    takes.taker.take(Answer("one", supplied=True))
    assert takes.track.supply_refusal == ""


def test_pod_that_was_asked_for_by_its_name_is_remembered_until_the_callback_is_forgotten(takes):
    place = ("airflow", "callback-one-1")
    takes.taker.take(Answer("one", looked_for=place))
    assert takes.track.memory().looked_for == {place}
    takes.cache.forget("one")
    assert takes.track.memory().looked_for == frozenset()


def test_look_by_name_that_failed_is_made_again_later(takes):
    takes.request_fails(THROTTLED)
    assert takes.track.memory().looked_for == frozenset()
    assert takes.track.ask_again_at > time.time()


def test_pod_whose_secret_came_with_a_later_request_is_recorded_like_any_other(takes):
    pod = view(callback_id="one", attempt=2)
    takes.taker.take(Answer("one", view=pod, failure=LOST, launched_attempt=2))
    assert takes.cache.pods("one") == (pod,)
    assert (takes.records, takes.track.create_failures, takes.track.repeat_attempt) == ({}, 1, 2)
    takes.taker.take(Answer("one", view=pod, supplied=True))
    assert takes.records["one"].pod == f"{pod.namespace}/{pod.name}"
    assert takes.records["one"].attempt == 2
    assert (takes.track.create_failures, takes.track.may_be_created, takes.track.workload) == (0, False, None)
