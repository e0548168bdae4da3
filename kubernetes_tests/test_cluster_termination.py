"""How pods are deleted, and what their logs say."""

from __future__ import annotations

import datetime
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes.client.exceptions import ApiException

from kubernetes_tests.cluster.pods import PYTHON, container, pod, state_of, terminated, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kubernetes_tests.cluster.launcher import LocalCluster
    from kubernetes_tests.cluster.pods import Json, Namespace

pytest_plugins = ["kubernetes_tests.cluster.fixtures"]

STUBBORN = "trap '' TERM; while :; do sleep 0.1; done"
LATE_TO_GO = "trap 'sleep 1; exit 0' TERM; while :; do sleep 0.1; done"


def _mentioned_by(text: str) -> list[Path]:
    """Return the processes whose command line holds a text."""
    from pathlib import Path

    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text.encode() in file.read_bytes():
                found.append(file.parent)
        except OSError:
            continue
    return found


def _watch(namespace: Namespace, name: str, stop: Callable[[], bool]) -> list[Json]:
    """Return the versions of a pod that are seen until it is gone."""
    seen: list[Json] = []
    while not stop():
        found = namespace.pod(name)
        if found is None:
            return seen
        if not seen or found["metadata"]["resourceVersion"] != seen[-1]["metadata"]["resourceVersion"]:
            seen.append(found)
        time.sleep(0.02)
    return seen


def _delete_and_watch(namespace: Namespace, name: str, grace: int | None = None) -> tuple[list[Json], float]:
    namespace.wait_for_phase(name, "Running")
    # The shell has to have set its trap.
    time.sleep(0.3)
    begun = time.monotonic()
    namespace.delete(name, grace)
    seen = _watch(namespace, name, lambda: time.monotonic() - begun > 30)
    return seen, time.monotonic() - begun


def test_deleted_pod_gets_its_grace_period_and_keeps_its_exit_code(namespace: Namespace) -> None:
    namespace.create(pod("polite", container("base", LATE_TO_GO), terminationGracePeriodSeconds=10))
    seen, seconds = _delete_and_watch(namespace, "polite")
    assert seen[-1]["metadata"]["deletionTimestamp"]
    assert terminated(seen[-1])["exitCode"] == 0
    assert seen[-1]["status"]["phase"] == "Succeeded"
    assert 1 <= seconds < 8


def test_deleted_pod_is_killed_after_its_grace_period(namespace: Namespace) -> None:
    namespace.create(pod("stubborn", container("base", STUBBORN), terminationGracePeriodSeconds=2))
    seen, seconds = _delete_and_watch(namespace, "stubborn")
    assert terminated(seen[-1])["exitCode"] == 137
    assert seen[-1]["status"]["phase"] == "Failed"
    assert 2 <= seconds < 10


def test_grace_period_of_the_deletion_wins_over_the_pods(namespace: Namespace) -> None:
    namespace.create(pod("shorter", container("base", STUBBORN), terminationGracePeriodSeconds=60))
    _, seconds = _delete_and_watch(namespace, "shorter", grace=1)
    assert 1 <= seconds < 10


def test_unhandled_sigterm_is_143(namespace: Namespace) -> None:
    namespace.create(pod("plain", container("base", command=["sleep", "60"])))
    seen, _ = _delete_and_watch(namespace, "plain")
    assert terminated(seen[-1])["exitCode"] == 143


def test_pod_is_gone_only_after_its_processes(namespace: Namespace) -> None:
    mark = f"{namespace.name}-process"
    # A grandchild in a session of its own is a process of the container, too.
    namespace.create(
        pod("tree", container("base", f"setsid sh -c 'sleep 60; : {mark}' & {STUBBORN}; : {mark}"))
    )
    until("two processes", lambda: len(_mentioned_by(mark)) >= 2)
    namespace.delete("tree", 1)
    namespace.wait_until_gone("tree")
    assert _mentioned_by(mark) == []


def test_forced_deletion_removes_pod_at_once_and_its_processes_soon(namespace: Namespace) -> None:
    mark = f"{namespace.name}-process"
    namespace.create(
        pod("forced", container("base", f"{STUBBORN}; : {mark}"), terminationGracePeriodSeconds=60)
    )
    namespace.wait_for_phase("forced", "Running")
    namespace.delete("forced", 0)
    assert namespace.pod("forced") is None
    until("the process is gone", lambda: _mentioned_by(mark) == [])


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param("", id="in_a_session_of_their_own"),
        # As setproctitle does, which Airflow calls in the process of a task.
        pytest.param("env -i", id="that_lost_their_environment"),
    ],
)
def test_background_processes_end_with_the_first_process(namespace: Namespace, environment: str) -> None:
    mark = f"{namespace.name}-process"
    left = f"setsid {environment} sh -c 'sleep 60; : {mark}' & sleep 0.3; exit 4"
    namespace.create(pod("left", container("base", left)))
    assert terminated(namespace.wait_for_end("left"))["exitCode"] == 4
    assert _mentioned_by(mark) == []


def test_pre_stop_hook_runs_before_sigterm(namespace: Namespace) -> None:
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "touch /work/hook"]}}}
    namespace.create(
        pod(
            "hook",
            container(
                "base",
                "trap 'test -e /work/hook && exit 0; exit 1' TERM; while :; do sleep 0.1; done",
                lifecycle=hook,
                volumeMounts=[{"name": "work", "mountPath": "/work"}],
            ),
            volumes=[{"name": "work", "emptyDir": {}}],
        )
    )
    seen, _ = _delete_and_watch(namespace, "hook")
    assert terminated(seen[-1])["exitCode"] == 0


def test_unscheduled_pod_is_deleted_at_once(namespace: Namespace) -> None:
    namespace.create(pod("nowhere", container("base", "exit 0"), nodeSelector={"no": "such-node"}))
    namespace.delete("nowhere")
    namespace.wait_until_gone("nowhere", 2)


def test_evicted_by_the_api_pod_ends_like_a_deleted_one(namespace: Namespace) -> None:
    namespace.create(pod("evicted", container("base", LATE_TO_GO)))
    namespace.wait_for_phase("evicted", "Running")
    time.sleep(0.3)
    namespace.core.create_namespaced_pod_eviction(
        "evicted", namespace.name, {"metadata": {"name": "evicted", "namespace": namespace.name}}
    )
    seen = _watch(namespace, "evicted", lambda: False)
    assert seen[-1]["metadata"]["deletionTimestamp"]
    conditions = {
        condition["type"]: condition["reason"]
        for condition in seen[-1]["status"]["conditions"]
        if "reason" in condition
    }
    assert conditions["DisruptionTarget"] == "EvictionByEvictionAPI"


# --- logs ---


@pytest.fixture(scope="module")
def logged(shared_namespace: Namespace) -> Namespace:
    # Pauses around standard error: the order of lines that two streams bring at once is a race.
    script = "echo old; sleep 1.5; echo error >&2; sleep 1.5; echo new; printf 'no newline'"
    shared_namespace.create(pod("log", container("base", script)))
    shared_namespace.wait_for_end("log")
    return shared_namespace


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({"tail_lines": 1}, ["no newline"], id="tail"),
        pytest.param({"limit_bytes": 4}, ["old"], id="limit_bytes"),
        pytest.param({"tail_lines": 0}, [], id="nothing"),
    ],
)
def test_log_options(logged: Namespace, options: dict[str, Any], expected: list[str]) -> None:
    assert logged.log("log", **options).splitlines() == expected


def test_log_holds_both_streams(logged: Namespace) -> None:
    assert sorted(logged.log("log").splitlines()) == ["error", "new", "no newline", "old"]


def test_log_since_leaves_out_what_is_older(logged: Namespace) -> None:
    ended = datetime.datetime.fromisoformat(terminated(logged.pod("log") or {})["finishedAt"])
    age = (datetime.datetime.now(datetime.UTC) - ended).total_seconds()
    recent = logged.log("log", since_seconds=int(age) + 2).splitlines()
    assert "new" in recent
    assert "old" not in recent


def test_log_timestamps_are_those_of_the_lines(logged: Namespace) -> None:
    lines = dict(line.split(" ", 1)[::-1] for line in logged.log("log", timestamps=True).splitlines())
    begun, ended = (
        datetime.datetime.fromisoformat(lines[text].replace("Z", "+00:00")[:26] + "+00:00")
        for text in ("old", "new")
    )
    assert 2.5 < (ended - begun).total_seconds() < 6


def test_log_is_followed_until_the_container_ends(namespace: Namespace) -> None:
    namespace.create(pod("follow", container("base", "for i in 1 2 3; do echo $i; sleep 0.5; done")))
    namespace.wait("follow", lambda pod: "running" in state_of(pod) or "terminated" in state_of(pod))
    lines: list[tuple[float, str]] = []
    stream = namespace.core.read_namespaced_pod_log(
        "follow", namespace.name, follow=True, _preload_content=False
    )

    def read() -> None:
        lines.extend((time.monotonic(), line.decode().strip()) for line in stream)

    reader = threading.Thread(target=read)
    reader.start()
    reader.join(20)
    assert not reader.is_alive()
    assert "".join(text for _, text in lines).replace("\n", "") == "123"


def test_log_of_container_that_has_not_started_is_refused(namespace: Namespace) -> None:
    namespace.create(pod("early", container("base", "exit 0", image="nowhere/else:1")))
    namespace.wait("early", lambda pod: state_of(pod))
    with pytest.raises(ApiException) as raised:
        namespace.log("early")
    assert raised.value.status == 400
    assert b"waiting to start" in raised.value.body.encode()


def test_long_line_and_invalid_utf8_survive_in_the_log(namespace: Namespace) -> None:
    script = "import sys; sys.stdout.buffer.write(b'x' * 100_000 + b'\\n' + b'\\xff\\n')"
    namespace.create(pod("bytes", container("base", command=[PYTHON, "-c", script])))
    namespace.wait_for_end("bytes")
    answer = namespace.core.read_namespaced_pod_log("bytes", namespace.name, _preload_content=False)
    assert answer.data == b"x" * 100_000 + b"\n" + b"\xff\n"


def test_log_is_kept_while_the_pod_is_kept(logged: Namespace, local_cluster: LocalCluster) -> None:
    assert "new" in logged.log("log")
    assert list((local_cluster.state_dir / "pods").glob(f"{logged.name}_log_*/base/*.log"))
