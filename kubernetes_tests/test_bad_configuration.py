"""A configuration, or a cluster, that cannot work: a message that names it, and no lost callback."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubernetes_tests.proxy import relayed_kubeconfig

if TYPE_CHECKING:
    from kubernetes_tests.scenario import Scenario


def test_namespace_that_does_not_exist(scenario: Scenario) -> None:
    (callback,) = scenario.miss("succeed")
    scheduler = scenario.start_scheduler(config={"kubernetes_callbacks.namespace": "no-such-namespace"})
    (row,) = scenario.wait_for_state(callback, "failed")
    assert "no-such-namespace" in (row.output or "")
    assert scheduler.running


def test_option_that_cannot_be_used_names_itself(scenario: Scenario) -> None:
    scheduler = scenario.start_scheduler(config={"kubernetes_callbacks.pending_timeout": "soon"})
    assert scheduler.wait_for_exit() != 0
    assert "pending_timeout" in scheduler.log()
    assert "'soon'" in scheduler.log()


def test_stock_executor_beside_ours_is_refused_with_the_remedy(scenario: Scenario) -> None:
    executors = "airflow_kubernetes_callbacks.KubernetesExecutor,KubernetesExecutor"
    scheduler = scenario.start_scheduler(config={"core.executor": executors})
    assert scheduler.wait_for_exit() != 0
    assert "KubernetesExecutor:airflow_kubernetes_callbacks.KubernetesExecutor" in scheduler.log()


def test_api_server_that_is_unreachable_at_start_and_comes_back(scenario: Scenario) -> None:
    kubeconfig = scenario.folder / "relayed"
    with relayed_kubeconfig(scenario.cluster.kubeconfig, scenario.cluster.context, kubeconfig) as relay:
        (callback,) = scenario.miss("succeed")
        scheduler = scenario.start_scheduler(config={"kubernetes_executor.config_file": kubeconfig})
        scheduler.wait_for_log("could not be created")
        assert scheduler.running
        assert scenario.row(callback).state == "queued"
        relay.open()
        scenario.wait_for_state(callback, "success")
        assert scenario.ledger.runs(callback.key) == 1
        scenario.stop_schedulers()


def test_api_server_that_stays_unreachable(scenario: Scenario) -> None:
    kubeconfig = scenario.folder / "relayed"
    with relayed_kubeconfig(scenario.cluster.kubeconfig, scenario.cluster.context, kubeconfig) as relay:
        (callback,) = scenario.miss("succeed")
        scheduler = scenario.start_scheduler(
            config={
                "kubernetes_executor.config_file": kubeconfig,
                "kubernetes_callbacks.create_retries": 1,
            }
        )
        (row,) = scenario.wait_for_state(callback, "failed")
        assert "could not be created" in (row.output or "")
        assert str(relay.port) in (row.output or "")
        assert scheduler.running
        scenario.stop_schedulers()
    assert scenario.ledger.runs(callback.key) == 0
