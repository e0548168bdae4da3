"""The commands, called as 'airflow kubernetes-callbacks ...' calls them, on a fake API server and real rows.

Where a scheduler has to take part, it is the real executor driven by core's own functions.
"""

from __future__ import annotations

import io
import json
import logging
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from uuid import UUID, uuid4

import pytest
import yaml

from airflow_kubernetes_callbacks.cli.definition import COMMANDS
from airflow_kubernetes_callbacks.identity import pod_name
from tests.fakes.scheduler import (
    data_of,
    output_of,
    pod_tells_api_that_it_runs,
    set_row,
    state_of,
)

TOKEN = "eyJhbGciOiJIUzUxMiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJlLW9mLXRoZS10b2tlbg"


@pytest.fixture
def airflow(session, kube_environment, executor_names, capsys, monkeypatch):
    """Call a command; get its exit status, what it printed, and that as JSON where it is."""
    from airflow.cli import cli_parser

    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    kube_environment()
    parser = cli_parser.get_parser()

    def call(*arguments, answer=None):
        if answer is not None:
            stdin = io.StringIO(answer)
            monkeypatch.setattr(stdin, "isatty", lambda: True, raising=False)
            monkeypatch.setattr("sys.stdin", stdin)
        capsys.readouterr()
        status = 0
        level = logging.root.level
        try:
            args = parser.parse_args(["kubernetes-callbacks", *arguments])
            args.func(args)
        except SystemExit as end:
            status = end.code
            if isinstance(status, str):
                print(status)
                status = 1
        finally:
            logging.root.setLevel(level)
        out, err = capsys.readouterr()
        return SimpleNamespace(status=status, out=out, err=err, json=_json(out))

    return call


def _json(text):
    try:
        return json.loads(text)
    except ValueError:
        return None


def make_pod(api_server, callback_id, attempt=1, *, owner="7", namespace="airflow", **metadata):
    name = pod_name(callback_id, attempt)
    return api_server.store.create(
        "pods",
        namespace,
        {
            "metadata": {
                "name": name,
                "labels": {
                    "airflow-worker": owner,
                    "airflow-workload-type": "callback",
                    "callback-id": callback_id,
                    "callback-attempt": str(attempt),
                },
                "annotations": {"callback_id": callback_id, "dag_id": "reports"},
                **metadata,
            },
            "spec": {
                "containers": [
                    {"name": "base", "image": "airflow:3.3.2", "args": ["python", "--json-string", TOKEN]}
                ]
            },
        },
    )


def make_secret(api_server, callback_id, attempt=1):
    return api_server.store.create(
        "secrets",
        "airflow",
        {
            "metadata": {
                "name": pod_name(callback_id, attempt),
                "labels": {"airflow-workload-type": "callback", "callback-id": callback_id},
            },
            "data": {"workload.json": "c2VjcmV0"},
        },
    )


def make_old(api_server, document, **age):
    """Let an object look as if it had been made a while ago."""
    then = (datetime.now(UTC) - timedelta(**age)).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata = document["metadata"]
    plural = f"{document['kind'].lower()}s"

    def change(pod):
        pod["metadata"]["creationTimestamp"] = then
        for status in pod.get("status", {}).get("containerStatuses", ()):
            for state in status["state"].values():
                for key in ("startedAt", "finishedAt"):
                    if key in state:
                        state[key] = then

    return api_server.store.update(plural, metadata["namespace"], metadata["name"], change)


@pytest.fixture
def missed(session, new_callback):
    """Makes callbacks whose deadline was missed a while ago, deadline row and all."""
    from airflow.models.callback import Callback
    from airflow.models.deadline import Deadline
    from airflow.sdk import SyncCallback
    from airflow.utils.session import create_session

    def make(ago=10.0, **options):
        callback_id = new_callback(**options)
        with create_session(scoped=False) as own:
            callback = own.get(Callback, UUID(callback_id))
            run_id = int(callback.data["dag_run_id"])
            deadline = Deadline(
                datetime.now(UTC) - timedelta(seconds=ago),
                SyncCallback("no.such"),
                run_id,
                None,
                dag_id="reports",
            )
            deadline.callback = callback
            deadline.missed = True
            own.add(deadline)
        return callback_id

    return make


# help -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_help_shows_every_word(airflow, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "200")
    shown = "".join(airflow(command.name, "--help").out.split())
    in_group = "".join(airflow("--help").out.split())
    assert "".join(command.help.split()) in in_group
    for text in (command.description, *(str(argument.kwargs["help"]) for argument in command.args)):
        assert "".join(text.split()) in shown


# list -------------------------------------------------------------------------------------------------


def test_list_shows_callback_with_its_pod(airflow, api_server, missed):
    callback_id = missed(ago=90, state="running")
    api_server.node.start(make_pod(api_server, callback_id, 2))
    done = airflow("list", "-o", "json")
    assert done.status == 0
    [row] = done.json
    assert row.pop("age_seconds") == pytest.approx(90, abs=60)
    assert row.pop("run_id").startswith("manual__")
    assert row == {
        "callback_id": callback_id,
        "state": "running",
        "dag_id": "reports",
        "path": "alerts.notify",
        "team": None,
        "executor": None,
        "attempt": 2,
        "pod": pod_name(callback_id, 2),
        "namespace": "airflow",
        "pod_phase": "Running",
        "node": "node-1",
        "scheduler": "7",
        "reason": None,
        "stuck": True,
        "stuck_reason": "no scheduler is alive",
    }


@pytest.mark.parametrize("output", ["table", "plain", "json", "yaml"])
def test_every_output_has_the_whole_id(airflow, api_server, missed, output):
    callback_id = missed(state="failed")
    set_row(callback_id, output="ran and failed: ValueError: [red]no[/red] markup")
    done = airflow("list", "--output", output)
    assert done.status == 0
    assert callback_id in done.out
    assert "[red]no[/red] markup" in done.out.replace("\n", " ")
    if output == "yaml":
        assert yaml.safe_load(done.out)[0]["callback_id"] == callback_id


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(["--state", "failed"], {"old_failed"}, id="state"),
        pytest.param(["--state", "failed", "--state", "pending"], {"old_failed", "pending"}, id="two-states"),
        pytest.param(["--state", "scheduled"], {"scheduled"}, id="scheduled-when-asked"),
        pytest.param([], {"old_failed", "pending", "other_dag"}, id="scheduled-left-out"),
        pytest.param(["--dag-id", "billing"], {"other_dag"}, id="dag"),
        pytest.param(["--run-id", "run-x"], {"pending"}, id="run"),
        pytest.param(["--older-than", "1h"], {"old_failed"}, id="older"),
        pytest.param(["--newer-than", "1h30m"], {"pending", "other_dag"}, id="newer"),
        pytest.param(["--dag-id", "no-such-dag"], set(), id="nothing"),
    ],
)
def test_list_filters(airflow, api_server, missed, arguments, expected):
    ids = {
        missed(ago=7200, state="failed"): "old_failed",
        missed(run_id="run-x"): "pending",
        missed(state="scheduled"): "scheduled",
        missed(dag_id="billing", state="success"): "other_dag",
    }
    done = airflow("list", *arguments, "-o", "json")
    assert {ids[row["callback_id"]] for row in done.json} == expected


def test_list_leaves_out_callbacks_of_other_executors_and_shows_those_of_none(
    airflow, new_callback, kube_environment
):
    kube_environment(CORE__EXECUTOR="LocalExecutor,airflow_kubernetes_callbacks.KubernetesExecutor")
    new_callback()
    ours = new_callback(executor="KubernetesExecutor")
    nowhere = new_callback(executor="Celery")
    rows = {row["callback_id"]: row for row in airflow("list", "-o", "json").json}
    assert set(rows) == {ours, nowhere}
    assert rows[nowhere]["stuck_reason"] == "no configured executor answers to 'Celery'"


def test_list_says_that_there_is_more(airflow, api_server, missed):
    newest = [missed() for _ in range(3)][-1]
    done = airflow("list", "--limit", "1", "-o", "json")
    assert [row["callback_id"] for row in done.json] == [newest]
    assert "more than 1" in done.err


def test_list_takes_any_limit(airflow, api_server, missed):
    callback_id = missed()
    done = airflow("list", "--limit", "9" * 20, "-o", "json")
    assert (done.status, done.err) == (0, "")
    assert [row["callback_id"] for row in done.json] == [callback_id]


def test_stuck_callbacks_alone_with_why(airflow, api_server, missed, new_scheduler):
    new_scheduler(start=False)
    missed(state="success")
    missed(ago=1, state="pending")
    stuck = missed(ago=4000, state="pending")
    delete_run(stuck)
    done = airflow("list", "--stuck", "-o", "json")
    assert [row["callback_id"] for row in done.json] == [stuck]
    assert "Dag run was deleted" in done.json[0]["stuck_reason"]
    assert "(stuck)" in airflow("list", "--stuck").out


def delete_run(callback_id):
    from airflow.models.dagrun import DagRun
    from airflow.models.deadline import Deadline
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    with create_session(scoped=False) as session:
        session.execute(delete(Deadline).where(Deadline.callback_id == UUID(callback_id)))
        session.execute(delete(DagRun).where(DagRun.id == int(data_of(callback_id)["dag_run_id"])))


def test_list_without_cluster_shows_rows_and_ends_with_3(airflow, api_server, missed):
    missed(state="running", ago=4000)
    api_server.fail("GET", times=None, status=503, message="etcd is on holiday")
    done = airflow("list", "-o", "json")
    assert done.status == 3
    assert done.json[0]["pod"] is None
    assert "503: etcd is on holiday" in done.err


def test_list_begins_anew_when_its_pages_expire(airflow, api_server, missed, monkeypatch):
    monkeypatch.setattr("airflow_kubernetes_callbacks.pod_client.LIST_PAGE_SIZE", 2)
    ids = [missed(state="running") for _ in range(5)]
    for callback_id in ids:
        make_pod(api_server, callback_id)
    fault = api_server.fail("LIST", "continue=", status=410, reason="Expired", message="too old")
    done = airflow("list", "-o", "json")
    assert fault.hits == 1
    assert {row["pod"] for row in done.json} == {pod_name(callback_id, 1) for callback_id in ids}
    assert done.status == 0


@pytest.mark.parametrize("age", ["soon", ""])
@pytest.mark.parametrize("option", ["--older-than", "--newer-than"])
def test_age_that_cannot_be_read_is_wrong_usage_whatever_else_is_wrong(
    airflow, kube_environment, option, age
):
    kube_environment(CORE__EXECUTOR="no.such.Executor")
    done = airflow("list", option, age)
    assert done.status == 2
    assert f"{age!r} is not an age" in done.err
    assert "no.such.Executor" not in done.err


@pytest.mark.parametrize(
    ("state", "words"),
    [("queued", "Whether a callback is stuck is not known."), ("success", "No callback is stuck.")],
)
def test_stuck_callbacks_are_not_denied_without_the_cluster(
    airflow, api_server, missed, new_scheduler, state, words
):
    new_scheduler(start=False)
    missed(state=state, ago=4000)
    api_server.fail("GET", times=None, status=503)
    done = airflow("list", "--stuck")
    assert done.status == 3
    assert done.err.splitlines()[-1] == words


def test_deployment_without_this_executor_is_told_what_to_write(airflow, kube_environment):
    kube_environment(CORE__EXECUTOR="LocalExecutor")
    done = airflow("list")
    assert done.status == 1
    assert "KubernetesExecutor:airflow_kubernetes_callbacks.KubernetesExecutor" in done.err


@pytest.fixture
def no_tables(monkeypatch):
    """A database in which 'airflow db migrate' has not been run."""
    from airflow import settings
    from sqlalchemy import create_engine
    from sqlalchemy.orm import scoped_session, sessionmaker

    make_session = sessionmaker(create_engine("sqlite://"))
    monkeypatch.setattr(settings, "Session", scoped_session(make_session))
    monkeypatch.setattr(settings, "NonScopedSession", make_session)


@pytest.mark.parametrize(
    "arguments",
    [["list"], ["show", "0123abcd"], ["logs", "0123abcd"], ["retry", "0123abcd"], ["gc"]],
    ids=lambda arguments: arguments[0],
)
def test_database_without_tables_is_said_in_one_line(airflow, api_server, no_tables, arguments):
    make_pod(api_server, str(uuid4()))
    done = airflow(*arguments)
    assert done.status == 1
    told = [line for line in done.err.splitlines() if line.startswith("The database")]
    assert len(told) == 1
    assert "no such table" in told[0]
    assert "airflow db migrate" in told[0]
    assert "SELECT" not in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "executor", ["no_such.module.Executor", "airflow_kubernetes_callbacks.NoSuchExecutor", "NoSuchExecutor"]
)
@pytest.mark.parametrize("command", ["list", "check"])
def test_executor_that_cannot_be_loaded_is_said(airflow, kube_environment, executor, command):
    kube_environment(CORE__EXECUTOR=executor)
    done = airflow(command, "-o", "plain")
    assert done.status == 1
    assert f"[core] executor = {executor} cannot be loaded" in done.out + done.err


# show -------------------------------------------------------------------------------------------------


def test_show_tells_the_story_in_order(airflow, api_server, missed):
    callback_id = missed(state="failed")
    set_row(callback_id, output="ran and failed: ValueError: no such channel")
    pod = make_pod(api_server, callback_id)
    api_server.node.bind(pod)
    api_server.node.start(pod)
    api_server.node.finish_callback(pod, "ValueError: no such channel")
    api_server.store.create(
        "events",
        "airflow",
        {
            "metadata": {"name": "e1"},
            "involvedObject": {"kind": "Pod", "name": pod["metadata"]["name"]},
            "reason": "Pulled",
            "message": "Container image already present",
            "count": 1,
        },
    )
    done = airflow("show", callback_id, "-o", "json")
    assert done.status == 0
    what = [step["what"] for step in done.json["timeline"]]
    told = [
        "deadline missed",
        "noticed",
        "queued",
        "pod created",
        "running",
        "pod failed",
        "recorded as failed",
    ]
    assert [word for word in what if word in told] == told
    assert "event Pulled" in what
    assert done.json["callback"]["output"] == "ran and failed: ValueError: no such channel"
    assert done.json["callback"]["kwargs"] == ["text"]
    assert done.json["pods"][0]["outcome"] == "failed"
    people = airflow("show", callback_id[:18])
    assert "no such channel" in people.out
    assert "recorded as failed" in people.out


@pytest.mark.parametrize("how", ["whole", "upper case", "prefix", "pod", "namespace and pod"])
def test_callback_is_found_by(airflow, new_callback, how):
    callback_id = new_callback()
    given = {
        "whole": callback_id,
        "upper case": callback_id.upper(),
        "prefix": callback_id[:23],
        "pod": pod_name(callback_id, 3),
        "namespace and pod": f"airflow/{pod_name(callback_id, 1)}",
    }[how]
    assert airflow("show", given, "-o", "json").json["callback"]["id"] == callback_id


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param(str(uuid4()), "There is no executor callback", id="unknown"),
        pytest.param("0123456789ab", "There is no executor callback", id="unknown-prefix"),
    ],
)
def test_unknown_callback_is_said(airflow, given, message):
    done = airflow("show", given)
    assert done.status == 1
    assert message in done.err


@pytest.mark.parametrize("command", ["show", "logs", "pod", "cancel", "retry"])
@pytest.mark.parametrize("given", ["xyz", "01"])
def test_text_that_can_be_no_id_is_wrong_usage(airflow, command, given):
    done = airflow(command, given)
    assert done.status == 2
    assert f"{given!r} is no callback" in done.err


def test_prefix_of_several_callbacks_names_them(airflow, new_callback):
    ids = [new_callback(), new_callback()]
    done = airflow("show", ids[0][:8])
    assert done.status == 1
    assert all(callback_id in done.err for callback_id in ids)


def test_show_of_a_callback_whose_pod_is_gone_reads_what_events_are_left(airflow, api_server, missed):
    callback_id = missed(state="success")
    api_server.store.create(
        "events",
        "airflow",
        {
            "metadata": {"name": "e2"},
            "involvedObject": {"kind": "Pod", "name": pod_name(callback_id, 1)},
            "reason": "Started",
            "message": "Started container base",
            "firstTimestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        },
    )
    done = airflow("show", callback_id, "-o", "json")
    [running] = [step for step in done.json["timeline"] if step["what"] == "running"]
    assert pod_name(callback_id, 1) in running["detail"]


def make_event(api_server, pod, reason, message="", **more):
    return api_server.store.create(
        "events",
        "airflow",
        {
            "metadata": {"name": f"{pod}.{reason}"},
            "involvedObject": {"kind": "Pod", "name": pod},
            "reason": reason,
            "message": message,
            **more,
        },
    )


def test_show_tells_of_earlier_attempts_whose_pods_are_gone(airflow, api_server, missed):
    callback_id = missed(state="running", kubernetes_pod={"attempt": 2})
    at = datetime.now(UTC)
    first, second = pod_name(callback_id, 1), pod_name(callback_id, 2)
    make_event(
        api_server,
        first,
        "Scheduled",
        f"assigned airflow/{first}",
        eventTime=at.strftime("%Y-%m-%dT%H:%M:%S.53Z"),
    )
    make_event(
        api_server,
        first,
        "Started",
        "Started container base",
        firstTimestamp=at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    )
    make_event(api_server, second, "Started", "Started container base")
    api_server.node.start(make_pod(api_server, callback_id, 2))
    done = airflow("show", callback_id, "-o", "json")
    told = [
        (step["what"], first in step["detail"])
        for step in done.json["timeline"]
        if step["what"] in ("scheduled", "running", "pod created")
    ]
    assert told == [
        ("scheduled", True), ("running", True),
        ("pod created", False), ("scheduled", False), ("running", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [["show"], ["cancel", "--dry-run"], ["retry", "--force"], ["list"]],
    ids=lambda arguments: arguments[0],
)
def test_path_that_airflow_makes_up_is_shown_short_to_people_and_whole_to_programs(
    airflow, session, missed, monkeypatch, arguments
):
    monkeypatch.setenv("COLUMNS", "300")
    prefix = f"unusual_prefix_{'0a1b' * 10}_"
    callback_id = missed(state="success", path=f"{prefix}late_report.notify")
    command, *options = arguments
    ids = [] if command == "list" else [callback_id]
    people = airflow(command, *ids, *options)
    assert "late_report.notify" in people.out
    assert prefix not in people.out + people.err
    assert prefix in airflow(command, *ids, *options, "-o", "json").out


# logs -------------------------------------------------------------------------------------------------


def test_logs_of_a_pod_are_made_readable(airflow, api_server, missed):
    callback_id = missed(state="running")
    pod = api_server.node.start(make_pod(api_server, callback_id))
    line = {
        "timestamp": "2026-06-01T10:00:00.123456Z",
        "level": "error",
        "event": "Callback failed",
        "error": TOKEN,
    }
    api_server.logs[pod["metadata"]["name"]] = (json.dumps(line) + "\nplain words\n").encode()
    done = airflow("logs", callback_id)
    assert done.status == 0
    assert done.out.splitlines() == [
        "2026-06-01 10:00:00.123 ERROR    Callback failed error=***",
        "plain words",
    ]
    assert _json(airflow("logs", callback_id, "--raw").out.splitlines()[0])["error"] == "***"


def test_logs_of_a_pod_that_is_gone_come_from_the_log_folder(airflow, missed, tmp_path):
    callback_id = missed(state="success", run_id="run:1")
    kept = tmp_path / "logs" / "executor_callbacks" / "reports" / "run:1" / callback_id
    kept.parent.mkdir(parents=True)
    kept.write_text("one\ntwo\nthree\n")
    done = airflow("logs", callback_id, "--tail", "2")
    assert done.status == 0
    assert done.out == "two\nthree\n"
    assert done.err == f"The pod is gone; this is from {kept}.\n"


def test_logs_come_from_remote_storage_where_there_is_one(airflow, missed, monkeypatch):
    class Remote:
        def read(self, path, ti):
            assert path.startswith("executor_callbacks/reports/")
            return ["s3://bucket"], ["first\nsecond\n"]

    monkeypatch.setattr("airflow.logging_config.get_remote_task_log", Remote)
    done = airflow("logs", missed(state="success"))
    assert done.out == "first\nsecond\n"


def test_no_log_at_all_is_said(airflow, api_server, missed):
    callback_id = missed(state="queued")
    api_server.node.wait(make_pod(api_server, callback_id), "ImagePullBackOff", "no such image")
    done = airflow("logs", callback_id)
    assert done.status == 1
    assert "has not started" in done.err
    assert "no such image" in done.err


@pytest.fixture
def retried(api_server, missed, tmp_path):
    """A callback whose first run failed; the second one's pod is there. Returns its id and the log folder."""
    callback_id = missed(state="running", run_id="run1", kubernetes_pod={"attempt": 2})
    folder = tmp_path / "logs/executor_callbacks/reports/run1"
    folder.mkdir(parents=True)
    (folder / f"{callback_id}.before-attempt-2").write_text("from the first run\n")
    pod = api_server.node.start(make_pod(api_server, callback_id, 2))
    api_server.logs[pod["metadata"]["name"]] = b"from the second run\n"
    return callback_id, folder


@pytest.mark.parametrize(
    ("attempt", "status", "out", "told"),
    [
        pytest.param("", 0, "from the second run\n", "This is attempt 2.", id="no-attempt"),
        pytest.param("-2", 0, "from the second run\n", "This is attempt 2.", id="last"),
        pytest.param(
            "-1", 0, "from the first run\n", "The pod of attempt 1 is gone; this is from", id="earlier"
        ),
        pytest.param("-7", 1, "", "has had no attempt 7; its last is 2.", id="never-launched"),
        pytest.param("-0", 1, "", "has had no attempt 0", id="nought"),
    ],
)
def test_log_is_that_of_the_attempt_in_the_pods_name(airflow, retried, attempt, status, out, told):
    callback_id, _ = retried
    done = airflow("logs", f"callback-{callback_id}{attempt}" if attempt else callback_id)
    assert (done.status, done.out) == (status, out)
    assert told in done.err


def test_log_of_an_earlier_attempt_that_was_not_kept_is_no_other_ones(airflow, retried):
    callback_id, folder = retried
    (folder / f"{callback_id}.before-attempt-2").rename(folder / callback_id)
    done = airflow("logs", pod_name(callback_id, 1), "--follow")
    assert (done.status, done.out) == (1, "")
    assert "There is no log of attempt 1" in done.err


def test_pod_is_that_of_the_attempt_in_its_name(airflow, retried):
    callback_id, _ = retried
    assert airflow("pod", pod_name(callback_id, 2)).status == 0
    done = airflow("pod", pod_name(callback_id, 1))
    assert (done.status, done.out) == (1, "")
    assert "has no pod of attempt 1" in done.err


@pytest.mark.parametrize("command", ["logs", "pod"])
def test_without_the_cluster_there_is_no_answer(airflow, api_server, missed, command):
    api_server.fail("GET", times=None, status=503, message="etcd is on holiday")
    done = airflow(command, missed(state="running"))
    assert (done.status, done.out) == (3, "")
    assert "etcd is on holiday" in done.err


def test_kept_log_without_the_cluster_may_not_be_the_last_one(airflow, api_server, retried):
    callback_id, folder = retried
    (folder / callback_id).write_text("what was kept\n")
    api_server.fail("GET", times=None, status=503, message="etcd is on holiday")
    done = airflow("logs", callback_id)
    assert (done.status, done.out) == (3, "what was kept\n")
    assert "etcd is on holiday; this is from" in done.err


# pod --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_pod_is_printed_without_its_workload(airflow, api_server, missed, output):
    callback_id = missed(state="running")
    make_pod(api_server, callback_id, managedFields=[{"manager": "x"}])
    done = airflow("pod", callback_id, "-o", output)
    document = yaml.safe_load(done.out)
    assert document["metadata"]["name"] == pod_name(callback_id, 1)
    assert "managedFields" not in document["metadata"]
    assert TOKEN not in done.out
    assert "not shown" in document["spec"]["containers"][0]["args"][-1]


def test_rendered_pod_is_what_a_launch_would_create(airflow, api_server, new_callback, new_scheduler):
    callback_id = new_callback(kwargs={"password": "hunter2"})
    done = airflow("pod", callback_id, "--render")
    assert done.status == 0
    assert api_server.count("POST", "/pods$") == 0
    rendered = yaml.safe_load(done.out)
    scheduler = new_scheduler()
    [pod] = scheduler.until(api_server.pods, "pod is created")
    for document in (rendered, pod):
        document["metadata"]["labels"].pop("airflow-worker")
    assert rendered["spec"]["containers"] == pod["spec"]["containers"]
    assert rendered["metadata"]["labels"] == pod["metadata"]["labels"]
    assert rendered["metadata"]["annotations"] == pod["metadata"]["annotations"]
    assert "hunter2" not in done.out + done.err
    assert "bytes, goes in a Secret" in done.err


def test_pod_of_a_callback_without_one(airflow, new_callback):
    done = airflow("pod", new_callback())
    assert done.status == 1
    assert "--render" in done.err


# cancel -----------------------------------------------------------------------------------------------


def test_cancelled_callback_that_waits_for_the_scheduler_never_starts(
    airflow, api_server, new_callback, new_scheduler
):
    callback_id = new_callback()
    done = airflow("cancel", callback_id, "--reason", "not today.", "-o", "json")
    assert done.status == 0
    assert done.json[0]["done"] is True
    assert state_of(callback_id) == "failed"
    assert output_of(callback_id).endswith(": not today.")
    assert output_of(callback_id).startswith("Cancelled by ")
    new_scheduler().settle()
    assert api_server.count("POST", "/pods$") == 0


def test_cancelled_callback_that_is_queued_in_a_live_scheduler_never_starts(
    airflow, api_server, new_callback, new_scheduler
):
    scheduler = new_scheduler(CORE__PARALLELISM="1")
    first = new_callback()
    scheduler.until(api_server.pods, "first pod")
    waiting = new_callback()
    set_row(waiting, state="queued")
    scheduler.settle(2)
    assert len(api_server.pods()) == 1
    assert airflow("cancel", waiting).status == 0
    api_server.node.finish(api_server.node.start(api_server.pods()[0]))
    pod_tells_api_that_it_runs(first)
    scheduler.until(lambda: state_of(first) == "success", "first is done")
    scheduler.settle(3)
    assert state_of(waiting) == "failed"
    assert api_server.count("POST", "/pods$") == 1


def test_cancelled_callback_that_runs_gets_its_grace_period_and_stays_cancelled(
    airflow, api_server, new_callback, new_scheduler
):
    scheduler = new_scheduler()
    callback_id = new_callback()
    [pod] = scheduler.until(api_server.pods, "pod is created")
    pod_tells_api_that_it_runs(callback_id)
    api_server.node.start(pod)
    scheduler.until(lambda: state_of(callback_id) == "running", "runs")
    done = airflow("cancel", callback_id, "-o", "json")
    assert "is being ended" in done.json[0]["what"]
    [pod] = api_server.pods()
    assert pod["metadata"]["deletionTimestamp"]
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
    assert "may have taken effect" in output_of(callback_id)
    scheduler.settle(2)
    api_server.node.finish(pod, 1)
    scheduler.settle(2)
    api_server.node.remove(pod)
    scheduler.settle(2)
    assert state_of(callback_id) == "failed"
    assert output_of(callback_id).startswith("Cancelled by ")
    assert scheduler.running == set()


def test_event_that_was_under_way_does_not_undo_a_cancellation(
    airflow, api_server, new_callback, new_scheduler
):
    scheduler = new_scheduler()
    callback_id = new_callback()
    [pod] = scheduler.until(api_server.pods, "pod is created")
    pod_tells_api_that_it_runs(callback_id)
    api_server.node.start(pod)
    scheduler.until(lambda: state_of(callback_id) == "running", "runs")
    airflow("cancel", callback_id)
    set_row(callback_id, state="running")  # what core writes, without looking, for an event that was buffered
    scheduler.resync()
    scheduler.until(lambda: state_of(callback_id) == "failed", "failed again", resync=True)
    assert output_of(callback_id).startswith("Cancelled by ")


def test_scheduler_removes_the_pod_that_the_command_could_not(
    airflow, api_server, new_callback, new_scheduler
):
    scheduler = new_scheduler()
    callback_id = new_callback()
    scheduler.until(api_server.pods, "pod is created")
    api_server.fail("DELETE", status=403, reason="Forbidden", message="no")
    done = airflow("cancel", callback_id, "-o", "json")
    assert "left to the scheduler" in done.json[0]["what"]
    scheduler.until(lambda: not api_server.pods(), "pod is removed", resync=True)


def test_cancel_says_what_it_would_do(airflow, api_server, missed):
    callback_id = missed(state="running")
    api_server.node.start(make_pod(api_server, callback_id))
    done = airflow("cancel", callback_id, "--dry-run", "-o", "json")
    assert done.json[0]["what"] == (
        f"would fail it; end pod airflow/{pod_name(callback_id, 1)} with its grace period"
    )
    assert (done.status, done.json[0]["done"]) == (0, None)
    assert state_of(callback_id) == "running"
    assert api_server.count("DELETE") == 0


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ("success", "it has ended"),
        ("failed", "it has ended"),
        ("scheduled", "its deadline is not missed yet"),
    ],
)
def test_what_cannot_be_cancelled_is_said_and_the_others_are(airflow, missed, state, why):
    refused, other = missed(state=state), missed()
    done = airflow("cancel", refused, other, "-o", "json")
    assert done.status == 1
    assert [row["done"] for row in done.json] == [False, True]
    assert done.json[0]["what"].startswith(why)
    assert state_of(refused) == state


@pytest.mark.parametrize("command", ["cancel", "retry"])
def test_dry_run_ends_with_1_if_something_could_not_be_done(airflow, missed, command):
    scheduled = missed(state="scheduled")
    done = airflow(command, scheduled, "--dry-run", "-o", "json")
    assert (done.status, done.json[0]["done"]) == (1, False)


def test_nothing_is_cancelled_if_one_of_the_ids_is_unknown(airflow, missed):
    callback_id = missed()
    assert airflow("cancel", callback_id, str(uuid4())).status == 1
    assert state_of(callback_id) == "pending"


def test_cancellation_is_in_the_audit_log_and_in_the_story(airflow, missed, session):
    from airflow.models.log import Log
    from sqlalchemy import select

    callback_id = missed()
    airflow("cancel", callback_id, "--reason", "wrong channel")
    entry = session.scalars(select(Log).where(Log.event == "callback cancelled")).one()
    assert entry.dag_id == "reports"
    assert callback_id in entry.extra
    timeline = airflow("show", callback_id, "-o", "json").json["timeline"]
    assert [step["what"] for step in timeline][-2:] == ["callback cancelled", "recorded as failed"]


def test_token_in_a_reason_is_neither_in_the_row_nor_in_the_audit_log(airflow, missed, session, monkeypatch):
    from airflow.models.log import Log
    from sqlalchemy import select

    callback_id = missed()
    arguments = ["cancel", callback_id, "--reason", f"it had {TOKEN}"]
    monkeypatch.setattr("sys.argv", ["airflow", "kubernetes-callbacks", *arguments])
    assert airflow(*arguments).status == 0
    assert output_of(callback_id).endswith(": it had ***.")
    entries = {entry.event: entry.extra for entry in session.scalars(select(Log))}
    assert set(entries) == {"callback cancelled", "cli_cancel_callbacks"}
    for text in entries.values():
        assert callback_id in text
        assert "it had ***" in text
        assert TOKEN not in text


# retry ------------------------------------------------------------------------------------------------


def test_retried_callback_runs_again_under_a_new_name(airflow, api_server, new_callback, new_scheduler):
    scheduler = new_scheduler()
    callback_id = new_callback()
    [pod] = scheduler.until(api_server.pods, "pod is created")
    pod_tells_api_that_it_runs(callback_id)
    api_server.node.finish_callback(api_server.node.start(pod), "ValueError: no")
    scheduler.until(lambda: state_of(callback_id) == "failed", "failed")
    done = airflow("retry", callback_id, "--yes", "-o", "json")
    assert done.status == 0, done.json
    assert state_of(callback_id) == "pending"
    [pod] = scheduler.until(
        lambda: [p for p in api_server.pods() if p["metadata"]["name"].endswith("-2")], "again"
    )
    pod_tells_api_that_it_runs(callback_id)
    api_server.node.finish(api_server.node.start(pod))
    scheduler.until(lambda: state_of(callback_id) == "success", "success")
    names = [request.body["metadata"]["name"] for request in api_server.made("POST", "/pods$")]
    assert names == [pod_name(callback_id, 1), pod_name(callback_id, 2)]


def test_launches_after_a_retry_are_counted_anew(airflow, api_server, new_callback, new_scheduler):
    scheduler = new_scheduler(KUBERNETES_CALLBACKS__LAUNCH_RETRIES="1")
    callback_id = new_callback(state="failed", kubernetes_pod={"attempt": 5, "pod": "airflow/x"})
    set_row(callback_id, output="could not start: no image")
    assert airflow("retry", callback_id).status == 0
    [pod] = scheduler.until(api_server.pods, "pod is created")
    assert pod["metadata"]["name"] == pod_name(callback_id, 6)
    api_server.node.fail(pod, "UnexpectedAdmissionError", "Pod was rejected: no devices")
    scheduler.until(
        lambda: [p for p in api_server.pods() if p["metadata"]["name"].endswith("-7")], "launched again"
    )
    assert state_of(callback_id) == "queued"


@pytest.mark.parametrize(
    ("output", "asks"),
    [
        pytest.param("Could not start: FailedScheduling: no room", False, id="never-began"),
        pytest.param("Pod x was deleted. (launched 4 times; the callback never began)", False, id="given-up"),
        pytest.param("Cancelled by somebody.", False, id="cancelled-while-waiting"),
        pytest.param(
            "Cancelled by somebody. The callback was running and may have taken effect.", True, id="cancelled"
        ),
        pytest.param("Ran and failed: ValueError: no", True, id="ran"),
        pytest.param("Ran and failed: OSError: the pager could not start", True, id="ran-and-says-so"),
        pytest.param("Ran and failed: OSError: the pager never began", True, id="ran-and-says-that"),
        pytest.param(None, True, id="not-known"),
    ],
)
def test_retry_asks_where_the_callback_may_have_run(airflow, missed, output, asks):
    callback_id = missed(state="failed")
    set_row(callback_id, output=output)
    without_answer = airflow("retry", callback_id, "-o", "json")
    assert ("Careful" in without_answer.err) is asks
    assert (without_answer.status == 1) is asks
    if asks:
        assert airflow("retry", callback_id, answer="n\n").status == 1
        assert state_of(callback_id) == "failed"
        assert airflow("retry", callback_id, answer="y\n").status == 0
    assert state_of(callback_id) == "pending"
    assert output_of(callback_id) is None


def test_retry_says_what_it_would_do(airflow, api_server, missed):
    callback_id = missed(state="failed")
    api_server.node.finish(api_server.node.start(make_pod(api_server, callback_id, 3)), 1)
    done = airflow("retry", callback_id, "--dry-run", "-o", "json")
    assert done.status == 0
    assert done.json[0]["done"] is None
    assert done.json[0]["what"].startswith(
        f"would delete pod airflow/{pod_name(callback_id, 3)}; hand it out again, as attempt 4 (careful: "
    )
    assert state_of(callback_id) == "failed"
    assert len(api_server.pods()) == 1


def test_retry_deletes_kept_pods_first_finalizer_or_not(airflow, api_server, missed):
    callback_id = missed(state="failed")
    pod = make_pod(api_server, callback_id, finalizers=["airflow-kubernetes-callbacks/result"])
    api_server.node.finish(api_server.node.start(pod), 1)
    assert airflow("retry", callback_id, "--yes").status == 0
    assert api_server.pods() == []
    assert data_of(callback_id)["kubernetes_pod"]["attempt"] == 2


def test_retry_keeps_the_log_of_the_run_before_and_makes_room_for_the_next(
    airflow, api_server, missed, tmp_path
):
    callback_id = missed(state="failed", run_id="run1")
    pod = make_pod(
        api_server,
        callback_id,
        annotations={"callback_id": callback_id, "dag_id": "reports", "run_id": "run1"},
    )
    api_server.node.finish(api_server.node.start(pod), 1)
    api_server.logs[pod["metadata"]["name"]] = b"from the pod\n"
    folder = tmp_path / "logs/executor_callbacks/reports/run1"
    assert airflow("retry", callback_id, "--yes").status == 0
    assert [path.name for path in folder.iterdir()] == [f"{callback_id}.before-attempt-2"]
    assert (folder / f"{callback_id}.before-attempt-2").read_text() == "from the pod\n"
    set_row(callback_id, state="failed")
    (folder / callback_id).write_text("from the scheduler")
    assert airflow("retry", callback_id, "--yes").status == 0
    assert (folder / f"{callback_id}.before-attempt-3").read_text() == "from the scheduler"
    assert not (folder / callback_id).exists()


def test_retry_gives_up_on_a_pod_that_does_not_go(airflow, api_server, missed):
    callback_id = missed(state="failed")
    pod = make_pod(api_server, callback_id, finalizers=["somebody/else"])
    api_server.node.finish(api_server.node.start(pod), 1)
    done = airflow("retry", callback_id, "--yes", "--wait", "0", "-o", "json")
    assert done.status == 1
    assert "is not gone" in done.json[0]["what"]
    assert state_of(callback_id) == "failed"


@pytest.mark.parametrize(
    ("state", "pod", "arguments", "why"),
    [
        pytest.param("success", None, [], "it succeeded; give --force", id="success"),
        pytest.param("pending", None, [], "its state is pending", id="pending"),
        pytest.param("running", "running", ["--force"], "it is running and has a pod", id="running-with-pod"),
        pytest.param("failed", "running", [], "its pod", id="cancelled-in-its-grace-period"),
    ],
)
def test_retry_refuses(airflow, api_server, missed, state, pod, arguments, why):
    callback_id = missed(state=state)
    if pod:
        api_server.node.start(make_pod(api_server, callback_id))
    done = airflow("retry", callback_id, "--yes", *arguments, "-o", "json")
    assert done.status == 1
    assert done.json[0]["what"].startswith(why)
    assert state_of(callback_id) == state


def test_retry_of_success_by_force_and_of_running_without_pod(airflow, missed):
    forced, lost = missed(state="success"), missed(state="running")
    done = airflow("retry", forced, lost, "--yes", "--force", "-o", "json")
    assert [row["done"] for row in done.json] == [True, True]
    assert "may have taken effect" in done.err
    assert state_of(forced) == state_of(lost) == "pending"


def test_retry_refuses_without_a_dag_run_and_without_the_cluster(airflow, api_server, missed):
    orphan = missed(state="failed")
    delete_run(orphan)
    assert "Dag run was deleted" in airflow("retry", orphan, "--yes", "-o", "json").json[0]["what"]
    api_server.fail("GET", times=None, status=503)
    done = airflow("retry", missed(state="failed"), "--yes", "-o", "json")
    assert "whether it has a pod is not known" in done.json[0]["what"]


# gc ---------------------------------------------------------------------------------------------------


@pytest.fixture
def leftovers(api_server, missed):
    """Pods in every situation, by what they are."""
    ended, active, foreign = missed(state="success"), missed(state="queued"), str(uuid4())
    node = api_server.node
    pods = {
        "finished": node.finish(node.start(make_pod(api_server, ended, 1))),
        "running": node.start(make_pod(api_server, ended, 2)),
        "never started": make_pod(api_server, ended, 3),
        "active": node.finish(node.start(make_pod(api_server, active))),
        "foreign": node.finish(node.start(make_pod(api_server, foreign))),
    }
    for pod in pods.values():
        make_old(api_server, pod, hours=2)
    pods["young"] = node.finish(node.start(make_pod(api_server, ended, 4)))
    make_old(api_server, make_secret(api_server, ended, 9), hours=2)
    make_old(api_server, make_secret(api_server, ended, 2), hours=2)
    return {pod["metadata"]["name"]: what for what, pod in pods.items()}


def kept(api_server, leftovers):
    return {leftovers[pod["metadata"]["name"]] for pod in api_server.pods()}


def test_gc_removes_leftovers_only(airflow, api_server, leftovers):
    done = airflow("gc", "--yes", "-o", "json")
    assert done.status == 0
    assert kept(api_server, leftovers) == {"running", "active", "young"}
    assert len(api_server.secrets()) == 1  # that of the running pod
    assert {row["kind"] for row in done.json} == {"pod", "secret"}
    assert all(row["done"] for row in done.json)


def test_gc_keeps_the_log_of_a_pod_that_has_run(airflow, api_server, missed, tmp_path):
    ended, foreign = missed(state="failed"), str(uuid4())
    for callback_id in (ended, foreign):
        annotations = {"callback_id": callback_id, "dag_id": "reports", "run_id": "run1"}
        pod = make_pod(api_server, callback_id, annotations=annotations)
        make_old(api_server, api_server.node.finish(api_server.node.start(pod), 1), hours=2)
        api_server.logs[pod["metadata"]["name"]] = b"what it said\n"
    assert airflow("gc", "--yes").status == 0
    assert not api_server.pods()
    [kept_log] = (tmp_path / "logs/executor_callbacks/reports/run1").iterdir()
    assert (kept_log.name, kept_log.read_text()) == (ended, "what it said\n")


def test_gc_keeps_a_log_with_its_tokens_masked(airflow, api_server, missed, tmp_path):
    ended = missed(state="failed")
    pod = make_pod(
        api_server, ended, annotations={"callback_id": ended, "dag_id": "reports", "run_id": "run1"}
    )
    make_old(api_server, api_server.node.finish(api_server.node.start(pod), 1), hours=2)
    api_server.logs[pod["metadata"]["name"]] = f"token={TOKEN}\n".encode()
    assert airflow("gc", "--yes").status == 0
    [kept_log] = (tmp_path / "logs/executor_callbacks/reports/run1").iterdir()
    assert kept_log.read_text() == "token=***\n"


LONG_DAG_ID = "報告" * 60  # 360 bytes: no file can be called that


def test_gc_goes_on_where_a_log_has_no_place(airflow, api_server, missed, tmp_path):
    ended = missed(state="failed")
    pod = make_pod(
        api_server, ended, annotations={"callback_id": ended, "dag_id": LONG_DAG_ID, "run_id": "run1"}
    )
    make_old(api_server, api_server.node.finish(api_server.node.start(pod), 1), hours=2)
    (tmp_path / "logs/executor_callbacks").mkdir(parents=True)
    done = airflow("gc", "--yes")
    assert done.status == 0
    assert "cannot be kept" in done.err
    assert not api_server.pods()


def test_logs_that_have_no_place_in_the_log_folder_are_said_to_be_none(airflow, missed, tmp_path):
    (tmp_path / "logs/executor_callbacks").mkdir(parents=True)
    done = airflow("logs", missed(state="success", dag_id=LONG_DAG_ID))
    assert done.status == 1
    assert "none was kept" in done.out + done.err


def test_gc_says_what_it_would_remove(airflow, api_server, leftovers):
    done = airflow("gc", "--dry-run", "-o", "json")
    assert done.status == 0
    assert {leftovers.get(row["name"], "secret") for row in done.json} == {
        "finished", "never started", "foreign", "secret",
    }  # fmt: skip
    assert api_server.count("DELETE") == 0


def test_gc_keeps_what_may_be_another_airflows_unless_told(airflow, api_server, leftovers):
    done = airflow("gc", "-o", "json")
    assert "another Airflow" in done.err
    assert "foreign" in kept(api_server, leftovers)
    assert "finished" not in kept(api_server, leftovers)
    assert done.status == 0
    airflow("gc", answer="y\n")
    assert "foreign" not in kept(api_server, leftovers)


def test_gc_takes_younger_ones_when_asked(airflow, api_server, leftovers):
    airflow("gc", "--yes", "--older-than", "0s")
    assert kept(api_server, leftovers) == {"running", "active"}


@pytest.mark.parametrize("finalizer", ["airflow-kubernetes-callbacks/result", "somebody/else"])
def test_gc_lets_go_of_a_deleted_pod_that_our_finalizer_keeps(airflow, api_server, missed, finalizer):
    pod = make_pod(api_server, missed(state="success"), finalizers=[finalizer])
    make_old(api_server, api_server.node.finish(api_server.node.start(pod)), hours=2)
    api_server.store.delete("pods", "airflow", pod["metadata"]["name"], {})
    assert len(api_server.pods()) == 1
    done = airflow("gc", "--yes", "-o", "json")
    assert done.status == 0
    if finalizer == "somebody/else":
        assert (done.json, len(api_server.pods())) == ([], 1)
    else:
        assert ([row["done"] for row in done.json], api_server.pods()) == ([True], [])


def test_gc_does_without_the_permission_to_list_secrets(airflow, api_server, leftovers):
    api_server.fail("LIST", "/secrets", times=None, status=403, reason="Forbidden")
    done = airflow("gc", "--yes", "-o", "json")
    assert done.status == 0
    assert "Secrets are not looked at" in done.err
    assert {row["kind"] for row in done.json} == {"pod"}


def test_gc_leaves_a_pod_that_changed_meanwhile(airflow, api_server, leftovers):
    api_server.fail("DELETE", status=409, reason="Conflict", message="object has been modified", times=None)
    done = airflow("gc", "--yes", "-o", "json")
    assert done.status == 0
    assert {row["what"] for row in done.json if row["kind"] == "pod"} == {
        "kept: it has changed in the meantime"
    }


@pytest.fixture
def left_tests(session, api_server, kube_environment):
    """Pods of connection tests in every situation, by what they are."""
    from airflow.models.connection_test import ConnectionTestState

    over, under_way = ConnectionTestState.SUCCESS, ConnectionTestState.RUNNING
    node = api_server.node
    pods = {
        "finished": node.finish(node.start(make_test_pod(api_server, new_test(over)))),
        "kept": node.finish(node.start(make_test_pod(api_server, new_test(over), done=True))),
        "failed": node.fail(make_test_pod(api_server, new_test(ConnectionTestState.FAILED)), "Evicted", ""),
        "never started": make_test_pod(api_server, new_test(over)),
        "running": node.start(make_test_pod(api_server, new_test(over))),
        "under way": node.finish(node.start(make_test_pod(api_server, new_test(under_way)))),
        "foreign": node.finish(node.start(make_test_pod(api_server, str(uuid4())))),
    }
    for pod in pods.values():
        make_old(api_server, pod, hours=2)
    pods["young"] = node.finish(node.start(make_test_pod(api_server, new_test(over))))
    return {pod["metadata"]["name"]: what for what, pod in pods.items()}


def new_test(state):
    """A connection test's row; its id."""
    from airflow.models.connection_test import ConnectionTestRequest
    from airflow.utils.session import create_session

    with create_session(scoped=False) as own:
        row = ConnectionTestRequest(connection_id="files", conn_type="fs", executor=None, queue=None)
        row.state = state
        own.add(row)
        own.flush()
        return str(row.id)


def make_test_pod(api_server, test_id, *, done=False):
    labels = {"airflow-workload-type": "connection-test", "connection-test-owner": "7"}
    if done:
        labels["airflow_executor_done"] = "True"
    return api_server.store.create(
        "pods",
        "airflow",
        {
            "metadata": {
                "name": f"connection-test-{test_id}",
                "labels": labels,
                "annotations": {"connection_test_id": test_id, "connection_id": "files"},
            },
            "spec": {"containers": [{"name": "base", "image": "airflow:3.3.2"}]},
        },
    )


def test_gc_removes_what_connection_tests_have_left(airflow, api_server, left_tests):
    dry = airflow("gc", "--dry-run", "-o", "json")
    gone = {"finished", "kept", "failed", "never started", "foreign"}
    assert {left_tests[row["name"]] for row in dry.json} == gone
    assert api_server.count("DELETE") == 0
    done = airflow("gc", "-o", "json")
    assert "no connection test of this database" in done.err
    assert {left_tests[row["name"]] for row in done.json if row["done"]} == gone - {"foreign"}
    assert airflow("gc", "--yes").status == 0
    assert kept(api_server, left_tests) == {"running", "under way", "young"}


def test_gc_removes_the_secret_of_a_connection_test_without_a_pod(airflow, api_server, left_tests):
    names = [*left_tests, f"connection-test-{new_test('success')}"]
    for name in names:
        secret = {"metadata": {"name": name, "labels": {"airflow-workload-type": "connection-test"}}}
        make_old(api_server, api_server.store.create("secrets", "airflow", secret), hours=2)
    done = airflow("gc", "-o", "json")
    assert [row["name"] for row in done.json if row["kind"] == "secret"] == names[-1:]
    assert len(api_server.secrets()) == len(left_tests)


def test_gc_pages_and_asks_only_for_its_own(airflow, api_server, missed, monkeypatch):
    monkeypatch.setattr("airflow_kubernetes_callbacks.pod_client.LIST_PAGE_SIZE", 50)
    ended = missed(state="failed")
    for number in range(120):
        pod = api_server.node.fail(make_pod(api_server, ended, number + 1), "Evicted", "")
        make_old(api_server, pod, hours=1)
    for _ in range(70):
        make_old(api_server, make_test_pod(api_server, new_test("success")), hours=1)
    api_server.store.create(
        "pods", "airflow", {"metadata": {"name": "task-pod", "labels": {}}, "spec": {"containers": []}}
    )
    assert airflow("gc").status == 0
    assert [pod["metadata"]["name"] for pod in api_server.pods()] == ["task-pod"]
    lists = api_server.made("LIST")
    assert {request.query["labelSelector"] for request in lists} == {
        "airflow-workload-type=callback",
        "airflow-workload-type=connection-test",
        "airflow-workload-type in (callback,connection-test)",
    }
    assert len(lists) == 3 + 2 + 1  # pages of pods, and one of Secrets


def test_gc_with_nothing_to_do(airflow, api_server):
    done = airflow("gc")
    assert done.status == 0
    assert "Nothing is left over" in done.err


def test_gc_does_not_deny_leftovers_without_the_cluster(airflow, api_server):
    api_server.fail("LIST", times=None, status=503)
    done = airflow("gc")
    assert done.status == 3
    assert "What is left over is not known." in done.err
    assert "Nothing is left over" not in done.err


# check ------------------------------------------------------------------------------------------------


@pytest.fixture
def healthy(api_server):
    """The parts of an API server that only ``check`` asks for."""
    api_server.fail("GET", "^/api/v1/namespaces/airflow$", times=None, status=200, body=b"{}")
    api_server.fail("POST", "dryRun=All", times=None, status=201, body=b"{}")


def findings(done):
    return {row["check"]: row for row in done.json}


def test_check_of_a_healthy_deployment(airflow, api_server, healthy, new_scheduler):
    new_scheduler(start=False)
    done = airflow("check", "-o", "json")
    results = {row["check"]: row["result"] for row in done.json}
    assert done.status == 0, done.json
    assert "failed" not in results.values()
    assert results["access in namespace airflow"] == "ok"
    assert results["namespace airflow"] == "ok"
    assert results["admission in airflow for callbacks"] == "ok"
    assert results["clock"] == "ok"
    assert results["token key"] == "ok"
    assert results["scheduler"] == "ok"
    assert api_server.pods() == []


def test_check_names_the_missing_verb_and_prints_the_role(airflow, api_server, healthy):
    api_server.allowed = lambda verb, resource, namespace: (verb, resource) not in {
        ("watch", "pods"), ("create", "secrets"),
    }  # fmt: skip
    done = airflow("check", "-o", "json")
    rows = [
        (row["result"], row["what"]) for row in done.json if row["check"] == "access in namespace airflow"
    ]
    assert done.status == 1
    assert rows == [
        ("failed", "not allowed: watch pods, for learning results at once"),
        ("warning", "not allowed: create secrets, for keeping token and kwargs out of the pod's spec"),
    ]
    role = yaml.safe_load(done.err)
    assert role["kind"] == "Role"
    assert role["metadata"]["namespace"] == "airflow"
    assert {rule["resources"][0] for rule in role["rules"]} == {"pods", "pods/log", "events", "secrets"}
    assert "kind: Role" in airflow("check").out


@pytest.mark.parametrize(
    ("delivery", "secrets", "lifetime"),
    [
        pytest.param("auto", True, None, id="in-a-secret"),
        pytest.param("auto", False, "tokens live 60 s, and a pod may wait 300 s", id="secrets-not-allowed"),
        pytest.param("argument", True, "tokens live 60 s, and a pod may wait 300 s", id="argument"),
    ],
)
def test_check_judges_the_token_that_would_be_delivered(
    airflow, api_server, healthy, kube_environment, monkeypatch, delivery, secrets, lifetime
):
    """On Airflow 3.3, where a token in a Secret has the scope of a task's and lives longer."""
    monkeypatch.setattr("airflow_kubernetes_callbacks.cli.check_command.EXECUTION_API_OWNS_RUNNING", False)
    kube_environment(
        KUBERNETES_CALLBACKS__PAYLOAD_DELIVERY=delivery,
        KUBERNETES_CALLBACKS__PENDING_TIMEOUT="300",
        SCHEDULER__TASK_QUEUED_TIMEOUT="60",
    )
    api_server.allowed = lambda verb, resource, namespace: secrets or resource != "secrets"
    found = findings(airflow("check", "-o", "json"))["token lifetime"]
    assert found["result"] == ("warning" if lifetime else "ok")
    assert found["what"].startswith(lifetime or "")


def test_check_judges_the_token_of_every_rule(airflow, api_server, healthy, kube_environment, monkeypatch):
    monkeypatch.setattr("airflow_kubernetes_callbacks.cli.check_command.EXECUTION_API_OWNS_RUNNING", False)
    kube_environment(
        KUBERNETES_CALLBACKS__RULES=json.dumps([{"name": "own", "pod": {"namespace": "alerts"}}]),
        KUBERNETES_CALLBACKS__PENDING_TIMEOUT="300",
        SCHEDULER__TASK_QUEUED_TIMEOUT="60",
    )
    api_server.allowed = lambda verb, resource, namespace: (resource, namespace) != ("secrets", "alerts")
    assert findings(airflow("check", "-o", "json"))["token lifetime"]["result"] == "warning"


@pytest.mark.parametrize(
    ("options", "check", "words"),
    [
        pytest.param(
            {"KUBERNETES_CALLBACKS__PENDING_TIMEOUT": "soon"},
            "settings of KubernetesExecutor",
            "pending_timeout = 'soon' cannot be used",
            id="setting",
        ),
        pytest.param(
            {"KUBERNETES_CALLBACKS__RULES": '[{"name": "a", "pod": {"imagee": "x"}}]'},
            "settings of KubernetesExecutor",
            "there is no such key",
            id="rule",
        ),
        pytest.param(
            {"KUBERNETES_CALLBACKS__POD_TEMPLATE_FILE": "/no/such/template.yaml"},
            "pod template /no/such/template.yaml",
            "cannot be read",
            id="template",
        ),
        pytest.param(
            {"CORE__EXECUTOR": "LocalExecutor"}, "executor", "runs no callbacks as pods", id="executor"
        ),
        pytest.param(
            {"KUBERNETES_CALLBACKS__IMAGE": "apache/airflow:3.1.0"},
            "image for callbacks",
            "names Airflow 3.1",
            id="image",
        ),
    ],
)
def test_check_finds(airflow, healthy, kube_environment, options, check, words):
    kube_environment(**options)
    done = airflow("check", "-o", "json")
    assert done.status == 1
    assert findings(done)[check]["result"] == "failed"
    assert words in findings(done)[check]["what"]


def test_check_finds_a_database_without_tables(airflow, healthy, no_tables):
    done = airflow("check", "-o", "json")
    assert done.status == 1
    assert findings(done)["database"]["result"] == "failed"
    assert "airflow db migrate" in findings(done)["database"]["what"]
    assert findings(done)["Kubernetes API"]["result"] == "ok"


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ("KUBERNETES_EXECUTOR__POD_TEMPLATE_FILE", "in [kubernetes_executor] pod_template_file."),
        (
            "KUBERNETES_CALLBACKS__POD_TEMPLATE_FILE",
            "in [kubernetes_callbacks] pod_template_file, or in the rule.",
        ),
    ],
    ids=["stock", "own"],
)
@pytest.mark.parametrize("text", [None, "kind: Deployment"], ids=["absent", "no-pod"])
def test_check_names_the_option_of_a_template_that_cannot_be_used(
    airflow, healthy, kube_environment, tmp_path, option, named, text
):
    path = tmp_path / "wrong.yaml"
    if text:
        path.write_text(text)
    kube_environment(**{option: str(path)})
    done = airflow("check", "-o", "json")
    assert done.status == 1
    assert findings(done)[f"pod template {path}"]["what"].endswith(named)
    assert named in findings(done)["pod for callbacks"]["what"]


def test_check_names_the_kubeconfig_that_is_not_there_and_what_it_did_not_look_at(airflow, kube_environment):
    kube_environment(KUBERNETES_EXECUTOR__CONFIG_FILE="/no/such/kubeconfig")
    done = airflow("check", "-o", "json")
    assert done.status == 1
    api = findings(done)["Kubernetes API"]
    assert "[kubernetes_executor] config_file = /no/such/kubeconfig" in api["what"]
    assert {name for name, row in findings(done).items() if row["result"] == "skipped"} >= {
        "clock", "namespaces", "access", "pod", "image", "admission",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"CONFIG_FILE": "/no/such/kubeconfig"}, "[kubernetes_executor] config_file = /no/such/kubeconfig"),
        ({"CONFIG_FILE": ""}, "no-kubeconfig, because [kubernetes_executor] config_file is not set"),
        (
            {"IN_CLUSTER": "True"},
            "[kubernetes_executor] in_cluster = True is for processes that run in a pod",
        ),
    ],
    ids=["config-file", "default", "in-cluster"],
)
def test_missing_client_configuration_is_named(airflow, kube_environment, missed, options, words):
    kube_environment(**{f"KUBERNETES_EXECUTOR__{name}": value for name, value in options.items()})
    missed()
    done = airflow("list")
    assert done.status == 3
    assert words in done.err


def test_check_finds_the_second_executor_that_is_the_stock_one(airflow, healthy, kube_environment):
    stock = "stock:airflow.providers.cncf.kubernetes.executors.kubernetes_executor.KubernetesExecutor"
    kube_environment(CORE__EXECUTOR=f"ours:airflow_kubernetes_callbacks.KubernetesExecutor,{stock}")
    done = airflow("check", "-o", "json")
    assert done.status == 1
    assert "stock KubernetesExecutor" in findings(done)["executor"]["what"]


def test_check_tries_every_rule(airflow, api_server, kube_environment, healthy):
    rules = [
        {"name": "own namespace", "pod": {"namespace": "alerts"}},
        {"match": {"dag_id": "etl_*"}, "pod": {"image": "airflow:3.1.0"}},
    ]
    kube_environment(KUBERNETES_CALLBACKS__RULES=json.dumps(rules))
    api_server.fail("GET", "^/api/v1/namespaces/alerts$", status=404, reason="NotFound", times=None)
    done = airflow("check", "-o", "json")
    found = findings(done)
    assert done.status == 1
    assert found["namespace alerts"]["result"] == "failed"
    assert "kubectl create namespace alerts" in found["namespace alerts"]["remedy"]
    assert found["admission in alerts for rule 'own namespace'"]["result"] == "ok"
    assert found["image for rule number 2"]["result"] == "failed"


def test_check_tells_what_admission_says(airflow, api_server, healthy):
    api_server.faults.pop()
    api_server.fail(
        "POST", "dryRun=All", times=None, status=201, body=b"{}",
        headers={"Warning": '299 - "would violate PodSecurity restricted"'},
    )  # fmt: skip
    done = airflow("check", "-o", "json")
    assert (
        findings(done)["admission in airflow for callbacks"]["what"] == "would violate PodSecurity restricted"
    )
    assert findings(done)["admission in airflow for callbacks"]["result"] == "warning"
    api_server.faults.pop()
    api_server.fail(
        "POST", "dryRun=All", times=None, status=403, reason="Forbidden", message="violates PodSecurity"
    )
    done = airflow("check", "-o", "json")
    assert done.status == 1
    assert findings(done)["admission in airflow for callbacks"]["result"] == "failed"


def test_check_measures_the_clocks(airflow, api_server, healthy, monkeypatch):
    ahead = SimpleNamespace(time=lambda: time.time() + 100)
    monkeypatch.setattr("airflow_kubernetes_callbacks.cli.cluster.time", ahead)
    done = airflow("check", "-o", "json")
    assert done.status == 1
    assert findings(done)["clock"]["result"] == "failed"
    assert "ahead of" in findings(done)["clock"]["what"]
    assert "jwt_leeway" in findings(done)["clock"]["remedy"]


def test_hook_that_raises_is_a_finding(airflow, healthy, monkeypatch):
    def hook(pod):
        raise KeyError("task_id")

    monkeypatch.setattr("airflow.settings.pod_mutation_hook", hook)
    done = airflow("check", "-o", "json")
    assert done.status == 1
    assert "pod_mutation_hook failed" in findings(done)["pod for callbacks"]["what"]
    assert findings(done)["token lifetime"]["result"] == "skipped"


# settings ---------------------------------------------------------------------------------------------


def test_settings_name_the_source(airflow, kube_environment):
    kube_environment(KUBERNETES_CALLBACKS__PENDING_TIMEOUT="77")
    rows = {row["option"]: row for row in airflow("settings", "-o", "json").json}
    assert rows["pending_timeout"]["value"] == "77"
    assert rows["pending_timeout"]["source"] == "env var"


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"KUBERNETES_CALLBACKS__PENDING_TIMEOUT": "soon"}, "pending_timeout = 'soon' cannot be used"),
        ({"KUBERNETES_CALLBACKS__RULES": "nonsense"}, "[kubernetes_callbacks] rules"),
        (
            {"KUBERNETES_CALLBACKS__RULES_FILE": "/no/such/file"},
            "rules_file = '/no/such/file' cannot be read",
        ),
    ],
    ids=["value", "rules", "rules-file"],
)
def test_settings_that_the_executor_would_refuse_end_with_1(airflow, kube_environment, option, words):
    kube_environment(**option)
    done = airflow("settings", "-o", "plain")
    assert done.status == 1
    assert words in done.out + done.err
