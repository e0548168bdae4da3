"""What the commands decide, as tables over plain values: ages, stuck callbacks, permissions, images, clocks."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from airflow_kubernetes_callbacks.cli import preflight
from airflow_kubernetes_callbacks.cli.cluster import Clocks
from airflow_kubernetes_callbacks.cli.durations import age_text, parse_age
from airflow_kubernetes_callbacks.cli.interventions import Refusal, cancellation, retry
from airflow_kubernetes_callbacks.cli.log_lines import plain, readable
from airflow_kubernetes_callbacks.cli.model import (
    CallbackRecord,
    by_callback,
    current_pod,
    pod_facts,
    shown_pod,
)
from airflow_kubernetes_callbacks.cli.overview import Surroundings, as_cells, overview, short_path, why_stuck
from airflow_kubernetes_callbacks.cli.rows import UnknownCallbackError, attempt_named, id_range
from airflow_kubernetes_callbacks.cli.story import timeline
from airflow_kubernetes_callbacks.payload import ArgumentPayload
from tests import pods as k8s

NOW = datetime(2026, 6, 1, 10, 10, tzinfo=UTC)
TOKEN = "eyJhbGciOiJIUzUxMiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJlLW9mLXRoZS10b2tlbg"


def record(state="running", *, ago=600.0, **changes):
    base = CallbackRecord(
        id=k8s.CALLBACK_ID,
        state=state,
        output=None,
        path="alerts.notify",
        kwargs=("text",),
        executor=None,
        ours=True,
        routable=True,
        team=None,
        dag_id="reports",
        run_id="manual__1",
        dag_run_id=1,
        dag_run_exists=True,
        dag_run_state="running",
        priority_weight=1,
        created_at=NOW - timedelta(hours=1),
        deadline_id=None,
        deadline_name=None,
        deadline_time=NOW - timedelta(seconds=ago),
        noticed_at=NOW - timedelta(seconds=ago - 1),
    )
    return dataclasses.replace(base, **changes)


def pod(phase="Running", statuses=None, **how):
    facts = pod_facts(k8s.pod(phase, statuses, **how))
    assert facts is not None
    return facts


def around(**changes):
    values = {"now": NOW.timestamp(), "schedulers": frozenset({"7"}), "pods_known": True, **changes}
    return Surroundings(**values)


RUNNING_POD = pod("Running", [k8s.status(state=k8s.running())])
ENDED_POD = pod("Succeeded", [k8s.status(state=k8s.terminated(0))])
WAITING_POD = pod("Pending", [k8s.status(state=k8s.waiting("ImagePullBackOff", "no such image"))])
UNSCHEDULABLE_POD = pod(
    "Pending",
    node=None,
    conditions=[k8s.condition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available")],
)
#: It waited for its node for nine minutes: the error is half a minute old.
LATE_ERROR_POD = pod(
    "Pending",
    [k8s.status(state=k8s.waiting("ErrImagePull", "no such image"))],
    conditions=[{**k8s.condition("PodScheduled", "True"), "lastTransitionTime": "2026-06-01T10:09:30Z"}],
)
ON_LOST_NODE = pod(
    "Running",
    [k8s.status(state=k8s.running())],
    deletionTimestamp="2026-06-01T10:07:00Z",
    deletionGracePeriodSeconds=30,
)
ENDING_POD = pod(
    "Running",
    [k8s.status(state=k8s.running())],
    deletionTimestamp="2026-06-01T10:10:20Z",
    deletionGracePeriodSeconds=30,
)
FRESH_POD = pod("Pending", creationTimestamp="2026-06-01T10:09:59Z")


# ages -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("2h30m", 9000), ("7d", 604800), (" 1H ", 3600), ("1.5h", 5400), ("0s", 0)],
)
def test_age_is_read(text, seconds):
    assert parse_age(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "5", "-5m", "5 m", "5w", "m5", "1h-2m"])
def test_other_texts_are_no_age(text):
    with pytest.raises(ValueError, match="is not an age"):
        parse_age(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, ""),
        (0, "0s"),
        (59.9, "59s"),
        (61, "1m01s"),
        (3660, "1h01m"),
        (86400, "1d"),
        (100000, "1d3h"),
        (-5, "-5s"),
    ],
)
def test_age_is_written(seconds, text):
    assert age_text(seconds) == text


@given(st.integers(0, 10**7))
def test_age_that_is_written_can_be_read_and_is_not_too_long(seconds):
    assert seconds - 3600 <= parse_age(age_text(seconds)) <= seconds


# stuck ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_record", "given_pod", "changes", "words"),
    [
        pytest.param(record("success"), None, {}, None, id="ended"),
        pytest.param(record("failed"), RUNNING_POD, {}, None, id="ended-with-pod"),
        pytest.param(record("scheduled", ago=-60), None, {}, None, id="deadline-ahead"),
        pytest.param(record("pending", ago=5), None, {}, None, id="just-missed"),
        pytest.param(record("pending", ago=600), None, {}, "every slot is taken", id="not-handed-out"),
        pytest.param(
            record("pending", ago=5, dag_run_exists=False), None, {}, "was deleted", id="no-dag-run"
        ),
        pytest.param(
            record("pending", ago=5, routable=False, executor="Celery"),
            None,
            {},
            "'Celery'",
            id="no-executor",
        ),
        pytest.param(
            record("queued", ago=5), None, {"schedulers": frozenset()}, "no scheduler", id="no-scheduler"
        ),
        pytest.param(record("queued", ago=5), None, {"schedulers": None}, None, id="schedulers-not-known"),
        pytest.param(record("queued", ago=30), None, {}, None, id="just-queued"),
        pytest.param(record("queued"), None, {}, "queued and has no pod", id="queued-without-pod"),
        pytest.param(record("running"), None, {}, "running and has no pod", id="running-without-pod"),
        pytest.param(record("running"), None, {"pods_known": False}, None, id="pods-not-known"),
        pytest.param(
            record("queued", kept={"retried_at": NOW.timestamp() - 5}), None, {}, None, id="just-retried"
        ),
        pytest.param(record("running"), RUNNING_POD, {}, None, id="runs"),
        pytest.param(record("queued"), RUNNING_POD, {}, "the row still says queued", id="runs-unrecorded"),
        pytest.param(record("running"), ENDED_POD, {}, "not recorded", id="ended-unrecorded"),
        pytest.param(record("queued"), FRESH_POD, {}, None, id="fresh-pod"),
        pytest.param(record("queued"), WAITING_POD, {}, "no such image", id="pod-does-not-start"),
        pytest.param(
            record("queued"), UNSCHEDULABLE_POD, {"pending_timeout": 900}, None, id="no-room-is-no-error"
        ),
        pytest.param(record("queued"), UNSCHEDULABLE_POD, {}, "0/3 nodes", id="no-room-for-too-long"),
        pytest.param(
            record("queued"),
            LATE_ERROR_POD,
            {"pending_timeout": 900},
            None,
            id="error-is-young-in-an-old-pod",
        ),
        pytest.param(record("running"), ENDING_POD, {}, None, id="in-its-grace-period"),
        pytest.param(record("running"), ON_LOST_NODE, {}, "gone 3m00s ago: its node is lost", id="node-lost"),
        pytest.param(
            record("queued"),
            pod_facts(
                k8s.pod("Pending", node=None, start_time=None, deletionTimestamp="2026-06-01T10:01:00Z")
            ),
            {},
            "its pod does not start",
            id="held-by-a-finalizer-without-a-node",
        ),
        pytest.param(
            record("running"), RUNNING_POD, {"schedulers": frozenset({"9"})}, "job 7", id="owner-gone"
        ),
        pytest.param(record("running"), RUNNING_POD, {"execution_timeout": 60}, "longer than", id="overdue"),
        pytest.param(record("running"), RUNNING_POD, {"execution_timeout": 900}, None, id="in-time"),
    ],
)
def test_stuck(given_record, given_pod, changes, words):
    why = why_stuck(given_record, given_pod, around(**changes))
    assert (why is None) if words is None else (words in (why or ""))


def test_line_of_a_stuck_callback_says_why():
    cells = as_cells(overview(record("running"), (), around()))
    assert cells["state"] == "running (stuck)"
    assert cells["age"] == "10m00s"
    assert "has no pod" in cells["reason"]


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("alerts.slack.notify", "alerts.slack.notify"),
        ("unusual_prefix_0a1b2c_late_report.notify", "late_report.notify"),
        ("unusual_prefix_0a1b2c_my_dag_file.Class.method", "my_dag_file.Class.method"),
        ("by me: unusual_prefix_0a1b2c_x.notify", "by me: x.notify"),
        ("unusual_prefix_of_mine.notify", "unusual_prefix_of_mine.notify"),
        ("", ""),
    ],
)
def test_path_is_shown_without_what_airflow_makes_up(path, short):
    assert short_path(path) == short


def test_pod_that_began_tells_the_state_and_one_that_came_twice_counts_once():
    later = pod("Pending", labels={"callback-attempt": "3"}, uid="other")
    found = by_callback([RUNNING_POD, later, RUNNING_POD])[k8s.CALLBACK_ID]
    assert [facts.view.attempt for facts in found] == [2, 3]
    assert current_pod(found) is found[0]
    assert current_pod(()) is None


# what may be done -------------------------------------------------------------------------------------


def test_cancellation_ends_only_pods_that_live():
    decision = cancellation(record(), (RUNNING_POD, ENDED_POD), pods_known=True, by="me", reason=None)
    assert not isinstance(decision, Refusal)
    assert decision.pods == (RUNNING_POD,)
    assert decision.output == "Cancelled by me. The callback was running and may have taken effect."


@pytest.mark.parametrize(
    ("state", "pods", "pods_known", "words"),
    [
        pytest.param("pending", (), True, "", id="not-handed-out"),
        pytest.param("pending", (), False, "", id="not-handed-out-and-no-cluster"),
        pytest.param("queued", (), True, "", id="no-pod"),
        pytest.param("queued", (WAITING_POD,), True, "", id="pod-waits"),
        pytest.param("queued", (), False, "Whether it had a pod is not known", id="no-cluster"),
        pytest.param("queued", (RUNNING_POD,), True, "was running", id="runs-unrecorded"),
        pytest.param("queued", (ENDED_POD,), True, "had run", id="ended-unrecorded"),
        pytest.param("running", (), True, "was running", id="pod-is-gone"),
        pytest.param("running", (), False, "was running", id="running-and-no-cluster"),
    ],
)
def test_cancellation_says_what_may_have_taken_effect_and_a_retry_then_warns(state, pods, pods_known, words):
    decision = cancellation(record(state), pods, pods_known=pods_known, by="me", reason="false alarm")
    assert decision.output.startswith("Cancelled by me: false alarm.")
    assert words in decision.output
    assert ("may have taken effect" in decision.output) is bool(words)
    again = retry(record("failed", output=decision.output), (), pods_known=True, force=False)
    assert bool(again.warning) is bool(words)


TOKEN = "eyJhbGciOiJIUzUxMiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJlLW9mLXRoZS10b2tlbg"


@pytest.mark.parametrize(
    ("reason", "output"),
    [
        (None, "Cancelled by ada."),
        ("", "Cancelled by ada."),
        ("   ", "Cancelled by ada."),
        (" . ", "Cancelled by ada."),
        ("wrong channel", "Cancelled by ada: wrong channel."),
        ("wrong channel. ", "Cancelled by ada: wrong channel."),
        ("one\n\ttwo", "Cancelled by ada: one two."),
        ("\x1b[31mred\x1b[0m\x07", "Cancelled by ada: red."),
        (f"used {TOKEN} here", "Cancelled by ada: used *** here."),
    ],
)
def test_reason_of_a_cancellation_is_fit_to_be_kept(reason, output):
    decision = cancellation(record("pending"), [], pods_known=True, by="ada", reason=reason)
    assert decision.output == output


def test_reason_of_a_cancellation_is_bounded_at_both_ends():
    reason = f"begin{'x' * 100_000}end"
    output = cancellation(record("pending"), [], pods_known=True, by="ada", reason=reason).output
    assert len(output) < 1100
    assert output.startswith("Cancelled by ada: beginx")
    assert output.endswith("xend.")


def test_callback_of_another_executor_is_left_to_it():
    theirs = {"ours": False, "executor": "LocalExecutor"}
    cancelled = cancellation(record("queued", **theirs), (), pods_known=True, by="me", reason=None)
    retried = retry(record("failed", **theirs), (), pods_known=True, force=True)
    for decision in (cancelled, retried):
        assert isinstance(decision, Refusal)
        assert "'LocalExecutor'" in decision.why


def test_callback_of_no_executor_can_be_cancelled_and_not_retried():
    nobodys = {"ours": False, "routable": False, "executor": "Gone"}
    cancelled = cancellation(record("pending", **nobodys), (), pods_known=True, by="me", reason=None)
    assert not isinstance(cancelled, Refusal)
    retried = retry(record("failed", **nobodys), (), pods_known=True, force=True)
    assert isinstance(retried, Refusal)
    assert "no configured executor answers to 'Gone'" in retried.why


@pytest.mark.parametrize(
    ("there", "words"),
    [
        pytest.param(RUNNING_POD, "is still running", id="runs"),
        pytest.param(ON_LOST_NODE, "kubectl delete pod --force", id="node-lost"),
    ],
)
def test_retry_never_runs_beside_an_old_pod(there, words):
    decision = retry(record("failed"), (there,), pods_known=True, force=True)
    assert isinstance(decision, Refusal)
    assert words in decision.why


@pytest.mark.parametrize(
    ("recorded", "pods", "attempt"),
    [
        pytest.param({}, (), 2, id="nothing-known"),
        pytest.param({"attempt": 4}, (), 5, id="recorded"),
        pytest.param({"attempt": 1}, (ENDED_POD,), 3, id="pod-is-ahead"),
        pytest.param({"attempt": "x"}, (), 2, id="record-cannot-be-read"),
    ],
)
def test_retry_takes_a_number_beyond_every_pod(recorded, pods, attempt):
    decision = retry(record("failed", kept=recorded), pods, pods_known=True, force=False)
    assert not isinstance(decision, Refusal)
    assert decision.attempt == attempt
    assert decision.pods == pods


# story ------------------------------------------------------------------------------------------------


def test_steps_keep_their_order_though_kubernetes_cuts_its_times():
    noticed = NOW - timedelta(milliseconds=1)
    facts = pod(
        "Running",
        [k8s.status(state=k8s.running("2026-06-01T10:09:59Z"))],
        creationTimestamp="2026-06-01T10:09:59Z",
    )
    steps = timeline(record(ago=1, noticed_at=noticed), (facts,), ())
    assert [step.what for step in steps] == [
        "created",
        "deadline missed",
        "noticed",
        "queued",
        "pod created",
        "running",
    ]


def test_deadline_ahead_is_not_missed():
    steps = timeline(record("scheduled", ago=-60, noticed_at=None), (), ())
    assert [step.what for step in steps] == ["created", "deadline"]


def vanished_event(attempt, reason, at):
    name = f"callback-{k8s.CALLBACK_ID}-{attempt}"
    return {"involvedObject": {"name": name}, "reason": reason, "eventTime": at, "message": "so"}


def test_pod_that_is_gone_was_scheduled_before_it_ran_though_kubernetes_cuts_its_times():
    events = [
        vanished_event(10, "Started", "2026-06-01T10:09:30Z"),
        vanished_event(9, "Started", "2026-06-01T10:09:12Z"),
        vanished_event(9, "Created", "2026-06-01T10:09:12Z"),
        vanished_event(9, "Scheduled", "2026-06-01T10:09:12.530000Z"),
    ]
    steps = timeline(record(), (), events)
    assert [(step.what, (step.when or "")[14:]) for step in steps][-3:] == [
        ("scheduled", "09:12.530+00:00"),
        ("running", "09:12.000+00:00"),
        ("running", "09:30.000+00:00"),
    ]


@pytest.mark.parametrize(("name", "detail"), [(None, ""), ("nightly", "nightly")])
def test_missed_deadline_is_told_by_its_name(name, detail):
    [missed] = [
        step for step in timeline(record(deadline_name=name), (), ()) if step.what == "deadline missed"
    ]
    assert missed.detail == detail


def test_token_and_escapes_do_not_get_into_the_story():
    event = {"reason": "Failed", "message": f"\x1b[31m{TOKEN}", "firstTimestamp": "2026-06-01T10:00:00Z"}
    steps = timeline(record(), (RUNNING_POD,), (event,))
    [told] = [step for step in steps if step.what == "event Failed"]
    assert told.detail == "***"


@given(
    st.recursive(
        st.none() | st.booleans() | st.text() | st.integers(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    )
)
def test_story_survives_any_event(event):
    timeline(record(), (), [event] if isinstance(event, dict) else [{"reason": event}])


# pods and logs as they are shown ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["python", "-m", "x", "--json-string", f'{{"token": "{TOKEN}"}}'],
        ["--json-string"],
        ["--json-path", "/x"],
        [],
    ],
)
def test_shown_pod_has_no_workload_and_the_original_stays(arguments):
    document = k8s.pod(containers=[{"name": "base", "args": arguments}, {"name": "other"}])
    before = json.dumps(document)
    assert TOKEN not in json.dumps(shown_pod(document))
    assert json.dumps(document) == before


def test_shown_size_of_a_workload_is_what_its_process_gets():
    arguments = ArgumentPayload("cost $$5: é").command
    shown = shown_pod(k8s.pod(containers=[{"name": "base", "args": arguments}]))
    assert shown["spec"]["containers"][0]["args"][-1] == "(the workload, 12 bytes, not shown)"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("plain", "plain", id="no-json"),
        pytest.param("{broken", "{broken", id="broken-json"),
        pytest.param('{"a": 1}', '{"a": 1}', id="json-of-somebody-else"),
        pytest.param('{"event": "hi", "level": "info"}', "INFO     hi", id="without-time"),
        pytest.param(
            '{"timestamp": "2026-06-01T10:00:00.123456Z", "level": "warning", "event": "hi", "a": [1]}',
            "2026-06-01 10:00:00.123 WARNING  hi a=[1]",
            id="with-more",
        ),
        pytest.param(
            '{"event": "no", "level": "error", "error_detail": [{"exc_type": "ValueError", "exc_value": "bad",'
            ' "frames": [{"filename": "a.py", "lineno": 3, "name": "f"}]}]}',
            'ERROR    no\n  File "a.py", line 3, in f\nValueError: bad',
            id="exception",
        ),
        pytest.param(f'{{"event": "{TOKEN}", "level": "info"}}', "INFO     ***", id="token"),
    ],
)
def test_log_line_for_people(line, expected):
    assert readable(line) == expected


@given(st.text())
def test_any_line_can_be_shown(line):
    readable(line)
    assert "\x1b" not in plain(line)


# ids --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("0199aaaa", "0199aaaa-0000-0000-0000-000000000000", "0199aaaa-ffff-ffff-ffff-ffffffffffff"),
        (k8s.CALLBACK_ID, k8s.CALLBACK_ID, k8s.CALLBACK_ID),
        (k8s.CALLBACK_ID.replace("-", ""), k8s.CALLBACK_ID, k8s.CALLBACK_ID),
        (f"callback-{k8s.CALLBACK_ID}-12", k8s.CALLBACK_ID, k8s.CALLBACK_ID),
    ],
)
def test_ids_that_a_text_may_mean(text, first, last):
    assert tuple(str(end) for end in id_range(text)) == (first, last)


@pytest.mark.parametrize(
    ("text", "attempt"),
    [
        (f"callback-{k8s.CALLBACK_ID}-12", 12),
        (f"airflow/callback-{k8s.CALLBACK_ID}-1", 1),
        (k8s.CALLBACK_ID, None),
        (f"callback-{k8s.CALLBACK_ID}", None),
        ("0199aaaa", None),
        ("callback-x-1", None),
    ],
)
def test_attempt_that_a_pods_name_means(text, attempt):
    assert attempt_named(text) == attempt


@pytest.mark.parametrize("text", ["", "abc", "callback-x", "0199 aaaa", "g" * 32, "0" * 33])
def test_text_that_means_no_id(text):
    with pytest.raises(UnknownCallbackError, match="is no callback"):
        id_range(text)


# check ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "level"),
    [
        ("apache/airflow:3.3.2", "ok"),
        ("apache/airflow:3.3.1-python3.12", "ok"),
        ("registry.example.com:5000/team/airflow:v3.3.2", "ok"),
        ("apache/airflow:3.4.0", "failed"),
        ("my-airflow:2.11.0", "failed"),
        ("team/alerts:1.4", "skipped"),
        ("airflow:nightly", "skipped"),
        ("registry.example.com:5000/team/worker", "skipped"),
        (None, "failed"),
    ],
)
def test_image_goes_with_this_airflow(image, level):
    assert preflight.judge_image(image, "3.3.2", what="x")[0].level.value == level


def test_moving_tag_is_warned_of_and_a_digest_is_not():
    assert preflight.judge_image("worker:latest", "3.4.0b2", what="x")[-1].level is preflight.Level.WARNING
    assert len(preflight.judge_image("worker@sha256:0", "3.4.0b2", what="x")) == 1


@pytest.mark.parametrize(
    ("ahead", "level"),
    [(0.2, "ok"), (-4.0, "ok"), (7.0, "warning"), (-7.0, "warning"), (12.0, "failed"), (-12.0, "failed")],
)
def test_clocks(ahead, level):
    assert preflight.judge_clocks(Clocks(ahead, 0.5), 10.0).level.value == level


def test_clock_that_is_not_told_is_no_failure():
    assert preflight.judge_clocks(None, 10.0).level is preflight.Level.SKIPPED


@pytest.mark.parametrize(
    ("delivery", "secrets"), [("argument", None), ("auto", "warning"), ("secret", "failed")]
)
def test_secrets_are_asked_for_only_where_they_are_used(delivery, secrets):
    asked = preflight.needed_access(delivery)
    of_secrets = [access for access in asked if access.resource == "secrets"]
    found = preflight.judge_access("airflow", asked, of_secrets)
    assert found[0].level.value == (secrets or "ok")


@pytest.mark.parametrize(
    "access", preflight.needed_access("secret"), ids=lambda access: f"{access.verb}-{access.target}"
)
def test_each_missing_permission_is_named_and_the_role_grants_it(access):
    [finding] = preflight.judge_access("alerts", preflight.needed_access("secret"), [access])
    assert f"{access.verb} {access.target}" in finding.what
    role = yaml.safe_load(preflight.role_yaml("alerts", preflight.needed_access("secret")))
    [rule] = [rule for rule in role["rules"] if rule["resources"] == [access.target]]
    assert access.verb in rule["verbs"]


def test_cluster_wide_access_needs_a_cluster_role():
    role = yaml.safe_load(preflight.role_yaml(None, preflight.needed_access("auto")))
    assert role["kind"] == "ClusterRole"
    assert "namespace" not in role["metadata"]


@pytest.mark.parametrize(
    ("source", "private_key", "level"),
    [("env var", False, "ok"), (None, True, "ok"), (None, False, "failed")],
)
def test_token_key(source, private_key, level):
    finding = preflight.judge_token_key(secret_source=source, private_key=private_key)
    assert finding.level.value == level


@pytest.mark.parametrize(("lifetime", "level"), [(600, "ok"), (301, "ok"), (300, "warning"), (9, "warning")])
def test_token_outlives_the_wait_for_its_container(lifetime, level):
    assert preflight.judge_token_lifetime(lifetime, 300).level.value == level


@pytest.mark.parametrize(
    ("in_pod", "here", "level"),
    [
        ("http://api:8080/execution/", None, "ok"),
        ("http://localhost:8080/execution/", "http://api:8080/execution/", "warning"),
        (None, "http://api:8080/execution/", "ok"),
        (None, "http://127.0.0.1:8080/execution/", "warning"),
        (None, None, "warning"),
    ],
)
def test_execution_api_can_be_reached_from_a_pod(in_pod, here, level):
    assert preflight.judge_execution_api(in_pod, here).level.value == level
