"""Pods are taken away in each phase of their life, while the scheduler looks and while it is away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kubernetes_tests.airflow_env import wait_for
from kubernetes_tests.disruptions import (
    DEEDS,
    HELD_PHASES,
    SEEN,
    assert_failed,
    assert_succeeded,
    disrupt,
    hold,
    release,
    wait_for_phase,
    wait_until_gone,
    wait_until_running,
)

if TYPE_CHECKING:
    from kubernetes_tests.scenario import MissedDeadline, Scenario


# --- while the scheduler looks ---


@pytest.mark.parametrize("phase", [pytest.param("unscheduled", marks=pytest.mark.extended), "on_a_node"])
def test_callback_whose_pod_goes_before_it_begins_is_launched_again(scenario: Scenario, phase: str) -> None:
    hold(scenario, phase)
    callbacks = scenario.miss("succeed", count=len(DEEDS))
    scenario.start_scheduler()
    wait_for_phase(scenario, callbacks, phase)
    release(scenario)
    disrupt(scenario, callbacks)
    assert_succeeded(scenario, callbacks, attempt=2)


def test_callback_whose_pod_goes_while_it_runs_fails_and_is_not_repeated(scenario: Scenario) -> None:
    callbacks = scenario.miss("succeed", count=len(DEEDS), sleep=300)
    scenario.start_scheduler()
    wait_until_running(scenario, callbacks)
    disrupt(scenario, callbacks)
    assert_failed(scenario, callbacks, *SEEN, runs=1)


@pytest.mark.extended
def test_callback_that_outlives_the_active_deadline_of_its_pod_fails(scenario: Scenario) -> None:
    scenario.template["spec"]["activeDeadlineSeconds"] = 15
    scenario.write_template(scenario.template)
    callbacks = scenario.miss("succeed", sleep=120)
    scenario.start_scheduler()
    assert_failed(scenario, callbacks, "DeadlineExceeded", runs=1)


def test_pod_of_a_dag_run_that_is_deleted_goes_too(scenario: Scenario) -> None:
    callbacks = scenario.miss("succeed", sleep=60)
    scheduler = scenario.start_scheduler()
    wait_until_running(scenario, callbacks)
    scenario.installation.call("delete_dag_runs")
    scenario.wait_for_no_pods()
    assert not scenario.rows()
    assert scheduler.running


# --- while it is away ---


def wait_for_records(scenario: Scenario, callbacks: list[MissedDeadline]) -> None:
    """Wait until each row says that its pod was created, as it does before the callback can be RUNNING."""

    def recorded() -> bool:
        rows = scenario.rows()
        return all("pod" in rows[one.id].data.get("kubernetes_pod", {}) for one in callbacks)

    wait_for("the launches are recorded", recorded, otherwise=scenario.describe)


@pytest.mark.slow
@pytest.mark.parametrize("phase", HELD_PHASES)
def test_pod_that_went_unseen_before_it_began_is_not_taken_for_one_that_did(
    scenario: Scenario, airflow_version: tuple[int, ...], phase: str
) -> None:
    """3.3: nobody can say whether it began. Later the row says so: a pod that begins writes RUNNING itself."""
    hold(scenario, phase)
    callbacks = scenario.miss("succeed", count=len(DEEDS))
    scheduler = scenario.start_scheduler()
    wait_for_phase(scenario, callbacks, phase)
    if airflow_version < (3, 4):
        wait_for_records(scenario, callbacks)
    release(scenario)
    scheduler.kill()
    disrupt(scenario, callbacks)
    wait_until_gone(scenario, callbacks)
    scenario.start_scheduler()
    if airflow_version < (3, 4):
        assert_failed(scenario, callbacks, "nobody saw how it ended", runs=0)
    else:
        # no attempt of these was ever counted against the first one, so its name is free again
        assert_succeeded(scenario, callbacks, attempt=1)


@pytest.mark.slow
def test_callback_that_was_ended_unseen_while_it_ran_fails_and_is_not_repeated(scenario: Scenario) -> None:
    callbacks = scenario.miss("succeed", count=len(DEEDS), sleep=300)
    scheduler = scenario.start_scheduler()
    wait_until_running(scenario, callbacks)
    scheduler.kill()
    disrupt(scenario, callbacks)
    wait_until_gone(scenario, callbacks)
    scenario.start_scheduler()
    assert_failed(scenario, callbacks, "disappeared while running", runs=1)


@pytest.mark.slow
def test_result_of_a_pod_that_went_unseen_is_lost_and_told_as_such(scenario: Scenario) -> None:
    """What ``pod_finalizer`` is for: see the tests of it."""
    callbacks = scenario.miss("succeed", count=len(DEEDS), sleep=8)
    scheduler = scenario.start_scheduler()
    wait_until_running(scenario, callbacks)
    scheduler.kill()
    for callback in callbacks:
        scenario.wait_for_pod(callback, "Succeeded")
    disrupt(scenario, callbacks)
    wait_until_gone(scenario, callbacks)
    scenario.start_scheduler()
    assert_failed(scenario, callbacks, "disappeared while running", runs=1)
