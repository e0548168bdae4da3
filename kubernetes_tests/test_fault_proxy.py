"""What can go wrong between the executor and the API server, and what becomes of callbacks then.

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

from kubernetes_tests.airflow_env import WaitTimeoutError, wait_for
from kubernetes_tests.conftest import _failed, _scenario
from kubernetes_tests.fault_proxy import FaultProxy, Match, faults
from kubernetes_tests.fault_proxy.faults import (
    CREATE_POD,
    CREATE_SECRET,
    DELETE_POD,
    LIST_PODS,
    READ_LOG,
    REVIEW_ACCESS,
    WATCH_PODS,
    refusal,
)
from kubernetes_tests.heartbeats import Heartbeats
from kubernetes_tests.scenario import creation_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from kubernetes_tests.airflow_env import AirflowProcess
    from kubernetes_tests.fault_proxy import Fault, Rule
    from kubernetes_tests.scenario import Installation, MissedDeadline, Scenario

#: Answers take this long (seconds) in the tests of slowness; a heartbeat must take far less.
SLOW = 20.0
LONGEST_HEARTBEAT = 5.0
#: The longest time without a heartbeat: other work of the scheduler, on a busy machine.
LONGEST_PAUSE = 15.0

ANYTHING = tuple(Match(method, "") for method in ("GET", "POST", "PUT", "PATCH", "DELETE"))


class Troubled:
    """A scenario whose scheduler reaches the API server through a proxy, with a clock on its heartbeat."""

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


@contextlib.contextmanager
def _troubled(request: pytest.FixtureRequest, installation: Installation, folder: Path) -> Iterator[Troubled]:
    with (
        FaultProxy(installation.cluster.core.api_client.configuration) as proxy,
        _scenario(request, installation, folder) as scenario,
    ):
        yield Troubled(scenario, proxy)


# --- faults that befall one callback each, all of them at once ---


@dataclass(frozen=True)
class Case:
    """A fault for one callback, and how the callback is to end."""

    match: Match
    fault: Fault
    times: int = 1
    #: What ``callback.output`` says where the callback is to fail.
    fails_with: str | None = None


QUOTA = 'pods "callback" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=9, limited: pods=9'
MODIFIED = (
    'Operation cannot be fulfilled on resourcequotas "pods": the object has been modified; please apply '
    "your changes to the latest version and try again"
)
CLASH = "Error from server (ServerTimeout): the server could not complete this operation, try again later"
HTML = "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
THROTTLED = refusal(429, "TooManyRequests", "too many requests, please try again later", retry_after=2)
BROKEN = refusal(500, "InternalError", 'failed calling webhook "policy.example": connection refused')

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
    seen: dict[str, int] = field(default_factory=dict)

    def callback_of(self, case: str) -> MissedDeadline:
        callback_id = self.rules[case].callback_id
        assert callback_id is not None, f"no request met the fault {case}"
        return self.callbacks[callback_id]


@pytest.fixture(scope="module", params=["one_by_one", "batches"])
def storm(
    request: pytest.FixtureRequest,
    installations: Callable[[str], Installation],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Storm]:
    """All cases at once, to their end, once per way in which the stock executor creates pods."""
    folder = tmp_path_factory.mktemp("storm")
    with _troubled(request, installations("sqlite"), folder) as troubled:
        scheduler = troubled.start_scheduler(creation_config(request.param))
        troubled.wait_for_heartbeat()
        troubled.assert_runs_one()
        storm = Storm(troubled, time.time())
        for name, case in {**CASES, **REFUSED}.items():
            storm.rules[name] = troubled.proxy.inject(case.fault, case.match, times=case.times, sticky=True)
        scenario = troubled.scenario
        callbacks = scenario.miss("succeed", count=len(storm.rules), sleep=1)
        storm.callbacks = {callback.id: callback for callback in callbacks}
        with contextlib.suppress(WaitTimeoutError):  # each test says what it misses
            scenario.wait_for_state(callbacks, "success", "failed", timeout=600)
            for callback in callbacks:
                scenario.wait_for_clean_up(callback, timeout=120)
        storm.seen = {
            name: troubled.proxy.seen(CREATE_POD, rule.callback_id) for name, rule in storm.rules.items()
        }
        yield storm
        assert scheduler.running, scheduler.tail()


@pytest.fixture
def described_storm(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if _failed(request) and "storm" in request.fixturenames:
        storm: Storm = request.getfixturevalue("storm")
        case = request.node.callspec.params.get("case")
        log = storm.troubled.scenario.scheduler_logs()
        about = storm.rules[case].callback_id or "nobody" if case else "Callback"
        lines = [line for line in log.splitlines() if about in line]
        request.node.add_report_section("teardown", f"scheduler's log of {case}", "\n".join(lines[-60:]))


@pytest.mark.usefixtures("described_storm")
@pytest.mark.parametrize("case", CASES)
def test_callback_succeeds_in_one_pod_though(storm: Storm, case: str) -> None:
    callback = storm.callback_of(case)
    row = storm.troubled.scenario.row(callback)
    assert (row.state, row.output) == ("success", None)
    assert storm.rules[case].hits == CASES[case].times
    storm.troubled.assert_ran_once(callback)
    storm.troubled.scenario.wait_for_clean_up(callback, timeout=5)


@pytest.mark.usefixtures("described_storm")
@pytest.mark.parametrize("case", REFUSED)
def test_callback_fails_at_once_with_the_api_servers_words_when(storm: Storm, case: str) -> None:
    callback = storm.callback_of(case)
    row = storm.troubled.scenario.row(callback)
    assert row.state == "failed"
    assert re.match("Could not start: ", row.output or "")
    assert (REFUSED[case].fails_with or "?") in (row.output or "")
    assert storm.seen[case] == 1
    assert storm.troubled.scenario.ledger.runs(callback.key) == 0
    storm.troubled.scenario.wait_for_clean_up(callback, timeout=5)


def test_scheduler_loop_never_waits_in_the_storm(storm: Storm) -> None:
    storm.troubled.assert_loop_never_waited(storm.begin)


# --- faults of lists and watches, which concern all callbacks: one after the other ---


@pytest.fixture(scope="module")
def troubled(
    request: pytest.FixtureRequest,
    installations: Callable[[str], Installation],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Troubled]:
    """A scheduler behind a proxy, for all tests below."""
    with _troubled(request, installations("sqlite"), tmp_path_factory.mktemp("troubled")) as troubled:
        scheduler = troubled.start_scheduler()
        troubled.wait_for_heartbeat()
        yield troubled
        assert scheduler.running, scheduler.tail()


@pytest.fixture
def trouble(request: pytest.FixtureRequest, troubled: Troubled) -> Iterator[Troubled]:
    """The same, without faults at first, and with an assertion on the scheduler's loop in the end."""
    troubled.proxy.clear()
    begin = time.time()
    yield troubled
    troubled.proxy.clear()
    if _failed(request):
        request.node.add_report_section("teardown", "scenario", troubled.scenario.describe())
    else:
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


# --- with a scheduler of their own ---


@pytest.fixture
def fresh(
    request: pytest.FixtureRequest, installations: Callable[[str], Installation], tmp_path: Path
) -> Iterator[Troubled]:
    """A proxy, and no scheduler yet."""
    with _troubled(request, installations("sqlite"), tmp_path) as troubled:
        yield troubled


def test_shutdown_is_bounded_while_the_api_server_hangs(fresh: Troubled) -> None:
    scheduler = fresh.start_scheduler()
    fresh.assert_runs_one()
    for match in ANYTHING:
        fresh.proxy.inject(faults.Hang(), match, times=None)
    fresh.proxy.end_streams()
    callbacks = fresh.scenario.miss("succeed", count=3)
    fresh.scenario.wait_for_state(callbacks, "queued")
    begin = time.monotonic()
    scheduler.signal(15)
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
