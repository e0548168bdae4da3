"""Processor time by process: where the time of what was measured went."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

TICKS = os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> tuple[int, float] | None:
    """Return the parent and the processor seconds of a process; None when it is gone (proc_pid_stat(5))."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return int(fields[1]), (int(fields[11]) + int(fields[12])) / TICKS


def seconds(pids: Iterable[int]) -> float:
    """Return what these processes have used so far, threads included."""
    return sum(found[1] for pid in pids if (found := _stat(pid)))


def descendants(pid: int) -> list[int]:
    """Return the living processes below *pid*."""
    children: dict[int, list[int]] = defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        if found := _stat(int(folder.name)):
            children[found[0]].append(int(folder.name))
    below, waiting = [], [pid]
    while waiting:
        for child in children[waiting.pop()]:
            below.append(child)
            waiting.append(child)
    return below


@contextlib.contextmanager
def used(
    processes: Mapping[str, Iterable[int]], count: int, shares: dict[str, list[float]]
) -> Iterator[None]:
    """Add to *shares* the processor milliseconds, per each of *count*, of what is done meanwhile.

    :param processes: by the name under which they are added up.
    """
    before = {name: seconds(pids) for name, pids in processes.items()}
    yield
    for name, pids in processes.items():
        shares.setdefault(name, []).append((seconds(pids) - before[name]) * 1000 / count)
