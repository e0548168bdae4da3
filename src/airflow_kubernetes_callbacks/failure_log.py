"""Reading of the callback supervisor's log: what went wrong in the container. Pure and total.

The supervisor writes one JSON object per line; a callback that raised leaves ``{"event": "Callback
failed", "error": "Callback execution failed: ValueError: …"}``. With ``FallbackToLogsOnError`` the
last 2,048 bytes of the log become the container's termination message: its first line is usually
cut, and a long traceback in the last line can be all that there is. What such a message does not tell,
a longer tail of the log does.
"""

from __future__ import annotations

import json
import re
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_kubernetes_callbacks.redact import bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_STRING = r'"((?:[^"\\]|\\.)*)"'
_CALLBACK_PREFIX = "Callback execution failed: "
_EXIT_CODE = re.compile(r"Callback subprocess exited with code (-?\d+)")
_CUT_VALUE = re.compile(r'\A((?:[^"\\]|\\.)*)",\s?"logger": ?"callback_runner"')
_CUT_EXCEPTION = re.compile(rf'"exc_type": ?{_STRING}, ?"exc_value": ?{_STRING}')
#: Before its logging is set up, the supervisor writes lines for people.
_CONSOLE_LINE = re.compile(
    r"^\S* ?\[error +\] (Failed to (?:read file|parse input JSON string)) .*?error=(.*?)(?: loc=\S+)?$",
    re.MULTILINE,
)

_VERSION_HINT = "the worker image must hold the scheduler's Airflow version"
_REFUSED_HINT = (
    "the execution API refused the callback's token: it expired while the pod waited ([scheduler] "
    "task_queued_timeout), or the clocks of the node and of the API server differ"
)
_CONNECTIONS_HINT = (
    "on Airflow 3.3 a callback reads Connections and Variables only with [kubernetes_callbacks] "
    "connections_and_variables = True and its workload in a Secret (payload_delivery)"
)
_HINTS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"ServerResponseError: .*(auth token|expired|not yet valid|Unauthorized|Forbidden|\b40[13]\b)"
        ),
        _REFUSED_HINT,
    ),
    (
        re.compile(r"could be marked as running"),
        "the callback was no longer queued when its pod began: another pod runs it, or ran it",
    ),
    (
        re.compile(r"ConnectError|ConnectTimeout|Connection refused|Name or service not known"),
        "if this is the execution API: [core] execution_api_server_url must be reachable from the pod",
    ),
    (
        re.compile(r"was killed \(exit code -9 "),
        "most often for want of memory: raise the memory limit of the callback's pod",
    ),
    # The SDK's own word for a refusal; a backend or a library that asks by itself passes the answer on.
    (
        re.compile(r"SecretsBackendAccessDenied: |API_SERVER_ERROR.*\b403\b", re.DOTALL),
        _CONNECTIONS_HINT,
    ),
)


@dataclass(frozen=True, slots=True)
class LogFailure:
    """What a log tells about a failure."""

    text: str
    #: Nothing was cut off: a longer tail of the log tells no more.
    whole: bool = True


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


def failure_in_log(text: str) -> LogFailure | None:
    """Return what went wrong according to the end of the supervisor's log; the last word counts."""
    records = [record for line in text.splitlines() if (record := _json_object(line)) is not None]
    found = (
        _last(records, _timeout)
        or _last(records, _user_error)
        or _cut_user_error(text)
        or _console_line(text)
        or _last(records, _unhandled)
        or _cut_exception(text)
    )
    return LogFailure(_with_hint(bounded(found.text)), found.whole) if found else None


def _last(
    records: list[dict[str, Any]], reader: Callable[[dict[str, Any]], LogFailure | None]
) -> LogFailure | None:
    return next((told for record in reversed(records) if (told := reader(record)) is not None), None)


def _json_object(line: str) -> dict[str, Any] | None:
    start = line.find("{")
    try:
        value = json.loads(line[start:]) if start >= 0 else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _timeout(record: dict[str, Any]) -> LogFailure | None:
    if not str(record.get("event")).startswith("Callback execution timeout exceeded"):
        return None
    seconds = record.get("timeout_seconds", "?")
    return LogFailure(f"timed out after {seconds} seconds ([callbacks] callback_execution_timeout)")


def _user_error(record: dict[str, Any]) -> LogFailure | None:
    field = {"Callback failed": "error", "Callback execution failed": "error_msg"}.get(
        str(record.get("event"))
    )
    error = record.get(field) if field else None
    return LogFailure(str(error).removeprefix(_CALLBACK_PREFIX)) if error else None


def _cut_user_error(text: str) -> LogFailure | None:
    """Return the end of the user's exception where the tail begins in the middle of it."""
    match = _CUT_VALUE.match(text)
    return LogFailure(f"…{_unescaped(match[1])}", whole=False) if match else None


def _console_line(text: str) -> LogFailure | None:
    found = _CONSOLE_LINE.findall(text)
    if not found:
        return None
    event, error = found[-1]
    quoted = len(error) > 1 and error[0] in "\"'" and error[-1] == error[0]
    told = (error[1:-1] if quoted else error).replace("\\n", "\n")
    return LogFailure(f"the pod could not read its workload ({_VERSION_HINT}): {event}: {told}")


def _unhandled(record: dict[str, Any]) -> LogFailure | None:
    chain = record.get("exception") or record.get("error_detail")
    if record.get("level") not in ("error", "critical") or not isinstance(chain, list):
        return None
    links = [link for link in chain if isinstance(link, dict)]
    notes = [
        note for link in links[:1] if isinstance(link.get("exc_notes"), list) for note in link["exc_notes"]
    ]
    return _from_exceptions(
        [(str(link.get("exc_type")), str(link.get("exc_value"))) for link in links],
        [str(note) for note in notes if not str(note).startswith("Correlation-id")],
    )


def _cut_exception(text: str) -> LogFailure | None:
    """Return what the end of one long traceback tells: the causes stand last."""
    links = [(_unescaped(name), _unescaped(value)) for name, value in _CUT_EXCEPTION.findall(text)]
    if told := _from_exceptions(links, ()):
        return LogFailure(told.text, whole=False)
    if '"name":"raise_on_4xx_5xx' in text:
        return LogFailure("the execution API refused a request of the callback's pod", whole=False)
    return None


def _from_exceptions(links: list[tuple[str, str]], notes: Iterable[str]) -> LogFailure | None:
    if not links:
        return None
    name, message = links[0]
    if match := _EXIT_CODE.search(message):
        code = int(match[1])
        how = "was killed" if code < 0 else "ended"
        # An exception or the timeout is told by a line before this one, which may have been cut off.
        return LogFailure(f"the callback's process {how} ({exit_code_text(code)})", whole=False)
    text = "; ".join([f"{name}: {message}", *notes])
    root_name, root_message = links[-1]
    if len(links) > 1 and root_message and root_message not in message:
        text += f" (caused by {root_name}: {root_message})"
    return LogFailure(text)


def _with_hint(text: str) -> str:
    hint = next((words for pattern, words in _HINTS if pattern.search(text)), None)
    return f"{text} [{hint}]" if hint else text


def _unescaped(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:
        return text
