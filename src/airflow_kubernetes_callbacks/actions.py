"""What can be decided about one callback, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_kubernetes_callbacks.outcome import PodView


@dataclass(frozen=True, slots=True)
class Launch:
    """Create the pod of this attempt."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Adopt:
    """Make this scheduler the pod's owner."""

    pod: PodView


@dataclass(frozen=True, slots=True)
class EnsurePayload:
    """See that the Secret is there that this pod waits for: the answer to its creation was lost."""

    pod: PodView


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the pod.

    ``unstarted``: it is deleted because its container does not start, so only if it still has not.
    """

    pod: PodView
    why: str
    unstarted: bool = False


@dataclass(frozen=True, slots=True)
class LookFor:
    """Read the pod of this name, which may be there though lists do not have it: it may have lost its labels.

    ``recorded``: the row says that this pod was created, so its name alone tells whose it is. ``again``: one of
    this name is gone, and another scheduler may have made it again; no list was waited for.
    """

    namespace: str
    name: str
    recorded: bool = False
    again: bool = False


@dataclass(frozen=True, slots=True)
class Explain:
    """Ask the log and the events for the reason of a failure, once, before it is reported."""

    pod: PodView


@dataclass(frozen=True, slots=True)
class MarkDone:
    """Label a finished pod that is kept."""

    pod: PodView


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    pod: PodView


@dataclass(frozen=True, slots=True)
class RecordAttempt:
    """Write into the row which attempt comes next, before the old pod goes."""

    attempt: int


@dataclass(frozen=True, slots=True)
class EmitRunning:
    """Tell the scheduler that the callback runs."""


@dataclass(frozen=True, slots=True)
class EmitSuccess:
    """Tell the scheduler that the callback succeeded."""


class FailureKind(str, Enum):
    """The class of a failure, for metrics."""

    #: The callback ran and failed.
    CALLBACK = "callback"
    #: It never began.
    UNSTARTED = "unstarted"
    #: Its pod is gone and nobody saw how it ended.
    LOST = "lost"
    #: Its pod could not be created.
    REFUSED = "refused"
    #: A person ended it.
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class EmitFailure:
    """Tell the scheduler that the callback failed, and why."""

    reason: str
    kind: FailureKind = FailureKind.CALLBACK


@dataclass(frozen=True, slots=True)
class Occupy:
    """Count the callback as running here: it takes a slot."""


@dataclass(frozen=True, slots=True)
class Release:
    """Forget the callback without an event: it is somebody else's, or over."""


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Nothing to do before ``at`` (epoch seconds)."""

    at: float


Action = (
    Launch
    | Adopt
    | EnsurePayload
    | Delete
    | Explain
    | MarkDone
    | RemoveFinalizer
    | RecordAttempt
    | EmitRunning
    | EmitSuccess
    | EmitFailure
    | Occupy
    | Release
    | LookAgain
    | LookFor
)
