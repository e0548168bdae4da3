"""Lists and watches that fail, and an API server that is gone or hangs: all callbacks are concerned."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from kubernetes_tests.airflow_env import wait_for
from kubernetes_tests.fault_proxy import FaultProxy, Match, faults
from kubernetes_tests.fault_proxy.faults import (
    BROKEN,
    HTML,
    LIST_PODS,
    READ_LOG,
    THROTTLED,
    WATCH_PODS,
    refusal,
)
from kubernetes_tests.fault_proxy.troubled import SLOW, Troubled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kubernetes_tests.fault_proxy import Fault
    from kubernetes_tests.scenario import Scenario

#: Ten minutes of slow and broken answers.
pytestmark = pytest.mark.slow

ANYTHING = tuple(Match(method, "") for method in ("GET", "POST", "PUT", "PATCH", "DELETE"))


@pytest.fixture(scope="module")
def troubled(scenarios: Callable[[str, dict[str, object]], Scenario]) -> Iterator[Troubled]:
    """A scheduler behind a proxy, for all tests of this module, one after the other."""
    scenario = scenarios("sqlite", {})
    with FaultProxy(scenario.cluster.core.api_client.configuration) as proxy:
        troubled = Troubled(scenario, proxy)
        scheduler = troubled.start_scheduler()
        troubled.wait_for_heartbeat()
        yield troubled
        assert scheduler.running, scheduler.tail()
        scenario.close()


@pytest.fixture
def trouble(
    request: pytest.FixtureRequest, troubled: Troubled, record_property: Callable[[str, object], None]
) -> Iterator[Troubled]:
    """The same, without faults at first, and with an assertion on the scheduler's loop in the end."""
    troubled.proxy.clear()
    begin = time.time()
    yield troubled
    troubled.proxy.clear()
    request.node.add_report_section("teardown", "scenario", troubled.scenario.describe())
    record_property("longest_heartbeat", troubled.heartbeats.longest(begin))
    troubled.assert_loop_never_waited(begin)


FORBIDDEN = refusal(403, "Forbidden", 'pods is forbidden: User "airflow" cannot watch resource "pods"')


@pytest.mark.parametrize(
    ("fault", "times"),
    [
        pytest.param(faults.Refuse(THROTTLED), 3, id="throttled"),
        pytest.param(faults.Refuse(BROKEN), 3, id="broken"),
        pytest.param(faults.Refuse(faults.text(502, HTML, "text/html")), 3, id="bad_gateway_html"),
        pytest.param(faults.Refuse(faults.text(200, HTML, "text/html")), 3, id="html_that_says_ok"),
        pytest.param(faults.Refuse(refusal(410, "Expired", "the continue token is too old")), 3, id="gone"),
        pytest.param(faults.Refuse(refusal(403, "Forbidden", "pods is forbidden")), 3, id="forbidden"),
        pytest.param(faults.Reset(), 3, id="reset"),
        pytest.param(faults.Truncate(), 3, id="cut_off"),
        pytest.param(faults.Hang(), None, id="hangs"),
    ],
)
def test_callback_ends_though_the_list_is(trouble: Troubled, fault: Fault, times: int | None) -> None:
    rule = trouble.proxy.inject(fault, LIST_PODS, times=times)
    rule.wait_for_hits()
    trouble.assert_runs_one()


@pytest.mark.parametrize(
    ("fault", "times"),
    [
        pytest.param(faults.Refuse(THROTTLED), 2, id="throttled"),
        pytest.param(faults.Refuse(BROKEN), 2, id="broken"),
        pytest.param(faults.Refuse(faults.text(502, HTML, "text/html")), 2, id="bad_gateway_html"),
        pytest.param(faults.Refuse(refusal(410, "Expired", "too old resource version")), 2, id="gone"),
        pytest.param(faults.Refuse(FORBIDDEN), None, id="forbidden"),
        pytest.param(faults.Reset(), 2, id="reset"),
        pytest.param(faults.Hang(), None, id="unanswered"),
        pytest.param(faults.HalfOpen(), None, id="half_open"),
        pytest.param(faults.HalfOpen(after=1), None, id="half_open_after_an_event"),
        pytest.param(faults.FailStream(410, "Expired", after=1), 2, id="gone_while_streaming"),
        pytest.param(faults.FailStream(500, "InternalError", after=1), 2, id="broken_while_streaming"),
        pytest.param(faults.CutStream(after=1), 2, id="cut_off_while_streaming"),
        pytest.param(faults.GarbleStream(), 1, id="garbled_while_streaming"),
    ],
)
def test_callback_ends_though_the_watch_is(trouble: Troubled, fault: Fault, times: int | None) -> None:
    rule = trouble.proxy.inject(fault, WATCH_PODS, times=times)
    trouble.proxy.end_streams()
    trouble.assert_runs_one()
    rule.wait_for_hits()


def test_forbidden_watch_is_explained_with_the_verb_and_the_namespace(trouble: Troubled) -> None:
    rule = trouble.proxy.inject(faults.Refuse(FORBIDDEN), WATCH_PODS, times=None)
    trouble.proxy.end_streams()
    rule.wait_for_hits()
    (scheduler,) = trouble.scenario.schedulers
    namespace = re.escape(trouble.scenario.namespace.name)
    scheduler.wait_for_log(rf"Not allowed to watch pods in namespace {namespace}.*verb 'watch'")
    trouble.assert_runs_one()
    # tried again, but not in a hot loop
    before = trouble.proxy.seen(WATCH_PODS)
    time.sleep(5)
    assert trouble.proxy.seen(WATCH_PODS) - before <= 5


def test_event_that_both_list_and_watch_missed_is_found_later(trouble: Troubled) -> None:
    watch = trouble.proxy.inject(faults.HalfOpen(), WATCH_PODS, times=None)
    trouble.proxy.end_streams()
    watch.wait_for_hits()
    (callback,) = trouble.scenario.miss("succeed", sleep=3)
    trouble.scenario.wait_for_begin(callback)
    trouble.proxy.inject(faults.Refuse(BROKEN), LIST_PODS, times=5)
    trouble.scenario.wait_for_state(callback, "success")
    trouble.assert_ran_once(callback)
    trouble.scenario.wait_for_clean_up(callback)


def test_hanging_api_server_holds_nobody_up(trouble: Troubled) -> None:
    """Every request hangs for a while: callbacks that run, that are created, and that only come."""
    (runs,) = trouble.scenario.miss("succeed", sleep=5)
    trouble.scenario.wait_for_begin(runs)
    rules = [trouble.proxy.inject(faults.Hang(), match, times=None) for match in ANYTHING]
    trouble.proxy.end_streams()
    begin = time.time()
    new = trouble.scenario.miss("succeed", count=3)
    wait_for("requests hang", lambda: sum(rule.hits for rule in rules) >= 4, 60)
    time.sleep(SLOW)
    assert len(trouble.heartbeats.since(begin)) > SLOW / 2
    trouble.assert_loop_never_waited(begin)
    trouble.proxy.clear()
    trouble.scenario.wait_for_state([runs, *new], "success", timeout=240)
    for callback in (runs, *new):
        trouble.assert_ran_once(callback)
        trouble.scenario.wait_for_clean_up(callback)


def test_callbacks_survive_a_restart_of_the_api_server(trouble: Troubled) -> None:
    local = trouble.scenario.cluster.local
    if local is None:
        pytest.skip("only the local cluster's API server can be killed")
    (runs,) = trouble.scenario.miss("succeed", sleep=4)
    trouble.scenario.wait_for_begin(runs)
    local.stop_apiserver()
    new = trouble.scenario.miss("succeed", count=2)
    wait_for("the callback ends", lambda: trouble.scenario.ledger.entries(runs.key, "end"), 60)
    local.start_apiserver()
    trouble.scenario.wait_for_state([runs, *new], "success", timeout=240)
    for callback in (runs, *new):
        trouble.assert_ran_once(callback)
        trouble.scenario.wait_for_clean_up(callback)


def test_log_that_hangs_does_not_hold_up_the_end(trouble: Troubled) -> None:
    rule = trouble.proxy.inject(faults.Hang(), READ_LOG, times=None)
    (failing,) = trouble.scenario.miss("exit_hard", status=3)
    (row,) = trouble.scenario.wait_for_state(failing, "failed", timeout=180)
    assert "exit" in (row.output or "").lower()
    rule.wait_for_hits()
    trouble.scenario.wait_for_clean_up(failing, timeout=180)
