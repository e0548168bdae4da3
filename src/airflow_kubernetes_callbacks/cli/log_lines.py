"""Log lines of a callback made readable: Airflow's pods log JSON, one object per line. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from airflow_kubernetes_callbacks.redact import mask_secrets, strip_control_characters

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_OWN_PLACE = frozenset(
    {"timestamp", "level", "event", "logger", "error_detail", "exception", "filename", "lineno"}
)


def lines_in(chunks: Iterable[bytes]) -> Iterator[str]:
    """Yield the lines of a log that comes in pieces, each line as soon as it is complete.

    Each piece is looked at once, however many of them a line is made of.
    """
    pieces: list[bytes] = []
    for chunk in chunks:
        rest, *beginnings = chunk.split(b"\n")
        pieces.append(rest)
        for beginning in beginnings:
            yield b"".join(pieces).decode("utf-8", "replace")
            pieces = [beginning]
    if rest := b"".join(pieces):
        yield rest.decode("utf-8", "replace")


def plain(line: str) -> str:
    """Return the line as it is, without tokens and terminal escapes."""
    return mask_secrets(strip_control_characters(line))


def readable(line: str) -> str:
    """Return a line for people; one that is no JSON object stays as it is."""
    try:
        record = json.loads(line) if line.startswith("{") else None
    except ValueError:
        record = None
    if not isinstance(record, dict) or "event" not in record:
        return plain(line)
    time = str(record.get("timestamp") or "").replace("T", " ").removesuffix("Z")[:23]
    level = str(record.get("level") or "info").upper()
    more = " ".join(
        f"{key}={value if isinstance(value, str) else json.dumps(value, default=str)}"
        for key, value in record.items()
        if key not in _OWN_PLACE and value is not None
    )
    text = " ".join(part for part in (time, f"{level:<8}", str(record["event"]), more) if part)
    return plain("\n".join([text, *_traceback(record.get("error_detail") or record.get("exception"))]))


def _traceback(chain: Any) -> list[str]:
    """Return an exception chain as Python prints it, without the code lines, which the log lacks."""
    if isinstance(chain, str):
        return chain.splitlines()
    lines: list[str] = []
    for link in reversed(chain) if isinstance(chain, list) else ():
        if not isinstance(link, dict):
            continue
        lines.extend(
            f'  File "{frame.get("filename")}", line {frame.get("lineno")}, in {frame.get("name")}'
            for frame in link.get("frames") or ()
            if isinstance(frame, dict)
        )
        lines.append(f"{link.get('exc_type')}: {link.get('exc_value')}")
    return lines
