"""From a workload to the pod that runs it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.executors.workloads import ExecuteCallback
from airflow.executors.workloads.base import BundleInfo
from airflow.executors.workloads.callback import CallbackDTO, CallbackFetchMethod

from airflow_kubernetes_callbacks import launch_plan
from airflow_kubernetes_callbacks.errors import LaunchDelayedError, LaunchError
from airflow_kubernetes_callbacks.launch_failure import launch_failure
from airflow_kubernetes_callbacks.launch_plan import LaunchPlanner, run_id_of
from airflow_kubernetes_callbacks.payload import ArgumentPayload, SecretPayload, unescaped
from airflow_kubernetes_callbacks.rules import load_rules
from airflow_kubernetes_callbacks.settings import CallbackSettings

ID = "018f0000-0000-7000-8000-00000000000a"


def workload(kwargs=None, *, dag_id="reports", run_id="manual__1", **data):
    return ExecuteCallback(
        callback=CallbackDTO(
            id=ID,
            fetch_method=CallbackFetchMethod.IMPORT_PATH,
            data={
                "path": "alerts.notify",
                "kwargs": kwargs or {},
                "dag_id": dag_id,
                "deadline_id": "d",
                **data,
            },
        ),
        dag_rel_path="reports.py",
        token="made by core, ten minutes of it",
        log_path=f"executor_callbacks/{dag_id}/{run_id}/{ID}",
        bundle_info=BundleInfo(name="bundle", version=None),
    )


@pytest.fixture
def template(tmp_path):
    path = tmp_path / "template.yaml"
    path.write_text(
        json.dumps({"kind": "Pod", "spec": {"containers": [{"name": "base", "image": "airflow"}]}})
    )
    return path


@pytest.fixture
def planner(template):
    """Makes planners; ``asked`` holds the namespaces that were asked about, ``tokens`` what was wanted."""

    def make(*, secrets=True, hook=lambda pod: None, settings=None, **changes):
        options = CallbackSettings(**(settings or {}))
        asked, tokens = [], []

        def fresh_token(callback_id, wide):
            tokens.append((callback_id, wide))
            return "wide token" if wide else "narrow token"

        def may_create_secrets(namespace):
            asked.append(namespace)
            return secrets

        made = LaunchPlanner(
            **{
                "settings": options,
                "rules": load_rules(options),
                "me": "7",
                "namespace": "airflow",
                "watched_namespaces": ["airflow"],
                "stock_template": str(template),
                "kube_image": None,
                "fresh_token": fresh_token,
                "may_create_secrets": may_create_secrets,
                "hook": hook,
                "executor_names": ("KubernetesExecutor",),
                **changes,
            }
        )
        return SimpleNamespace(plan=made.plan, asked=asked, tokens=tokens, planner=made)

    return make


def carried(plan):
    return json.loads(plan.payload.text)


def test_pod_is_that_of_this_attempt_and_owner(planner):
    plan = planner().plan(workload(), 3)
    metadata = plan.pod.metadata
    assert (metadata.name, metadata.namespace) == (f"callback-{ID}-3", "airflow")
    assert metadata.labels["airflow-worker"] == "7"
    assert metadata.annotations["run_id"] == "manual__1"


def test_f8_token_of_core_is_replaced_at_every_launch(planner):
    made = planner()
    for attempt in (1, 2):
        assert carried(made.plan(workload(), attempt))["token"] == "wide token"
    assert made.tokens == [(ID, True)] * 2


@pytest.mark.parametrize(
    ("secrets", "settings", "kind", "wide"),
    [
        (True, {}, SecretPayload, True),
        (False, {}, ArgumentPayload, False),
        (True, {"payload_delivery": "argument"}, ArgumentPayload, False),
        (False, {"payload_delivery": "secret"}, SecretPayload, True),
        (True, {"connections_and_variables": False}, SecretPayload, False),
    ],
    ids=["secret", "no-secrets-allowed", "argument", "secret-whatever-is-allowed", "narrow-by-choice"],
)
def test_wide_token_is_only_in_a_secret(planner, secrets, settings, kind, wide):
    made = planner(secrets=secrets, settings=settings)
    plan = made.plan(workload(), 1)
    assert isinstance(plan.payload, kind)
    assert made.tokens == [(ID, wide)]
    spec = json.dumps(plan.pod.to_dict(), default=str)
    assert ("narrow token" in spec) is (kind is ArgumentPayload)
    assert "wide token" not in spec


def test_namespace_is_asked_about_once(planner):
    made = planner()
    for attempt in (1, 2, 3):
        made.plan(workload(), attempt)
    assert made.asked == ["airflow"]


def test_workload_travels_unchanged_but_for_its_token(planner):
    given = workload({"text": 'ä 🔔 " \\ \n', "nested": {"list": [1, None, True]}})
    plan = planner().plan(given, 1)
    assert {**carried(plan), "token": given.token} == json.loads(given.model_dump_json())
    assert given.token.startswith("made by core")


def test_argument_in_the_spec_is_escaped_so_that_kubernetes_leaves_it_as_it_is(planner):
    plan = planner(secrets=False).plan(workload({"text": "cost $$5 and $(HOME)"}), 1)
    argument = plan.pod.spec.containers[0].args[-1]
    assert "cost $$$$5 and $$(HOME)" in argument
    assert unescaped(argument) == plan.payload.text
    assert carried(plan)["callback"]["data"]["kwargs"] == {"text": "cost $$5 and $(HOME)"}


def test_reserved_kwarg_does_not_reach_the_callback(planner):
    asked = {"resources": {"limits": {"memory": "1Gi"}}}
    plan = planner().plan(workload({"text": "late", "kubernetes_callback": asked}), 1)
    assert carried(plan)["callback"]["data"]["kwargs"] == {"text": "late"}
    assert plan.pod.spec.containers[0].resources.limits["memory"] == "1Gi"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stock_template": "/no/such/template.yaml"}, ("/no/such/template.yaml", "pod_template_file")),
        ({"stock_template": ""}, ("pod_template_file",)),
    ],
    ids=["absent", "none-configured"],
)
def test_template_that_is_missing_is_named_with_the_remedy(planner, changes, words):
    with pytest.raises(LaunchError, match="Could not start") as raised:
        planner(**changes).plan(workload(), 1)
    for word in words:
        assert word in str(raised.value)


def test_template_that_was_mended_is_read_anew(planner, template):
    made = planner()
    template.write_text("no: [pod")
    with pytest.raises(LaunchError, match="template"):
        made.plan(workload(), 1)
    template.write_text(
        json.dumps({"kind": "Pod", "spec": {"containers": [{"name": "base", "image": "mended:1"}]}})
    )
    assert made.plan(workload(), 1).pod.spec.containers[0].image == "mended:1"


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        pytest.param(errno.ENOENT, LaunchError, id="no-such-file"),
        pytest.param(errno.ENOTDIR, LaunchError, id="no-such-folder"),
        pytest.param(errno.EISDIR, LaunchError, id="a-folder"),
        pytest.param(errno.EACCES, LaunchError, id="not-allowed"),
        pytest.param(errno.EMFILE, LaunchDelayedError, id="too-many-open-files"),
        pytest.param(errno.ENFILE, LaunchDelayedError, id="too-many-open-files-on-the-host"),
        pytest.param(errno.ESTALE, LaunchDelayedError, id="stale-handle"),
        pytest.param(errno.EIO, LaunchDelayedError, id="input-output-error"),
        pytest.param(errno.ETIMEDOUT, LaunchDelayedError, id="volume-does-not-answer"),
    ],
)
def test_template_that_cannot_be_read_just_now_is_read_again(planner, template, monkeypatch, number, kind):
    made = planner()

    def fails(path):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as broken:
        broken.setattr(Path, "read_bytes", fails)
        with pytest.raises(kind) as raised:
            made.plan(workload(), 1)
    assert f"pod template {str(template)!r} cannot be read: {os.strerror(number)}." in str(raised.value)
    assert launch_failure(raised.value).retryable is (kind is LaunchDelayedError)
    assert ("Correct the file" in str(raised.value)) is (kind is LaunchError)
    assert made.plan(workload(), 1).pod.spec.containers[0].image == "airflow"


def test_kwargs_that_cannot_be_sent_are_said(planner):
    with pytest.raises(LaunchError, match=r"kwargs cannot be written as JSON: 'text' \("):
        planner().plan(workload({"text": object(), "channel": "ops"}), 1)


def test_c9_whatever_the_hook_raises_is_this_callbacks_error(planner):
    def hook(pod):
        raise SystemExit(3)

    with pytest.raises(LaunchError, match=r"pod_mutation_hook.*SystemExit"):
        planner(hook=hook).plan(workload(), 1)


@pytest.mark.parametrize(("timeout", "deadline"), [(0, None), (600, 600 + 300 + 60)])
def test_backstop_is_the_timeout_and_all_that_may_come_before_it(planner, timeout, deadline):
    plan = planner(execution_timeout=timeout).plan(workload(), 1)
    assert plan.pod.spec.active_deadline_seconds == deadline


@pytest.mark.parametrize(
    "run_id", ["manual__1", "manual__2026-06-07T01:50:23+00:00", "a/b/c", "..", "x" * 250]
)
def test_run_id_is_what_core_made_the_log_path_of(run_id):
    assert run_id_of(workload(run_id=run_id)) == run_id


def test_run_id_of_a_path_of_another_kind_is_unknown():
    given = workload()
    given.log_path = "somewhere/else"
    assert run_id_of(given) == ""


def test_threads_that_plan_at_the_same_time_ask_once_and_say_once_what_is_missing(planner, caplog):
    asked, both_ask = [], threading.Barrier(2)

    def may_create_secrets(namespace):
        asked.append(namespace)
        with contextlib.suppress(threading.BrokenBarrierError):
            both_ask.wait(0.5)
        return False

    made = planner(may_create_secrets=may_create_secrets)
    with ThreadPoolExecutor(2) as threads:
        plans = list(threads.map(lambda _: made.plan(workload(), 1), range(2)))
    assert [type(plan.payload) for plan in plans] == [ArgumentPayload, ArgumentPayload]
    assert asked == ["airflow"]
    assert caplog.text.count("lacks the verb 'create' on secrets") == 1


@pytest.mark.parametrize(
    ("allowed", "launches", "asked"),
    [
        pytest.param([False], [0, 0.5], [0], id="once-in-a-storm-of-launches"),
        pytest.param([False, True], [0, 2, 4], [0, 2], id="first-no-is-asked-for-again"),
        pytest.param([False, False], [0, 6, 10, 305], [0, 6], id="no-that-was-said-twice-is-remembered"),
        pytest.param([False, False, True], [0, 6, 307, 999], [0, 6, 307], id="and-then-asked-for-again"),
        pytest.param([False, False, False], [0, 2, 6, 9], [0, 2, 6], id="twice-in-a-moment-is-once"),
        pytest.param([True], [0, 100_000], [0], id="yes-is-remembered"),
    ],
)
def test_whether_secrets_may_be_created_is_asked_again(planner, monkeypatch, allowed, launches, asked):
    """kubernetes/kubernetes#121635: an API server that has just started says no to everything."""
    now, asked_at, answers = [1000.0], [], iter(allowed)
    monkeypatch.setattr(launch_plan, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def may_create_secrets(namespace):
        asked_at.append(now[0] - 1000)
        return next(answers)

    made = planner(may_create_secrets=may_create_secrets)
    for later in launches:
        now[0] = 1000 + later
        plan = made.plan(workload(), 1)
    assert asked_at == asked
    assert isinstance(plan.payload, SecretPayload) is allowed[-1]


def test_secret_that_was_refused_makes_the_next_launch_ask_again(planner):
    made = planner(secrets=True)
    made.plan(workload(), 1)
    made.planner.secret_was_refused("airflow")
    made.plan(workload(), 1)
    assert made.asked == ["airflow", "airflow"]


@pytest.mark.parametrize(
    ("data", "has_hook", "namespace"),
    [
        pytest.param({"path": "ml.alert"}, False, "airflow", id="the-usual-one"),
        pytest.param({"path": "other.alert"}, False, "alerts", id="that-of-its-rule"),
        pytest.param({"path": "ml.alert"}, True, None, id="a-hook-may-send-it-anywhere"),
        pytest.param(
            {"path": "x", "kwargs": {"kubernetes_callback": {"rule": "none-such"}}},
            False,
            None,
            id="cannot-be-launched",
        ),
        pytest.param({}, False, "airflow", id="nothing-known-of-it"),
    ],
)
def test_namespace_of_a_callback_is_told_from_its_row(planner, data, has_hook, namespace):
    rules = '[{"name": "elsewhere", "match": {"callback": "other.*"}, "pod": {"namespace": "alerts"}}]'
    made = planner(settings={"rules": rules}, has_hook=has_hook, watched_namespaces=["airflow", "alerts"])
    assert made.planner.namespace_of(data) == namespace


def test_token_that_reads_connections_is_in_a_secret_whatever_becomes_of_the_permission_meanwhile(planner):
    made = planner(settings={"connections_and_variables": True})
    token = made.planner.fresh_token

    def refused_meanwhile(callback_id, wide):
        made.planner.may_create_secrets = lambda namespace: False
        made.planner.secret_was_refused("airflow")
        return token(callback_id, wide)

    made.planner.fresh_token = refused_meanwhile
    plan = made.plan(workload(), 1)
    assert (made.tokens[0][1], type(plan.payload)) == (True, SecretPayload)


def test_api_server_that_does_not_answer_leaves_what_was_known_of_secrets(planner, monkeypatch):
    made = planner(secrets=False)
    made.plan(workload(), 1)
    monkeypatch.setattr(launch_plan, "_ASK_ONCE_MORE_AFTER", 0.0)

    def down(namespace):
        raise ConnectionResetError(104, "reset")

    made.planner.may_create_secrets = down
    assert isinstance(made.plan(workload(), 1).payload, ArgumentPayload)
