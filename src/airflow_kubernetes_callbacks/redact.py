"""Texts made fit to be stored and shown: no secrets, no control characters, bounded.

Everything that a pod, an API answer or a log says passes through here before it reaches
``callback.output``, the audit log or a log line of the scheduler.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

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
_HEADER_BEGINS = "eyJ"
_SHORTEST_SIGNATURE = 40
#: How long the signature of a whole token is in base64, by its algorithm: HS, ES, RS and PS, EdDSA.
_SIGNATURES = frozenset({43, 64, 86, 128, 176, 342, 512, 683, 152})
#: What follows a token on the next line: of plain text, of text in JSON, in a box as tracebacks have it.
_NEXT_LINE = re.compile(r"[ \t|│┃]{0,200}(?:\r?\n|\\+n)[ \t|│┃]{0,200}(?P<part>[A-Za-z0-9_.-]+)")
#: A line of a wrapped token: no word is as long and has all of these.
_SHORTEST_LINE = 40
_MIXED = re.compile(r"(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])(?=[^0-9]*[0-9])")
#: Where the middle of a text was cut out, what may be the rest of a token.
_CUT_TOKEN = re.compile(r"\A[A-Za-z0-9._~+/=-]{1,8192}")
_BEARER = re.compile(r"(?i)(\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}")
_TOKEN_FIELD = re.compile(r"""(?i)(\btoken\\*["']?\s*[:=]\s*\\*["'])[^"'\\]{8,}""")


def mask_secrets(text: str) -> str:
    """Return *text* with every token in it replaced by ``***``, those that are cut off or wrapped too."""
    text = "".join(_without_tokens(text))
    for pattern in (_BEARER, _TOKEN_FIELD):
        text = pattern.sub(rf"\g<1>{MASK}", text)
    return text


def mask_log(log: bytes) -> bytes:
    """Return a log with every token in it masked; else it is as it was, byte for byte."""
    return mask_secrets(log.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _without_tokens(text: str) -> Iterator[str]:
    done = 0
    for run in _TOKEN_CHARACTERS.finditer(text):
        if run.start() < done:
            continue
        header = _HEADER.search(run[0])
        begins = header.start() if header else run[0].find(_HEADER_BEGINS, run[0].rfind(".") + 1)
        further = list(_further_lines(run, begins)) if begins >= 0 else []
        if not header and not further:
            begins = 0 if _is_end_of_token(run) else len(run[0])
        yield text[done : run.start() + begins]
        yield MASK if begins < len(run[0]) else ""
        done = run.end()
        for line in further:
            yield text[done : line.start("part")] + MASK
            done = line.end()
    yield text[done:]


def _further_lines(run: re.Match[str], begins: int) -> Iterator[re.Match[str]]:
    """Yield the further lines of a token that is wrapped: long ones, and a last one that completes it."""
    dots, last = run[0].count(".", begins), len(run[0]) - max(begins, run[0].rfind(".") + 1)
    end, width = run.end(), 0
    while line := _NEXT_LINE.match(run.string, end):
        part = line["part"]
        before, dot, after = part.rpartition(".")
        dots, last = (dots + before.count(".") + 1, len(after)) if dot else (dots, last + len(after))
        wrapped = len(part) >= _SHORTEST_LINE and (len(part) == width or _MIXED.match(part))
        if not wrapped and not (dots and last in _SIGNATURES):
            return
        yield line
        end, width = line.end(), len(part)


def _is_end_of_token(run: re.Match[str]) -> bool:
    """Tell whether a text begins in the middle of a token.

    Then the run stands first, has a long last part and is followed by the quote that closed the token.
    """
    closing = run.string[run.end() : run.end() + 1]
    cut = run.start() == 0 and closing != "" and closing in "\"'\\"
    return cut and len(run[0]) - run[0].rfind(".") > _SHORTEST_SIGNATURE


def strip_control_characters(text: str) -> str:
    """Return *text* without terminal escapes and control characters; line breaks and tabs stay."""
    return _CONTROL.sub("", _ANSI.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))


def bounded(text: str, limit: int = MAX_TEXT_LENGTH) -> str:
    """Return *text* cut in its middle to at most *limit* characters: both ends tell most."""
    if len(text) <= limit:
        return text
    if limit <= len(_ELLIPSIS):
        return text[: max(limit, 0)]
    head, tail = _ends(text, limit)
    return head + _ELLIPSIS + tail


def _ends(text: str, limit: int) -> tuple[str, str]:
    head = (limit - len(_ELLIPSIS)) * 2 // 3
    tail = limit - len(_ELLIPSIS) - head
    return text[:head], text[len(text) - tail :]


def presentable(text: str, limit: int = MAX_TEXT_LENGTH) -> str:
    """Return *text* clean, masked and bounded: the one way from a foreign text to a reader."""
    if len(text) > _LONGEST_INPUT:
        head, tail = _ends(text, _LONGEST_INPUT)
        # A token in which the middle begins shows as one; the rest of one in which it ends does not.
        text = head + _ELLIPSIS + _CUT_TOKEN.sub("", strip_control_characters(tail))
    return bounded(mask_secrets(strip_control_characters(text)).strip(), limit)
