"""How long to wait before something is tried again. Pure."""

from __future__ import annotations

#: The most seconds between two tries of what may fail for a long time.
LONGEST_PAUSE = 60.0


def growing_pause(times: int, first: float, longest: float) -> float:
    """Return the seconds after the try number *times* (1 and up): *first*, doubled each time, at most *longest*."""
    exponent = min(max(times, 1) - 1, 30)
    return min(first * 2.0**exponent, longest)
