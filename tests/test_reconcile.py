"""What is decided about one callback. Pure tables: a situation in, actions out."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import pytest

from airflow_kubernetes_callbacks.actions import (
    Adopt,
    Delete,
    EmitFailure,
    EmitRunning,
    EmitSuccess,
    EnsurePayload,
    Explain,
    FailureKind,
    Launch,
    LookAgain,
    LookFor,
    MarkDone,
    Occupy,
    RecordAttempt,
    Release,
    RemoveFinalizer,
)
from airflow_kubernetes_callbacks.outcome import CallbackOutcome, PodView
from airflow_kubernetes_callbacks.reconcile import decide, retry_delay
from airflow_kubernetes_callbacks.settings import CallbackSettings
from airflow_kubernetes_callbacks.situation import Memory, PodRequest, Refusal, RowState, RowView, Situation
from airflow_kubernetes_callbacks.unstarted import START_ERRORS, as_good_as_gone, stalls

ID = "11111111-2222-3333-4444-555555555555"
NOW = 1_800_000_000.0
ME, DEAD, SIBLING = "7", "5", "9"
SETTINGS = CallbackSettings(
    reconcile_interval=30.0,
    launch_retries=2,
    launch_retry_delay=10.0,
    launch_retry_max_delay=40.0,
    pending_timeout=300.0,
    start_error_grace=60.0,
)

PENDING = CallbackOutcome.PENDING
RUNNING = CallbackOutcome.RUNNING
SUCCEEDED = CallbackOutcome.SUCCEEDED
FAILED = CallbackOutcome.FAILED
NEVER_STARTED = CallbackOutcome.NEVER_STARTED


def pod(outcome: CallbackOutcome = PENDING, **changes: object) -> PodView:
    attempt = changes.get("attempt", 1)
    began = outcome in (RUNNING, SUCCEEDED, FAILED)
    view = PodView(
        callback_id=ID,
        namespace="airflow",
        name=f"callback-{ID}-{attempt}",
        uid=f"uid-{attempt}",
        resource_version="100",
        owner=ME,
        attempt=1,
        outcome=outcome,
        reason=None if outcome in (RUNNING, SUCCEEDED) else f"Kubernetes says: {outcome.value}",
        waiting_reason=None,
        created_at=NOW - 20,
        started_at=NOW - 10 if began else None,
        ended_at=NOW - 5 if outcome.terminal else None,
        deleting=False,
        gone=False,
        finalizer=False,
        node="node-1" if began else None,
        explained=True,
    )
    return replace(view, **changes)  # type: ignore[arg-type]


def row(state: RowState = RowState.QUEUED, **changes: object) -> RowView:
    return RowView(ID, state, **changes)  # type: ignore[arg-type]


QUEUED_ROW = row(RowState.QUEUED)
RUNNING_ROW = row(RowState.RUNNING)
TERMINAL_ROW = row(RowState.TERMINAL)
ABSENT_ROW = row(RowState.ABSENT)
OTHER_ROW = row(RowState.NOT_OURS)


def situation(row_view: RowView, *pods: PodView, **changes: object) -> Situation:
    usual = Situation(
        now=NOW,
        row=row_view,
        pods=pods,
        memory=Memory(known=True),
        me=ME,
        alive_others=frozenset(),
        pods_complete=True,
        api_owns_running=False,
    )
    return replace(usual, **changes)  # type: ignore[arg-type]


def name(attempt: int) -> str:
    return f"callback-{ID}-{attempt}"


def looked(*attempts: int, **more: object) -> Memory:
    """The pods of these attempts were asked for by their names."""
    places = frozenset(("airflow", name(attempt)) for attempt in attempts)
    return Memory(known=True, looked_for=places, **more)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Says:
    """An ``EmitFailure`` or ``Delete`` by what its text has to contain."""

    kind: type
    words: tuple[str, ...]
    #: What else the action holds.
    rest: tuple[object, ...]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, EmitFailure):
            text, rest = other.reason, (other.kind,)
        elif isinstance(other, Delete):
            text, rest = other.why, (other.pod, other.unstarted)
        else:
            return False
        return type(other) is self.kind and rest == self.rest and all(word in text for word in self.words)

    __hash__ = None  # type: ignore[assignment]


def fails(*words: str, kind: FailureKind = FailureKind.CALLBACK) -> Says:
    return Says(EmitFailure, words, (kind,))


def never_began(*words: str) -> Says:
    return fails(*words, kind=FailureKind.UNSTARTED)


def lost(*words: str) -> Says:
    return fails(*words, kind=FailureKind.LOST)


def deletes(pod_view: PodView, *words: str, unstarted: bool = False) -> Says:
    return Says(Delete, words, (pod_view, unstarted))


def case(name: str, given: Situation, *expected: object) -> object:
    return pytest.param(given, expected, id=name)


def check(given: Situation, expected: tuple[object, ...], settings: CallbackSettings = SETTINGS) -> None:
    assert list(expected) == list(decide(given, settings))


OTHERS_ALIVE = frozenset({SIBLING})
API = {"api_owns_running": True}


# Pods of a scheduler that is gone -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        *(
            case(
                f"A2-{outcome.value}-pod-of-dead-scheduler-is-adopted",
                situation(QUEUED_ROW, pod(outcome, owner=DEAD)),
                *(() if outcome.terminal else (Occupy(),)),
                Adopt(pod(outcome, owner=DEAD)),
            )
            for outcome in CallbackOutcome
        ),
        *(
            case(
                f"A2-{outcome.value}-pod-of-dead-scheduler-is-adopted-for-running-row",
                situation(RUNNING_ROW, pod(outcome, owner=DEAD), alive_others=OTHERS_ALIVE),
                *(() if outcome.terminal else (Occupy(),)),
                Adopt(pod(outcome, owner=DEAD)),
            )
            for outcome in CallbackOutcome
        ),
        case(
            "A2-pod-that-is-being-deleted-is-adopted-too",
            situation(QUEUED_ROW, pod(owner=DEAD, deleting=True)),
            Occupy(),
            Adopt(pod(owner=DEAD, deleting=True)),
        ),
        case(
            "A2-pod-without-owner-label-is-adopted",
            situation(QUEUED_ROW, pod(owner="")),
            Occupy(),
            Adopt(pod(owner="")),
        ),
        *(
            case(
                f"A3-{outcome.value}-pod-of-live-scheduler-is-left-to-it",
                situation(QUEUED_ROW, pod(outcome, owner=SIBLING), alive_others=OTHERS_ALIVE),
                Release(),
            )
            for outcome in CallbackOutcome
        ),
        case(
            "A3-finished-pod-of-live-scheduler-with-terminal-row-is-not-deleted",
            situation(TERMINAL_ROW, pod(SUCCEEDED, owner=SIBLING), alive_others=OTHERS_ALIVE),
            Release(),
        ),
        case(
            "A8-callback-held-here-is-released-when-live-sibling-has-its-pod",
            situation(
                QUEUED_ROW,
                pod(owner=SIBLING),
                alive_others=OTHERS_ALIVE,
                memory=Memory(held=True, known=True),
            ),
            Release(),
        ),
        case(
            "A9-finished-pod-of-dead-scheduler-takes-no-slot",
            situation(RUNNING_ROW, pod(SUCCEEDED, owner=DEAD)),
            Adopt(pod(SUCCEEDED, owner=DEAD)),
        ),
        case(
            "A10-adopted-running-pod-takes-a-slot",
            situation(RUNNING_ROW, pod(RUNNING)),
            Occupy(),
        ),
        case(
            "A13-pending-pod-of-dead-scheduler-is-adopted-and-no-second-one-made",
            situation(QUEUED_ROW, pod(owner=DEAD), memory=Memory()),
            Occupy(),
            Adopt(pod(owner=DEAD)),
        ),
        case(
            "A20-who-is-alive-is-not-known-so-nothing-is-adopted",
            situation(QUEUED_ROW, pod(owner=DEAD), alive_others=None),
        ),
        case(
            "A20-who-is-alive-is-not-known-so-terminal-pod-of-another-is-kept",
            situation(TERMINAL_ROW, pod(SUCCEEDED, owner=DEAD), alive_others=None),
            Release(),
        ),
        case(
            "A21-row-of-another-executor-without-pod-is-untouched",
            situation(OTHER_ROW, memory=Memory()),
        ),
        case(
            "A21-row-of-another-executor-keeps-its-pod",
            situation(OTHER_ROW, pod(RUNNING, owner=DEAD), memory=Memory()),
        ),
        case(
            "A21-callback-held-here-that-was-given-to-another-executor-is-released",
            situation(OTHER_ROW, memory=Memory(held=True, known=True)),
            Release(),
        ),
        case(
            "F1-slot-is-freed-of-callback-whose-queued-state-was-rolled-back",
            situation(OTHER_ROW, memory=Memory(known=True)),
            Release(),
        ),
        case(
            "A22-pod-is-found-by-callback-id-whoever-owned-it",
            situation(QUEUED_ROW, pod(RUNNING, owner="some other value")),
            Occupy(),
            Adopt(pod(RUNNING, owner="some other value")),
        ),
    ],
)
def test_pods_of_other_schedulers(given, expected):
    check(given, expected)


# Finished pods whose row is not terminal ------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        case("success-of-queued-row-is-emitted", situation(QUEUED_ROW, pod(SUCCEEDED)), EmitSuccess()),
        case("success-of-running-row-is-emitted", situation(RUNNING_ROW, pod(SUCCEEDED)), EmitSuccess()),
        case(
            "failure-is-emitted-with-reason",
            situation(RUNNING_ROW, pod(FAILED)),
            fails("Kubernetes says: failed"),
        ),
        case(
            "failure-without-reason-says-so",
            situation(RUNNING_ROW, pod(FAILED, reason=None)),
            fails("gives no reason"),
        ),
        case(
            "F2-failure-of-queued-row-is-emitted-where-the-api-owns-running",
            situation(QUEUED_ROW, pod(FAILED), **API),
            fails("Kubernetes says: failed"),
        ),
        case(
            "F1-result-is-emitted-again-while-pod-is-being-deleted",
            situation(RUNNING_ROW, pod(SUCCEEDED, deleting=True)),
            EmitSuccess(),
        ),
        case(
            "F1-result-is-emitted-again-when-pod-is-gone",
            situation(RUNNING_ROW, pod(SUCCEEDED, gone=True)),
            EmitSuccess(),
        ),
        case(
            "B6-pod-that-succeeded-and-went-is-a-success",
            situation(QUEUED_ROW, pod(SUCCEEDED, gone=True, deleting=True)),
            EmitSuccess(),
        ),
        case(
            "failure-is-explained-before-it-is-emitted",
            situation(RUNNING_ROW, pod(FAILED, explained=False)),
            Explain(pod(FAILED, explained=False)),
        ),
        case(
            "failure-of-a-pod-that-went-is-explained-before-it-is-emitted",
            situation(RUNNING_ROW, pod(FAILED, gone=True, explained=False)),
            Explain(pod(FAILED, gone=True, explained=False)),
        ),
        case(
            "failed-pod-that-went-keeps-its-reason",
            situation(RUNNING_ROW, pod(FAILED, gone=True)),
            fails("Kubernetes says: failed"),
        ),
    ],
)
def test_finished_pods_of_active_rows(given, expected):
    check(given, expected)


# Running pods ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        case(
            "running-is-told-once-the-container-runs",
            situation(QUEUED_ROW, pod(RUNNING)),
            Occupy(),
            EmitRunning(),
        ),
        case("running-is-not-told-again", situation(RUNNING_ROW, pod(RUNNING)), Occupy()),
        case(
            "running-is-never-told-where-the-api-owns-it",
            situation(QUEUED_ROW, pod(RUNNING), **API),
            Occupy(),
        ),
        case("pending-is-not-running", situation(QUEUED_ROW, pod()), Occupy(), LookAgain(NOW - 20 + 300)),
    ],
)
def test_running_pods(given, expected):
    check(given, expected)


# Pods that were deleted -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        case(
            "B7-pod-deleted-while-running-fails",
            situation(RUNNING_ROW, pod(RUNNING, gone=True)),
            lost("airflow/callback-", "disappeared while running", "node-1", "retry"),
        ),
        case(
            "B7-pod-of-queued-row-deleted-while-running-fails",
            situation(QUEUED_ROW, pod(RUNNING, gone=True)),
            lost("disappeared while running"),
        ),
        case(
            "evicted-pod-fails-with-kubernetes-words",
            situation(RUNNING_ROW, pod(FAILED, gone=True, reason="Evicted: the node was low on memory")),
            fails("Evicted", "low on memory"),
        ),
        case(
            "E2-pod-deleted-before-it-had-a-node-is-launched-again",
            situation(QUEUED_ROW, pod(gone=True, ended_at=NOW - 60), memory=looked(1)),
            Occupy(),
            RecordAttempt(2),
            Launch(2),
        ),
        case(
            "E2-before-it-is-launched-again-its-name-is-looked-at-for-another-scheduler-may-have-made-it-anew",
            situation(QUEUED_ROW, pod(gone=True, ended_at=NOW - 60)),
            Occupy(),
            RecordAttempt(2),
            LookFor("airflow", name(1), again=True),
        ),
        case(
            "E2-the-name-that-is-looked-at-is-that-of-the-last-attempt-that-was-recorded",
            situation(row(next_attempt=3), pod(gone=True, ended_at=NOW - 60), memory=looked(1)),
            Occupy(),
            RecordAttempt(3),
            LookFor("airflow", name(2), again=True),
        ),
        case(
            "E2-launch-again-waits-for-its-delay",
            situation(QUEUED_ROW, pod(gone=True, ended_at=NOW - 4)),
            Occupy(),
            RecordAttempt(2),
            LookAgain(NOW + 6),
        ),
        case(
            "E2-end-in-the-future-by-the-cluster-clock-delays-no-longer-than-usual",
            situation(QUEUED_ROW, pod(gone=True, ended_at=NOW + 3600)),
            Occupy(),
            RecordAttempt(2),
            LookAgain(NOW + 10),
        ),
        case(
            "E2-launch-again-waits-from-when-the-pod-was-found-gone-if-nobody-says-when-it-ended",
            situation(QUEUED_ROW, pod(gone=True), memory=Memory(known=True, orphaned_since=NOW - 4)),
            Occupy(),
            RecordAttempt(2),
            LookAgain(NOW + 6),
        ),
        case(
            "E2-pod-is-launched-again-in-the-end-though-nobody-says-when-it-ended",
            situation(QUEUED_ROW, pod(gone=True), memory=looked(1, orphaned_since=NOW - 10)),
            Occupy(),
            RecordAttempt(2),
            Launch(2),
        ),
        case(
            "E2-pod-deleted-while-pending-for-the-last-time-fails",
            situation(QUEUED_ROW, pod(gone=True, attempt=3, reason=None)),
            never_began("was deleted before the callback began", "launched 3 times"),
        ),
        case(
            "pending-pod-with-node-that-is-gone-may-have-begun",
            situation(QUEUED_ROW, pod(gone=True, node="node-1")),
            lost("disappeared"),
        ),
        case(
            "pending-pod-with-node-that-is-gone-has-not-begun-if-the-api-would-know",
            situation(QUEUED_ROW, pod(gone=True, node="node-1", ended_at=NOW - 60), memory=looked(1), **API),
            Occupy(),
            RecordAttempt(2),
            Launch(2),
        ),
        case(
            "pending-pod-that-is-gone-may-have-begun-if-the-row-says-running",
            situation(RUNNING_ROW, pod(gone=True), **API),
            lost("disappeared"),
        ),
        case(
            "pod-that-never-started-and-is-gone-is-launched-again",
            situation(QUEUED_ROW, pod(NEVER_STARTED, gone=True, ended_at=NOW - 60), memory=looked(1)),
            Occupy(),
            RecordAttempt(2),
            Launch(2),
        ),
        case(
            "pod-condemned-here-is-launched-again-with-node-or-without",
            situation(
                QUEUED_ROW,
                pod(gone=True, node="node-1", ended_at=NOW - 60),
                memory=looked(1, condemned=(("uid-1", "ImagePullBackOff: no such image"),)),
            ),
            Occupy(),
            RecordAttempt(2),
            Launch(2),
        ),
        case(
            "reason-of-the-last-condemned-pod-ends-the-callback",
            situation(
                QUEUED_ROW,
                pod(gone=True, attempt=3),
                memory=Memory(known=True, condemned=(("uid-3", "ImagePullBackOff: no such image"),)),
            ),
            never_began("ImagePullBackOff: no such image", "launched 3 times", "never began"),
        ),
        case(
            "recorded-next-attempt-of-the-last-pod-is-not-launched",
            situation(
                row(next_attempt=4),
                pod(gone=True, attempt=3, node="node-1", ended_at=NOW - 600),
                memory=Memory(known=True, condemned=(("uid-3", "ImagePullBackOff: no such image"),)),
            ),
            never_began("ImagePullBackOff: no such image", "launched 3 times"),
        ),
        case(
            "recorded-next-attempt-is-launched-when-the-old-pod-is-gone",
            situation(
                row(next_attempt=2), pod(gone=True, node="node-1", ended_at=NOW - 60), memory=looked(1)
            ),
            Occupy(),
            RecordAttempt(2),
            Launch(2),
        ),
        case(
            "retry-at-of-memory-is-kept",
            situation(
                row(next_attempt=2),
                pod(gone=True, ended_at=NOW - 60),
                memory=Memory(known=True, retry_at=NOW + 25),
            ),
            Occupy(),
            RecordAttempt(2),
            LookAgain(NOW + 25),
        ),
        case(
            "gone-pod-of-live-sibling-is-its-business",
            situation(RUNNING_ROW, pod(RUNNING, gone=True, owner=SIBLING), alive_others=OTHERS_ALIVE),
            Release(),
        ),
        case(
            "gone-pod-of-another-says-nothing-while-it-is-not-known-who-is-alive",
            situation(RUNNING_ROW, pod(RUNNING, gone=True, owner=DEAD), alive_others=None),
        ),
        case(
            "gone-pod-of-dead-scheduler-is-mine",
            situation(RUNNING_ROW, pod(RUNNING, gone=True, owner=DEAD)),
            lost("disappeared while running"),
        ),
        case(
            "latest-attempt-of-gone-pods-decides",
            situation(
                row(next_attempt=2),
                pod(NEVER_STARTED, gone=True),
                pod(SUCCEEDED, attempt=2, gone=True),
            ),
            EmitSuccess(),
        ),
        case(
            "running-is-said-of-the-later-attempt-whose-pod-is-not-known-here-yet",
            situation(
                row(RowState.RUNNING, next_attempt=2),
                pod(gone=True, node="node-1", owner=DEAD),
                pods_complete=False,
            ),
        ),
        case(
            "running-is-not-said-of-the-earlier-attempt-that-is-known-as-one-that-waits",
            situation(
                row(RowState.RUNNING, next_attempt=2),
                pod(waiting_reason="ErrImagePull", created_at=NOW - 3600),
                pods_complete=False,
            ),
        ),
        case(
            "running-is-not-said-of-the-earlier-attempt-that-is-known-as-one-that-did-not-start",
            situation(row(RowState.RUNNING, next_attempt=2), pod(NEVER_STARTED), pods_complete=False),
        ),
        case(
            "later-attempt-that-runs-and-has-no-pod-is-lost",
            situation(row(RowState.RUNNING, next_attempt=2), pod(NEVER_STARTED, gone=True)),
            lost("disappeared while running"),
        ),
        case(
            "later-attempt-that-was-created-may-be-anywhere-until-a-list-is-complete",
            situation(
                row(next_attempt=2, launched_pod="airflow/callback-x-2"),
                pod(gone=True, node="node-1", owner=DEAD),
                pods_complete=False,
            ),
        ),
        case(
            "later-attempt-that-was-created-and-has-no-pod-is-not-launched-again",
            situation(
                row(next_attempt=2, launched_pod="airflow/callback-x-2"), pod(NEVER_STARTED, gone=True)
            ),
            lost("airflow/callback-x-2 was created and is gone"),
        ),
        case(
            "earlier-attempt-that-succeeded-after-all-decides",
            situation(row(RowState.RUNNING, next_attempt=2), pod(SUCCEEDED, gone=True), pods_complete=False),
            EmitSuccess(),
        ),
        case(
            "live-pod-decides-before-gone-ones",
            situation(row(next_attempt=2), pod(NEVER_STARTED, gone=True), pod(RUNNING, attempt=2)),
            Occupy(),
            EmitRunning(),
        ),
        case(
            "new-launch-is-under-way-so-the-old-pod-that-is-gone-decides-nothing",
            situation(
                row(next_attempt=2), pod(NEVER_STARTED, gone=True), memory=Memory(known=True, held=True)
            ),
        ),
    ],
)
def test_pods_that_are_gone(given, expected):
    check(given, expected)


# Rows without any pod -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        case("held-in-the-queue-is-left-alone", situation(QUEUED_ROW, memory=Memory(held=True, known=True))),
        case(
            "handed-over-callback-is-launched-without-waiting-for-a-list",
            situation(QUEUED_ROW, memory=Memory(known=True, repeat_attempt=1), pods_complete=False),
            Launch(1),
        ),
        case(
            "handed-over-callback-goes-on-after-a-persons-retry",
            situation(
                row(next_attempt=3, history=2),
                memory=Memory(known=True, repeat_attempt=1),
                pods_complete=False,
            ),
            Launch(3),
        ),
        case(
            "handed-over-callback-that-another-scheduler-has-launched-since-waits-for-a-list",
            situation(row(next_attempt=3), memory=Memory(known=True, repeat_attempt=1), pods_complete=False),
        ),
        case(
            "C1-creation-is-repeated-when-its-time-has-come",
            situation(QUEUED_ROW, memory=Memory(known=True, repeat_attempt=2, retry_at=NOW)),
            RecordAttempt(2),
            Launch(2),
        ),
        case(
            "C1-creation-is-not-repeated-before",
            situation(QUEUED_ROW, memory=Memory(known=True, repeat_attempt=2, retry_at=NOW + 5)),
            LookAgain(NOW + 5),
        ),
        case(
            "absence-that-no-list-confirms-means-nothing-for-queued-row",
            situation(QUEUED_ROW, pods_complete=False),
        ),
        case(
            "absence-that-no-list-confirms-means-nothing-for-running-row",
            situation(RUNNING_ROW, pods_complete=False),
        ),
        case("orphaned-row-is-launched", situation(QUEUED_ROW), Launch(1)),
        case(
            "orphaned-row-is-launched-by-a-new-scheduler",
            situation(QUEUED_ROW, memory=Memory()),
            Launch(1),
        ),
        case(
            "orphaned-row-goes-on-with-the-recorded-attempt",
            situation(row(next_attempt=3)),
            Launch(3),
        ),
        case(
            "orphaned-row-beyond-the-last-launch-fails",
            situation(row(next_attempt=4)),
            never_began("did not start", "launched 3 times"),
        ),
        case(
            "row-beyond-the-last-launch-that-is-handed-over-anew-waits-for-a-list",
            situation(row(next_attempt=4), memory=Memory(known=True, repeat_attempt=1), pods_complete=False),
        ),
        case(
            "launches-before-a-persons-retry-do-not-count",
            situation(row(next_attempt=6, history=5)),
            Launch(6),
        ),
        case(
            "orphaned-row-waits-while-a-live-sibling-may-hold-it",
            situation(
                QUEUED_ROW, alive_others=OTHERS_ALIVE, memory=Memory(known=True, orphaned_since=NOW - 10)
            ),
            LookAgain(NOW + 20),
        ),
        case(
            "orphaned-row-that-a-live-sibling-does-not-launch-is-launched",
            situation(
                QUEUED_ROW, alive_others=OTHERS_ALIVE, memory=Memory(known=True, orphaned_since=NOW - 30)
            ),
            Launch(1),
        ),
        case(
            "orphaned-row-waits-while-it-is-not-known-who-is-alive",
            situation(QUEUED_ROW, alive_others=None),
        ),
        case(
            "orphaned-row-waits-for-the-delay-of-its-retry",
            situation(row(next_attempt=2), memory=Memory(known=True, retry_at=NOW + 7)),
            LookAgain(NOW + 7),
        ),
        case(
            "running-row-without-pod-fails",
            situation(RUNNING_ROW),
            lost("disappeared while running", "retry"),
        ),
        case(
            "running-row-without-pod-fails-where-the-api-owns-running",
            situation(RUNNING_ROW, **API),
            lost("disappeared while running"),
        ),
        case(
            "running-row-is-not-launched-although-handed-over",
            situation(RUNNING_ROW, memory=Memory(known=True, repeat_attempt=1)),
            lost("disappeared while running"),
        ),
        case(
            "pod-that-was-created-and-nobody-saw-end-fails",
            situation(row(launched_pod="airflow/callback-x-1")),
            lost("airflow/callback-x-1", "nobody saw how it ended", "retry"),
        ),
        case(
            "pod-that-was-created-and-nobody-saw-end-has-not-begun-if-the-api-would-know",
            situation(row(launched_pod="airflow/callback-x-1"), **API),
            Launch(1),
        ),
        case(
            "row-queued-anew-by-a-late-commit-is-not-launched-before-a-list-shows-its-pod",
            situation(
                row(launched_pod="airflow/callback-x-1"),
                memory=Memory(known=True, repeat_attempt=1),
                pods_complete=False,
            ),
        ),
        case(
            "row-queued-anew-by-a-late-commit-is-not-run-again",
            situation(row(launched_pod="airflow/callback-x-1"), memory=Memory(known=True, repeat_attempt=1)),
            lost("nobody saw how it ended"),
        ),
    ],
)
def test_rows_without_pod(given, expected):
    check(given, expected)


# Pods that lists do not have ------------------------------------------------------------------------


RECORDED = f"airflow/{name(1)}"
ONE_NAMESPACE = {"namespace": "airflow"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        *(
            case(
                f"{state.value}-row-has-its-recorded-pod-read-before-it-is-lost",
                situation(row(state, launched_pod=RECORDED), **ONE_NAMESPACE),
                LookFor("airflow", name(1), recorded=True),
            )
            for state in (RowState.QUEUED, RowState.RUNNING)
        ),
        *(
            case(
                f"{state.value}-row-whose-recorded-pod-is-not-there-is-lost",
                situation(row(state, launched_pod=RECORDED), memory=looked(1), **ONE_NAMESPACE),
                lost("may have taken effect", "retry"),
            )
            for state in (RowState.QUEUED, RowState.RUNNING)
        ),
        case(
            "recorded-pod-is-read-in-the-namespace-of-the-record",
            situation(
                row(RowState.RUNNING, launched_pod=f"other/{name(1)}"), memory=looked(1), **ONE_NAMESPACE
            ),
            LookFor("other", name(1), recorded=True),
        ),
        case(
            "recorded-pod-is-read-for-a-row-queued-anew-by-a-late-commit",
            situation(row(launched_pod=RECORDED), memory=Memory(known=True, repeat_attempt=1)),
            LookFor("airflow", name(1), recorded=True),
        ),
        case(
            "recorded-pod-is-not-read-before-a-list-misses-it",
            situation(row(RowState.RUNNING, launched_pod=RECORDED), pods_complete=False),
        ),
        case(
            "recorded-pod-is-not-read-while-a-launch-is-under-way",
            situation(row(launched_pod=RECORDED), memory=Memory(known=True, held=True)),
        ),
        case(
            "recorded-pod-that-is-known-is-not-read",
            situation(row(RowState.RUNNING, launched_pod=RECORDED), pod(RUNNING)),
            Occupy(),
        ),
        case(
            "recorded-pod-that-was-seen-to-go-is-not-read",
            situation(row(RowState.RUNNING, launched_pod=RECORDED), pod(SUCCEEDED, gone=True)),
            EmitSuccess(),
        ),
        case(
            "recorded-pod-of-a-row-that-is-over-is-not-read",
            situation(row(RowState.TERMINAL, launched_pod=RECORDED)),
            Release(),
        ),
        *(
            case(
                f"record-that-names-{what}-is-not-asked-for",
                situation(row(RowState.RUNNING, launched_pod=text), **ONE_NAMESPACE),
                lost("disappeared while running"),
            )
            for what, text in {
                "no-pod-of-ours": "airflow/webserver-0",
                "a-pod-of-another-callback": "airflow/callback-11111111-2222-3333-4444-000000000000-1",
                "no-namespace": name(1),
                "nothing": "",
                "a-path": f"airflow/{name(1)}/log",
            }.items()
        ),
        *(
            case(
                f"running-row-without-record-has-the-pod-of-its-attempt-read-{number}",
                situation(row(RowState.RUNNING, **launches), memory=memory, **API, **ONE_NAMESPACE),
                expected,
            )
            for number, launches, memory, expected in (
                ("first", {}, Memory(), LookFor("airflow", name(1))),
                ("first-is-not-there", {}, looked(1), lost("disappeared while running")),
                ("second", {"next_attempt": 2}, Memory(), LookFor("airflow", name(2))),
                ("second-then-first", {"next_attempt": 2}, looked(2), LookFor("airflow", name(1))),
                ("neither-is-there", {"next_attempt": 2}, looked(1, 2), lost("disappeared while running")),
                (
                    "run-again",
                    {"next_attempt": 2, "history": 1},
                    looked(2),
                    lost("disappeared while running"),
                ),
            )
        ),
        case(
            "running-row-without-record-is-lost-where-its-pod-may-be-in-several-namespaces",
            situation(RUNNING_ROW, **API),
            lost("disappeared while running"),
        ),
        case(
            "queued-row-without-record-is-launched-and-the-name-tells-whether-it-was",
            situation(QUEUED_ROW, **API, **ONE_NAMESPACE),
            Launch(1),
        ),
        case(
            "recorded-pod-of-queued-row-is-read-and-then-launched-if-the-api-would-know",
            situation(row(launched_pod=RECORDED), memory=looked(1), **API, **ONE_NAMESPACE),
            Launch(1),
        ),
        case(
            "next-attempt-is-launched-after-the-pod-before-it-was-looked-for",
            situation(row(next_attempt=3), **ONE_NAMESPACE),
            LookFor("airflow", name(2)),
        ),
        case(
            "next-attempt-is-launched-when-the-pod-before-it-is-not-there",
            situation(row(next_attempt=3), memory=looked(2), **ONE_NAMESPACE),
            Launch(3),
        ),
        case(
            "next-attempt-is-launched-where-its-pod-before-may-be-in-several-namespaces",
            situation(row(next_attempt=3)),
            Launch(3),
        ),
        case(
            "attempt-before-a-persons-retry-is-not-looked-for",
            situation(row(next_attempt=3, history=2), **ONE_NAMESPACE),
            Launch(3),
        ),
        case(
            "handed-over-callback-that-another-scheduler-has-launched-since-is-launched-after-a-look",
            situation(row(next_attempt=3), memory=looked(repeat_attempt=1), **ONE_NAMESPACE),
            LookFor("airflow", name(2)),
        ),
        case(
            "handed-over-callback-that-another-scheduler-has-launched-since-goes-on-with-the-recorded-attempt",
            situation(row(next_attempt=3), memory=looked(2, repeat_attempt=1), **ONE_NAMESPACE),
            Launch(3),
        ),
        case(
            "last-pod-is-looked-for-before-its-callback-is-given-up",
            situation(row(next_attempt=4), **ONE_NAMESPACE),
            LookFor("airflow", name(3)),
        ),
        case(
            "callback-is-given-up-when-its-last-pod-is-not-there",
            situation(row(next_attempt=4), memory=looked(3), **ONE_NAMESPACE),
            never_began("did not start", "launched 3 times"),
        ),
        case(
            "earlier-pod-that-was-found-and-runs-is-followed",
            situation(row(next_attempt=2), pod(RUNNING), memory=looked(1), **ONE_NAMESPACE),
            Occupy(),
            EmitRunning(),
        ),
        case(
            "earlier-pod-that-was-found-and-waits-does-not-stand-for-the-one-that-ran",
            situation(row(RowState.RUNNING, next_attempt=2), pod(), memory=looked(1, 2), **ONE_NAMESPACE),
            lost("disappeared while running"),
        ),
    ],
)
def test_pods_that_lists_do_not_have(given, expected):
    check(given, expected)


# Rows that are over ---------------------------------------------------------------------------------


def beside(outcome: CallbackOutcome, since: float, **changes: object) -> PodView:
    """A pod whose callback ended *since* seconds ago, and a container beside it has not."""
    return pod(outcome, still_runs=True, **{"ended_at": NOW - since, **changes})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        case(
            "recorded-result-frees-the-pod",
            situation(TERMINAL_ROW, pod(SUCCEEDED)),
            Release(),
            deletes(pod(SUCCEEDED), "recorded"),
        ),
        case(
            "failed-pod-is-kept-and-labelled",
            situation(TERMINAL_ROW, pod(FAILED)),
            Release(),
            MarkDone(pod(FAILED)),
        ),
        case(
            "failed-pod-is-deleted-if-failures-are-not-kept",
            situation(TERMINAL_ROW, pod(FAILED), keep_failed=False),
            Release(),
            deletes(pod(FAILED), "recorded"),
        ),
        case(
            "succeeded-pod-is-kept-and-labelled-if-pods-are-kept",
            situation(TERMINAL_ROW, pod(SUCCEEDED), keep_finished=True),
            Release(),
            MarkDone(pod(SUCCEEDED)),
        ),
        *(
            case(
                f"kept-{outcome.value}-pod-of-which-a-sidecar-still-runs-is-deleted",
                situation(TERMINAL_ROW, beside(outcome, 30.0), keep_finished=outcome is SUCCEEDED),
                Release(),
                deletes(beside(outcome, 30.0), "a container beside the callback's still runs"),
            )
            for outcome in (FAILED, NEVER_STARTED, SUCCEEDED)
        ),
        case(
            "sidecar-may-end-by-itself-first",
            situation(TERMINAL_ROW, beside(FAILED, 29.0)),
            Release(),
            LookAgain(NOW + 1),
        ),
        case(
            "sidecar-may-end-by-itself-first-whatever-the-clocks-say",
            situation(TERMINAL_ROW, beside(FAILED, 89.0), clock_offset=60.0),
            Release(),
            LookAgain(NOW + 1),
        ),
        case(
            "end-that-kubernetes-does-not-tell-counts-from-the-creation",
            situation(TERMINAL_ROW, beside(FAILED, 0.0, ended_at=None, created_at=NOW - 30)),
            Release(),
            deletes(beside(FAILED, 0.0, ended_at=None, created_at=NOW - 30), "still runs"),
        ),
        case(
            "finalizer-comes-off-a-kept-pod-of-which-a-sidecar-still-runs",
            situation(TERMINAL_ROW, beside(FAILED, 30.0, finalizer=True)),
            Release(),
            RemoveFinalizer(beside(FAILED, 30.0, finalizer=True)),
            deletes(beside(FAILED, 30.0, finalizer=True), "still runs"),
        ),
        case(
            "sidecar-is-not-waited-for-where-the-pod-is-not-kept",
            situation(TERMINAL_ROW, beside(SUCCEEDED, 0.0)),
            Release(),
            deletes(beside(SUCCEEDED, 0.0), "its result is recorded"),
        ),
        case(
            "pending-pod-of-terminal-row-is-deleted",
            situation(TERMINAL_ROW, pod(), keep_finished=True),
            Release(),
            deletes(pod(), "needs it no more"),
        ),
        case(
            "running-pod-of-terminal-row-is-deleted",
            situation(TERMINAL_ROW, pod(RUNNING)),
            Release(),
            deletes(pod(RUNNING), "needs it no more"),
        ),
        case(
            "pod-of-dead-scheduler-with-terminal-row-is-deleted-without-adoption",
            situation(TERMINAL_ROW, pod(SUCCEEDED, owner=DEAD)),
            Release(),
            deletes(pod(SUCCEEDED, owner=DEAD), "recorded"),
        ),
        case(
            "B19-pod-that-is-being-deleted-is-not-deleted-again",
            situation(TERMINAL_ROW, pod(SUCCEEDED, deleting=True)),
            Release(),
        ),
        case("gone-pod-needs-nothing", situation(TERMINAL_ROW, pod(SUCCEEDED, gone=True)), Release()),
        case(
            "every-pod-of-a-callback-is-cleaned-up",
            situation(TERMINAL_ROW, pod(NEVER_STARTED, gone=True), pod(FAILED, attempt=2), pod(attempt=3)),
            Release(),
            MarkDone(pod(FAILED, attempt=2)),
            deletes(pod(attempt=3), "needs it no more"),
        ),
        case(
            "F4-pod-of-deleted-dag-run-is-removed",
            situation(ABSENT_ROW, pod(RUNNING)),
            Release(),
            deletes(pod(RUNNING), "needs it no more"),
        ),
        case(
            "F4-failed-pod-of-deleted-dag-run-is-not-kept",
            situation(ABSENT_ROW, pod(FAILED)),
            Release(),
            deletes(pod(FAILED), "recorded"),
        ),
        case("F4-slot-of-deleted-row-is-freed", situation(ABSENT_ROW), Release()),
        case(
            "pod-of-another-installation-is-left-alone",
            situation(ABSENT_ROW, pod(SUCCEEDED, owner=DEAD), memory=Memory()),
        ),
        case(
            "finalizer-comes-off-a-pod-whose-result-is-recorded",
            situation(TERMINAL_ROW, pod(SUCCEEDED, finalizer=True)),
            Release(),
            RemoveFinalizer(pod(SUCCEEDED, finalizer=True)),
            deletes(pod(SUCCEEDED, finalizer=True), "recorded"),
        ),
        case(
            "finalizer-comes-off-a-pod-that-is-being-deleted",
            situation(TERMINAL_ROW, pod(RUNNING, finalizer=True, deleting=True)),
            Release(),
            RemoveFinalizer(pod(RUNNING, finalizer=True, deleting=True)),
        ),
        case(
            "finalizer-comes-off-before-a-kept-pod-is-labelled-done",
            situation(TERMINAL_ROW, pod(FAILED, finalizer=True)),
            Release(),
            RemoveFinalizer(pod(FAILED, finalizer=True)),
        ),
        case(
            "finalizer-stays-while-the-result-is-not-recorded",
            situation(RUNNING_ROW, pod(SUCCEEDED, finalizer=True, deleting=True)),
            EmitSuccess(),
        ),
    ],
)
def test_rows_that_are_over(given, expected):
    check(given, expected)


# Pods that do not start -----------------------------------------------------------------------------


def waiting(word: str, age: float, **changes: object) -> PodView:
    return pod(waiting_reason=word, reason=f"{word}: because", created_at=NOW - age, **changes)


def seen_for(seconds: float, attempt: int = 1) -> Memory:
    """Its pod is seen to wait so for that long."""
    return Memory(known=True, stalled=((f"uid-{attempt}", NOW - seconds),))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        case(
            "pod-may-wait-until-the-pending-timeout",
            situation(QUEUED_ROW, waiting("Unschedulable", 299.0)),
            Occupy(),
            LookAgain(NOW + 1),
        ),
        case(
            "E1-unschedulable-pod-is-deleted-at-the-pending-timeout",
            situation(QUEUED_ROW, waiting("Unschedulable", 660.0)),
            Occupy(),
            RecordAttempt(2),
            deletes(waiting("Unschedulable", 660.0), "660 s", "Unschedulable: because", unstarted=True),
        ),
        case(
            "pod-that-has-begun-and-waits-is-not-deleted-at-the-pending-timeout",
            situation(QUEUED_ROW, pod(created_at=NOW - 660.0, started_at=NOW - 650.0), memory=seen_for(10.0)),
            Occupy(),
            LookAgain(NOW + 290),
        ),
        case(
            "pod-that-has-begun-and-waits-ends-its-callback-with-the-reason",
            situation(
                QUEUED_ROW,
                pod(created_at=NOW - 660.0, started_at=NOW - 650.0, reason="why", explained=True),
                memory=seen_for(300.0),
            ),
            fails("may have begun", "was seen running", "for 300 s", "why"),
        ),
        case(
            "pod-that-has-begun-and-waited-and-is-gone-is-not-launched-again",
            situation(QUEUED_ROW, pod(started_at=NOW - 650.0, gone=True)),
            lost("disappeared while running"),
        ),
        case(
            "pod-whose-Secret-is-refused-for-now-says-so",
            situation(
                QUEUED_ROW,
                waiting("ContainerCreating", 660.0),
                memory=Memory(known=True, repeat_attempt=1, supply_refusal="403: exceeded quota: secrets=1"),
            ),
            Occupy(),
            RecordAttempt(2),
            deletes(waiting("ContainerCreating", 660.0), "exceeded quota: secrets=1", unstarted=True),
        ),
        case(
            "E1-creation-in-the-future-by-the-cluster-clock-is-no-timeout",
            situation(QUEUED_ROW, waiting("Unschedulable", -300.0)),
            Occupy(),
            LookAgain(NOW + 600),
        ),
        *(
            case(
                f"{word}-gets-its-grace",
                situation(QUEUED_ROW, waiting(word, 200.0), memory=seen_for(30.0)),
                Occupy(),
                LookAgain(NOW + 30),
            )
            for word in sorted(START_ERRORS)
        ),
        *(
            case(
                f"{word}-ends-with-its-grace",
                situation(QUEUED_ROW, waiting(word, 200.0), memory=seen_for(60.0)),
                Occupy(),
                RecordAttempt(2),
                deletes(waiting(word, 200.0), "within 200 s", f"{word}: because", unstarted=True),
            )
            for word in sorted(START_ERRORS)
        ),
        case(
            "image-whose-signature-is-not-valid-gets-that-grace-too",
            situation(QUEUED_ROW, waiting("SignatureValidationFailed", 200.0), memory=seen_for(30.0)),
            Occupy(),
            LookAgain(NOW + 30),
        ),
        case(
            "wait-that-kubernetes-does-not-explain-says-so",
            situation(QUEUED_ROW, pod(created_at=NOW - 301, reason=None)),
            Occupy(),
            RecordAttempt(2),
            deletes(pod(created_at=NOW - 301, reason=None), "gives no reason", unstarted=True),
        ),
        case(
            "pending-pod-that-is-being-deleted-is-waited-for",
            situation(QUEUED_ROW, waiting("Unschedulable", 660.0, deleting=True)),
            Occupy(),
        ),
        case(
            "C4-pod-whose-creation-was-not-answered-gets-its-payload",
            situation(QUEUED_ROW, pod(), memory=Memory(known=True, repeat_attempt=1, retry_at=NOW + 5)),
            Occupy(),
            EnsurePayload(pod()),
        ),
        case(
            "pod-whose-payload-cannot-be-made-in-time-is-deleted-like-any-that-waits-too-long",
            situation(
                QUEUED_ROW,
                pod(created_at=NOW - 301, reason=None),
                memory=Memory(known=True, repeat_attempt=1),
            ),
            Occupy(),
            RecordAttempt(2),
            deletes(pod(created_at=NOW - 301, reason=None), "gives no reason", unstarted=True),
        ),
        case(
            "C4-running-pod-whose-creation-was-not-answered-has-it",
            situation(QUEUED_ROW, pod(RUNNING), memory=Memory(known=True, repeat_attempt=1), **API),
            Occupy(),
        ),
        case(
            "pod-that-never-started-is-deleted-after-its-attempt-is-recorded",
            situation(QUEUED_ROW, pod(NEVER_STARTED)),
            Occupy(),
            RecordAttempt(2),
            deletes(pod(NEVER_STARTED), "never_started", unstarted=True),
        ),
        case(
            "pod-that-never-started-and-is-being-deleted-is-waited-for",
            situation(QUEUED_ROW, pod(NEVER_STARTED, deleting=True)),
            Occupy(),
        ),
        case(
            "last-pod-that-never-started-fails",
            situation(QUEUED_ROW, pod(NEVER_STARTED, attempt=3)),
            never_began("never_started", "launched 3 times", "never began"),
        ),
        case(
            "last-pod-that-never-started-is-explained-before-it-fails",
            situation(QUEUED_ROW, pod(NEVER_STARTED, attempt=3, explained=False)),
            Explain(pod(NEVER_STARTED, attempt=3, explained=False)),
        ),
        case(
            "wait-is-explained-before-the-pod-is-deleted-for-it",
            situation(QUEUED_ROW, waiting("Unschedulable", 660.0, explained=False)),
            Occupy(),
            Explain(waiting("Unschedulable", 660.0, explained=False)),
        ),
        case(
            "pod-that-never-started-fails-if-the-row-says-running",
            situation(RUNNING_ROW, pod(NEVER_STARTED), **API),
            fails("may have begun"),
        ),
        case(
            "last-pending-pod-is-deleted-before-it-fails",
            situation(
                QUEUED_ROW, waiting("ImagePullBackOff", 61.0, attempt=3), memory=seen_for(60.0, attempt=3)
            ),
            Occupy(),
            RecordAttempt(4),
            deletes(waiting("ImagePullBackOff", 61.0, attempt=3), "ImagePullBackOff", unstarted=True),
        ),
        case(
            "finalizer-does-not-hold-up-the-pod-that-never-started",
            situation(QUEUED_ROW, pod(NEVER_STARTED, deleting=True, finalizer=True)),
            Occupy(),
            RecordAttempt(2),
            RemoveFinalizer(pod(NEVER_STARTED, deleting=True, finalizer=True)),
        ),
        case(
            "finalizer-does-not-hold-up-the-pod-that-has-no-node",
            situation(QUEUED_ROW, pod(deleting=True, finalizer=True)),
            Occupy(),
            RecordAttempt(2),
            RemoveFinalizer(pod(deleting=True, finalizer=True)),
        ),
        case(
            "start-error-that-is-seen-for-the-first-time-has-its-whole-grace",
            situation(QUEUED_ROW, waiting("ErrImagePull", 200.0)),
            Occupy(),
            LookAgain(NOW + 60),
        ),
        case(
            "grace-of-a-start-error-ends-with-the-pending-timeout",
            situation(QUEUED_ROW, waiting("ErrImagePull", 299.0), memory=seen_for(1.0)),
            Occupy(),
            LookAgain(NOW + 1),
        ),
        case(
            "error-of-another-pod-counts-for-that-one-only",
            situation(QUEUED_ROW, waiting("ErrImagePull", 100.0, attempt=2), memory=seen_for(90.0)),
            Occupy(),
            LookAgain(NOW + 60),
        ),
        case(
            "pod-that-never-started-and-does-not-go-fails",
            situation(QUEUED_ROW, pod(NEVER_STARTED, deleting=True, delete_by=NOW - 300, node="node-1")),
            never_began("Could not start", "never_started", "is still there after 300 s"),
        ),
        case(
            "finalizer-stays-on-the-pending-pod-that-may-still-begin",
            situation(QUEUED_ROW, pod(deleting=True, finalizer=True, node="node-1")),
            Occupy(),
        ),
    ],
)
def test_pods_that_do_not_start(given, expected):
    check(given, expected)


@pytest.mark.parametrize(
    ("row_state", "view", "stalls_so"),
    [
        pytest.param(RowState.QUEUED, waiting("ErrImagePull", 20.0), True, id="error"),
        pytest.param(RowState.QUEUED, waiting("Unschedulable", 20.0), False, id="no-room"),
        pytest.param(RowState.QUEUED, pod(), False, id="nothing-is-told"),
        pytest.param(RowState.RUNNING, pod(), True, id="row-says-running"),
        pytest.param(RowState.RUNNING, pod(RUNNING), False, id="runs"),
        pytest.param(RowState.QUEUED, waiting("ErrImagePull", 20.0, gone=True), False, id="gone"),
    ],
)
def test_which_waits_count_from_when_they_are_seen(row_state, view, stalls_so):
    assert stalls(row(row_state), view) is stalls_so


# Rows that say RUNNING and pods that do not ----------------------------------------------------------


@pytest.mark.parametrize("api", [False, True])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        case(
            "pod-that-waits-again-is-waited-for",
            situation(RUNNING_ROW, pod(created_at=NOW - 900, node="node-1")),
            Occupy(),
            LookAgain(NOW + 300),
        ),
        case(
            "pod-that-waits-again-with-an-error-is-waited-for-as-long",
            situation(RUNNING_ROW, waiting("CreateContainerError", 900.0), memory=seen_for(299.0)),
            Occupy(),
            LookAgain(NOW + 1),
        ),
        case(
            "pod-that-waits-for-too-long-fails-and-is-not-launched-again",
            situation(RUNNING_ROW, waiting("CreateContainerError", 900.0), memory=seen_for(300.0)),
            fails("may have begun", "RUNNING", "for 300 s", "CreateContainerError: because"),
        ),
        case(
            "pod-that-waits-for-too-long-and-does-not-say-why-fails",
            situation(RUNNING_ROW, pod(reason=None, created_at=NOW - 900), memory=seen_for(300.0)),
            fails("may have begun", "gives no reason"),
        ),
    ],
)
def test_pods_that_wait_though_the_row_says_running(given, expected, api):
    check(replace(given, api_owns_running=api), expected)


# What may not be done --------------------------------------------------------------------------------


def denied(request: PodRequest, attempt: int = 1, **changes: object) -> Memory:
    return Memory(known=True, denials=((request, f"uid-{attempt}", "403: you may not"),), **changes)


ORPHAN = {"memory": denied(PodRequest.ADOPT)}


@pytest.mark.parametrize("alive", [frozenset(), OTHERS_ALIVE, frozenset({"10"})])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        case(
            "success-is-told",
            situation(RUNNING_ROW, pod(SUCCEEDED, owner=DEAD), **ORPHAN),
            EmitSuccess(),
        ),
        case(
            "failure-is-explained",
            situation(RUNNING_ROW, pod(FAILED, owner=DEAD, explained=False), **ORPHAN),
            Explain(pod(FAILED, owner=DEAD, explained=False)),
        ),
        case(
            "failure-is-told",
            situation(RUNNING_ROW, pod(FAILED, owner=DEAD), **ORPHAN),
            fails("Kubernetes says: failed"),
        ),
        case(
            "running-pod-has-a-slot",
            situation(RUNNING_ROW, pod(RUNNING, owner=DEAD), **ORPHAN),
            Occupy(),
        ),
        case(
            "run-is-announced",
            situation(QUEUED_ROW, pod(RUNNING, owner=DEAD), **ORPHAN),
            Occupy(),
            EmitRunning(),
        ),
        case(
            "pending-pod-gets-its-payload",
            situation(QUEUED_ROW, pod(owner=DEAD), memory=denied(PodRequest.ADOPT, repeat_attempt=1)),
            Occupy(),
            EnsurePayload(pod(owner=DEAD)),
        ),
        case(
            "pod-that-does-not-start-is-deleted",
            situation(QUEUED_ROW, waiting("Unschedulable", 300.0, owner=DEAD), **ORPHAN),
            Occupy(),
            RecordAttempt(2),
            deletes(waiting("Unschedulable", 300.0, owner=DEAD), "Unschedulable", unstarted=True),
        ),
        case(
            "denial-of-another-pod-counts-for-that-one-only",
            situation(RUNNING_ROW, pod(SUCCEEDED, owner=DEAD, attempt=2, uid="uid-2"), **ORPHAN),
            Adopt(pod(SUCCEEDED, owner=DEAD, attempt=2, uid="uid-2")),
        ),
    ],
)
def test_pod_that_may_not_be_adopted_is_looked_after_by_the_eldest_scheduler(given, expected, alive):
    check(replace(given, alive_others=alive), expected)


@pytest.mark.parametrize("outcome", CallbackOutcome)
@pytest.mark.parametrize("alive", [frozenset({"6"}), frozenset({"6", SIBLING, "10"})])
def test_pod_that_may_not_be_adopted_takes_no_slot_in_a_younger_scheduler(outcome, alive):
    check(situation(QUEUED_ROW, pod(outcome, owner=DEAD), alive_others=alive, **ORPHAN), (Release(),))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        case(
            "pod-that-waits-for-too-long",
            situation(QUEUED_ROW, waiting("Unschedulable", 300.0), memory=denied(PodRequest.DELETE)),
            never_began(
                "within 300 s", "Unschedulable: because", "403: you may not", "still there and may start"
            ),
        ),
        case(
            "pod-that-waits-for-too-long-is-explained-first",
            situation(
                QUEUED_ROW, waiting("Unschedulable", 300.0, explained=False), memory=denied(PodRequest.DELETE)
            ),
            Occupy(),
            Explain(waiting("Unschedulable", 300.0, explained=False)),
        ),
        case(
            "pod-that-never-started",
            situation(QUEUED_ROW, pod(NEVER_STARTED), memory=denied(PodRequest.DELETE)),
            never_began("Could not start: Kubernetes says: never_started", "403: you may not", "still there"),
        ),
        case(
            "pod-of-a-run-before",
            situation(row(next_attempt=2, history=1), pod(FAILED), memory=denied(PodRequest.DELETE)),
            never_began("Could not run again", "403: you may not", "still there"),
        ),
        case(
            "pod-of-a-run-before-loses-our-finalizer",
            situation(row(next_attempt=2, history=1), pod(FAILED, deleting=True, finalizer=True)),
            Occupy(),
            RecordAttempt(2),
            RemoveFinalizer(pod(FAILED, deleting=True, finalizer=True)),
        ),
        case(
            "pod-of-a-run-before-is-waited-for",
            situation(row(next_attempt=2, history=1), pod(FAILED, deleting=True, delete_by=NOW - 299)),
            Occupy(),
            LookAgain(NOW + 1),
        ),
        case(
            "pod-of-a-run-before-is-not-waited-for-without-end",
            situation(row(next_attempt=2, history=1), pod(FAILED, deleting=True, delete_by=NOW - 300)),
            never_began("Could not run again; pod", "is still there after 300 s", "a finalizer holds it"),
        ),
        case(
            "pod-that-runs-after-all",
            situation(QUEUED_ROW, pod(RUNNING), memory=denied(PodRequest.DELETE)),
            Occupy(),
            EmitRunning(),
        ),
        case(
            "pod-of-a-row-that-is-over-is-asked-for-again",
            situation(TERMINAL_ROW, waiting("Unschedulable", 300.0), memory=denied(PodRequest.DELETE)),
            Release(),
            deletes(waiting("Unschedulable", 300.0), "needs it no more"),
        ),
        case(
            "finalizer-that-stays-on-an-unstarted-pod-is-waited-for",
            situation(
                QUEUED_ROW,
                pod(NEVER_STARTED, deleting=True, finalizer=True, delete_by=NOW - 299, node="node-1"),
                memory=denied(PodRequest.REMOVE_FINALIZER),
            ),
            Occupy(),
            LookAgain(NOW + 1),
        ),
        case(
            "finalizer-that-stays-on-an-unstarted-pod-for-too-long",
            situation(
                QUEUED_ROW,
                pod(NEVER_STARTED, deleting=True, finalizer=True, delete_by=NOW - 300, node="node-1"),
                memory=denied(PodRequest.REMOVE_FINALIZER),
            ),
            never_began("is still there after 300 s", "a finalizer holds it"),
        ),
    ],
)
def test_pods_that_may_not_be_deleted(given, expected):
    check(given, expected)


# Clocks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [360.0, -360.0, 0.0])
@pytest.mark.parametrize(
    ("made", "expected"),
    [
        case(
            "pod-may-wait-as-long-as-ever",
            lambda at: situation(QUEUED_ROW, pod(created_at=at(-299.0))),
            Occupy(),
            LookAgain(NOW + 1),
        ),
        case(
            "pod-waits-for-too-long",
            lambda at: situation(QUEUED_ROW, pod(created_at=at(-300.0), uid="u")),
            Occupy(),
            RecordAttempt(2),
            "within 300 s",
        ),
        case(
            "node-has-as-long-as-ever",
            lambda at: situation(
                RUNNING_ROW, pod(RUNNING, deleting=True, delete_by=at(-299.0), node="node-1")
            ),
            Occupy(),
            LookAgain(NOW + 1),
        ),
        case(
            "node-is-lost",
            lambda at: situation(
                RUNNING_ROW, pod(RUNNING, deleting=True, delete_by=at(-300.0), node="node-1")
            ),
            lost("node node-1 has not confirmed that for 300 s"),
        ),
        case(
            "unstarted-pod-does-not-go",
            lambda at: situation(
                QUEUED_ROW, pod(NEVER_STARTED, deleting=True, delete_by=at(-300.0), node="node-1")
            ),
            never_began("still there after 300 s"),
        ),
        case(
            "pod-without-node-has-its-grace-period",
            lambda at: situation(QUEUED_ROW, pod(deleting=True, delete_by=at(1.0))),
            Occupy(),
            LookAgain(NOW + 1),
        ),
        case(
            "launch-after-a-pod-without-node-waits-from-its-deletion",
            lambda at: situation(QUEUED_ROW, pod(deleting=True, delete_by=at(-9.0))),
            Occupy(),
            RecordAttempt(2),
            LookAgain(NOW + 1),
        ),
        case(
            "launch-after-a-pod-without-node",
            lambda at: situation(QUEUED_ROW, pod(deleting=True, delete_by=at(-10.0))),
            Occupy(),
            RecordAttempt(2),
            Launch(2),
        ),
    ],
)
def test_limits_are_the_same_whatever_the_api_servers_clock_says(made, expected, offset):
    given = replace(made(lambda since: NOW - offset + since), clock_offset=offset)
    *first, last = decide(given, SETTINGS)
    assert first == list(expected[:-1])
    if isinstance(expected[-1], str):
        assert isinstance(last, Delete)
        assert expected[-1] in last.why
    else:
        assert expected[-1] == last


# Nodes and requests without an answer ----------------------------------------------------------------


def on_lost_node(outcome: CallbackOutcome, since: float) -> PodView:
    return pod(outcome, deleting=True, delete_by=NOW - since, node="node-1")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        *(
            case(
                f"{outcome.value}-pod-that-is-deleted-may-outlast-its-grace-for-a-while",
                situation(RUNNING_ROW, on_lost_node(outcome, 299.0)),
                Occupy(),
                LookAgain(NOW + 1),
            )
            for outcome in (PENDING, RUNNING)
        ),
        case(
            "running-is-told-while-the-node-is-waited-for",
            situation(QUEUED_ROW, on_lost_node(RUNNING, -30.0)),
            Occupy(),
            LookAgain(NOW + 330),
            EmitRunning(),
        ),
        *(
            case(
                f"{outcome.value}-pod-whose-node-never-confirms-its-deletion-fails-{row_state.value}",
                situation(row(row_state), on_lost_node(outcome, 300.0), api_owns_running=api),
                lost(
                    "was deleted and node node-1 has not confirmed that",
                    "(the node was lost, or it cannot end the pod)",
                    "may have taken effect",
                    "retry",
                ),
            )
            for outcome in (PENDING, RUNNING)
            for row_state in (RowState.QUEUED, RowState.RUNNING)
            for api in (False, True)
        ),
        case(
            "success-of-a-pod-that-is-deleted-counts-however-late",
            situation(RUNNING_ROW, on_lost_node(SUCCEEDED, 3000.0)),
            EmitSuccess(),
        ),
    ],
)
def test_lost_nodes(given, expected):
    check(given, expected)


NOT_BEGUN = "it seems that the callback did not begin"
CONNECT_ERROR = "Ran and failed: ConnectError: Connection refused"


@pytest.mark.parametrize(
    ("given", "words", "did_not_begin"),
    [
        pytest.param(
            situation(QUEUED_ROW, pod(FAILED, reason=CONNECT_ERROR), **API),
            "Could not start: ConnectError: Connection refused (its row is still queued",
            True,
            id="row-is-queued",
        ),
        pytest.param(
            situation(RUNNING_ROW, pod(FAILED, reason=CONNECT_ERROR), **API),
            CONNECT_ERROR,
            False,
            id="row-is-running",
        ),
        pytest.param(
            situation(QUEUED_ROW, pod(FAILED, reason=CONNECT_ERROR)),
            CONNECT_ERROR,
            False,
            id="executor-owns-it",
        ),
        pytest.param(
            situation(QUEUED_ROW, pod(FAILED, reason=CONNECT_ERROR, ended_at=None), **API),
            CONNECT_ERROR,
            False,
            id="container-has-no-end",
        ),
        pytest.param(
            situation(QUEUED_ROW, pod(FAILED, reason=CONNECT_ERROR, deleting=True), **API),
            CONNECT_ERROR,
            False,
            id="pod-was-deleted",
        ),
        pytest.param(
            situation(QUEUED_ROW, pod(FAILED, reason=CONNECT_ERROR, gone=True), **API),
            CONNECT_ERROR,
            False,
            id="pod-is-gone",
        ),
    ],
)
def test_failure_before_the_callback_began_says_so(given, words, did_not_begin):
    [failure] = decide(given, SETTINGS)
    assert isinstance(failure, EmitFailure)
    assert failure.kind is FailureKind.CALLBACK
    assert failure.reason.startswith(words)
    assert (NOT_BEGUN in failure.reason) is did_not_begin


def test_pod_that_goes_while_it_waits_is_not_said_to_wait_still():
    gone = pod(deleting=True, gone=True, attempt=3, reason="init container fetch is still running")
    [failure] = decide(situation(QUEUED_ROW, gone), SETTINGS)
    assert isinstance(failure, EmitFailure)
    assert failure.reason.startswith(
        f"Pod {gone.name} was deleted before the callback began; it had waited: init container fetch"
    )


# Pods without a node that another's finalizer holds -----------------------------------------------------


def held_up(outcome: CallbackOutcome = PENDING, since: float = 300.0, **changes: object) -> PodView:
    return pod(outcome, deleting=True, delete_by=NOW - since, **changes)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        *(
            case(
                f"{outcome.value}-pod-that-never-had-a-node-does-not-keep-the-next-from-being-made",
                situation(QUEUED_ROW, held_up(outcome)),
                Occupy(),
                RecordAttempt(2),
                Launch(2),
            )
            for outcome in (PENDING, NEVER_STARTED)
        ),
        case(
            "own-finalizer-comes-off-first",
            situation(QUEUED_ROW, held_up(finalizer=True)),
            Occupy(),
            RecordAttempt(2),
            RemoveFinalizer(held_up(finalizer=True)),
        ),
        case(
            "own-finalizer-that-cannot-be-taken-off-is-as-anothers",
            situation(QUEUED_ROW, held_up(finalizer=True), memory=denied(PodRequest.REMOVE_FINALIZER)),
            Occupy(),
            RecordAttempt(2),
            Launch(2),
        ),
        case(
            "deletion-time-that-is-not-told-is-waited-for",
            situation(QUEUED_ROW, pod(deleting=True)),
            Occupy(),
        ),
        case(
            "next-launch-has-its-delay",
            situation(QUEUED_ROW, held_up(since=10.0, attempt=2)),
            Occupy(),
            RecordAttempt(3),
            LookAgain(NOW + 10),
        ),
        case(
            "last-launch-fails-with-the-reason-for-which-the-pod-was-deleted",
            situation(
                QUEUED_ROW,
                held_up(attempt=3),
                memory=Memory(known=True, condemned=(("uid-3", "Could not start within 300 s: gated"),)),
            ),
            never_began("Could not start within 300 s: gated", "launched 3 times; the callback never began"),
        ),
        case(
            "retry-by-a-person-goes-ahead",
            situation(row(next_attempt=4, history=3), held_up(attempt=3)),
            Occupy(),
            RecordAttempt(4),
            Launch(4),
        ),
        case(
            "launch-that-is-under-way-is-not-made-again",
            situation(QUEUED_ROW, held_up(), memory=Memory(known=True, held=True)),
        ),
        case(
            "launch-that-failed-for-now-is-made-again-in-its-time",
            situation(
                row(next_attempt=2),
                held_up(),
                memory=Memory(known=True, repeat_attempt=2, retry_at=NOW + 5),
            ),
            Occupy(),
            RecordAttempt(2),
            LookAgain(NOW + 5),
        ),
        case(
            "launch-that-was-refused-for-good-fails",
            situation(row(next_attempt=2), held_up(), memory=Memory(refusal=Refusal(2, "403: no", False))),
            fails("403: no", kind=FailureKind.REFUSED),
        ),
        case(
            "pod-that-was-made-after-it-decides",
            situation(row(next_attempt=2), held_up(), pod(RUNNING, attempt=2), **API),
            Occupy(),
        ),
        case(
            "callback-that-has-begun-is-not-launched",
            situation(RUNNING_ROW, held_up()),
            lost("may have taken effect"),
        ),
        case(
            "pod-of-a-live-scheduler-is-left-to-it",
            situation(QUEUED_ROW, held_up(owner=SIBLING), alive_others=OTHERS_ALIVE),
            Release(),
        ),
        case(
            "pod-with-a-node-may-still-begin",
            situation(QUEUED_ROW, held_up(since=299.0, node="node-1")),
            Occupy(),
            LookAgain(NOW + 1),
        ),
    ],
)
def test_pods_without_a_node_that_do_not_go(given, expected):
    check(given, expected)


def refused(*, pod_may_exist: bool, attempt: int = 1) -> Memory:
    return Memory(known=True, refusal=Refusal(attempt, "403: no", pod_may_exist))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        case(
            "launch-that-is-refused-for-good-fails",
            situation(QUEUED_ROW, memory=refused(pod_may_exist=False), pods_complete=False),
            fails("403: no", kind=FailureKind.REFUSED),
        ),
        case(
            "request-without-answer-fails-nothing-before-a-list",
            situation(QUEUED_ROW, memory=refused(pod_may_exist=True), pods_complete=False),
        ),
        case(
            "request-without-answer-fails-when-a-list-shows-no-pod",
            situation(QUEUED_ROW, memory=refused(pod_may_exist=True)),
            fails("403: no", kind=FailureKind.REFUSED),
        ),
        case(
            "pod-that-was-created-without-an-answer-counts",
            situation(QUEUED_ROW, pod(SUCCEEDED), memory=refused(pod_may_exist=True)),
            EmitSuccess(),
        ),
        case(
            "pod-that-was-created-without-an-answer-counts-though-it-is-gone",
            situation(QUEUED_ROW, pod(SUCCEEDED, gone=True), memory=refused(pod_may_exist=True)),
            EmitSuccess(),
        ),
        case(
            "pod-that-was-deleted-because-its-secret-was-refused-is-not-launched-again",
            situation(QUEUED_ROW, pod(PENDING, gone=True), memory=refused(pod_may_exist=False)),
            fails("403: no", kind=FailureKind.REFUSED),
        ),
        case(
            "refusal-of-an-earlier-attempt-does-not-stand",
            situation(row(next_attempt=2), memory=refused(pod_may_exist=False)),
            Launch(2),
        ),
        case(
            "callback-that-a-person-cancelled-meanwhile-stays-cancelled",
            situation(TERMINAL_ROW, memory=refused(pod_may_exist=False)),
            Release(),
        ),
    ],
)
def test_launches_that_fail_for_good(given, expected):
    check(given, expected)


@pytest.mark.parametrize(
    ("launches", "delay"),
    [(0, 10.0), (1, 10.0), (2, 20.0), (3, 40.0), (4, 40.0), (10_000, 40.0)],
)
def test_delay_between_launches_doubles_up_to_its_limit(launches, delay):
    assert retry_delay(launches, SETTINGS) == delay


def test_pods_of_one_callback_that_began_decide_before_later_attempts_that_did_not():
    began, later = pod(RUNNING), pod(attempt=2)
    assert decide(situation(RUNNING_ROW, later, began), SETTINGS)[0] == Occupy()
    assert Launch not in map(type, decide(situation(RUNNING_ROW, later, began), SETTINGS))


# Every situation there is ---------------------------------------------------------------------------

ROWS = [
    *(row(state) for state in RowState),
    row(next_attempt=2),
    row(next_attempt=4),
    row(next_attempt=5, history=2),
    row(launched_pod="airflow/callback-x-1"),
    row(RowState.RUNNING, launched_pod="airflow/callback-x-1"),
    row(launched_pod=RECORDED),
    row(RowState.RUNNING, launched_pod=RECORDED),
]
#: Every pod that one look can show: outcome, owner, node and the three flags.
PODS = [
    pod(outcome, owner=owner, node=node, deleting=deleting, gone=gone, finalizer=finalizer)
    for outcome, owner, node, deleting, gone, finalizer in itertools.product(
        CallbackOutcome, (ME, DEAD, SIBLING), (None, "node-1"), *[(False, True)] * 3
    )
]
STUCK = [
    replace(view, attempt=attempt, created_at=NOW - 1000, name=f"callback-{ID}-{attempt}")
    for view, attempt in itertools.product(
        [view for view in PODS if view.outcome in (PENDING, NEVER_STARTED) and not view.finalizer], (1, 3)
    )
]
PAIRS = [
    (first, replace(second, attempt=2, uid="uid-2", name=f"callback-{ID}-2"))
    for first, second in itertools.product(
        [view for view in PODS if view.owner == ME and not view.finalizer],
        [view for view in PODS if view.node is None and not view.finalizer and not view.deleting],
    )
]
PODS += [
    replace(view, delete_by=NOW - since)
    for view in PODS
    if view.deleting and not view.gone
    for since in (-10.0, 1000.0)
]
MEMORIES = [
    Memory(held=held, known=known, repeat_attempt=repeat, retry_at=retry_at, orphaned_since=since)
    for held, known, repeat, retry_at, since in itertools.product(
        (False, True), (False, True), (None, 1), (0.0, NOW + 5), (None, NOW - 60)
    )
]
MEMORIES += [
    Memory(known=True, held=held, refusal=Refusal(attempt, "no", pod_may_exist))
    for held, attempt, pod_may_exist in itertools.product((False, True), (1, 2), (False, True))
]
DENIED = [
    Memory(known=True, denials=tuple((request, f"uid-{number}", "no") for number in (1, 2)))
    for request in PodRequest
]
ALIVE = [None, frozenset(), OTHERS_ALIVE]


def every_situation():
    unexplained = [replace(view, explained=False) for view in [*PODS, *STUCK] if view.reason is not None]
    pods = [(), *((view,) for view in [*PODS, *STUCK, *unexplained[::3]])]
    for row_view, views, memory, alive, complete, api in itertools.product(
        ROWS, pods, [*MEMORIES[::3], *DENIED], ALIVE, (False, True), (False, True)
    ):
        yield situation(
            row_view, *views, memory=memory, alive_others=alive, pods_complete=complete, api_owns_running=api
        )
    for row_view, views, alive, api in itertools.product(ROWS, PAIRS, ALIVE, (False, True)):
        yield situation(row_view, *views, alive_others=alive, api_owns_running=api)
    for row_view, memory, alive, complete, api in itertools.product(
        ROWS, MEMORIES, ALIVE, (False, True), (False, True)
    ):
        yield situation(
            row_view, memory=memory, alive_others=alive, pods_complete=complete, api_owns_running=api
        )
    for row_view, views, memory, complete, api in itertools.product(
        ROWS,
        [(), *((view,) for view in [*PODS, *STUCK][::7])],
        [Memory(known=True), Memory(known=True, repeat_attempt=1), looked(1), looked(1, 2)],
        (False, True),
        (False, True),
    ):
        yield situation(
            row_view, *views, memory=memory, pods_complete=complete, api_owns_running=api, **ONE_NAMESPACE
        )


TERMINAL_EVENTS = (EmitSuccess, EmitFailure)
EVENTS = (*TERMINAL_EVENTS, EmitRunning)
POD_CHANGES = (Adopt, Delete, EnsurePayload, MarkDone, RemoveFinalizer)


def rules_broken(given: Situation, actions: tuple[object, ...]) -> list[str]:
    """The invariants of the design, one line each, that *actions* break in this situation."""
    kinds = [type(action) for action in actions]
    launches = [action for action in actions if isinstance(action, Launch)]
    asked = [action for action in actions if isinstance(action, POD_CHANGES)]
    looks = [action for action in actions if isinstance(action, LookFor)]
    live = [view for view in given.pods if not view.gone and not as_good_as_gone(given, view)]
    active = given.row.state.active
    ours = {ME} if given.alive_others is None else {ME, DEAD}
    began = [view for view in given.pods if view.started_at is not None]
    rules = {
        "no event of a row that is not active": active or not set(EVENTS) & set(kinds),
        "one event at most": sum(kind in EVENTS for kind in kinds) <= 1,
        "one launch at most": len(launches) <= 1,
        "launch only of a queued row": not launches or given.row.state is RowState.QUEUED,
        "launch only without live pod": not launches or not live,
        "launch only of what is not held": not launches or not given.memory.held,
        "launch only if nothing of ours began": not launches
        or not any(view.owner in ours for view in began)
        or given.row.next_attempt > max(view.attempt for view in given.pods),
        "launch of an attempt that was not made": not launches
        or all(launches[0].attempt > view.attempt for view in given.pods),
        "launch not before the recorded attempt": not launches
        or launches[0].attempt >= given.row.next_attempt,
        "a further launch is recorded first": not (launches and given.pods)
        or RecordAttempt(launches[0].attempt) in actions,
        "launch only with a list or on request": not launches
        or given.pods_complete
        or bool(given.pods)
        or given.memory.repeat_attempt is not None,
        "failure is told only when it is explained": all(
            view.explained or view.outcome is not FAILED or view.attempt <= given.row.history
            for view in given.pods
        )
        or EmitFailure not in kinds,
        "launches are bounded": not launches
        or launches[0].attempt - given.row.history <= SETTINGS.launch_retries + 1,
        "no launch and event together": not (launches and set(EVENTS) & set(kinds)),
        "running row is never launched": given.row.state is not RowState.RUNNING or not launches,
        "no running event where the API owns it": not (given.api_owns_running and EmitRunning in kinds),
        "running event only of a queued row": EmitRunning not in kinds or given.row.state is RowState.QUEUED,
        "pods of live siblings are not touched": all(action.pod.owner != SIBLING for action in asked)
        or given.alive_others != OTHERS_ALIVE,
        "pods of others are not touched while it is unknown who is alive": given.alive_others is not None
        or all(action.pod.owner == ME for action in asked),
        "gone pods are not asked about": not any(action.pod.gone for action in asked),
        "adopted are only pods of others": all(
            action.pod.owner != ME for action in asked if isinstance(action, Adopt)
        ),
        "adoption decides nothing else": Adopt not in kinds or set(kinds) <= {Adopt, Occupy},
        "a pod that began goes only when its row is over": not active
        or any(view.attempt <= given.row.history for view in given.pods)
        or not any(action.pod.started_at for action in asked if isinstance(action, (Delete, MarkDone))),
        "a pod goes before its row is over only if it does not start": not active
        or any(view.attempt <= given.row.history for view in given.pods)
        or all(action.unstarted for action in asked if isinstance(action, Delete)),
        "finalizer keeps a result until it is recorded": not active
        or any(view.attempt <= given.row.history for view in given.pods)
        or not any(action.pod.started_at for action in asked if isinstance(action, RemoveFinalizer)),
        "pod with finalizer is not labelled done": not any(
            action.pod.finalizer for action in asked if isinstance(action, MarkDone)
        ),
        "nothing of another executor or installation is touched": not asked
        or (
            given.row.state is not RowState.NOT_OURS
            and (given.row.state is not RowState.ABSENT or given.memory.known)
        ),
        "end is told only of a pod of ours": not set(TERMINAL_EVENTS) & set(kinds)
        or not given.pods
        or any(view.owner in ours or view.owner not in (given.alive_others or ()) for view in given.pods),
        "absence is no end without a list": not set(TERMINAL_EVENTS) & set(kinds)
        or bool(given.pods)
        or given.pods_complete
        or (given.memory.refusal is not None and not given.memory.refusal.pod_may_exist),
        "a pod is asked for by its name once": not looks
        or (active and (looks[0].namespace, looks[0].name) not in given.memory.looked_for),
        "a pod that was never seen is asked for by its name where a list misses it": not looks
        or looks[0].again
        or (len(actions) == 1 and given.pods_complete),
        "before the next launch the pod that it follows is asked for, when that launch is recorded": not looks
        or not looks[0].again
        or (set(kinds) == {Occupy, RecordAttempt, LookFor} and not live),
        "slot is not taken and freed at once": not {Occupy, Release} <= set(kinds),
        "terminal row frees its slot": given.row.state is not RowState.TERMINAL or Release in kinds,
        "every look of an active row of ours ends in an event, a request, a launch or another look": (
            not active
            or given.memory.held
            or given.alive_others is None
            or bool({*EVENTS, *POD_CHANGES, Explain, Launch, LookAgain, LookFor} & set(kinds))
            or (given.row.state is RowState.RUNNING and any(view.outcome is RUNNING for view in live))
            or any(view.outcome is RUNNING and given.api_owns_running for view in live)
            or any(view.deleting for view in live)
            or any(view.owner == SIBLING for view in given.pods)
            or (not given.pods and not given.pods_complete)
        ),
    }
    return [name for name, kept in rules.items() if not kept]


@pytest.mark.once
@pytest.mark.timeout(600)  # a minute where nothing else runs
def test_invariants_hold_in_every_situation():
    broken: dict[str, Situation] = {}
    count = 0
    for given in every_situation():
        count += 1
        actions = decide(given, SETTINGS)
        for name in rules_broken(given, actions):
            broken.setdefault(name, given)
    assert count > 100_000
    assert not broken, "\n\n".join(
        f"{name}:\n  {given}\n  {decide(given, SETTINGS)}" for name, given in broken.items()
    )


@pytest.mark.once
@pytest.mark.timeout(600)
def test_decision_is_the_same_when_asked_again():
    for given in itertools.islice(every_situation(), 0, None, 97):
        assert decide(given, SETTINGS) == decide(given, SETTINGS)
