"""The words of ``callback.output``: from real logs of the supervisor, from pods, events and log tails."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kubernetes_callbacks.failure_log import exit_code_text, failure_in_log
from airflow_kubernetes_callbacks.outcome import PodView, pod_view
from airflow_kubernetes_callbacks.reason import (
    could_not_start,
    ran_and_failed,
    reason_with_events,
    reason_with_log,
)
from airflow_kubernetes_callbacks.redact import MAX_TEXT_LENGTH, bounded, mask_log, mask_secrets, presentable
from tests.pods import pod, status, terminated, waiting

LOGS = Path(__file__).parent / "supervisor_logs"
ALL_LOGS = sorted(LOGS.glob("*/*.log"))
TERMINATION_MESSAGE_BYTES = 2048

TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"


def log_of(version: str, name: str) -> bytes:
    return (LOGS / version / f"{name}.log").read_bytes()


def failed_pod(message: str | None, code: int = 1, word: str = "Error", **more: Any) -> PodView:
    view = pod_view(pod("Failed", [status(state=terminated(code, word, message))], **more))
    assert view is not None
    return view


FROM_LOGS = {
    ("3.3.2", "raised"): "Ran and failed: ValueError: boom é hi",
    ("3.4.0b2", "raised"): "Ran and failed: ValueError: boom é hi",
    ("3.3.2", "notifier"): "Ran and failed: KeyError: 'nope'",
    ("3.4.0b2", "notifier"): "Ran and failed: KeyError: 'nope'",
    ("3.3.2", "missing_module"): "Ran and failed: ModuleNotFoundError: No module named 'nomod' [the image of",
    (
        "3.4.0b2",
        "missing_module",
    ): "Ran and failed: ModuleNotFoundError: No module named 'nomod' [the image of",
    (
        "3.3.2",
        "timeout",
    ): "Ran and failed: timed out after 2 seconds ([callbacks] callback_execution_timeout)",
    (
        "3.4.0b2",
        "timeout",
    ): "Ran and failed: timed out after 2 seconds ([callbacks] callback_execution_timeout)",
    (
        "3.3.2",
        "killed",
    ): "the callback's process was killed (exit code -9 (SIGKILL)) [most often for want of memory",
    (
        "3.4.0b2",
        "killed",
    ): "the callback's process was killed (exit code -9 (SIGKILL)) [most often for want of memory",
    (
        "3.3.2",
        "unreadable_argument",
    ): "could not read its workload (the worker image must hold the scheduler's",
    ("3.4.0b2", "unreadable_argument"): "Failed to parse input JSON string: 1 validation error",
    ("3.3.2", "missing_file"): "No such file or directory: '/var/run/airflow-callback/workload.json'",
    ("3.4.0b2", "missing_file"): "No such file or directory: '/var/run/airflow-callback/workload.json'",
    ("3.4.0b2", "unreachable"): "[core] execution_api_server_url must be reachable",
}


@pytest.mark.parametrize(("log", "words"), FROM_LOGS.items(), ids=["-".join(log) for log in FROM_LOGS])
def test_termination_message_tells_the_failure(log: tuple[str, str], words: str) -> None:
    message = log_of(*log)[-TERMINATION_MESSAGE_BYTES:].decode("utf-8", "replace")

    assert words in (failed_pod(message).reason or "")


@pytest.mark.parametrize("version", ["3.3.2", "3.4.0b2"])
def test_exception_that_is_longer_than_the_message_is_completed_from_the_log(version: str) -> None:
    log = log_of(version, "long_message")

    view = failed_pod(log[-TERMINATION_MESSAGE_BYTES:].decode())

    assert view.reason is not None
    assert view.reason.startswith("Ran and failed: …xxx")
    assert view.reason.endswith("x the end")
    assert not view.explained
    whole = reason_with_log(view.reason, log)
    assert whole is not None
    assert whole.startswith("Ran and failed: RuntimeError: xxx")
    assert whole.endswith("x the end")


REFUSALS = {
    "token_expired": ("Signature has expired", "task_queued_timeout", "clocks"),
    "not_queued": ("invalid_state", "another pod runs it, or ran it"),
}


@pytest.mark.parametrize(("log", "words"), REFUSALS.items(), ids=REFUSALS)
def test_refusal_by_the_execution_api_is_completed_from_the_log(log: str, words: tuple[str, ...]) -> None:
    tail = log_of("3.4.0b2", log)

    view = failed_pod(tail[-TERMINATION_MESSAGE_BYTES:].decode())

    assert "execution API refused" in (view.reason or "")
    assert not view.explained
    whole = reason_with_log(view.reason, tail)
    for word in words:
        assert word in (whole or "")


@pytest.mark.parametrize("log", ALL_LOGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_cut_log_never_claims_to_be_whole_with_other_words(log: Path) -> None:
    text = log.read_text()
    full = failure_in_log(text)
    assert full is not None
    for start in range(0, len(text), 7):
        told = failure_in_log(text[start:])
        if told is not None and told.whole:
            assert told.text == full.text, start
        elif told is not None and told.text.startswith("…"):
            assert f"Callback execution failed: {full.text}".endswith(told.text[1:]), start


def line(**record: Any) -> str:
    return json.dumps(record) + "\n"


def test_last_failure_counts() -> None:
    text = line(event="Callback failed", error="Callback execution failed: A: 1") + line(
        event="Callback failed", error="Callback execution failed: B: 2"
    )

    assert failed_pod(text).reason == "Ran and failed: B: 2"


def test_prefix_in_the_line_does_not_hide_the_record() -> None:
    text = "2026-06-01T10:00:00.000000000Z stdout F " + line(event="Callback failed", error="A: 1")

    assert failed_pod(text).reason == "Ran and failed: A: 1"


@pytest.mark.parametrize(
    "text",
    [
        '{"event": "Callback failed"}',
        '{"event": "Callback failed", "error": null}',
        '{"event": ["Callback failed"]}',
        '{"level": "critical", "exception": [1, null, {}]}',
        '{"level": "critical", "exception": []}',
        "[1]",
        "{" * 5000,
        '{"a":' * 100_000,
        "null",
        "",
        "\x00\x1b[31m",
        'x","logger":"callback_runner"',
        '\\","logger":"callback_runner"',
        '"exc_type":"\\u","exc_value":"\\ud800"',
    ],
    ids=lambda text: repr(text[:40]),
)
def test_strange_logs_are_read_without_an_error(text: str) -> None:
    failure_in_log(text)
    view = failed_pod(text)
    assert (view.reason or "").startswith("Ran and failed: ")
    reason_with_log(None, text.encode("utf-8", "surrogatepass"))


@given(st.text() | st.binary().map(lambda data: data.decode("utf-8", "replace")))
def test_any_message_makes_a_presentable_reason(message: str) -> None:
    reason = failed_pod(message).reason or ""
    assert len(reason) <= MAX_TEXT_LENGTH
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", reason)


def test_plain_output_is_the_reason_where_no_record_is() -> None:
    view = failed_pod("Traceback (most recent call last):\nMemoryError\n", 1)

    assert view.reason == (
        "Ran and failed: container base: Error, exit code 1: Traceback (most recent call last):\nMemoryError"
    )
    assert not view.explained


def test_cut_first_line_of_plain_output_is_left_out() -> None:
    message = "x" * 2043 + "\nlast"

    assert failed_pod(message).reason == "Ran and failed: container base: Error, exit code 1: last"


def test_what_kubernetes_knows_stays_beside_the_callbacks_words() -> None:
    message = line(event="Callback failed", error="ValueError: boom")

    view = failed_pod(message, 137, "OOMKilled")

    assert view.reason == (
        "Ran and failed: ValueError: boom; "
        "container base: OOMKilled (no memory limit of its own), exit code 137 (SIGKILL)"
    )
    assert view.explained


WITH_LOG = {
    "nothing known": (None, "Ran and failed: ValueError: boom"),
    "only an exit code": (
        "Ran and failed: container base: Error, exit code 1",
        "Ran and failed: ValueError: boom",
    ),
    "plain last lines": (
        "Ran and failed: container base: Error, exit code 1: Traceback",
        "Ran and failed: ValueError: boom",
    ),
    "end of the exception": ("Ran and failed: …oom", "Ran and failed: ValueError: boom"),
    "told already": (
        "Ran and failed: ValueError: boom; Evicted: x",
        "Ran and failed: ValueError: boom; Evicted: x",
    ),
    "eviction": (
        "Ran and failed: container base: Error, exit code 137 (SIGKILL); Evicted: low on memory",
        "Ran and failed: ValueError: boom; container base: Error, exit code 137 (SIGKILL); Evicted: low on memory",
    ),
    "out of memory": (
        "Ran and failed: container base: OOMKilled (memory limit 1Gi), exit code 137 (SIGKILL)",
        "Ran and failed: ValueError: boom; container base: OOMKilled (memory limit 1Gi), exit code 137 (SIGKILL)",
    ),
}


@pytest.mark.parametrize(("reason", "better"), WITH_LOG.values(), ids=WITH_LOG)
def test_log_makes_the_reason_better(reason: str | None, better: str) -> None:
    tail = line(event="Callback failed", error="Callback execution failed: ValueError: boom").encode()

    assert reason_with_log(reason, tail) == better


@pytest.mark.parametrize("tail", [b"", b"nothing of note\n", b"\xff\xfe" * 100, b"x" * 10_000_000], ids=len)
def test_log_that_tells_nothing_leaves_the_reason(tail: bytes) -> None:
    assert reason_with_log("Ran and failed: it", tail) == "Ran and failed: it"
    assert reason_with_log(None, tail) is None


def event(message: str | None, time: str = "2026-06-01T10:00:00Z", **more: Any) -> dict[str, Any]:
    return {"type": "Warning", "reason": "FailedMount", "message": message, "lastTimestamp": time, **more}


EVENTS: dict[str, tuple[list[Any], str]] = {
    "none": ([], "Could not start: x"),
    "one": ([event("no Secret")], "Could not start: x [events: FailedMount: no Secret]"),
    "counted": (
        [event("no Secret", count=4)],
        "Could not start: x [events: FailedMount: no Secret (4 times)]",
    ),
    "counted in a series": (
        [event("no Secret", None, eventTime="2026-06-01T10:00:00.1Z", series={"count": 2})],  # type: ignore[arg-type]
        "Could not start: x [events: FailedMount: no Secret (2 times)]",
    ),
    "ordinary ones are left out": ([event("pulled", type="Normal")], "Could not start: x"),
    "what is known is left out": ([event("x")], "Could not start: x"),
    "repetition is said once": (
        [event("alpha", "3"), event("beta", "2"), event("alpha", "1")],
        "Could not start: x [events: FailedMount: beta; FailedMount: alpha]",
    ),
    "the last three": (
        [event("delta", "4"), event("gamma", "3"), event("beta", "2"), event("alpha", "1")],
        "Could not start: x [events: FailedMount: beta; FailedMount: gamma; FailedMount: delta]",
    ),
    "malformed": (
        [None, 3, {}, event(None), {"type": "Warning", "message": ["x"], "count": "y"}],
        "Could not start: x",
    ),
}


@pytest.mark.parametrize(("events", "reason"), EVENTS.values(), ids=EVENTS)
def test_reason_with_events(events: list[Any], reason: str) -> None:
    assert reason_with_events("Could not start: x", events) == reason


def test_prefixes_are_set_once() -> None:
    assert could_not_start(could_not_start("x")) == "Could not start: x"
    assert ran_and_failed(could_not_start("x")) == "Could not start: x"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0, "exit code 0"),
        (1, "exit code 1"),
        (137, "exit code 137 (SIGKILL)"),
        (143, "exit code 143 (SIGTERM)"),
        (-9, "exit code -9 (SIGKILL)"),
        (255, "exit code 255"),
        (128, "exit code 128"),
        (10**9, "exit code 1000000000"),
        (None, "exit code unknown"),
        (True, "exit code unknown"),
        ("1", "exit code unknown"),
    ],
)
def test_exit_code_text(code: object, text: str) -> None:
    assert exit_code_text(code) == text


SECRETS = {
    "alone": TOKEN,
    "as an argument": f'["--json-string", "{{\\"token\\":\\"{TOKEN}\\"}}"]',
    "in JSON": json.dumps({"token": TOKEN, "a": 1}),
    "in JSON within JSON": json.dumps({"argument": json.dumps({"token": TOKEN})}),
    "in a repr": repr({"token": TOKEN}),
    "in a header": f"Authorization: Bearer {TOKEN}",
    "in a URL": f"http://x/?t={TOKEN}&b=1",
    "cut in the payload": TOKEN[:40],
    "cut before the payload": TOKEN[:20] + ".",
}


@pytest.mark.parametrize("text", SECRETS.values(), ids=SECRETS)
def test_tokens_are_masked(text: str) -> None:
    masked = presentable(f"before {text} after")

    for part in TOKEN.split("."):
        assert part not in masked
    assert masked.startswith("before ")
    assert masked.endswith(" after")
    assert "***" in masked


#: As long as a real one, with the signature of HS512.
LONG_TOKEN = (
    "eyJhbGciOiJIUzUxMiIsInR5cCI6IkpXVCJ9."
    "eyJzdWIiOiIwMTk5YWFhYS1iYmJiLTdjY2MtOGRkZC1lZWVlZWVlZWVlZWUiLCJleHAiOjE3ODAzMDgwMDAsInNjb3BlIjoiZXhlY3V0aW9uIn0."
    f"{'a1-B_9zQ' * 10}x7Yw8V"
)
#: What stands between two lines of a wrapped text, and whether what is around it stays.
WRAPS = {
    "plain": "\n",
    "plain, indented": " \n    ",
    "with carriage returns": "\r\n",
    "in JSON": "\\n",
    "in JSON within JSON": "\\\\n",
    "in a box": " │\n│ ",
    "in two boxes": " │ │\n│ │ ",
}


@pytest.mark.parametrize("between", WRAPS.values(), ids=WRAPS)
@pytest.mark.parametrize("first", [3, 10, 36, 37, 38, 60, 76])
def test_token_that_is_wrapped_over_lines_is_masked(between: str, first: int) -> None:
    rest = LONG_TOKEN[first:]
    lines = [LONG_TOKEN[:first], *(rest[start : start + 76] for start in range(0, len(rest), 76))]
    masked = mask_secrets(f"token='{between.join(lines)}'{between}and more words")

    assert len(lines) > 3
    assert not [line for line in lines if line in masked]
    assert masked.endswith(f"***'{between}and more words")
    assert mask_log(between.join(lines).encode()) == between.join(["***"] * len(lines)).encode()


@pytest.mark.parametrize(
    "after",
    [
        "and_more_words",
        "airflow.providers.cncf.kubernetes.executors.KubernetesExecutor",
        "-" * 76,
        "0199aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee-0199aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee",
        'File "/opt/airflow/dags/alerts_of_the_first_team_2.py", line 17, in AlertOnCall',
    ],
    ids=["word", "class", "rule", "ids", "frame"],
)
@pytest.mark.parametrize("token", [TOKEN, LONG_TOKEN, "eyJust_a_word"], ids=["short", "long", "no token"])
def test_line_after_a_token_is_not_masked(token: str, after: str) -> None:
    assert mask_secrets(f"{token}\n{after}\n") == f"{token if token == 'eyJust_a_word' else '***'}\n{after}\n"


@pytest.mark.parametrize("kept", [1, 20, 43, 44, 70, len(TOKEN) - 1, len(TOKEN)])
@pytest.mark.parametrize("coloured", [False, True], ids=["plain", "coloured"])
def test_token_in_which_a_long_text_is_cut_leaves_nothing(kept: int, coloured: bool) -> None:
    """Of so long a text the middle is cut out before it is looked at, and little is left of what is not."""
    token = TOKEN[:-1] + "\x1b[0m" + TOKEN[-1] if coloured else TOKEN
    end = " after" + "\x00" * (256 * 1024 // 3 - kept - len(" after"))
    text = "before " + "\x00" * (256 * 1024) + token + end

    shown = presentable(text)

    assert not [part for part in TOKEN.split(".") if part[-10:] in shown]
    assert shown.startswith("before")
    assert shown.endswith("after")


def test_token_that_begins_before_a_tail_is_masked() -> None:
    tail = TOKEN[45:] + '","log_path":"x"}'

    assert presentable(tail) == '***","log_path":"x"}'


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: boom",
        "my_package.callbacks.alert",
        "eyJust a word",
        "token missing",
        "a" * 100,
        "Bearer of news",
    ],
)
def test_ordinary_words_are_not_masked(text: str) -> None:
    assert mask_secrets(text) == text


def test_token_that_a_termination_message_begins_in_is_masked() -> None:
    view = failed_pod(f'{TOKEN[45:]}","log_path":"x"}} and words')

    assert TOKEN[-30:] not in (view.reason or "")
    assert "and words" in (view.reason or "")


SLOW = {
    "one word": "x" * 65536,
    "beginnings of tokens": "eyJ" * 22000,
    "beginnings of tokens with dots": "eyJ." * 16000,
    "dots": "a." * 32000,
    "backslashes": "\\" * 65536,
    "token, backslashes": "token" + "\\" * 65536,
    "token fields": "token='" * 9000,
    "bearer": "bearer " * 9000,
    "spaces": "bearer" + " " * 65536,
    "escapes": "\x1b[" * 30000,
    "long escape": "\x1b[" + "0" * 65536,
    "quotes": '\\"' * 32000,
    "exceptions": '"exc_type":"' * 5400,
    "console lines in one": "[error    ] Failed to read file " * 2000,
    "console lines": "[error ] Failed to read file error= loc=\n" * 1500,
    "hints": line(event="Callback failed", error="API_SERVER_ERROR ServerResponseError: " * 1600),
    "nested": '{"a":' * 13000,
    "lines": "{\n" * 32000,
    "wrapped tokens": ("eyJ" + "aA1" * 20 + "\n") * 1000,
    "headers in lines": "eyJ\n" * 16000,
    "headers before backslashes": ("eyJ" + "\\" * 61) * 1000,
    "header before backslashes": "eyJ" + "\\" * 65536,
    "headers before spaces": ("eyJ" + " " * 150) * 430,
}


@pytest.mark.parametrize("text", SLOW.values(), ids=SLOW)
def test_no_text_takes_long(text: str) -> None:
    begin = time.process_time()

    presentable(text)
    reason_with_log(None, text.encode())
    failed_pod(text)

    assert time.process_time() - begin < 2


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]8;;http://x\x07link\x1b]8;;\x07", "link"),
        ("a\x00b\x07c\x7f", "abc"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("  a\tb \n", "a\tb"),
        ("half \ud800 pair", "half  pair"),
        ("zeile\u2028weiter", "zeileweiter"),
        ("日本語 🎉", "日本語 🎉"),
    ],
    ids=repr,
)
def test_control_characters_are_removed(text: str, clean: str) -> None:
    assert presentable(text) == clean


@given(st.text(max_size=200), st.integers(0, 60))
def test_bounded_keeps_both_ends(text: str, limit: int) -> None:
    cut = bounded(text, limit)

    assert len(cut) <= limit or cut == text
    if len(text) > limit > 10:
        assert " … " in cut
        assert text.startswith(cut.split(" … ")[0])


def test_waiting_text_is_masked_and_bounded() -> None:
    view = pod_view(pod("Pending", [status(state=waiting("ErrImagePull", f"{TOKEN} " + "x" * 9000))]))

    assert view is not None
    assert TOKEN not in (view.reason or "")
    assert len(view.reason or "") <= MAX_TEXT_LENGTH


def failed_init(message: str) -> str:
    view = pod_view(
        pod(
            "Failed",
            [status(state=waiting("PodInitializing"))],
            init=[status("fetch", terminated(1, message=message))],
        )
    )
    assert view is not None
    assert view.reason is not None
    return view.reason


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(f"token: {TOKEN}\nfatal: cannot fetch", id="whole"),
        pytest.param(f'{TOKEN[45:]}"\nfatal: cannot fetch', id="begins-in-it"),
        pytest.param(f'{TOKEN[45:]}" fatal: cannot fetch', id="begins-in-it-one-line"),
    ],
)
def test_token_in_the_log_of_an_init_container_is_masked(message: str) -> None:
    reason = failed_init(message)

    assert TOKEN[-30:] not in reason
    assert "init container fetch failed: Error, exit code 1: " in reason
    assert "fatal: cannot fetch" in reason


def test_log_of_an_init_container_is_bounded_and_its_end_is_told() -> None:
    lines = "".join(f"line {number}\n" for number in range(200))

    assert failed_init(lines).endswith("line 199")
    assert "line 179\n" not in failed_init(lines)
    assert len(failed_init("x" * 9000)) <= MAX_TEXT_LENGTH


@pytest.mark.parametrize(
    ("error", "hinted"),
    [
        pytest.param(
            "AirflowSecretsBackendAccessDenied: Access denied for connection 'mail' by Execution API; refusing to "
            "fall back to a less-restrictive secrets backend.",
            True,
            id="refusal_by_the_sdk",
        ),
        pytest.param(
            "AirflowRuntimeError: API_SERVER_ERROR: {'status_code': 403, 'message': 'Forbidden'}",
            True,
            id="refusal_passed_on",
        ),
        pytest.param(
            "AirflowNotFoundException: The conn_id `mail` isn't defined", False, id="no_such_connection"
        ),
    ],
)
def test_refused_connection_comes_with_what_to_do(error: str, hinted: bool) -> None:
    view = failed_pod(line(event="Callback failed", error=f"Callback execution failed: {error}"))

    assert (view.reason or "").startswith(f"Ran and failed: {error}")
    assert ("connections_and_variables = True" in (view.reason or "")) == hinted
