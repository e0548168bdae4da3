"""Texts made fit to be stored and shown: no secrets, no control characters, bounded.

Everything that a pod, an API answer or a log says passes through here before it reaches
``callback.output``, the audit log or a log line of the scheduler.
"""

from __future__ import annotations

import re

#: The longest text that is stored as a reason. The database column is unbounded; readers are not.
MAX_TEXT_LENGTH = 4000

MASK = "***"
_ELLIPSIS = " … "

_ANSI = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor movements
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # window titles, hyperlinks
    r"|\x1b[@-_]?"  # the rest, a lone escape included
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029]|[\ud800-\udfff]")

_SECRETS: tuple[tuple[re.Pattern[str], str], ...] = (
    # A JSON Web Token, also one that was cut off after its header.
    (re.compile(r"eyJ[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*){1,2}"), MASK),
    # One that was cut off before its header: what stands at the start of a tail.
    (re.compile(r"\A[A-Za-z0-9_-]*\.?[A-Za-z0-9_-]{40,}(?=[\"'\\])"), MASK),
    (re.compile(r"(?i)(\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}"), rf"\g<1>{MASK}"),
    (re.compile(r"""(?i)((\\*["'])?\btoken\2?\s*[:=]\s*\\*["'])[^"'\\]{8,}"""), rf"\g<1>{MASK}"),
)


def mask_secrets(text: str) -> str:
    """Return *text* with every token in it replaced by ``***``."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def strip_control_characters(text: str) -> str:
    """Return *text* without terminal escapes and control characters; line breaks and tabs stay."""
    return _CONTROL.sub("", _ANSI.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))


def bounded(text: str, limit: int = MAX_TEXT_LENGTH) -> str:
    """Return *text* cut in its middle to at most *limit* characters: both ends tell most."""
    if len(text) <= limit:
        return text
    if limit <= len(_ELLIPSIS):
        return text[: max(limit, 0)]
    head = (limit - len(_ELLIPSIS)) * 2 // 3
    tail = limit - len(_ELLIPSIS) - head
    return text[:head] + _ELLIPSIS + text[len(text) - tail :]


def presentable(text: str, limit: int = MAX_TEXT_LENGTH) -> str:
    """Return *text* clean, masked and bounded: the one way from a foreign text to a reader."""
    return bounded(mask_secrets(strip_control_characters(text)).strip(), limit)
