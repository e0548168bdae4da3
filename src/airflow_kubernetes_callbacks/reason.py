"""Why a callback failed, in words for ``callback.output``. Pure: texts and JSON in, a text out.

Two kinds are told apart by their first words: ``Could not start`` (the callback never began, it may
be launched again) and ``Ran and failed`` (it began; it is never repeated on its own).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from airflow_kubernetes_callbacks import pod_status
from airflow_kubernetes_callbacks.failure_log import LogFailure, exit_code_text, failure_in_log
from airflow_kubernetes_callbacks.pod_waiting import unfinished_init, waiting
from airflow_kubernetes_callbacks.redact import mask_secrets, presentable, strip_control_characters

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from airflow_kubernetes_callbacks.pod_status import BaseStatus

COULD_NOT_START = "Could not start"
RAN_AND_FAILED = "Ran and failed"

#: How much of a log's end is looked at; the lines that tell are the last ones.
LOG_TAIL_BYTES = 64 * 1024
MAX_EVENTS = 3
_MAX_LINES = 20
#: What a termination message that was cut leads to: the log says it in full.
_REPLACEABLE = ("…", "the execution API refused a request", "the callback's process ")
_ORDINARY_END = re.compile(r"container \S+: Error, exit code \d+( \(\w+\))?(:|$)")
_TERMINATION_MESSAGE_BYTES = 2048

#: The kubelet's words when the image, or the template, runs the callback as root or as a named user.
_ROOT_REFUSED = re.compile(r"runAsNonRoot|non-root")
_ROOT_HINT = (
    "name a user other than root by its number (securityContext.runAsUser) in the pod template, or set "
    "[kubernetes_callbacks] security_context = none"
)


#: What Python says of a callback, or of what it imports, that is not in the image.
_NOT_IN_THE_IMAGE = re.compile(r"(ModuleNotFoundError|ImportError): |AttributeError: module '")
_IMAGE_HINT = (
    "the image of the callback's pod has to have it: install it there, or correct the callback's path"
)


def could_not_start(text: str) -> str:
    """Return *text* as the reason of a callback that never began."""
    return _prefixed(COULD_NOT_START, text)


def ran_and_failed(text: str) -> str:
    """Return *text* as the reason of a callback that began."""
    return _prefixed(RAN_AND_FAILED, text)


def _prefixed(prefix: str, text: str) -> str:
    if text.startswith((COULD_NOT_START, RAN_AND_FAILED)):
        return presentable(text)
    return presentable(f"{prefix}: {text}")


def reason_with_log(reason: str | None, tail: bytes) -> str | None:
    """Return the reason of a failure made better by the end of the log, if that tells more.

    What Kubernetes says beyond the exit code (OOMKilled, Evicted) stays beside the callback's own words.
    """
    told = _told_by_tail(tail)
    if told is None or (reason and told.text in reason):
        return reason
    known = (reason or "").removeprefix(f"{RAN_AND_FAILED}: ")
    replaced = not known or known.startswith(_REPLACEABLE) or _ORDINARY_END.match(known)
    own_words = _with_image_hint(told.text)
    return ran_and_failed(own_words if replaced else f"{own_words}; {known}")


def _told_by_tail(tail: bytes) -> LogFailure | None:
    text = tail[-LOG_TAIL_BYTES:].decode("utf-8", "replace") if tail else ""
    return failure_in_log(_clean(text))


def reason_with_events(reason: str, events: Iterable[Mapping[str, Any]]) -> str:
    """Return *reason* with the pod's last distinct warning events appended (JSON objects)."""
    told: dict[tuple[str, str], int] = {}
    for event in sorted((e for e in events if isinstance(e, dict)), key=_event_time):
        message = (pod_status.text_of(event, "message") or "").strip()
        if event.get("type") != "Warning" or not message or message in reason:
            continue
        key = (str(event.get("reason") or "Warning"), message)
        told.pop(key, None)
        told[key] = _event_count(event)
    texts = [
        f"{name}: {message}" + (f" ({count} times)" if count > 1 else "")
        for (name, message), count in list(told.items())[-MAX_EVENTS:]
    ]
    return presentable(f"{reason} [events: {'; '.join(texts)}]") if texts else presentable(reason)


def _event_time(event: Mapping[str, Any]) -> str:
    for name in ("lastTimestamp", "eventTime", "firstTimestamp"):
        if isinstance(value := event.get(name), str):
            return value
    return ""


def _event_count(event: Mapping[str, Any]) -> int:
    series = event.get("series")
    count = series.get("count") if isinstance(series, dict) else event.get("count")
    return count if isinstance(count, int) else 1


def waiting_text(pod: Mapping[str, Any]) -> str | None:
    """Return why the pod still waits, if it says so."""
    text = waiting(pod).text or unfinished_init(pod)
    return presentable(_with_hint(text)) if text else None


def unstarted_reason(pod: Mapping[str, Any], base: BaseStatus, *, deleted: bool = False) -> str:
    """Return why the base container never began."""
    parts: list[str] = []
    if init := pod_status.failed_init(pod):
        parts.append(f"init container {init.get('name')} failed: {_end_text(init)}")
    elif base.ended and base.word != pod_status.STATUS_UNKNOWN:
        parts.append(
            _joined(
                f"container {base.name}: {base.word or 'start failed'}",
                base.message,
                exit_code_text(base.exit_code) if base.exit_code else None,
            )
        )
    elif waits := waiting(pod).text:
        parts.append(_with_hint(waits))
    parts.extend(_pod_level(pod, already=" ".join(parts)))
    if deleted and not parts:
        parts.append("the pod was deleted before its container began")
    elif deleted:
        parts.append("the pod was deleted")
    return could_not_start("; ".join(parts) or "the pod ended before its container began")


def told_by_callback(base: BaseStatus) -> bool:
    """Tell whether the termination message has the failure in full, in the callback's own words."""
    told = _told(base)
    return told is not None and told.whole


def failure_reason(pod: Mapping[str, Any], base: BaseStatus, *, deleted: bool = False) -> str:
    """Return why a callback that began, or may have, failed: the user's exception before all else."""
    parts: list[str] = []
    told = _told(base)
    if told:
        parts.append(_with_image_hint(told.text))
    if base.ended and (not told or base.word not in (None, "Error", "Completed")):
        parts.append(_base_end(pod, base, with_message=not told))
    if not base.ended:
        parts.append(_unfinished(pod, base, deleted))
    parts.extend(_pod_level(pod, already=" ".join(parts)))
    if base.ended and pod_status.ended_by_deletion(pod, base):
        parts.append("the pod was deleted while the callback was running")
    return ran_and_failed("; ".join(parts))


def _told(base: BaseStatus) -> LogFailure | None:
    return failure_in_log(_clean(base.message)) if base.message and base.ended else None


def _clean(text: str) -> str:
    """Return *text* without secrets: also without one that the text begins in the middle of."""
    return mask_secrets(strip_control_characters(text))


def _base_end(pod: Mapping[str, Any], base: BaseStatus, *, with_message: bool) -> str:
    word = base.word or "Error"
    limit = pod_status.mapping(pod_status.mapping(pod_status.base_container(pod), "resources"), "limits").get(
        "memory"
    )
    if word == "OOMKilled":
        word = f"OOMKilled (memory limit {limit})" if limit else "OOMKilled (no memory limit of its own)"
    text = _joined(f"container {base.name}: {word}", exit_code_text(base.exit_code))
    message = _last_lines(_clean(base.message)) if with_message and base.message else None
    return f"{text}: {message}" if message else text


def _unfinished(pod: Mapping[str, Any], base: BaseStatus, deleted: bool) -> str:
    if pod_status.node_lost(pod):
        node = pod_status.text_of(pod_status.mapping(pod, "spec"), "nodeName")
        return f"node {node} was lost" + ("" if base.began else "; the callback may have begun there")
    if not base.began:
        return "the pod ended without a word on its container, which may have begun"
    if deleted:
        return "the pod was deleted while the callback was running"
    return "the pod ended while the callback was running"


def _pod_level(pod: Mapping[str, Any], *, already: str) -> Iterator[str]:
    """Yield what pod status and disruption condition add (Evicted, DeadlineExceeded, preemption)."""
    for item in (pod_status.mapping(pod, "status"), pod_status.disruption(pod)):
        word, message = pod_status.text_of(item, "reason"), pod_status.text_of(item, "message")
        told = message if message is not None else word
        if told is None or told in already:
            continue
        already += told
        yield ": ".join(part for part in (word, message) if part)


def _with_hint(text: str) -> str:
    return f"{text} [{_ROOT_HINT}]" if _ROOT_REFUSED.search(text) else text


def _with_image_hint(text: str) -> str:
    return f"{text} [{_IMAGE_HINT}]" if _NOT_IN_THE_IMAGE.match(text) else text


def _end_text(end: Mapping[str, Any]) -> str:
    text = _joined(pod_status.text_of(end, "reason") or "Error", exit_code_text(end.get("exitCode")))
    message = _last_lines(_clean(pod_status.text_of(end, "message") or ""))
    return f"{text}: {message}" if message else text


def _last_lines(text: str) -> str:
    """Return the last lines of a container's own words; a first line that was cut off is left out."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(text.encode("utf-8", "replace")) >= _TERMINATION_MESSAGE_BYTES - 1 and len(lines) > 1:
        lines = lines[1:]
    return "\n".join(lines[-_MAX_LINES:])


def _joined(*parts: str | None) -> str:
    return ", ".join(part for part in parts if part)
