"""What the figures have to be, and whether they are. Pure.

Every target is a ratio of two things measured in the same run, or a count; the few that are times are
about a loop that has a budget of its own. ``far_outside`` is what CI fails on: machines are noisy.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Target:
    """One measure: at most, or at least, ``limit``.

    :param ratio: it is a ratio or a count, so it says the same on every machine.
    :param slack: how many times worse than the limit it may be before CI fails.
    """

    name: str
    text: str
    limit: float
    at_least: bool = False
    unit: str = ""
    ratio: bool = True
    slack: float = 2.0

    def met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    def far_outside(self, value: float) -> bool:
        if not self.ratio:
            return False
        return value < self.limit / self.slack if self.at_least else value > self.limit * self.slack


TARGETS = (
    Target("task_throughput", "task throughput, ours / stock", 0.99, at_least=True, slack=1.5),
    # Not met where API server and scheduler share two cores, and with few pods: docs/explanation/performance.md.
    Target(
        "launch_vs_bare",
        "callback launches, ours / bare API server (argument)",
        0.8,
        at_least=True,
        slack=4.0,
    ),
    Target("launch_vs_bare_secret", "callback launches, ours / bare API server (Secret)", 0.4, at_least=True),
    Target("launch_vs_stock", "callback launches, ours / stock task pods, sequential", 1.5, at_least=True),
    Target("idle_sync", "idle sync(), 5,000 live callbacks / none", 1.2, slack=3.0),
    Target("idle_sync_added", "idle sync(), time added by 5,000 live callbacks", 2.0, unit="ms", ratio=False),
    Target("burst_longest_beat", "longest heartbeat in a burst", 1.0, unit="s", ratio=False),
    Target("memory_scheduler", "memory per live callback, scheduler", 4.0, unit="KiB"),
    Target("adoption", "adoption, ours / stock", 1 / 3, slack=4.0),
    Target("end_to_row", "container ended to row terminal, beyond one loop", 100.0, unit="ms", ratio=False),
    Target("writes_argument", "API writes per callback, argument", 2.0, slack=1.01),
    Target("writes_secret", "API writes per callback, Secret", 3.0, slack=1.01),
    Target("import_time", "import time, ours / stock", 1.05, slack=1.3),
)


@dataclass(frozen=True)
class Verdict:
    """One target with its values, one per round, and the median of them."""

    target: Target
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def met(self) -> bool:
        return self.target.met(self.median)

    @property
    def far_outside(self) -> bool:
        return self.target.far_outside(self.median)


def verdicts(measured: Mapping[str, Sequence[float]]) -> list[Verdict]:
    """Return a verdict for each target that was measured."""
    return [Verdict(target, tuple(values)) for target in TARGETS if (values := measured.get(target.name))]


def ratios(ours: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return the ratios of what was measured in the same round."""
    return [mine / other for mine, other in zip(ours, others, strict=True) if other]
