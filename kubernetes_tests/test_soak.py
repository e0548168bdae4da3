"""Two schedulers, many callbacks, and one of the two killed again and again."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from kubernetes_tests.airflow_env import wait_for
from kubernetes_tests.fault_proxy.troubled import LONGEST_HEARTBEAT
from kubernetes_tests.heartbeats import Heartbeats
from kubernetes_tests.scenario import TERMINAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubernetes_tests.airflow_env import AirflowProcess
    from kubernetes_tests.scenario import MissedDeadline, Scenario

#: On a busy machine even the minute takes five.
pytestmark = pytest.mark.slow

#: Missed together, so that there is work in every state when a scheduler dies.
TOGETHER = 10
KILL_EVERY = 20.0
#: One such group of so many fails.
FAILING = 4


@dataclass(frozen=True)
class Size:
    """How long the killing goes on, and how many callbacks are missed meanwhile."""

    seconds: float
    callbacks: int

    @property
    def kills(self) -> int:
        return int(self.seconds // KILL_EVERY) - 1

    @property
    def patience(self) -> float:
        """Seconds that a slow machine gets for what is still open when the killing ends."""
        return 3 * self.seconds + 300


MINUTE, TEN_MINUTES = Size(60, 40), Size(600, 500)


class Pair:
    """Two schedulers, of which the elder is killed and started anew."""

    NAMES = ("first", "second")

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.heartbeats = Heartbeats(scenario.folder / "heartbeats")
        self.schedulers: dict[str, AirflowProcess] = {}
        self.kills: list[float] = []
        #: Seconds from each kill until no pod was the dead scheduler's any more.
        self.recoveries: dict[int, float] = {}
        for name in self.NAMES:
            self._start(name)
            # in this order, so that job ids are those of the starts
            wait_for("its job", lambda: len(self._job_ids()) == len(self.schedulers), 60, interval=0.1)

    def _start(self, name: str) -> None:
        self.schedulers[name] = self.scenario.start_scheduler(
            name,
            config={
                **self.heartbeats.config,
                "core.parallelism": 8,
                "kubernetes_executor.delete_worker_pods_on_failure": True,
            },
            environment=self.heartbeats.environment,
        )

    def _job_ids(self) -> list[str]:
        rows = self.scenario.installation.query(
            "SELECT id FROM job WHERE job_type = 'SchedulerJob' ORDER BY id"
        )
        return [str(job_id) for (job_id,) in rows]

    def kill_the_elder(self) -> None:
        name = self.NAMES[len(self.kills) % 2]
        # One that is killed before it has a job would shift the job ids of all later ones.
        wait_for(
            "its job", lambda: len(self._job_ids()) == len(self.kills) + len(self.NAMES), 60, interval=0.1
        )
        self.schedulers[name].kill()
        self.kills.append(time.monotonic())
        self._start(name)

    def look(self) -> None:
        """Note which of the dead schedulers have left no pod behind."""
        open_kills = [number for number in range(len(self.kills)) if number not in self.recoveries]
        if not open_kills:
            return
        job_ids = self._job_ids()
        owners = {
            pod["metadata"]["labels"]["airflow-worker"] for pod in self.scenario.namespace.callback_pods()
        }
        for number in open_kills:
            if job_ids[number] not in owners:
                self.recoveries[number] = time.monotonic() - self.kills[number]


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(MINUTE, id="minute", marks=pytest.mark.timeout(900)),
        pytest.param(TEN_MINUTES, id="ten_minutes", marks=pytest.mark.timeout(3600)),
    ],
)
def test_every_callback_runs_once_while_schedulers_die(
    ha_scenario: Scenario, size: Size, record_property: Callable[[str, object], None]
) -> None:
    scenario = ha_scenario
    pair = Pair(scenario)
    missed: list[tuple[MissedDeadline, str]] = []
    began = time.monotonic()
    # A slow machine does not start a scheduler within the interval: the killing then goes on for longer.
    while (
        (now := time.monotonic() - began) < size.seconds
        or len(missed) < size.callbacks
        or len(pair.kills) < size.kills
    ):
        due = min(size.callbacks, TOGETHER + int(size.callbacks * now / size.seconds))
        while len(missed) < due:
            fails = len(missed) // TOGETHER % FAILING == FAILING - 1
            function, state = ("fail", "failed") if fails else ("succeed", "success")
            count = min(TOGETHER, size.callbacks - len(missed))
            missed.extend((callback, state) for callback in scenario.miss(function, count=count))
        if now >= KILL_EVERY * (len(pair.kills) + 1):
            pair.kill_the_elder()
        pair.look()
        time.sleep(0.2)

    def over() -> bool:
        pair.look()
        rows = scenario.rows()
        return all(rows[callback.id].state in TERMINAL for callback, _ in missed)

    wait_for("every callback has ended", over, size.patience, interval=0.5, otherwise=scenario.describe)
    ended = time.monotonic() - began
    rows = scenario.rows()
    runs = Counter(scenario.ledger.runs(callback.key) for callback, _ in missed)
    wrong = [(rows[callback.id], state) for callback, state in missed if rows[callback.id].state != state]
    longest = pair.heartbeats.longest()
    for name, figure in {
        "callbacks": len(missed),
        "runs": dict(runs),
        "rows": dict(Counter(row.state for row in rows.values())),
        "pods": len(scenario.launched_pods()),
        "kills": len(pair.kills),
        "recovered_after": [round(seconds, 1) for _, seconds in sorted(pair.recoveries.items())],
        "all_ended_after": round(ended, 1),
        "longest_heartbeat": round(longest, 2),
    }.items():
        record_property(name, figure)
    assert runs == {1: size.callbacks}
    assert not wrong
    scenario.wait_for_no_pods()
    assert scenario.launched_pods() == {f"callback-{callback.id}-1" for callback, _ in missed}
    assert len(pair.kills) >= size.kills
    assert all(scheduler.running for scheduler in pair.schedulers.values())
    assert longest < LONGEST_HEARTBEAT
