"""A scheduler is killed at every step of a callback's life, and another one ends the matter.

Every cell: the step × what the callback does × who goes on (a scheduler that is started afterwards, on
sqlite; a second one that runs all the time, on PostgreSQL). Expected of each: the code began exactly once
(never, where its pod cannot start), the row ends as it should, and nothing is left in the cluster.

``crash/sitecustomize.py`` does the killing. With CRASH_TABLE set, the cells are written there as a table.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kubernetes_tests.airflow_env import wait_for
from kubernetes_tests.scenario import TERMINAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kubernetes_tests.airflow_env import AirflowProcess
    from kubernetes_tests.scenario import MissedDeadline, Scenario

HOOK = Path(__file__).with_name("crash")

#: step -> what a reader should know about it
STEPS = {
    "queued_in_memory": "after queue_workload, before the commit of QUEUED",
    "queued_committed": "after the commit of QUEUED, before anything is asked of the API server",
    "create_unanswered": "the API server has stored the pod, its answer was not read",
    "pod_pending": "the pod is seen pending",
    "pod_running": "the container is seen running",
    "finished_unseen": "the pod has ended, its end was not looked at",
    "event_buffered": "the event is in the buffer, the scheduler has not taken it",
    "before_commit": "the scheduler has taken the event, the row is not committed",
    "after_commit": "the terminal row is committed",
    "before_delete": "before the request that deletes the pod",
    "after_delete": "the API server has accepted the deletion, its answer was not read",
    "before_adoption": "a second crash: before the request that adopts a pod",
    "adoption_unanswered": "a second crash: the pod is adopted, the answer was not read",
    "between_attempts": "the pod that did not start is gone, the next is not created",
}
ADOPTION = {"before_adoption", "adoption_unanswered"}
#: The pod that could have said why it did not start is gone; that it did not start is recorded.
AFTER_THE_LAST_POD = {"event_buffered", "before_commit", "after_delete"}
OUTCOMES = {
    "succeeds": ("succeed", "success"),
    "raises": ("fail", "failed"),
    "never_starts": ("succeed", "failed"),
}
#: A container that never starts is not seen running, and its pod does not end by itself.
IMPOSSIBLE = {("pod_running", "never_starts"), ("finished_unseen", "never_starts")}
#: In the suite that everybody runs; the others are slow because there are so many.
QUICK_CELLS = {
    ("create_unanswered", "succeeds", "sqlite"),
    ("before_commit", "raises", "sqlite"),
    ("before_delete", "succeeds", "postgresql"),
}

CONFIG: dict[str, object] = {
    "scheduler.scheduler_idle_sleep_time": 0.1,
    "kubernetes_executor.delete_worker_pods_on_failure": True,
    "kubernetes_callbacks.reconcile_interval": 1,
    "kubernetes_callbacks.launch_retries": 1,
    "kubernetes_callbacks.start_error_grace": 2,
    "kubernetes_callbacks.launch_retry_delay": 1,
}
#: The scheduler that stays: slow enough to leave the callback to the one that is to die.
SURVIVOR: dict[str, object] = {
    "scheduler.scheduler_idle_sleep_time": 3,
    "kubernetes_callbacks.reconcile_interval": 5,
}

#: Seconds after which a cell counts as stuck: until the dead scheduler counts as dead (5), its successor's
#: interval, two heartbeats, two launches with their waits, the callback itself; three times that, as machines
#: are busy. The times that were taken are in docs/explanation/tested.md.
RECOVERY_TIME = {"sqlite": 45.0, "postgresql": 75.0}

cells = [
    pytest.param(
        database,
        step,
        outcome,
        marks=() if (step, outcome, database) in QUICK_CELLS else pytest.mark.slow,
        id=f"{database}-{step}-{outcome}",
    )
    for database in ("sqlite", "postgresql")
    for step in STEPS
    for outcome in OUTCOMES
    if (step, outcome) not in IMPOSSIBLE
]

results: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)


@pytest.fixture(scope="module")
def stages(
    request: pytest.FixtureRequest,
    scenarios: Callable[[str, dict[str, object]], Scenario],
) -> Iterator[Callable[[str], Stage]]:
    """Return the stage for a database: its schedulers live on from cell to cell."""
    made: dict[str, Stage] = {}

    def stage(database: str) -> Stage:
        if database not in made:
            made[database] = Stage(scenarios(database, CONFIG), survivor=database == "postgresql")
        return made[database]

    yield stage
    if table := os.environ.get("CRASH_TABLE"):
        Path(table).write_text(as_table())


class Stage:
    """The schedulers of one database: one that is told to die, and perhaps one that survives."""

    def __init__(self, scenario: Scenario, *, survivor: bool) -> None:
        self.scenario = scenario
        self.order = scenario.folder / "crash"
        self.recovery_time = RECOVERY_TIME["postgresql" if survivor else "sqlite"]
        self.survivor = scenario.start_scheduler("survivor", config=SURVIVOR) if survivor else None
        self.current: AirflowProcess | None = None
        self._starts = 0

    def new_victim(self) -> AirflowProcess:
        """Start a scheduler that dies when it is told to, and wait until it works."""
        self._starts += 1
        self.current = self.scenario.start_scheduler(
            f"scheduler-{self._starts}",
            environment={"CRASH_AT": str(self.order), "PYTHONPATH": python_path()},
        )
        self.current.wait_for_log("Starting the scheduler")
        return self.current

    def victim(self) -> AirflowProcess:
        """Return the one that ended the last cell, where it is there and well."""
        if self.current is None or not self.current.running:
            return self.new_victim()
        return self.current

    def successor(self) -> None:
        """Make sure that a scheduler runs now that the victim is dead."""
        if self.survivor is None:
            self.new_victim()

    def spoil_template(self) -> None:
        """Have containers wait for a Secret that does not exist: they cannot be created."""
        variable = {"name": "X", "valueFrom": {"secretKeyRef": {"name": "no-such-secret", "key": "x"}}}
        self.scenario.base_container["env"].append(variable)
        self.scenario.write_template(self.scenario.template)

    def mend_template(self) -> None:
        variables = self.scenario.base_container["env"]
        self.scenario.base_container["env"] = [variable for variable in variables if "value" in variable]
        self.scenario.write_template(self.scenario.template)

    def give_order(self, step: str) -> None:
        self.order.write_text(step)

    def carried_out(self, step: str) -> bool:
        return self.order.with_name(f"{self.order.name}.{step}").exists()

    def tidy(self) -> None:
        """Take back what the last cell asked for."""
        for order in self.order.parent.glob(f"{self.order.name}*"):
            order.unlink()
        self.mend_template()


def python_path() -> str:
    return os.pathsep.join(filter(None, [str(HOOK), os.environ.get("PYTHONPATH")]))


def kill_at(stage: Stage, step: str, outcome: str) -> list[MissedDeadline]:
    """Miss deadlines until a scheduler has died at *step*; return all that were missed.

    It is one, unless the survivor takes the callback before the victim does; then there is another try.
    """
    scenario = stage.scenario
    missed: list[MissedDeadline] = []
    for _ in range(8):
        stage.tidy()
        if outcome == "never_starts" or step == "between_attempts":
            stage.spoil_template()
        play = bereave if step in ADOPTION else miss
        callback, victim = play(stage, step, outcome)
        missed.append(callback)

        def over(victim: AirflowProcess = victim, callback: MissedDeadline = callback) -> bool:
            return not victim.running or (
                stage.survivor is not None and scenario.row(callback).state in TERMINAL
            )

        wait_for(f"a scheduler dies at {step}", over, 90, otherwise=scenario.describe)
        if stage.carried_out(step):
            assert victim.wait_for_exit() == -9
            return missed
    raise AssertionError(f"no scheduler died at {step}\n{scenario.describe()}")


def miss(stage: Stage, step: str, outcome: str) -> tuple[MissedDeadline, AirflowProcess]:
    """Miss a deadline with a scheduler that dies of its callback, and return both."""
    function, _ = OUTCOMES[outcome]
    victim = stage.victim()
    stage.give_order(step)
    (callback,) = stage.scenario.miss(function)
    if step == "between_attempts" and outcome != "never_starts":
        stage.scenario.wait_for_pod(callback)
        stage.mend_template()
    return callback, victim


def bereave(stage: Stage, step: str, outcome: str) -> tuple[MissedDeadline, AirflowProcess]:
    """Kill the owner of a pod; return the callback and the scheduler that is to die of the adoption."""
    scenario = stage.scenario
    function, _ = OUTCOMES[outcome]
    candidates = [stage.victim()]
    if stage.survivor is not None:  # whoever adopts has to be there before the owner dies
        candidates.append(stage.new_victim())
    (callback,) = scenario.miss(function, sleep=5)
    if outcome == "never_starts":
        scenario.wait_for_pod(callback, "Pending")
    else:
        scenario.wait_for_begin(callback)
    owners = [one for one in candidates if f"for callback {callback.id}" in one.log()]
    if not owners:  # the survivor has it
        for spare in candidates[:-1]:  # or it would die in the place of a later cell's victim
            spare.kill()
        return callback, candidates[-1]
    stage.give_order(step)
    owners[0].kill()
    others = [one for one in candidates if one is not owners[0]]
    stage.current = others[0] if others else stage.new_victim()
    return callback, stage.current


def assert_ended_well(stage: Stage, callback: MissedDeadline, step: str, outcome: str) -> None:
    scenario = stage.scenario
    _, state = OUTCOMES[outcome]
    (row,) = scenario.wait_for_state(callback, state, timeout=stage.recovery_time)
    assert scenario.ledger.runs(callback.key) == (0 if outcome == "never_starts" else 1)
    if outcome == "raises":
        assert "ValueError: the webhook refused the alert" in (row.output or "")
    if outcome == "never_starts":
        assert "the callback never began" in (row.output or "")
        if step not in AFTER_THE_LAST_POD:
            assert "no-such-secret" in (row.output or "")
    assert {event for event in scenario.events(callback) if event in TERMINAL} == {state}
    attempts = {name for name in scenario.launched_pods() if callback.id in name}
    assert len(attempts) <= 2  # launch_retries is 1


@pytest.mark.parametrize(("database", "step", "outcome"), cells)
def test_scheduler_killed(stages: Callable[[str], Stage], database: str, step: str, outcome: str) -> None:
    stage = stages(database)
    results[step, outcome][database] = "failed"
    missed = kill_at(stage, step, outcome)
    dead_at = time.monotonic()
    stage.successor()
    alive_at = time.monotonic()
    for callback in missed:
        assert_ended_well(stage, callback, step, outcome)
    ended_at = time.monotonic()
    stage.scenario.wait_for_no_pods()
    if stage.survivor is not None:
        assert stage.survivor.running
    after = ended_at - (dead_at if stage.survivor else alive_at)
    results[step, outcome][database] = f"{after:.0f} s"


def as_table() -> str:
    """Return the cells that were played as a table in Markdown: docs/explanation/tested.md has it."""
    words = [outcome.replace("_", " ") for outcome in OUTCOMES]
    lines = [
        f"| killed | sqlite, restarted: {' | '.join(words)} | PostgreSQL, a second one: {' | '.join(words)} |",
        "|---" * (1 + 2 * len(OUTCOMES)) + "|",
    ]
    for step, text in STEPS.items():
        played = [results.get((step, outcome), {}) for outcome in OUTCOMES]
        times = [cell.get(database, "–") for database in ("sqlite", "postgresql") for cell in played]
        lines.append(f"| {text} | {' | '.join(times)} |")
    return "\n".join(lines) + "\n"
