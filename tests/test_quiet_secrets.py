"""Token and arguments of callbacks stay out of all that an executor logs, records and says, at DEBUG too."""

from __future__ import annotations

import base64
import json
import logging

import pytest
from airflow.models.log import Log
from sqlalchemy import select

from airflow_kubernetes_callbacks.payload import unescaped
from tests.fakes.life import launched, running
from tests.fakes.scheduler import output_of, state_of

MARKER = "an-argument-that-nobody-else-may-see"
#: What an API server, a webhook or a hook may quote of a request, as long as a real token is.
QUOTED = f"eyJhbGciOiJIUzUxMiJ9.eyJzdWIiOi{'J4' * 40}.{'s1-_' * 20}"


@pytest.fixture(params=["secret", "argument"])
def delivery(request):
    return request.param


@pytest.fixture
def scheduler(new_scheduler, delivery, caplog):
    caplog.set_level(logging.DEBUG)
    for name in ("airflow", "airflow_kubernetes_callbacks", "kubernetes", "urllib3"):
        caplog.set_level(logging.DEBUG, logger=name)
    return new_scheduler(KUBERNETES_CALLBACKS__PAYLOAD_DELIVERY=delivery, LOGGING__LOGGING_LEVEL="DEBUG")


@pytest.fixture
def everything_said(caplog, capfd, session, tmp_path):
    """Return all output so far: logs, standard streams, the audit log, kept logs."""

    def said():
        streams = capfd.readouterr()
        audit = [f"{entry.event} {entry.extra}" for entry in session.scalars(select(Log))]
        kept = [path.read_text() for path in (tmp_path / "logs").rglob("*") if path.is_file()]
        return "\n".join([caplog.text, streams.out, streams.err, *audit, *kept])

    return said


def workload_of(api_server, pod):
    """Return the workload of a pod, from the one place that may have it."""
    arguments = pod["spec"]["containers"][0]["args"]
    if arguments[-2] == "--json-string":
        return json.loads(unescaped(arguments[-1]))
    [secret] = [one for one in api_server.secrets() if one["metadata"]["name"] == pod["metadata"]["name"]]
    [value] = secret["data"].values()
    return json.loads(base64.b64decode(value))


def assert_not_in(text, *secrets):
    for secret in secrets:
        for before in range(3):
            encoded = base64.b64encode(b"\0" * before + secret.encode()).decode()[4:-4]
            assert encoded not in text
        assert secret not in text


def test_success_says_neither(api_server, scheduler, new_callback, everything_said):
    callback_id = new_callback(kwargs={"secret": MARKER})
    pod = running(api_server, scheduler, callback_id)
    workload = workload_of(api_server, pod)
    api_server.logs[pod["metadata"]["name"]] = f"sent with {workload['token']}\n".encode()
    api_server.node.finish(pod)
    scheduler.until(lambda: state_of(callback_id) == "success", "success")
    scheduler.until(lambda: not api_server.pods(), "pod is deleted")
    assert workload["callback"]["data"]["kwargs"]
    text = everything_said()
    assert callback_id in text
    assert "sent with ***" in text
    assert_not_in(text, workload["token"], MARKER)


def test_failure_that_quotes_the_token_is_recorded_without_it(
    api_server, scheduler, new_callback, everything_said
):
    callback_id = new_callback(kwargs={"secret": MARKER})
    pod = running(api_server, scheduler, callback_id)
    token = workload_of(api_server, pod)["token"]
    api_server.node.finish_callback(pod, f"ValueError: refused, Bearer {token}")
    scheduler.until(lambda: state_of(callback_id) == "failed", "failure is recorded")
    scheduler.settle(rounds=2)
    assert "ValueError: refused, Bearer ***" in output_of(callback_id)
    assert_not_in(everything_said() + output_of(callback_id), token, MARKER)


def test_new_launch_has_a_token_of_its_own_and_says_neither(
    api_server, scheduler, new_callback, everything_said
):
    callback_id = new_callback(kwargs={"secret": MARKER})
    first = launched(api_server, scheduler, callback_id)
    tokens = {workload_of(api_server, first)["token"]}
    api_server.store.delete("pods", "airflow", first["metadata"]["name"], {"gracePeriodSeconds": 0})
    scheduler.until(
        lambda: [pod for pod in api_server.pods() if pod["metadata"]["name"].endswith("-2")],
        "second launch",
        resync=True,
    )
    tokens.add(workload_of(api_server, launched(api_server, scheduler, callback_id))["token"])
    assert len(tokens) == 2
    assert_not_in(everything_said(), *tokens, MARKER)


def test_refusal_that_quotes_the_request_is_recorded_without_the_token(
    api_server, scheduler, new_callback, everything_said
):
    api_server.fail("POST", "/pods$", status=400, reason="BadRequest", message=f"denied: args [{QUOTED}]")
    callback_id = new_callback(kwargs={"secret": MARKER})
    scheduler.until(lambda: state_of(callback_id) == "failed", "failure is recorded")
    scheduler.settle(rounds=2)
    assert "denied: args [***]" in output_of(callback_id)
    assert_not_in(everything_said() + output_of(callback_id), QUOTED, MARKER)


def test_hook_that_raises_with_the_pod_costs_no_token(
    api_server, scheduler, new_callback, everything_said, monkeypatch
):
    tokens = []

    def hook(pod):
        arguments = pod.spec.containers[0].args
        if arguments[-2] == "--json-string":
            tokens.append(json.loads(unescaped(arguments[-1]))["token"])
        raise ValueError(f"not this one: {pod}")

    monkeypatch.setattr("airflow.settings.pod_mutation_hook", hook, raising=False)
    monkeypatch.setattr(scheduler.executor.kube_scheduler.planner, "hook", hook)
    callback_id = new_callback(kwargs={"secret": MARKER})
    scheduler.until(lambda: state_of(callback_id) == "failed", "failure is recorded")
    scheduler.settle(rounds=2)
    assert "not this one" in output_of(callback_id)
    assert_not_in(everything_said() + output_of(callback_id), *tokens)


def test_mistake_whose_error_quotes_the_token_is_logged_with_its_traceback_and_without_the_token(
    api_server, scheduler, new_callback, everything_said, monkeypatch
):
    def plan(workload, attempt):
        raise TypeError(f"cannot use input_value={QUOTED}")

    monkeypatch.setattr(scheduler.executor.kube_scheduler.planner, "plan", plan)
    callback_id = new_callback(kwargs={"secret": MARKER})
    scheduler.until(lambda: state_of(callback_id) == "failed", "failure is recorded")
    scheduler.settle(rounds=2)
    text = everything_said()
    assert "TypeError: cannot use input_value=***" in output_of(callback_id)
    assert "test_quiet_secrets.py" in text
    assert "TypeError: cannot use input_value=***" in text
    assert_not_in(text + output_of(callback_id), QUOTED, MARKER)
