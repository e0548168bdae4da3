"""Reading of the callback supervisor's log: what went wrong in the container. Pure and total.

The supervisor writes one JSON object per line; a callback that raised leaves ``{"event": "Callback
failed", "error": "Callback execution failed: ValueError: …"}``. With ``FallbackToLogsOnError`` the
last 2,048 bytes of the log become the container's termination message, so its first line is usually
cut, and on a failure with many causes that one line is all there is.
"""

from __future__ import annotations

import json
import re
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_CALLBACK_PREFIX = re.compile(r"^Callback execution failed: ")
_EXIT_CODE = re.compile(r"Callback subprocess exited with code (-?\d+)")
_FAILED_LINE = re.compile(r'"event": ?"Callback failed".*?"error": ?"((?:[^"\\]|\\.)*)"')
_CUT_FAILED_LINE = re.compile(r'\A((?:[^"\\]|\\.)*)",\s?"logger": ?"callback_runner"')
_EXCEPTION = re.compile(r'"exc_type": ?"((?:[^"\\]|\\.)*)", ?"exc_value": ?"((?:[^"\\]|\\.)*)"')
_HTTP_STATUS = re.compile(r"\b(401|403|404|409)\b")

_VERSION_HINT = "the worker image must run the scheduler's Airflow version"
_TOKEN_HINT = (
    "the execution API refused the callback's token: it expired while the pod waited "
    "([scheduler] task_queued_timeout), or the clocks of node and API server differ"
)


def exit_code_text(code: object) -> str:
    """Return ``exit code 137 (SIGKILL)``: the code, and the signal that it stands for."""
    if not isinstance(code, int) or isinstance(code, bool):
        return "exit code unknown"
    number = -code if code < 0 else code - 128
    try:
        name = signal.Signals(number).name if number > 0 else None
    except ValueError:
        name = None
    return f"exit code {code} ({name})" if name else f"exit code {code}"


def failure_in_log(text: str) -> str | None:
    """Return what went wrong according to the supervisor's JSON log lines, the last one first.

    The first line may be cut in its middle: a termination message holds the last 2,048 bytes.
    """
    lines = text.splitlines()
    records = [record for line in lines if (record := _json_object(line)) is not None]
    return _from_records(records) or _from_cut_text(text)


def _json_object(line: str) -> dict[str, Any] | None:
    start = line.find("{")
    try:
        value = json.loads(line[start:]) if start >= 0 else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _from_records(records: list[dict[str, Any]]) -> str | None:
    for reader in (_timeout, _user_error, _bad_input, _unhandled):
        for record in reversed(records):
            if told := reader(record):
                return told
    return None


def _timeout(record: dict[str, Any]) -> str | None:
    if not str(record.get("event")).startswith("Callback execution timeout exceeded"):
        return None
    seconds = record.get("timeout_seconds", "?")
    return f"timed out after {seconds} seconds ([callbacks] callback_execution_timeout)"


def _user_error(record: dict[str, Any]) -> str | None:
    event = record.get("event")
    error = record.get(
        {"Callback failed": "error", "Callback execution failed": "error_msg"}.get(str(event), "")
    )
    return _CALLBACK_PREFIX.sub("", str(error)) if error else None


def _bad_input(record: dict[str, Any]) -> str | None:
    event = record.get("event")
    if event not in ("Failed to parse input JSON string", "Failed to read file"):
        return None
    return f"the pod could not read its workload ({_VERSION_HINT}): {record.get('error')}"


def _unhandled(record: dict[str, Any]) -> str | None:
    if record.get("level") not in ("error", "critical"):
        return None
    chain = record.get("exception") or record.get("error_detail")
    if not isinstance(chain, list):
        return None
    return _from_exceptions(
        (str(link.get("exc_type")), str(link.get("exc_value"))) for link in chain if isinstance(link, dict)
    )


def _from_exceptions(chain: Iterator[tuple[str, str]]) -> str | None:
    links = list(chain)
    if not links:
        return None
    name, message = links[0]
    if match := _EXIT_CODE.search(message):
        code = int(match[1])
        killed = "was killed, " if code < 0 else "ended with "
        return f"the callback's process {killed}{exit_code_text(code)}"
    text = f"{name}: {message}"
    root_name, root_message = links[-1]
    if len(links) > 1 and root_message and root_message not in message:
        text += f" (caused by {root_name}: {root_message})"
    if _HTTP_STATUS.search(text) and any(
        word in text for word in ("Unauthorized", "Forbidden", "403", "401")
    ):
        text += f": {_TOKEN_HINT}"
    return text


def _from_cut_text(text: str) -> str | None:
    if found := _FAILED_LINE.findall(text):
        return _CALLBACK_PREFIX.sub("", _unescaped(found[-1]))
    if match := _CUT_FAILED_LINE.match(text):
        return f"…{_unescaped(match[1])}"
    if links := _EXCEPTION.findall(text):
        return _from_exceptions((_unescaped(name), _unescaped(value)) for name, value in links)
    return None


def _unescaped(text: str) -> str:
    try:
        value = json.loads(f'"{text}"')
    except ValueError:
        return text
    return str(value)
