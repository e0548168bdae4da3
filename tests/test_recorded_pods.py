"""What pods of a real cluster said (Kubernetes 1.34, kind), from creation to removal, event by event.

Each file holds the watch events of one pod, without what nobody reads. After about 25 seconds each pod
was deleted (``evicted_api``: evicted; ``force_deleted_running``: deleted with no grace period).
"""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path

import pytest

from airflow_kubernetes_callbacks.outcome import CallbackOutcome, PodView, pod_view

RECORDED = Path(__file__).parent / "recorded_pods"

PENDING = CallbackOutcome.PENDING
RUNNING = CallbackOutcome.RUNNING
SUCCEEDED = CallbackOutcome.SUCCEEDED
FAILED = CallbackOutcome.FAILED
NEVER = CallbackOutcome.NEVER_STARTED

Story = tuple[CallbackOutcome, ...]

# name: (outcomes in order, waiting reasons that were seen, words of the last reason)
STORIES: dict[str, tuple[Story, set[str], str]] = {
    "success": ((PENDING, SUCCEEDED), set(), ""),
    "fail": ((PENDING, RUNNING, FAILED), set(), "container base: Error, exit code 3: oh no"),
    "start_error": ((PENDING, NEVER), set(), "no such file or directory"),
    "argument_too_long": ((PENDING, RUNNING, FAILED), set(), "argument list too long"),
    "pull_error": (
        (PENDING, NEVER),
        {"ErrImagePull", "ImagePullBackOff"},
        "deleted before its container began",
    ),
    "config_error": ((PENDING, NEVER), {"CreateContainerConfigError"}, "deleted before its container began"),
    "run_as_root_refused": (
        (PENDING, NEVER),
        {"CreateContainerConfigError"},
        "deleted before its container began",
    ),
    "invalid_image": ((PENDING, NEVER), {"InvalidImageName"}, "deleted before its container began"),
    "failed_mount": ((PENDING, NEVER), set(), "deleted before its container began"),
    "init_failed": ((PENDING, NEVER), set(), "init container fetch failed: Error, exit code 2: fatal"),
    "init_pull_error": (
        (PENDING, NEVER),
        {"ErrImagePull", "ImagePullBackOff"},
        "deleted before its container began",
    ),
    "sidecar": ((PENDING, SUCCEEDED), set(), ""),
    "native_sidecar": ((PENDING, RUNNING, SUCCEEDED), set(), ""),
    "native_sidecar_pull_error": (
        (PENDING, NEVER),
        {"ErrImagePull", "ImagePullBackOff"},
        "deleted before its container began",
    ),
    "oom": ((PENDING, RUNNING, FAILED), set(), "OOMKilled (memory limit 60Mi), exit code 137 (SIGKILL)"),
    "deadline": ((PENDING, RUNNING, FAILED), set(), "DeadlineExceeded: Pod was active on the node longer"),
    "deadline_pulling": ((PENDING, NEVER), {"ErrImagePull"}, "DeadlineExceeded"),
    "deleted_running": (
        (PENDING, RUNNING, FAILED),
        set(),
        "the pod was deleted while the callback was running",
    ),
    "deleted_running_graceful_success": ((PENDING, RUNNING, SUCCEEDED), set(), ""),
    "force_deleted_running": (
        (PENDING, RUNNING, FAILED),
        set(),
        "the pod was deleted while the callback was running",
    ),
    "evicted_api": ((PENDING, RUNNING, FAILED), set(), "EvictionByEvictionAPI: Eviction API: evicting"),
    "unschedulable": ((PENDING, NEVER), {"Unschedulable"}, "Unschedulable: 0/1 nodes are available"),
    "out_of_cpu": (
        (PENDING, NEVER),
        set(),
        "OutOfcpu: Pod was rejected: Node didn't have enough resource: cpu",
    ),
}


def views(name: str) -> list[PodView]:
    events = [json.loads(line) for line in (RECORDED / f"{name}.jsonl").read_text().splitlines()]
    found = [pod_view(event["object"], deleted=event["type"] == "DELETED") for event in events]
    return [view for view in found if view is not None]


def test_there_is_no_recording_without_a_test() -> None:
    assert {path.stem for path in RECORDED.glob("*.jsonl")} == set(STORIES)


@pytest.mark.parametrize(("name", "story"), STORIES.items(), ids=STORIES)
def test_outcomes_from_creation_to_removal(name: str, story: tuple[Story, set[str], str]) -> None:
    outcomes, waits, words = story
    seen = views(name)

    assert tuple(outcome for outcome, _ in groupby(view.outcome for view in seen)) == outcomes
    assert {view.waiting_reason for view in seen} - {None} == waits
    assert words in (seen[-1].reason or "")
    assert seen[-1].gone


@pytest.mark.parametrize("name", STORIES)
def test_whoever_missed_the_events_learns_the_same_from_the_last_one(name: str) -> None:
    last = views(name)[-1]

    assert last.outcome is STORIES[name][0][-1]


@pytest.mark.parametrize("name", [name for name, story in STORIES.items() if RUNNING in story[0]])
def test_times_are_those_of_the_container(name: str) -> None:
    last = views(name)[-1]

    assert last.started_at is not None
    assert last.created_at <= last.started_at
    assert last.ended_at is None or last.started_at <= last.ended_at


def test_refused_root_comes_with_a_remedy() -> None:
    told = [view.reason for view in views("run_as_root_refused") if view.waiting_reason]

    assert all("security_context = none" in (reason or "") for reason in told)
