"""All that a decision about one callback depends on, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_kubernetes_callbacks.outcome import PodView


class RowState(str, Enum):
    """The state of a callback's row, as far as a decision depends on it."""

    #: No such row in this database.
    ABSENT = "absent"
    #: The row belongs to another executor, or to none yet (scheduled, pending).
    NOT_OURS = "not_ours"
    QUEUED = "queued"
    RUNNING = "running"
    TERMINAL = "terminal"

    @property
    def active(self) -> bool:
        return self in (RowState.QUEUED, RowState.RUNNING)


@dataclass(frozen=True, slots=True)
class RowView:
    """One row of the callback table as the reconciler sees it."""

    callback_id: str
    state: RowState
    #: The attempt that the next launch makes, as recorded in the row; 1 where nothing is recorded.
    next_attempt: int = 1
    #: The pod of the recorded attempt was created: if it is not to be found, it existed.
    launched_pod: str | None = None
    #: Pods up to this attempt are history: a person had the callback run again after them.
    history: int = 0
    dag_id: str = ""
    run_id: str = ""
    path: str = ""
    #: Its end is recorded (a person cancelled it) though the state says otherwise: what core writes
    #: without looking (an event that was under way, a hand-over) came after it.
    recorded_end: str | None = None


class PodRequest(str, Enum):
    """A request about a pod that decides differently once it was refused for good."""

    ADOPT = "adopt"
    DELETE = "delete"
    REMOVE_FINALIZER = "remove_finalizer"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The pod of an attempt could not be created, and that is not tried again."""

    attempt: int
    #: For ``callback.output``.
    reason: str
    #: The request may have been carried out though its answer says otherwise, or never came: only a
    #: complete list that was begun later tells.
    pod_may_exist: bool


@dataclass(frozen=True, slots=True)
class Memory:
    """What this scheduler remembers of a callback. A cache: a restart loses it and nothing else."""

    #: The workload waits in this executor, or a request that creates its pod is under way.
    held: bool = False
    #: The row, or the workload, was seen by this process: a row that is gone now was ours.
    known: bool = False
    #: Pods that this scheduler deletes because they did not start, by uid, with the reason.
    condemned: tuple[tuple[str, str], ...] = ()
    #: Since when (epoch seconds) a QUEUED row without pod and without holder has been seen.
    orphaned_since: float | None = None
    #: Not before this time (epoch seconds) is a further launch made.
    retry_at: float = 0.0
    #: The attempt that this scheduler was asked to launch, or tried to and is to try again.
    repeat_attempt: int | None = None
    #: What became of the last request to create its pod, where that is final.
    refusal: Refusal | None = None
    #: Requests that were refused for good: what, of which pod (uid), and in which words.
    denials: tuple[tuple[PodRequest, str, str], ...] = ()
    #: In which words the last request for the Secret that its pod waits for failed; empty where it did not.
    supply_refusal: str = ""
    #: Since when (epoch seconds) a pod is seen to wait for what is not waited for long, by uid.
    stalled: tuple[tuple[str, float], ...] = ()
    #: Namespace and name of pods that were asked for by their name: what was found is among the pods.
    looked_for: frozenset[tuple[str, str]] = frozenset()

    def denied(self, request: PodRequest, pod: PodView) -> str | None:
        """Return in which words this request about the pod was refused for good, or None if it was not."""
        found = (words for asked, uid, words in self.denials if (asked, uid) == (request, pod.uid))
        return next(found, None)


@dataclass(frozen=True, slots=True)
class Situation:
    """All that a decision depends on."""

    now: float
    row: RowView
    pods: tuple[PodView, ...]
    memory: Memory
    me: str
    #: Job ids of the other schedulers that are alive; None where that is not known at present.
    alive_others: frozenset[str] | None
    #: ``pods`` has every pod that exists for this callback (a complete list says so).
    pods_complete: bool
    #: The pod itself writes RUNNING through the execution API (Airflow 3.4 and later).
    api_owns_running: bool
    #: Finished pods are kept and labelled, not deleted (``[kubernetes_executor] delete_worker_pods``).
    keep_finished: bool = False
    keep_failed: bool = True
    #: Where the pods of all callbacks go; None where that may be several namespaces.
    namespace: str | None = None
    #: Seconds that the clock of ``now`` is ahead of the API server's.
    clock_offset: float = 0.0

    def by_own_clock(self, cluster_time: float) -> float:
        """Return a time that the API server wrote as this scheduler's clock has it."""
        return cluster_time + self.clock_offset

    def stalled_since(self, pod: PodView) -> float:
        """Return since when (epoch seconds) this pod, which waits for what is not waited for long, is seen to."""
        return dict(self.memory.stalled).get(pod.uid, self.now)
