"""Two schedulers, many callbacks, and one of the two killed again and again.

SOAK_SECONDS, SOAK_CALLBACKS and SOAK_KILL_EVERY change its size: by default ten minutes, five hundred
callbacks, a kill every twenty seconds.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from kubernetes_tests.airflow_env import wait_for
from kubernetes_tests.scenario import TERMINAL

if TYPE_CHECKING:
    from kubernetes_tests.airflow_env import AirflowProcess
    from kubernetes_tests.scenario import MissedDeadline, Scenario

SECONDS = float(os.environ.get("SOAK_SECONDS", "600"))
CALLBACKS = int(os.environ.get("SOAK_CALLBACKS", "500"))
KILL_EVERY = float(os.environ.get("SOAK_KILL_EVERY", "20"))
#: Missed together, so that there is work in every state when a scheduler dies.
TOGETHER = 10
#: Seconds that a slow machine gets for what is still open when the killing ends.
PATIENCE = 3 * SECONDS + 600


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE + SECONDS + 900)
def test_every_callback_runs_once_while_schedulers_die(ha_scenario: Scenario) -> None:
    scenario = ha_scenario
    config: dict[str, object] = {
        "core.parallelism": 8,
        "kubernetes_executor.delete_worker_pods_on_failure": True,
    }
    names = ("first", "second")
    schedulers: dict[str, AirflowProcess] = {
        name: scenario.start_scheduler(name, config=config) for name in names
    }
    for scheduler in schedulers.values():
        scheduler.wait_for_log("Starting the scheduler")

    missed: list[tuple[MissedDeadline, str]] = []
    began = time.monotonic()
    next_kill, kills = began + KILL_EVERY, 0
    while (now := time.monotonic()) < began + SECONDS or len(missed) < CALLBACKS:
        due = min(CALLBACKS, TOGETHER + int(CALLBACKS * (now - began) / SECONDS))
        while len(missed) < due:
            function, state = ("fail", "failed") if len(missed) % 50 == 40 else ("succeed", "success")
            count = min(TOGETHER, CALLBACKS - len(missed))
            missed.extend((callback, state) for callback in scenario.miss(function, count=count))
        if now >= next_kill:
            name = names[kills % 2]
            schedulers[name].kill()
            schedulers[name] = scenario.start_scheduler(name, config=config)
            kills, next_kill = kills + 1, now + KILL_EVERY
        time.sleep(0.5)

    def over() -> bool:
        rows = scenario.rows()
        return all(rows[callback.id].state in TERMINAL for callback, _ in missed)

    wait_for("every callback has ended", over, PATIENCE, interval=2, otherwise=scenario.describe)
    rows = scenario.rows()
    runs = Counter(scenario.ledger.runs(callback.key) for callback, _ in missed)
    wrong = [(rows[callback.id], state) for callback, state in missed if rows[callback.id].state != state]
    assert runs == {1: CALLBACKS}, runs
    assert not wrong, wrong
    scenario.wait_for_no_pods()
    assert all(scheduler.running for scheduler in schedulers.values())
    assert kills >= SECONDS // KILL_EVERY - 1
