"""What can go wrong with the requests about one callback, and what becomes of it then.

A real scheduler on sqlite, a real API server, and a proxy between them. Whatever happens there: the
callback ends as it should, it runs once, one pod is made for it, and the scheduler's loop never waits.
"""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from kubernetes_tests.airflow_env import WaitTimeoutError
from kubernetes_tests.fault_proxy import FaultProxy, Match, faults
from kubernetes_tests.fault_proxy.faults import (
    BROKEN,
    CLASH,
    CREATE_POD,
    CREATE_SECRET,
    DELETE_POD,
    HTML,
    MODIFIED,
    QUOTA,
    READ_LOG,
    THROTTLED,
    refusal,
)
from kubernetes_tests.fault_proxy.troubled import SLOW, Troubled
from kubernetes_tests.scenario import creation_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kubernetes_tests.fault_proxy import Fault, Rule
    from kubernetes_tests.scenario import MissedDeadline, Scenario


#: Ten minutes of slow and broken answers.
pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Case:
    """A fault for one callback, and how the callback is to end."""

    match: Match
    fault: Fault
    times: int = 1
    #: What ``callback.output`` says where the callback is to fail.
    fails_with: str | None = None


CASES = {
    # not now: asked again until it works
    "create_throttled": Case(CREATE_POD, faults.Refuse(THROTTLED), 3),
    "create_throttled_without_retry_after": Case(
        CREATE_POD, faults.Refuse(refusal(429, "TooManyRequests", "slow down")), 2
    ),
    "create_webhook_down": Case(CREATE_POD, faults.Refuse(BROKEN), 2),
    "create_bad_gateway_html": Case(CREATE_POD, faults.Refuse(faults.text(502, HTML, "text/html")), 2),
    "create_unavailable": Case(CREATE_POD, faults.Refuse(faults.text(503, "upstream connect error")), 2),
    "create_unauthorized_for_a_moment": Case(
        CREATE_POD, faults.Refuse(refusal(401, "Unauthorized", "Unauthorized"))
    ),
    "create_exceeds_quota": Case(CREATE_POD, faults.Refuse(refusal(403, "Forbidden", QUOTA)), 3),
    "create_conflicts_on_quota": Case(CREATE_POD, faults.Refuse(refusal(409, "Conflict", MODIFIED)), 2),
    "create_conflicts_in_plain_text": Case(CREATE_POD, faults.Refuse(faults.text(409, MODIFIED)), 2),
    "create_reset": Case(CREATE_POD, faults.Reset(), 2),
    # stored, and the answer says something else or nothing
    "create_already_exists": Case(CREATE_POD, faults.Repeat()),
    "create_stored_then_reset": Case(CREATE_POD, faults.LoseAnswer()),
    "create_stored_then_server_timeout": Case(
        CREATE_POD, faults.LoseAnswer(refusal(500, "ServerTimeout", CLASH))
    ),
    "create_stored_then_bad_gateway": Case(
        CREATE_POD, faults.LoseAnswer(faults.text(502, HTML, "text/html"))
    ),
    "create_stored_then_cut_off": Case(CREATE_POD, faults.Truncate()),
    # slow
    "create_slow": Case(CREATE_POD, faults.Delay(SLOW)),
    "create_stored_answer_slow": Case(CREATE_POD, faults.DelayAnswer(SLOW)),
    # the same for the Secret that the pod waits for
    "secret_throttled": Case(CREATE_SECRET, faults.Refuse(THROTTLED), 2),
    "secret_webhook_down": Case(CREATE_SECRET, faults.Refuse(BROKEN), 2),
    "secret_reset": Case(CREATE_SECRET, faults.Reset()),
    "secret_stored_then_reset": Case(CREATE_SECRET, faults.LoseAnswer()),
    "secret_stored_answer_slow": Case(CREATE_SECRET, faults.DelayAnswer(SLOW)),
    "secret_slow": Case(CREATE_SECRET, faults.Delay(SLOW)),
    # cleaning up
    "log_refused": Case(READ_LOG, faults.Refuse(faults.text(502, HTML, "text/html"))),
    "log_cut_off": Case(READ_LOG, faults.Truncate()),
    "delete_throttled": Case(DELETE_POD, faults.Refuse(THROTTLED), 3),
    "delete_webhook_down": Case(DELETE_POD, faults.Refuse(BROKEN), 3),
    "delete_bad_gateway_html": Case(DELETE_POD, faults.Refuse(faults.text(502, HTML, "text/html")), 2),
    "delete_conflict": Case(DELETE_POD, faults.Refuse(refusal(409, "Conflict", MODIFIED)), 2),
    "delete_done_then_reset": Case(DELETE_POD, faults.LoseAnswer()),
    "delete_slow": Case(DELETE_POD, faults.Delay(SLOW)),
}

REFUSED = {
    "bad_request": Case(
        CREATE_POD,
        faults.Refuse(refusal(400, "BadRequest", 'admission webhook "policy.example" denied the request')),
        fails_with="denied the request",
    ),
    "forbidden": Case(
        CREATE_POD,
        faults.Refuse(refusal(403, "Forbidden", 'pods is forbidden: User "airflow" cannot create pods')),
        fails_with="cannot create pods",
    ),
    "no_namespace": Case(
        CREATE_POD,
        faults.Refuse(refusal(404, "NotFound", 'namespaces "alerts" not found')),
        fails_with='namespaces "alerts" not found',
    ),
    "invalid": Case(
        CREATE_POD,
        faults.Refuse(refusal(422, "Invalid", "Pod is invalid: spec.volumes[1].name: Duplicate value")),
        fails_with="Duplicate value",
    ),
    "too_large_for_etcd": Case(
        CREATE_POD,
        faults.Refuse(refusal(500, "InternalError", "etcdserver: request is too large")),
        fails_with="request is too large",
    ),
    "secret_forbidden": Case(
        CREATE_SECRET,
        faults.Refuse(refusal(403, "Forbidden", 'secrets is forbidden: User "airflow" cannot create')),
        fails_with="payload_delivery = argument",
    ),
}


@dataclass
class Storm:
    """What came of the cases, all of them tried at once by one scheduler."""

    troubled: Troubled
    begin: float
    rules: dict[str, Rule] = field(default_factory=dict)
    callbacks: dict[str, MissedDeadline] = field(default_factory=dict)
    #: How often the creation of a pod was asked for.
    creations: dict[str, int] = field(default_factory=dict)

    def callback_of(self, case: str) -> MissedDeadline:
        callback_id = self.rules[case].callback_id
        assert callback_id is not None, f"no request met the fault {case}"
        return self.callbacks[callback_id]


@pytest.fixture(scope="module", params=["one_by_one", "batches"])
def storm(
    request: pytest.FixtureRequest, scenarios: Callable[[str, dict[str, object]], Scenario]
) -> Iterator[Storm]:
    """All cases at once, to their end, once per way in which the stock executor creates pods."""
    scenario = scenarios("sqlite", creation_config(request.param))
    with FaultProxy(scenario.cluster.core.api_client.configuration) as proxy:
        troubled = Troubled(scenario, proxy)
        scheduler = troubled.start_scheduler()
        troubled.wait_for_heartbeat()
        troubled.assert_runs_one()
        storm = Storm(troubled, time.time())
        for name, case in {**CASES, **REFUSED}.items():
            storm.rules[name] = proxy.inject(case.fault, case.match, times=case.times, sticky=True)
        callbacks = scenario.miss("succeed", count=len(storm.rules), sleep=1)
        storm.callbacks = {callback.id: callback for callback in callbacks}
        with contextlib.suppress(WaitTimeoutError):  # each test says what it misses
            scenario.wait_for_state(callbacks, "success", "failed", timeout=600)
            for callback in callbacks:
                scenario.wait_for_clean_up(callback, timeout=120)
        storm.creations = {
            name: proxy.seen(CREATE_POD, rule.callback_id) for name, rule in storm.rules.items()
        }
        yield storm
        assert scheduler.running, scheduler.tail()
        scenario.close()


@pytest.fixture
def described(request: pytest.FixtureRequest, storm: Storm) -> Iterator[None]:
    """Add what the scheduler says of the case to the report."""
    yield
    case = request.node.callspec.params["case"]
    lines = storm.troubled.scenario.scheduler_logs().splitlines()
    about = [line for line in lines if (storm.rules[case].callback_id or "?") in line]
    request.node.add_report_section("teardown", f"scheduler's log of {case}", "\n".join(about[-60:]))


@pytest.mark.usefixtures("described")
@pytest.mark.parametrize("case", CASES)
def test_callback_succeeds_in_one_pod_though(storm: Storm, case: str) -> None:
    callback = storm.callback_of(case)
    row = storm.troubled.scenario.row(callback)
    assert (row.state, row.output) == ("success", None)
    assert storm.rules[case].hits == CASES[case].times
    storm.troubled.assert_ran_once(callback)
    storm.troubled.scenario.wait_for_clean_up(callback, timeout=5)


@pytest.mark.usefixtures("described")
@pytest.mark.parametrize("case", REFUSED)
def test_callback_fails_at_once_with_the_api_servers_words_when(storm: Storm, case: str) -> None:
    callback = storm.callback_of(case)
    row = storm.troubled.scenario.row(callback)
    assert row.state == "failed"
    assert re.match("Could not start: ", row.output or "")
    assert (REFUSED[case].fails_with or "?") in (row.output or "")
    assert storm.creations[case] == 1
    assert storm.troubled.scenario.ledger.runs(callback.key) == 0
    storm.troubled.scenario.wait_for_clean_up(callback, timeout=5)


def test_scheduler_loop_never_waits_in_the_storm(
    storm: Storm, record_property: Callable[[str, object], None]
) -> None:
    record_property("longest_heartbeat", storm.troubled.heartbeats.longest(storm.begin))
    storm.troubled.assert_loop_never_waited(storm.begin)
