"""A scenario whose scheduler reaches the API server through the proxy, with a clock on its heartbeat."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kubernetes_tests.airflow_env import wait_for
from kubernetes_tests.heartbeats import Heartbeats

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kubernetes_tests.airflow_env import AirflowProcess
    from kubernetes_tests.fault_proxy.proxy import FaultProxy
    from kubernetes_tests.scenario import MissedDeadline, Scenario

#: Answers take this long (seconds) in the tests of slowness; a heartbeat must take far less.
SLOW = 20.0
LONGEST_HEARTBEAT = 5.0
#: The longest time without a heartbeat: other work of the scheduler, on a busy machine.
LONGEST_PAUSE = 15.0


class Troubled:
    """The scenario, its proxy, and what is asserted of both."""

    def __init__(self, scenario: Scenario, proxy: FaultProxy) -> None:
        self.scenario = scenario
        self.proxy = proxy
        self.heartbeats = Heartbeats(scenario.folder / "heartbeats")
        self._kubeconfig = proxy.write_kubeconfig(
            scenario.folder / "proxy.kubeconfig", scenario.cluster.context or "proxy"
        )

    def start_scheduler(self, config: Mapping[str, object] | None = None) -> AirflowProcess:
        return self.scenario.start_scheduler(
            config={
                **self.heartbeats.config,
                "kubernetes_executor.config_file": self._kubeconfig,
                **(config or {}),
            },
            environment=self.heartbeats.environment,
        )

    def wait_for_heartbeat(self, timeout: float = 120.0) -> None:
        """Wait until the executor works from now on."""
        now = time.time()
        wait_for("a heartbeat", lambda: self.heartbeats.since(now), timeout, otherwise=self.scenario.describe)

    def assert_loop_never_waited(self, begin: float) -> None:
        self.heartbeats.assert_bounded(begin, longest=LONGEST_HEARTBEAT, pause=LONGEST_PAUSE)

    def pods_of(self, callback_id: str) -> set[str]:
        """Return the names of all pods that were ever made for a callback."""
        names = {event["involvedObject"]["name"] for event in self.scenario.namespace.events()}
        return {name for name in names if name.startswith(f"callback-{callback_id}-")}

    def assert_ran_once(self, callback: MissedDeadline) -> None:
        assert self.scenario.ledger.runs(callback.key) == 1
        assert len(self.scenario.ledger.entries(callback.key, "end")) == 1
        assert self.pods_of(callback.id) == {f"callback-{callback.id}-1"}
        assert self.scenario.events(callback).count("success") == 1

    def assert_runs_one(self, *, timeout: float = 180.0) -> None:
        """Run one callback to its end, whatever stands in the way now."""
        (callback,) = self.scenario.miss("succeed")
        self.scenario.wait_for_state(callback, "success", timeout=timeout)
        self.assert_ran_once(callback)
        self.scenario.wait_for_clean_up(callback, timeout=timeout)
