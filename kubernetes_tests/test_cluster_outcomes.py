"""How pods end on the local cluster. The pods of the table run at the same time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from kubernetes_tests.cluster.pods import PYTHON, container, pod, state_of, status_of, terminated

if TYPE_CHECKING:
    from kubernetes_tests.cluster.pods import Namespace

pytest_plugins = ["kubernetes_tests.cluster.fixtures"]

ALLOCATE = "import time; block = bytearray(80 << 20); time.sleep(60)"


@dataclass(frozen=True)
class Outcome:
    """A pod and how it ends: what is named here has to be in the API's answer.

    :param containers: for each container the expected fields of its ``terminated`` state, or ``None`` for
        one that never started.
    """

    id: str
    pod: dict[str, Any]
    phase: str
    containers: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    status: dict[str, Any] = field(default_factory=dict)


def _outcome(
    name: str,
    *containers: dict[str, Any],
    phase: str,
    ends: dict[str, dict[str, Any] | None] | None = None,
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> Outcome:
    return Outcome(name, pod(name.replace("_", "-"), *containers, **spec), phase, ends or {}, status or {})


# A container's "$$$$" is the shell's "$$": the kubelet expands variables in commands.
OUTCOMES = [
    _outcome(
        "exit_0_succeeds",
        container("base", "exit 0"),
        phase="Succeeded",
        ends={"base": {"exitCode": 0, "reason": "Completed"}},
    ),
    _outcome(
        "exit_3_fails",
        container("base", "exit 3"),
        phase="Failed",
        ends={"base": {"exitCode": 3, "reason": "Error"}},
    ),
    _outcome(
        "sigkill_is_137",
        container("base", "kill -9 $$$$"),
        phase="Failed",
        ends={"base": {"exitCode": 137, "reason": "Error"}},
    ),
    _outcome(
        "sigterm_is_143",
        container("base", "kill -15 $$$$"),
        phase="Failed",
        ends={"base": {"exitCode": 143, "reason": "Error"}},
    ),
    _outcome(
        "one_failed_container_fails_pod_after_both_ended",
        container("base", "exit 0"),
        container("other", "sleep 1; exit 1"),
        phase="Failed",
        ends={"base": {"exitCode": 0}, "other": {"exitCode": 1}},
    ),
    _outcome(
        "failed_init_container_leaves_base_unstarted",
        container("base", "exit 0"),
        initContainers=[
            container("first", "exit 0"),
            container("second", "exit 7"),
            container("third", "exit 0"),
        ],
        phase="Failed",
        ends={
            "first": {"exitCode": 0},
            "second": {"exitCode": 7, "reason": "Error"},
            "third": None,
            "base": None,
        },
    ),
    _outcome(
        "init_containers_run_in_order",
        container(
            "base",
            'test "$(cat /work/order)" = "first second"',
            volumeMounts=[{"name": "work", "mountPath": "/work"}],
        ),
        initContainers=[
            container(
                "first",
                "sleep 0.3; printf first > /work/order",
                volumeMounts=[{"name": "work", "mountPath": "/work"}],
            ),
            container(
                "second",
                "printf ' second' >> /work/order",
                volumeMounts=[{"name": "work", "mountPath": "/work"}],
            ),
        ],
        volumes=[{"name": "work", "emptyDir": {}}],
        phase="Succeeded",
    ),
    _outcome(
        "sidecar_starts_before_base_and_ends_after_it",
        container(
            "base",
            "test -e /work/sidecar-started && sleep 1.5 && test ! -e /work/sidecar-ended",
            volumeMounts=[{"name": "work", "mountPath": "/work"}],
        ),
        initContainers=[
            container(
                "sidecar",
                "trap 'touch /work/sidecar-ended; exit 0' TERM; touch /work/sidecar-started; while :; do sleep 0.1; done",
                restartPolicy="Always",
                startupProbe={
                    "exec": {"command": ["test", "-e", "/work/sidecar-started"]},
                    "periodSeconds": 1,
                },
                volumeMounts=[{"name": "work", "mountPath": "/work"}],
            )
        ],
        volumes=[{"name": "work", "emptyDir": {}}],
        phase="Succeeded",
        ends={"base": {"exitCode": 0}, "sidecar": {"exitCode": 0}},
    ),
    _outcome(
        "active_deadline_fails_pod",
        container("base", "trap 'exit 0' TERM; while :; do sleep 0.1; done"),
        activeDeadlineSeconds=2,
        phase="Failed",
        status={
            "reason": "DeadlineExceeded",
            "message": "Pod was active on the node longer than the specified deadline",
        },
    ),
    _outcome(
        "volume_over_its_size_limit_evicts_pod",
        container(
            "base",
            "head -c 20000000 /dev/zero > /work/file; sleep 300",
            volumeMounts=[{"name": "work", "mountPath": "/work"}],
        ),
        volumes=[{"name": "work", "emptyDir": {"sizeLimit": "5Mi"}}],
        phase="Failed",
        status={
            "reason": "Evicted",
            "message": 'Usage of EmptyDir volume "work" exceeds the limit "5Mi". ',
        },
    ),
    _outcome(
        "memory_over_limit_is_oom_killed",
        container(
            "base",
            command=[PYTHON, "-c", ALLOCATE],
            resources={"limits": {"memory": "50Mi"}},
        ),
        phase="Failed",
        ends={"base": {"exitCode": 137, "reason": "OOMKilled"}},
    ),
    _outcome(
        "missing_program_is_start_error",
        container("base", command=["no-such-program"]),
        phase="Failed",
        ends={"base": {"exitCode": 128, "reason": "StartError", "startedAt": "1970-01-01T00:00:00Z"}},
    ),
    _outcome(
        "argument_over_128_kib_is_start_error",
        container("base", command=["echo", "x" * 131_072]),
        phase="Failed",
        ends={"base": {"exitCode": 128, "reason": "StartError"}},
    ),
    _outcome(
        "argument_just_below_128_kib_runs",
        container("base", command=["true", "x" * 131_071]),
        phase="Succeeded",
    ),
    _outcome(
        "termination_message_file_is_reported",
        container("base", "printf 'the cause' > /dev/termination-log; exit 1"),
        phase="Failed",
        ends={"base": {"message": "the cause"}},
    ),
    _outcome(
        "termination_message_path_can_be_chosen",
        container("base", "printf elsewhere > /var/message; exit 0", terminationMessagePath="/var/message"),
        phase="Succeeded",
        ends={"base": {"message": "elsewhere"}},
    ),
    _outcome(
        "log_is_termination_message_after_failure",
        container("base", "echo one; echo two; exit 1", terminationMessagePolicy="FallbackToLogsOnError"),
        phase="Failed",
        ends={"base": {"message": "one\ntwo\n"}},
    ),
    # Alone: the order of two streams in the log is a race, with containerd too.
    _outcome(
        "log_of_standard_error_is_termination_message_after_failure",
        container("base", "echo two >&2; exit 1", terminationMessagePolicy="FallbackToLogsOnError"),
        phase="Failed",
        ends={"base": {"message": "two\n"}},
    ),
    _outcome(
        "log_is_no_termination_message_after_success",
        container("base", "echo one", terminationMessagePolicy="FallbackToLogsOnError"),
        phase="Succeeded",
        ends={"base": {"message": None}},
    ),
    _outcome(
        "security_context_has_no_effect",
        container(
            "base",
            f"test $({PYTHON} -c 'import os; print(os.getuid())') != 50000",
            securityContext={"runAsUser": 50000},
        ),
        securityContext={"fsGroup": 50000},
        phase="Succeeded",
    ),
]


@pytest.fixture(scope="module")
def started(shared_namespace: Namespace) -> Namespace:
    for outcome in OUTCOMES:
        shared_namespace.create(outcome.pod)
    return shared_namespace


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: outcome.id)
def test_pod_ends_as_on_a_kubelet(started: Namespace, outcome: Outcome) -> None:
    ended = started.wait_for_end(outcome.pod["metadata"]["name"])
    assert ended["status"]["phase"] == outcome.phase
    for key, value in outcome.status.items():
        assert ended["status"].get(key) == value
    for name, fields in outcome.containers.items():
        if fields is None:
            assert state_of(ended, name) == {"waiting": {"reason": "PodInitializing"}}
            assert not status_of(ended, name)["ready"]
            continue
        state = terminated(ended, name)
        assert {key: state.get(key) for key in fields} == fields


def test_log_in_termination_message_is_its_last_80_lines_or_2048_bytes(namespace: Namespace) -> None:
    namespace.create(
        pod(
            "long",
            container("base", "seq 1 1000; exit 1", terminationMessagePolicy="FallbackToLogsOnError"),
            container(
                "wide", "seq -f %0100g 1 100; exit 1", terminationMessagePolicy="FallbackToLogsOnError"
            ),
        )
    )
    ended = namespace.wait_for_end("long")
    assert terminated(ended)["message"].split() == [str(n) for n in range(921, 1001)]
    assert len(terminated(ended, "wide")["message"]) <= 2048


def test_times_are_those_of_the_process(namespace: Namespace) -> None:
    namespace.create(pod("times", container("base", "sleep 2")))
    running = namespace.wait_for_phase("times", "Running")
    state = terminated(namespace.wait_for_end("times"))
    assert state["startedAt"] == state_of(running)["running"]["startedAt"]
    assert state["finishedAt"] > state["startedAt"]


def test_events_tell_the_story_of_a_pod(namespace: Namespace) -> None:
    namespace.create(pod("story", container("base", "sleep 60")))
    namespace.wait_for_phase("story", "Running")
    namespace.delete("story")
    for reason in ("Scheduled", "Pulled", "Created", "Started", "Killing"):
        namespace.wait_for_event("story", reason)
