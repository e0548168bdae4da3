"""Two schedulers at once, on PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kubernetes_tests.airflow_env import wait_for

if TYPE_CHECKING:
    from kubernetes_tests.scenario import Scenario


#: Two schedulers on PostgreSQL, killed in turn.
pytestmark = pytest.mark.slow


def test_two_schedulers_run_each_callback_once(ha_scenario: Scenario) -> None:
    scenario = ha_scenario
    first = scenario.start_scheduler("first")
    second = scenario.start_scheduler("second")
    for scheduler in (first, second):
        scheduler.wait_for_log("Starting the scheduler")
    callbacks = scenario.miss("succeed", count=10)
    failing = scenario.miss("fail", count=2)
    scenario.wait_for_state(callbacks, "success", timeout=240)
    scenario.wait_for_state(failing, "failed", timeout=240)
    for callback in (*callbacks, *failing):
        assert scenario.ledger.runs(callback.key) == 1
        scenario.wait_for_clean_up(callback)
    assert len(scenario.launched_pods()) == 12
    assert first.running
    assert second.running


def test_callbacks_of_a_killed_scheduler_are_taken_over_by_the_other(ha_scenario: Scenario) -> None:
    scenario = ha_scenario
    callbacks = scenario.miss("succeed", count=6, sleep=10)
    first = scenario.start_scheduler("first")
    wait_for(
        "each callback has a pod",
        lambda: len(scenario.namespace.callback_pods()) == 6,
        90,
        otherwise=scenario.describe,
    )
    second = scenario.start_scheduler("second")
    second.wait_for_log("Starting the scheduler")
    first.kill()
    scenario.wait_for_state(callbacks, "success", timeout=240)
    for callback in callbacks:
        assert scenario.ledger.runs(callback.key) == 1
    scenario.wait_for_no_pods()
    assert len(scenario.launched_pods()) == 6
    assert second.running
