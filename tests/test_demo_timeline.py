"""What the demo shows, from what it has seen."""

from __future__ import annotations

import json

import pytest

from kubernetes_tests.demo.timeline import (
    CallbackSeen,
    PodSeen,
    function_name,
    log_line,
    moments,
    pod_seen,
)

POD = "callback-1-1"


def seen(**fields):
    return CallbackSeen("1", "page_on_call", **fields)


def lines(before, now):
    return [(moment.kind, moment.text, moment.good) for moment in moments(before, now)]


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        pytest.param(None, seen(), [], id="deadline-not-missed-yet"),
        pytest.param(None, seen(state="scheduled"), [], id="row-before-the-miss-is-no-news"),
        pytest.param(
            seen(state="scheduled"),
            seen(missed=True, state="pending"),
            [("deadline", "missed", None), ("row", "PENDING", None)],
            id="missed",
        ),
        pytest.param(
            seen(missed=True, state="queued"),
            seen(missed=True, state="queued", pod=PodSeen(POD)),
            [("pod", f"{POD} created", None)],
            id="pod-created",
        ),
        pytest.param(
            seen(missed=True, state="queued", pod=PodSeen(POD)),
            seen(missed=True, state="running", pod=PodSeen(POD, node="node-1", started=True)),
            [("row", "RUNNING", None), ("pod", "assigned to node node-1", None), ("pod", "running", None)],
            id="running",
        ),
        pytest.param(
            seen(missed=True, state="running", pod=PodSeen(POD, started=True)),
            seen(missed=True, state="success", pod=PodSeen(POD, started=True, exit_code=0)),
            [("pod", "ended with exit code 0", True), ("row", "SUCCESS", True)],
            id="succeeded",
        ),
        pytest.param(
            seen(missed=True, state="running", pod=PodSeen(POD, started=True)),
            seen(missed=True, state="failed", output="E: x", pod=PodSeen(POD, started=True, exit_code=1)),
            [("pod", "ended with exit code 1", False), ("row", "FAILED: E: x", False)],
            id="failed",
        ),
        pytest.param(
            seen(missed=True, state="queued", pod=PodSeen(POD, waiting="ContainerCreating")),
            seen(missed=True, state="queued", pod=PodSeen(POD, waiting="ErrImagePull")),
            [("pod", "waits: ErrImagePull", None)],
            id="waits",
        ),
        pytest.param(
            seen(missed=True, state="queued", pod=PodSeen(POD, started=True)),
            seen(missed=True, state="queued", pod=PodSeen("callback-1-2")),
            [("pod", "callback-1-2 created", None)],
            id="another-pod",
        ),
        pytest.param(
            seen(missed=True, state="success", pod=PodSeen(POD)),
            seen(missed=True, state="success"),
            [("pod", f"{POD} deleted, its result is recorded", None)],
            id="deleted",
        ),
    ],
)
def test_difference_of_two_looks_is_told(before, now, expected):
    assert lines(before, now) == expected


def test_same_look_twice_tells_nothing():
    one = seen(missed=True, state="running", pod=PodSeen(POD, "node-1", None, True, None))
    assert lines(one, one) == []


def test_everything_at_once_is_told_in_order():
    now = seen(missed=True, state="success", pod=PodSeen(POD, "node-1", None, True, 0))
    assert [kind for kind, _, _ in lines(None, now)] == ["deadline", "pod", "pod", "pod", "pod", "row"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param({"path": "a.b.page"}, "page", id="plain"),
        pytest.param({"__var": {"path": "a.b.page"}, "__type": "dict"}, "page", id="serialized"),
        pytest.param({}, "?", id="missing"),
    ],
)
def test_function_name(data, expected):
    assert function_name(data) == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(None, PodSeen(POD, "node-1"), id="no-status"),
        pytest.param({"phase": "Pending"}, PodSeen(POD, "node-1"), id="no-containers"),
        pytest.param(
            {"containerStatuses": [{"name": "base", "state": {"waiting": {"reason": "ErrImagePull"}}}]},
            PodSeen(POD, "node-1", waiting="ErrImagePull"),
            id="waiting",
        ),
        pytest.param(
            {"containerStatuses": [{"name": "base", "state": {"running": {}}}]},
            PodSeen(POD, "node-1", started=True),
            id="running-without-a-time",
        ),
        pytest.param(
            {"containerStatuses": [{"name": "base", "state": {"running": {"startedAt": "now"}}}]},
            PodSeen(POD, "node-1", started=True),
            id="running",
        ),
        pytest.param(
            {
                "containerStatuses": [
                    {"name": "sidecar", "state": {"terminated": {"exitCode": 3}}},
                    {"name": "base", "state": {"terminated": {"exitCode": 0}}},
                ]
            },
            PodSeen(POD, "node-1", started=True, exit_code=0),
            id="ended-beside-a-sidecar",
        ),
    ],
)
def test_pod_is_read(status, expected):
    pod = {"metadata": {"name": POD}, "spec": {"nodeName": "node-1"}, "status": status}
    assert pod_seen(pod) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("plain text\n", "plain text", id="no-json"),
        pytest.param("\n", None, id="blank"),
        pytest.param(
            json.dumps({"event": "Paging", "logger": "unusual_prefix_1_late_report"}), "Paging", id="callback"
        ),
        pytest.param(json.dumps({"event": "Executing", "logger": "airflow.sdk"}), None, id="airflow"),
        pytest.param(json.dumps({"event": "Callback failed", "error": "E: x"}), "E: x", id="failure"),
        pytest.param("[1]", "[1]", id="other-json"),
    ],
)
def test_only_lines_of_the_callback_are_shown(line, expected):
    assert log_line(line) == expected
