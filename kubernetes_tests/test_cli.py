"""``airflow kubernetes-callbacks``, as its user calls it: a process of its own, beside a real scheduler."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from kubernetes import client

from kubernetes_tests.airflow_env import wait_for
from kubernetes_tests.clusters import write_template
from kubernetes_tests.command_line import CommandLine, Done
from kubernetes_tests.conftest import _scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kubernetes_tests.scenario import Installation, MissedDeadline, Scenario

#: Slow because each command starts an Airflow process of its own.
pytestmark = [pytest.mark.usefixtures("described"), pytest.mark.slow]


def row_of(cli: CommandLine, callback: MissedDeadline) -> dict[str, Any]:
    """Return the line of ``list`` about this callback."""
    done = cli("list", "--output", "json")
    assert done.status == 0, done.err
    rows: list[dict[str, Any]] = done.json
    return next(row for row in rows if row["callback_id"] == callback.id)


@pytest.fixture(scope="module")
def running(
    request: pytest.FixtureRequest,
    installations: Callable[[str], Installation],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Scenario]:
    """One scheduler for all tests here: how pods are created makes no difference to the commands."""
    # Pods that are held back are not given up while slow commands look at them.
    patient = {"kubernetes_callbacks.pending_timeout": 900}
    with _scenario(request, installations("sqlite"), tmp_path_factory.mktemp("cli"), patient) as scenario:
        scheduler = scenario.start_scheduler()
        scheduler.wait_for_log("Adopting or resetting orphaned tasks", 300)
        yield scenario


@pytest.fixture
def cli(running: Scenario) -> CommandLine:
    return CommandLine(running)


def test_running_callback_is_listed_and_shown(running: Scenario, cli: CommandLine) -> None:
    (callback,) = running.miss("succeed", sleep=300)
    running.wait_for_begin(callback)
    running.wait_for_state(callback, "running")
    pod = running.wait_for_pod(callback)

    row = row_of(cli, callback)
    assert row["state"] == "running"
    assert row["pod"] == pod["metadata"]["name"]
    assert row["namespace"] == running.namespace.name
    assert row["node"] == pod["spec"]["nodeName"]
    assert row["attempt"] == 1
    assert row["scheduler"] == pod["metadata"]["labels"]["airflow-worker"]
    assert row["path"] == "ledger_callbacks.succeed"
    assert row["stuck_reason"] is None

    story = cli("show", callback.id, "--output", "json").json
    what = [step["what"] for step in story["timeline"]]
    order = ["deadline missed", "noticed", "queued", "pod created", "scheduled", "running"]
    assert [step for step in what if step in order] == order
    assert story["callback"]["state"] == "running"
    assert story["dag_run"]["dag_id"] == "no_tasks_to_run"
    assert cli("cancel", callback.id).status == 0


def test_log_is_followed_to_the_callback_s_end(running: Scenario, cli: CommandLine) -> None:
    (callback,) = running.miss("succeed", sleep=30)
    done = cli("logs", callback.id, "--follow")
    assert done.status == 0, done.err
    assert f"alert {callback.key} went out" in done.out
    running.wait_for_state(callback, "success")


def test_story_and_log_of_a_callback_whose_pod_is_gone(running: Scenario, cli: CommandLine) -> None:
    (callback,) = running.miss("succeed")
    running.wait_for_state(callback, "success")
    running.wait_for_clean_up(callback)
    assert row_of(cli, callback)["pod"] is None
    story = cli("show", callback.id, "--output", "json").json
    what = [step["what"] for step in story["timeline"]]
    assert what[-1] == "recorded as success"
    assert "running" in what  # from Kubernetes' events
    done = cli("logs", callback.id)
    assert done.status == 0, done.err
    assert f"alert {callback.key} went out" in done.out


def test_failed_callback_says_why(running: Scenario, cli: CommandLine) -> None:
    (callback,) = running.miss("fail", text="no such channel")
    running.wait_for_state(callback, "failed")
    row = row_of(cli, callback)
    assert row["state"] == "failed"
    assert "ValueError: no such channel" in row["reason"]
    people = cli("show", callback.id)
    assert "no such channel" in people.out
    assert "recorded as failed" in people.out


@pytest.mark.parametrize("output", ["table", "plain", "yaml"])
def test_other_outputs_have_every_callback(running: Scenario, cli: CommandLine, output: str) -> None:
    (callback,) = running.miss("succeed")
    running.wait_for_state(callback, "success")
    done = cli("list", "--state", "success", "--output", output)
    assert done.status == 0, done.err
    assert callback.id in done.out
    if output == "yaml":
        assert callback.id in {row["callback_id"] for row in yaml.safe_load(done.out)}


def test_pod_as_it_is_and_as_it_would_be(running: Scenario, cli: CommandLine) -> None:
    running.hold_pods()
    try:
        (callback,) = running.miss("succeed", secret="hunter2")
        running.wait_for_pod(callback)
        rendered = cli("pod", callback.id, "--render")
        real = cli("pod", callback.id, "--output", "json")
    finally:
        running.release_pods()
    assert rendered.status == real.status == 0, rendered.err + real.err
    built, pod = yaml.safe_load(rendered.out), real.json
    for document in (built, pod):
        document["metadata"]["labels"].pop("airflow-worker")
    assert built["metadata"]["name"] == pod["metadata"]["name"]
    assert built["metadata"]["labels"] == pod["metadata"]["labels"]
    assert built["metadata"]["annotations"].items() <= pod["metadata"]["annotations"].items()
    assert built["spec"]["containers"][0]["args"] == pod["spec"]["containers"][0]["args"]
    assert "hunter2" not in rendered.out + real.out
    assert "eyJ" not in rendered.out + real.out
    running.wait_for_state(callback, "success")


def test_cancelled_callback_that_waits_never_starts(running: Scenario, cli: CommandLine) -> None:
    running.hold_pods()
    try:
        (callback,) = running.miss("succeed")
        running.wait_for_pod(callback)
        dry = cli("cancel", callback.id, "--dry-run", "--output", "json")
        assert dry.json[0]["what"].startswith("would fail it; end pod")
        assert running.row(callback).state == "queued"
        done = cli("cancel", callback.id, "--reason", "false alarm", "--output", "json")
        assert done.status == 0, done.err
    finally:
        running.release_pods()
    wait_for(
        "pod is gone", lambda: running.namespace.pod_of(callback.id) is None, 60, otherwise=running.describe
    )
    time.sleep(5)  # two comparisons
    row = running.row(callback)
    assert row.state == "failed"
    assert (row.output or "").startswith("Cancelled by ")
    assert "false alarm" in (row.output or "")
    assert running.ledger.runs(callback.key) == 0
    assert running.events(callback) == []
    timeline = cli("show", callback.id, "--output", "json").json["timeline"]
    assert "callback cancelled" in [step["what"] for step in timeline]


def test_cancelled_callback_that_runs_is_ended_and_stays_cancelled(
    running: Scenario, cli: CommandLine
) -> None:
    (callback,) = running.miss("succeed", sleep=300)
    running.wait_for_begin(callback)
    running.wait_for_state(callback, "running")
    done = cli("cancel", callback.id, "--output", "json")
    assert done.status == 0, done.err
    assert "is being ended" in done.json[0]["what"]
    wait_for(
        "pod is gone", lambda: running.namespace.pod_of(callback.id) is None, 60, otherwise=running.describe
    )
    time.sleep(5)  # two comparisons
    row = running.row(callback)
    assert row.state == "failed"
    assert (row.output or "").startswith("Cancelled by ")
    assert "may have taken effect" in (row.output or "")
    assert running.ledger.entries(callback.key, "end") == []
    assert "success" not in running.events(callback)


def test_retried_callback_runs_once_more_under_the_next_name(running: Scenario, cli: CommandLine) -> None:
    (callback,) = running.miss("fail")
    running.wait_for_state(callback, "failed")
    dry = cli("retry", callback.id, "--dry-run", "--output", "json")
    assert dry.status == 0, dry.err
    assert "attempt 2 (careful: it began" in dry.json[0]["what"]
    assert running.row(callback).state == "failed"
    assert running.namespace.pod_of(callback.id) is not None
    unasked = cli("retry", callback.id, "--output", "json")
    assert unasked.status == 1
    assert "Careful" in unasked.err
    assert running.ledger.runs(callback.key) == 1
    done = cli("retry", callback.id, "--yes", "--output", "json")
    assert done.status == 0, done.out + done.err
    wait_for("second run", lambda: running.ledger.runs(callback.key) == 2, 90, otherwise=running.describe)
    running.wait_for_state(callback, "failed")
    names = {name for name in running.launched_pods() if callback.id in name}
    assert names == {f"callback-{callback.id}-1", f"callback-{callback.id}-2"}
    time.sleep(5)
    assert running.ledger.runs(callback.key) == 2


def test_retry_of_a_success_needs_force(running: Scenario, cli: CommandLine) -> None:
    (callback,) = running.miss("succeed")
    running.wait_for_state(callback, "success")
    refused = cli("retry", callback.id, "--yes", "--output", "json")
    assert refused.status == 1
    assert "--force" in refused.json[0]["what"]
    assert cli("retry", callback.id, "--yes", "--force").status == 0
    wait_for("second run", lambda: running.ledger.runs(callback.key) == 2, 90, otherwise=running.describe)
    running.wait_for_state(callback, "success")


def test_gc_removes_kept_pods_and_no_others(running: Scenario, cli: CommandLine) -> None:
    (failed,) = running.miss("fail")
    (active,) = running.miss("succeed", sleep=300)
    running.wait_for_state(failed, "failed")
    running.wait_for_done_label(failed)
    running.wait_for_begin(active)
    young = cli("gc", "--output", "json")
    assert young.status == 0, young.err
    assert running.namespace.pod_of(failed.id) is not None
    dry = cli("gc", "--older-than", "0s", "--dry-run", "--output", "json")
    assert f"callback-{failed.id}-1" in {row["name"] for row in dry.json}
    assert f"callback-{active.id}-1" not in {row["name"] for row in dry.json}
    assert running.namespace.pod_of(failed.id) is not None
    done = cli("gc", "--older-than", "0s", "--output", "json")
    assert done.status == 0, done.out + done.err
    assert running.namespace.pod_of(failed.id) is None
    assert running.namespace.pod_of(active.id) is not None
    assert cli("cancel", active.id).status == 0


def test_settings_are_those_of_the_scheduler(running: Scenario, cli: CommandLine) -> None:
    rows = {row["option"]: row for row in cli("settings", "--output", "json").json}
    assert rows["reconcile_interval"]["value"] == "2"


def test_exit_status_tells_wrong_usage_from_what_is_not_there(running: Scenario, cli: CommandLine) -> None:
    usage = cli("list", "--older-than", "soon")
    assert usage.status == 2
    assert "'soon' is not an age" in usage.err
    assert cli("cancel").status == 2
    unknown = cli("cancel", "0000dead")
    assert unknown.status == 1
    assert "There is no executor callback 0000dead" in unknown.err
    assert not unknown.out


# check ------------------------------------------------------------------------------------------------


def findings(done: Done) -> dict[str, dict[str, Any]]:
    return {row["check"]: row for row in done.json}


def test_check_finds_nothing_wrong_here(running: Scenario, cli: CommandLine) -> None:
    done = cli("check", "--output", "json")
    found = findings(done)
    assert done.status == 0, done.out
    namespace = running.namespace.name
    for check in (
        "executor",
        "scheduler",
        "Kubernetes API",
        "clock",
        f"namespace {namespace}",
        f"access in namespace {namespace}",
        f"admission in {namespace} for callbacks",
    ):
        assert found[check]["result"] == "ok", found[check]
    assert not any(
        pod["metadata"]["annotations"].get("dag_id") == "check" for pod in running.namespace.callback_pods()
    )


def test_check_names_a_namespace_that_is_not_there(running: Scenario) -> None:
    cli = CommandLine(running, {"kubernetes_callbacks.namespace": "no-such-namespace"})
    done = cli("check", "--output", "json")
    assert done.status == 1
    assert findings(done)["namespace no-such-namespace"]["result"] == "failed"
    admission = findings(done)["admission in no-such-namespace for callbacks"]
    assert 'namespaces "no-such-namespace" not found' in admission["what"]


def test_check_tells_what_pod_security_says(running: Scenario, tmp_path: Path) -> None:
    name = running.namespace.name
    label = "pod-security.kubernetes.io/enforce"
    core = running.cluster.core
    template = {**running.template, "spec": {**running.template["spec"], "securityContext": None}}
    path = write_template(tmp_path / "template.yaml", template)
    hardened = CommandLine(running, {"kubernetes_callbacks.pod_template_file": path})
    bare = CommandLine(
        running,
        {
            "kubernetes_callbacks.pod_template_file": path,
            "kubernetes_callbacks.security_context": "none",
        },
    )
    core.patch_namespace(name, {"metadata": {"labels": {label: "restricted"}}})
    try:
        check = f"admission in {name} for callbacks"
        assert findings(hardened("check", "--output", "json"))[check]["result"] == "ok"
        refused = bare("check", "--output", "json")
        assert refused.status == 1
        assert "violates PodSecurity" in findings(refused)[check]["what"]
    finally:
        core.patch_namespace(name, {"metadata": {"labels": {label: None}}})


@pytest.fixture
def restricted(running: Scenario, tmp_path: Path) -> Iterator[Callable[[str], CommandLine]]:
    """Commands with a service account that has exactly a given Role."""
    core, name = running.cluster.core, running.namespace.name
    rbac = client.RbacAuthorizationV1Api(core.api_client)
    core.create_namespaced_service_account(name, {"metadata": {"name": "restricted"}})

    def with_role(role: str) -> CommandLine:
        document = yaml.safe_load(role)
        rbac.create_namespaced_role(name, document)
        role_name = document["metadata"]["name"]
        rbac.create_namespaced_role_binding(
            name,
            {
                "metadata": {"name": role_name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role_name},
                "subjects": [{"kind": "ServiceAccount", "name": "restricted", "namespace": name}],
            },
        )
        request = core.create_namespaced_service_account_token(
            "restricted", name, {"spec": {"expirationSeconds": 3600}}
        )
        kubeconfig = yaml.safe_load(running.cluster.kubeconfig.read_text())
        for user in kubeconfig["users"]:
            user["user"] = {"token": request.status.token}
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(kubeconfig))
        return CommandLine(running, {"kubernetes_executor.config_file": path})

    yield with_role
    core.delete_namespaced_service_account("restricted", name)
    for role in rbac.list_namespaced_role(name).items:
        rbac.delete_namespaced_role(role.metadata.name, name)
        rbac.delete_namespaced_role_binding(role.metadata.name, name)


def test_role_that_check_prints_is_all_that_is_needed_and_each_verb_of_it_is(
    running: Scenario, restricted: Callable[[str], CommandLine]
) -> None:
    name = running.namespace.name
    access = f"access in namespace {name}"
    nothing = f"apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: nothing, namespace: {name}}}\nrules: []\n"
    cli = restricted(nothing)
    without = cli("check", "--output", "json")
    assert without.status == 1
    missing = [row["what"] for row in without.json if row["check"] == access]
    assert len(missing) == 9
    assert any("not allowed: watch pods" in what for what in missing)

    complete = restricted(without.err)
    done = complete("check", "--output", "json")
    assert done.status == 0, done.out
    assert findings(done)[access]["result"] == "ok"
    assert complete("list").status == 0


# without a cluster, without a scheduler ---------------------------------------------------------------


def test_rows_are_shown_when_the_cluster_does_not_answer(running: Scenario, tmp_path: Path) -> None:
    (callback,) = running.miss("succeed")
    running.wait_for_state(callback, "success")
    kubeconfig = yaml.safe_load(running.cluster.kubeconfig.read_text())
    for cluster in kubeconfig["clusters"]:
        cluster["cluster"]["server"] = "https://127.0.0.1:1"
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig))
    cli = CommandLine(running, {"kubernetes_executor.config_file": path})
    done = cli("list", "--output", "json")
    assert done.status == 3
    assert callback.id in {row["callback_id"] for row in done.json}
    assert "pods cannot be listed" in done.err


def test_callback_is_ended_while_no_scheduler_is_alive(running: Scenario, cli: CommandLine) -> None:
    """From here on the scheduler of the tests above is gone."""
    (callback,) = running.miss("succeed", sleep=300)
    running.wait_for_begin(callback)
    (scheduler,) = running.schedulers
    scheduler.kill()

    def stuck() -> dict[str, str]:
        rows = cli("list", "--stuck", "--output", "json").json
        return {row["callback_id"]: row["stuck_reason"] for row in rows}

    wait_for("callback is stuck", lambda: stuck().get(callback.id) == "no scheduler is alive", 90)
    assert cli("cancel", callback.id).status == 0
    assert running.row(callback).state == "failed"
    running.start_scheduler("next")
    wait_for("pod is gone", lambda: running.namespace.pod_of(callback.id) is None, 90)
    assert (running.row(callback).output or "").startswith("Cancelled by ")


def test_cancelled_callback_that_waits_for_a_slot_is_never_handed_out(
    running: Scenario, cli: CommandLine
) -> None:
    running.stop_schedulers()
    scheduler = running.start_scheduler("narrow", config={"core.parallelism": 1})
    (runs,) = running.miss("succeed", sleep=300)
    running.wait_for_begin(runs)
    (waits,) = running.miss("succeed")
    running.wait_for_state(waits, "pending")
    row = row_of(cli, waits)
    assert (row["state"], row["pod"]) == ("pending", None)
    done = cli("cancel", waits.id, runs.id, "--output", "json")
    assert done.status == 0, done.out + done.err
    (after,) = running.miss("succeed")
    running.wait_for_state(after, "success")
    assert running.row(waits).state == running.row(runs).state == "failed"
    assert waits.id not in running.launched_callbacks()
    assert running.ledger.runs(waits.key) == 0
    assert scheduler.running
