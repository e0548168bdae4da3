"""The problem: what a missed deadline does to the stock KubernetesExecutor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubernetes_tests.scenario import STOCK

if TYPE_CHECKING:
    from kubernetes_tests.scenario import Scenario


def test_stock_executor_runs_tasks_here(scenario: Scenario) -> None:
    run = scenario.run_dag("some_tasks")
    scenario.start_scheduler(config={"core.executor": STOCK})
    scenario.wait_for_run(run)


def test_missed_deadline_kills_scheduler_with_stock_executor_and_again_after_restart(
    scenario: Scenario,
) -> None:
    scenario.run_dag("missed_deadline")
    scheduler = scenario.start_scheduler(config={"core.executor": STOCK})
    assert scheduler.wait_for_exit() != 0
    assert "NotImplementedError: KubernetesExecutor does not support ExecuteCallback" in scheduler.log()
    (row,) = scenario.rows().values()
    assert row.state in ("scheduled", "pending")

    restarted = scenario.start_scheduler(config={"core.executor": STOCK})
    restarted.wait_for_log("NotImplementedError: KubernetesExecutor does not support ExecuteCallback")
    assert scenario.namespace.pods() == []
