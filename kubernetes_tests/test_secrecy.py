"""The token and the arguments of a callback are in its payload, and nowhere else that a run leaves a trace.

One noisy run (DEBUG everywhere) per way of delivery: a success, a failure, a new launch, and callbacks that
print the token themselves. Then each of its outputs is searched.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from airflow_kubernetes_callbacks.payload import unescaped
from kubernetes_tests.airflow_env import wait_for
from kubernetes_tests.scenario import TERMINAL
from kubernetes_tests.test_cli import CommandLine
from kubernetes_tests.test_telemetry import trace_runs
from tests.telemetry import OtlpCollector, StatsdListener, sent_to

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kubernetes_tests.scenario import MissedDeadline, Scenario

DEBUG = {"logging.logging_level": "DEBUG"}
JWT = re.compile(r"eyJ[\w-]{8,}\.(eyJ[\w-]{8,})(?:\.[\w-]*)?")
#: The line in which Airflow's scheduler looks for a workload's executor has the whole callback.
CORES_OWN = re.compile(r"^.* Found executor .* for task or callback .*$", re.MULTILINE)
#: The callbacks that fail: their pods are kept.
FAILED = ("bad", "raised")
#: Shorter pieces of a token, or of the argument, prove nothing.
PIECE = 24


def encodings(text: str) -> set[str]:
    """Return *text* as it is and as it looks within base64, wherever it begins there."""
    found = {text}
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + text.encode()).decode()
        found.add(encoded[4:-4])
    return found


def pieces(token: str) -> set[str]:
    """Return what must not be found of a token: its claims and its signature, or the end of them."""
    _, claims, signature = token.split(".")
    ends = (claims[:PIECE], claims[-PIECE:], signature[:PIECE], signature[-PIECE:])
    return {form for end in ends for form in encodings(end)} | encodings(token)


def subject_of(claims: str) -> str:
    try:
        decoded = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    except ValueError:
        return ""
    return str(decoded.get("sub")) if isinstance(decoded, dict) else ""


@dataclass
class Run:
    """A run that is over: what was secret in it, and every text that it left, by its name."""

    scenario: Scenario
    delivery: str
    callbacks: dict[str, MissedDeadline]
    argument: str
    tokens: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    def tokens_in(self, text: str) -> list[str]:
        """Return the pieces of tokens that are in *text*; of those that the test never saw, too."""
        found = [piece for token in self.tokens.values() for piece in pieces(token) if piece in text]
        ids = {callback.id for callback in self.callbacks.values()}
        found += [match[0] for match in JWT.finditer(text) if subject_of(match[1]) in ids]
        return found

    def arguments_in(self, text: str) -> list[str]:
        return [form for form in encodings(self.argument) if form in text]


def workload_of(scenario: Scenario, pod: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return what carries the workload, ``secret`` or ``argument``, and the workload."""
    arguments = pod["spec"]["containers"][0]["args"]
    if "--json-string" in arguments:
        return "argument", json.loads(unescaped(arguments[-1]))
    name = pod["metadata"]["name"]
    (secret,) = [one for one in scenario.namespace.secrets() if one["metadata"]["name"] == name]
    (value,) = secret["data"].values()
    return "secret", json.loads(base64.b64decode(value))


@pytest.fixture(scope="module")
def noisy_api_server(scenarios: Callable[..., Scenario]) -> Iterator[Callable[[], str]]:
    """Airflow's API server at DEBUG; returns its log."""
    env = scenarios("sqlite", {}).env
    env.processes["api-server"].terminate()
    env.start_api_server(config=DEBUG)
    yield env.processes["api-server"].log
    env.processes["api-server"].terminate()
    env.start_api_server()


@pytest.fixture(scope="module", params=["secret", "argument"])
def run(
    request: pytest.FixtureRequest,
    scenarios: Callable[[str, dict[str, object]], Scenario],
    noisy_api_server: Callable[[], str],
) -> Run:
    config = {**DEBUG, "kubernetes_callbacks.payload_delivery": request.param}
    scenario = scenarios("sqlite", config)
    argument = f"argument-{secrets.token_hex(20)}"
    scenario.hold_pods()
    callbacks = {
        "good": scenario.miss("succeed", secret=argument)[0],
        "again": scenario.miss("succeed", secret=argument)[0],
        "bad": scenario.miss("refuse", secret=argument)[0],
        "printed": scenario.miss("reveal", fails=False, secret=argument)[0],
        "raised": scenario.miss("reveal", fails=True, secret=argument)[0],
    }
    trace_runs(scenario)
    run = Run(scenario, request.param, callbacks, argument)
    with StatsdListener() as statsd, OtlpCollector() as collector:
        scenario.start_scheduler(**sent_to(statsd, collector))
        learn_tokens(run)
        launch_again(run)
        run.texts["pods that wait"] = pods_without_payload(run)
        scenario.release_pods()
        for name, callback in callbacks.items():
            state = "failed" if name in FAILED else "success"
            scenario.wait_for_state(callback, state)
        for callback in callbacks.values():
            scenario.wait_for_clean_up(callback)
        wait_for("spans of all", lambda: len(collector.spans()) >= len(callbacks), 30)
        run.texts["metrics"] = "\n".join(sorted(statsd.names()))
        run.texts["spans"] = "\n".join(map(str, collector.spans()))
    run.texts["pods that have ended"] = pods_without_payload(run)
    run.texts["events"] = json.dumps(scenario.namespace.events())
    run.texts["API server's log"] = noisy_api_server()
    run.texts["audit log"] = str(scenario.installation.query("SELECT * FROM log"))
    run.texts["outputs"] = "\n".join(row.output or "" for row in scenario.rows().values())
    for path in (scenario.env.home / "logs").rglob("*"):
        if path.is_file():
            run.texts[f"file {path.relative_to(scenario.env.home)}"] = path.read_text(errors="replace")
    run.texts["scheduler's log"] = scenario.scheduler_logs()
    scenario.stop_schedulers()
    return run


def learn_tokens(run: Run) -> None:
    """Read the payload of each pod that waits, the only place where this test finds a token."""
    for name, callback in run.callbacks.items():
        pod = run.scenario.wait_for_pod(callback)
        carrier, workload = wait_for(
            f"payload of {name}",
            lambda pod=pod: payload_if_there(run, pod),
            30,
            otherwise=run.scenario.describe,
        )
        assert carrier == run.delivery
        assert run.argument in json.dumps(workload)
        run.tokens[f"{name}, launch {pod['metadata']['labels']['callback-attempt']}"] = workload["token"]


def payload_if_there(run: Run, pod: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    try:
        return workload_of(run.scenario, pod)
    except ValueError:  # the Secret comes after its pod
        return None


def launch_again(run: Run) -> None:
    """Delete the pod of one callback, which waits, and learn the token of its second launch."""
    callback = run.callbacks["again"]
    first = run.scenario.wait_for_pod(callback)["metadata"]["name"]
    run.scenario.namespace.delete_pod(first)
    wait_for(
        "second launch",
        lambda: (pod := run.scenario.namespace.pod_of(callback.id)) and pod["metadata"]["name"] != first,
        60,
        otherwise=run.scenario.describe,
    )
    learn_tokens(run)


def pods_without_payload(run: Run) -> str:
    """Return the callback pods as JSON.

    Left out are the argument that is the payload, and what the kubelet copied from the log of a callback that
    itself raised its token.
    """
    pods = run.scenario.namespace.callback_pods()
    for pod in pods:
        if pod["metadata"]["labels"]["callback-id"] == run.callbacks["raised"].id:
            for status in pod["status"].get("containerStatuses", ()):
                status["state"].get("terminated", {}).pop("message", None)
        arguments = pod["spec"]["containers"][0]["args"]
        if "--json-string" in arguments:
            assert run.delivery == "argument"
            arguments[-1] = ""
    return json.dumps(pods, ensure_ascii=False)


def test_every_launch_has_a_token_of_its_own(run: Run) -> None:
    assert set(run.tokens) == {*(f"{name}, launch 1" for name in run.callbacks), "again, launch 2"}
    assert len(set(run.tokens.values())) == len(run.tokens)


def test_search_finds_a_token_in_all_its_forms(run: Run) -> None:
    """The tests below prove nothing where the search is blind."""
    token = run.tokens["good, launch 1"]
    workload = json.dumps({"token": token, "kwargs": {"secret": run.argument}})
    for before in range(3):
        for text in (workload, base64.b64encode(b" " * before + workload.encode()).decode()):
            assert run.tokens_in(f"... {text} ...")
            assert run.arguments_in(f"... {text} ...")
    assert run.tokens_in(token[: len(token) // 2])
    assert run.tokens_in(token[len(token) // 2 :])
    assert not run.tokens_in(token.partition(".")[0])


def test_run_left_what_is_searched(run: Run) -> None:
    assert f"callback-{run.callbacks['good'].id}-1" in run.texts["scheduler's log"]
    assert "DEBUG" in run.texts["scheduler's log"].upper()
    assert "DEBUG" in run.texts["API server's log"].upper()
    for name in ("outputs", "audit log"):
        # Airflow's own masker may have been there before ours, and leaves the first letters
        assert re.search(r"refused with \S{0,3}\*\*\*", run.texts[name]), name
    assert "callback_launches" in run.texts["metrics"]
    assert run.callbacks["good"].id in run.texts["spans"]
    assert run.callbacks["good"].id in run.texts["events"]
    assert run.callbacks["good"].id in run.texts["pods that wait"]
    assert run.callbacks["bad"].id in run.texts["pods that have ended"]
    assert any(run.callbacks["printed"].id in name for name in run.texts)


def test_token_is_nowhere_but_in_the_payload(run: Run) -> None:
    """Not even where a callback prints or raises it; only its container's own log has it then."""
    found = {name: run.tokens_in(text) for name, text in run.texts.items()}
    assert {name: pieces for name, pieces in found.items() if pieces} == {}


def test_arguments_are_nowhere_but_in_the_payload(run: Run) -> None:
    """What Airflow's own code writes about them is Airflow's: the callback's log, and one line at DEBUG."""
    found = {
        name: run.arguments_in(CORES_OWN.sub("", text))
        for name, text in run.texts.items()
        if not name.startswith("file logs/executor_callbacks/")
    }
    assert {name: pieces for name, pieces in found.items() if pieces} == {}


def commands(run: Run) -> Iterator[tuple[tuple[str, ...], int, bool]]:
    """Return every command with the status that it ends with, and whether it may print the arguments.

    The log has them, because Airflow's runner logs them; so has the pod of a callback that printed them before
    it failed, in what the kubelet copied from that log. What would change something is a dry run.
    """
    for name, callback in run.callbacks.items():
        pod_stays = name in FAILED
        yield ("show", callback.id), 0, False
        yield ("show", callback.id, "--output", "json"), 0, False
        yield ("logs", callback.id), 0, True
        yield ("logs", callback.id, "--raw"), 0, True
        yield ("pod", callback.id), 0 if pod_stays else 1, name == "raised"
        yield ("pod", callback.id, "--render"), 0, False
    ids = [callback.id for callback in run.callbacks.values()]
    yield ("cancel", *ids, "--dry-run"), 1, False  # they have ended: all are refused
    yield ("retry", *ids, "--force", "--dry-run"), 0, False
    yield ("gc", "--older-than", "0s", "--dry-run"), 0, False
    yield ("check",), 0, False
    for output in ("table", "json", "yaml", "plain"):
        yield ("list", "--output", output), 0, False


@pytest.mark.slow
def test_commands_print_neither(run: Run) -> None:
    cli = CommandLine(run.scenario, {**DEBUG})
    for callback in run.callbacks.values():
        assert run.scenario.row(callback).state in TERMINAL
    for command, status, arguments_too in commands(run):
        done = cli(*command)
        assert done.status == status, (command, done.err)
        printed = done.out + done.err
        assert printed, command
        assert run.tokens_in(printed) == [], command
        if not arguments_too:
            assert run.arguments_in(printed) == [], command
