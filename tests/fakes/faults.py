"""What can go wrong with a request, said beforehand."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import threading


@dataclass
class Fault:
    """What happens to requests that fit.

    :param method: HTTP method, or ``LIST`` and ``WATCH`` for the two kinds of GET on a collection.
    :param path: regular expression that has to be found in path and query.
    :param times: how many requests it hits; None for all of them.
    :param after_storing: the request is carried out first, and then its answer is lost or another.
    """

    method: str
    path: str = ""
    times: int | None = 1
    status: int | None = None
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    reset: bool = False
    after_storing: bool = False
    #: The request waits here, before it is carried out.
    gate: threading.Event | None = None
    #: The request is carried out, and its answer waits here.
    answer_gate: threading.Event | None = None
    #: The stream of a watch stays open and tells nothing.
    silent: bool = False
    #: How many requests it has hit.
    hits: int = 0

    def fits(self, method: str, verb: str, path: str) -> bool:
        return (
            (self.times is None or self.hits < self.times)
            and self.method in (method, verb)
            and re.search(self.path, path) is not None
        )


def status_body(code: int, reason: str, message: str) -> bytes:
    document: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }
    return json.dumps(document).encode()
