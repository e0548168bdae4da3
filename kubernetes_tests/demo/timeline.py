"""What happens to a callback, as the differences between two looks at it. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TERMINAL = frozenset({"success", "failed"})


@dataclass(frozen=True)
class PodSeen:
    """One look at a pod; each field is what there is to say about it, or None."""

    name: str
    node: str | None = None
    waiting: str | None = None
    started: bool = False
    exit_code: int | None = None


@dataclass(frozen=True)
class CallbackSeen:
    """One look at a callback: its deadline, its row and its newest pod."""

    id: str
    function: str
    missed: bool = False
    state: str | None = None
    output: str | None = None
    pod: PodSeen | None = None

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL


@dataclass(frozen=True)
class Moment:
    """One line of the timeline. *kind* is what it happened to: deadline, row, pod or log."""

    function: str
    kind: str
    text: str
    good: bool | None = field(default=None)


def function_name(data: Mapping[str, Any]) -> str:
    """Return the name of the function that a row's ``data`` asks for."""
    plain = data.get("__var", data)
    return str(plain.get("path", "?")).rpartition(".")[2]


def pod_seen(pod: Mapping[str, Any]) -> PodSeen:
    """Read what the timeline shows off a pod's JSON."""
    status = pod.get("status") or {}
    base: dict[str, Any] = next(
        (one for one in status.get("containerStatuses") or [] if one.get("name") == "base"), {}
    )
    state = base.get("state") or {}
    terminated = state.get("terminated")
    return PodSeen(
        name=pod["metadata"]["name"],
        node=(pod.get("spec") or {}).get("nodeName"),
        waiting=(state.get("waiting") or {}).get("reason"),
        started="running" in state or terminated is not None,
        exit_code=None if terminated is None else terminated.get("exitCode"),
    )


def log_line(line: str) -> str | None:
    """Return what the callback itself logged, or None for a line of Airflow's own.

    Pods log JSON; the callback's process logs under the name of the callback's module or of ``root``.
    """
    try:
        entry = json.loads(line)
    except ValueError:
        return line.strip() or None
    if not isinstance(entry, dict):
        return line.strip()
    event, logger = str(entry.get("event", "")), str(entry.get("logger", ""))
    if event == "Callback failed":
        return str(entry.get("error"))
    return event if logger.rpartition(".")[2] == "late_report" or "late_report" in logger else None


def moments(before: CallbackSeen | None, now: CallbackSeen) -> Iterator[Moment]:
    """Yield what happened between two looks, in the order in which it must have happened."""
    before = before or CallbackSeen(now.id, now.function)

    def moment(kind: str, text: str, good: bool | None = None) -> Moment:
        return Moment(now.function, kind, text, good)

    if now.missed and not before.missed:
        yield moment("deadline", "missed")
    ended = now.ended and not before.ended
    if now.state != before.state and now.state and now.missed and not ended:
        yield moment("row", now.state.upper())
    for text, good in _pod_moments(before.pod, now.pod):
        yield moment("pod", text, good)
    if ended:
        assert now.state is not None
        reason = f": {now.output}" if now.output else ""
        yield moment("row", f"{now.state.upper()}{reason}", now.state == "success")
    if before.pod and not now.pod:
        yield moment("pod", f"{before.pod.name} deleted, its result is recorded")


def _pod_moments(before: PodSeen | None, now: PodSeen | None) -> Iterator[tuple[str, bool | None]]:
    if now is None:
        return
    if before is None or before.name != now.name:
        yield f"{now.name} created", None
        before = PodSeen(now.name)
    if now.node and not before.node:
        yield f"assigned to node {now.node}", None
    if now.waiting and now.waiting not in (before.waiting, "ContainerCreating", "PodInitializing"):
        yield f"waits: {now.waiting}", None
    if now.started and not before.started:
        yield "running", None
    if now.exit_code is not None and before.exit_code is None:
        yield f"ended with exit code {now.exit_code}", now.exit_code == 0
