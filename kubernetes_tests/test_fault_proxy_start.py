"""Faults that need a scheduler of their own: at its start, at its end, with other options."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from kubernetes_tests.airflow_env import wait_for
from kubernetes_tests.fault_proxy import FaultProxy, Match, faults
from kubernetes_tests.fault_proxy.faults import BROKEN, CREATE_POD, REVIEW_ACCESS, refusal
from kubernetes_tests.fault_proxy.troubled import LONGEST_HEARTBEAT, Troubled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kubernetes_tests.fault_proxy import Fault
    from kubernetes_tests.scenario import Scenario


#: Minutes of broken answers.
pytestmark = pytest.mark.slow


@pytest.fixture
def fresh(scenario: Scenario, record_property: Callable[[str, object], None]) -> Iterator[Troubled]:
    """A proxy, and no scheduler yet; in the end no heartbeat has taken long."""
    with FaultProxy(scenario.cluster.core.api_client.configuration) as proxy:
        troubled = Troubled(scenario, proxy)
        yield troubled
        scenario.stop_schedulers()
    record_property("longest_heartbeat", troubled.heartbeats.longest())
    assert troubled.heartbeats.longest() < LONGEST_HEARTBEAT


def test_shutdown_is_bounded_while_the_api_server_hangs(fresh: Troubled) -> None:
    scheduler = fresh.start_scheduler()
    fresh.assert_runs_one()
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        fresh.proxy.inject(faults.Hang(), Match(method, ""), times=None)
    fresh.proxy.end_streams()
    callbacks = fresh.scenario.miss("succeed", count=3)
    fresh.scenario.wait_for_state(callbacks, "queued")
    begin = time.monotonic()
    scheduler.signal(signal.SIGTERM)
    scheduler.wait_for_exit(60)
    assert time.monotonic() - begin < 30
    fresh.proxy.clear()
    fresh.start_scheduler()
    fresh.scenario.wait_for_state(callbacks, "success", timeout=180)
    for callback in callbacks:
        assert fresh.scenario.ledger.runs(callback.key) == 1
    fresh.scenario.wait_for_no_pods()


def test_create_that_arrives_after_all_is_over_runs_nothing(fresh: Troubled) -> None:
    """The client gave up on the request, asked again, the callback ran: then the first one is stored."""
    fresh.start_scheduler({"kubernetes_executor.kube_client_request_args": '{"_request_timeout": [3, 3]}'})
    rule = fresh.proxy.inject(faults.Delay(600), CREATE_POD)
    (callback,) = fresh.scenario.miss("succeed")
    fresh.scenario.wait_for_state(callback, "success", timeout=180)
    fresh.scenario.wait_for_clean_up(callback)
    assert rule.hits == 1
    before = len(fresh.scenario.namespace.events())
    fresh.proxy.clear()
    wait_for(
        "the late pod",
        lambda: len(fresh.scenario.namespace.events()) > before,
        otherwise=fresh.scenario.describe,
    )
    fresh.scenario.wait_for_clean_up(callback)
    fresh.assert_ran_once(callback)


@pytest.mark.parametrize(
    ("fault", "times"),
    [
        pytest.param(faults.Refuse(BROKEN), 2, id="broken"),
        pytest.param(faults.Reset(), 2, id="reset"),
        pytest.param(faults.Refuse(refusal(403, "Forbidden", "cannot create reviews")), None, id="forbidden"),
    ],
)
def test_callback_runs_though_the_access_review_is(fresh: Troubled, fault: Fault, times: int | None) -> None:
    rule = fresh.proxy.inject(fault, REVIEW_ACCESS, times=times)
    fresh.start_scheduler()
    fresh.assert_runs_one()
    rule.wait_for_hits()
