"""Which of the scheduler's executors a callback goes to. Pure; the rules are core's.

Core resolves the name again and again (``SchedulerJobRunner._try_to_load_executor``); recovery has
to come to the same answer, or it would touch callbacks of a Celery executor beside it
(apache/airflow#42151).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class ExecutorEntry:
    """One configured executor, in the order of ``[core] executor``."""

    module_path: str
    alias: str | None = None
    team: str | None = None

    def answers_to(self, name: str) -> bool:
        return name in (self.alias, self.module_path, self.module_path.rpartition(".")[2])


def resolve(name: str | None, team: str | None, executors: Sequence[ExecutorEntry]) -> ExecutorEntry | None:
    """Return the executor for a callback that names *name* (or none) and whose Dag belongs to *team*.

    None where a name is given that no executor, global or of that team, answers to.
    """
    if name is None:
        of_team = (entry for entry in executors if team is not None and entry.team == team)
        return next(of_team, executors[0] if executors else None)
    for entry in executors:
        if entry.answers_to(name) and (entry.team is None or entry.team == team):
            return entry
    return None
