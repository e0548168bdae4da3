"""How far this scheduler's clock is from the API server's, which writes when a pod was created and is to go."""

from __future__ import annotations

#: Seconds of difference that count as none.
TOLERANCE = 2.0
#: How many measurements count: each API server of a cluster has a clock of its own.
_KEPT = 10


def clock_offset(asked_at: float, answered_at: float, created_at: float) -> float:
    """Return how many seconds this clock is ahead of the API server's; negative where it is behind.

    ``created_at`` was written between the request and its answer, and has whole seconds (``metav1.Time``):
    of the differences that this leaves possible, the smallest counts.

    :param asked_at: when the request that created an object was made, by this clock (epoch seconds).
    :param answered_at: when its answer was there.
    :param created_at: the object's ``creationTimestamp``.
    """
    least, most = asked_at - (created_at + 1.0), answered_at - created_at
    if least > TOLERANCE:
        return least
    return most if most < -TOLERANCE else 0.0


class ApiClock:
    """What the last creations told of the API server's clock. May be used by several threads."""

    def __init__(self) -> None:
        self._measured: tuple[float, ...] = ()

    def measure(self, asked_at: float, answered_at: float, created_at: float) -> None:
        """Take in one creation; see :func:`clock_offset`. Not for objects that were there before."""
        measured = clock_offset(asked_at, answered_at, created_at)
        self._measured = (*self._measured, measured)[-_KEPT:]

    @property
    def offset(self) -> float:
        """Seconds that this clock is ahead; 0 before anything was created.

        Where API servers differ, the one whose pods look oldest counts: a pod rather waits too long.
        """
        return max(self._measured, default=0.0)
