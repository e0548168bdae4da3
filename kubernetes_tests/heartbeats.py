"""How long the executor kept the scheduler's loop waiting, as :mod:`timed_executor` wrote it down."""

from __future__ import annotations

import itertools
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

TIMED = "KubernetesExecutor:kubernetes_tests.timed_executor.KubernetesExecutor"
ROOT = Path(__file__).resolve().parent.parent


class Heartbeat(NamedTuple):
    begin: float
    seconds: float


@dataclass(frozen=True)
class Heartbeats:
    """The heartbeats of one executor; its scheduler is started with the two properties here."""

    file: Path

    @property
    def config(self) -> dict[str, object]:
        return {"core.executor": TIMED}

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        return {"HEARTBEATS_FILE": str(self.file), "PYTHONPATH": path}

    def since(self, begin: float) -> list[Heartbeat]:
        """Return the heartbeats that ended after *begin* (epoch seconds)."""
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        beats = [Heartbeat(*map(float, line.split())) for line in lines]
        return [beat for beat in beats if beat.begin + beat.seconds >= begin]

    def longest(self, begin: float = 0.0) -> float:
        """Return how many seconds the longest heartbeat since *begin* took; 0 where there was none."""
        return max((beat.seconds for beat in self.since(begin)), default=0.0)

    def assert_bounded(self, begin: float, *, longest: float, pause: float) -> None:
        """Assert that no heartbeat since *begin* took longer, and that they never paused longer.

        The pause is that of the whole scheduler loop, on a machine that may be busy.
        """
        beats = self.since(begin)
        assert beats, "no heartbeat of the executor"
        slowest = self.longest(begin)
        assert slowest < longest, f"a heartbeat took {slowest:.1f} s"
        times = [max(begin, beats[0].begin), *(beat.begin for beat in beats[1:]), time.time()]
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert max(gaps) < pause, f"no heartbeat for {max(gaps):.1f} s; the longest took {slowest:.1f} s"
