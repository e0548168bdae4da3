"""Another executor is the default, and ours is named by the callback."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubernetes_tests.scenario import OURS

if TYPE_CHECKING:
    from kubernetes_tests.scenario import Scenario


def test_callback_names_ours_beside_a_default_local_executor(scenario: Scenario) -> None:
    in_a_pod = scenario.miss("succeed", count=2, executor="KubernetesExecutor")
    (failing,) = scenario.miss("fail", executor="KubernetesExecutor")
    on_the_default = scenario.miss("succeed", count=2)
    run = scenario.run_dag("some_tasks")

    scheduler = scenario.start_scheduler(config={"core.executor": f"LocalExecutor,{OURS}"})

    scenario.wait_for_state([*in_a_pod, *on_the_default], "success")
    (row,) = scenario.wait_for_state(failing, "failed")
    assert "ValueError: the webhook refused the alert" in (row.output or "")
    scenario.wait_for_run(run)
    for callback in (*in_a_pod, failing, *on_the_default):
        scenario.wait_for_clean_up(callback)
        assert scenario.ledger.runs(callback.key) == 1

    launched = {callback.id for callback in (*in_a_pod, failing)}
    assert launched == scenario.launched_callbacks()
    assert scheduler.running
