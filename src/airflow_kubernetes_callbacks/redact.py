"""Texts made fit to be stored and shown: no secrets, no control characters, bounded.

Everything that a pod, an API answer or a log says passes through here before it reaches
``callback.output``, the audit log or a log line of the scheduler.
"""

from __future__ import annotations

import re

#: The longest text that is stored as a reason. The database column is unbounded; readers are not.
MAX_TEXT_LENGTH = 4000

#: Of what is longer than this, the middle is not even looked at.
_LONGEST_INPUT = 256 * 1024

MASK = "***"
_ELLIPSIS = " … "

_ANSI = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor movements
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # window titles, hyperlinks
    r"|\x1b[@-_]?"  # the rest, a lone escape included
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029]|[\ud800-\udfff]")

#: What a token can consist of, read once from left to right: no text makes this slow.
_TOKEN_CHARACTERS = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)*")
#: How every JSON Web Token begins, ``{"`` in base64, up to the end of its header.
_HEADER = re.compile(r"eyJ[A-Za-z0-9_-]{4,512}\.")
_SHORTEST_SIGNATURE = 40
_BEARER = re.compile(r"(?i)(\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}")
_TOKEN_FIELD = re.compile(r"""(?i)(\btoken\\*["']?\s*[:=]\s*\\*["'])[^"'\\]{8,}""")


def mask_secrets(text: str) -> str:
    """Return *text* with every token in it replaced by ``***``, those that are cut off too."""
    text = _TOKEN_CHARACTERS.sub(_masked, text)
    for pattern in (_BEARER, _TOKEN_FIELD):
        text = pattern.sub(rf"\g<1>{MASK}", text)
    return text


def mask_log(log: bytes) -> bytes:
    """Return a log with every token in it masked; else it is as it was, byte for byte."""
    return mask_secrets(log.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _masked(match: re.Match[str]) -> str:
    """Return a run of token characters with the token in it masked.

    A tail can begin in the middle of a token: then the run stands first, has a long last part and
    is followed by the quote that closed the token.
    """
    run = match[0]
    if header := _HEADER.search(run):
        return run[: header.start()] + MASK
    closing = match.string[match.end() : match.end() + 1]
    cut = match.start() == 0 and closing != "" and closing in "\"'\\"
    return MASK if cut and len(run) - run.rfind(".") > _SHORTEST_SIGNATURE else run


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
    text = bounded(text, _LONGEST_INPUT)
    return bounded(mask_secrets(strip_control_characters(text)).strip(), limit)
