"""What can go wrong with a request: small, each one thing, to be combined by rules."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubernetes_tests.fault_proxy.proxy import Match, Reply

if TYPE_CHECKING:
    from kubernetes_tests.fault_proxy.proxy import Exchange

CREATE_POD = Match("POST", r"/namespaces/[^/]+/pods$")
CREATE_SECRET = Match("POST", r"/namespaces/[^/]+/secrets$")
READ_POD = Match("GET", r"/pods/[^/]+$")
READ_LOG = Match("GET", r"/pods/[^/]+/log$")
PATCH_POD = Match("PATCH", r"/pods/[^/]+$")
DELETE_POD = Match("DELETE", r"/pods/[^/]+$")
LIST_PODS = Match("GET", r"/pods$", watch=False)
WATCH_PODS = Match("GET", r"/pods$", watch=True)
REVIEW_ACCESS = Match("POST", r"/selfsubjectaccessreviews$")


def refusal(status: int, reason: str, message: str, *, retry_after: int | None = None) -> Reply:
    """Return an answer as the API server words it."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": status,
    }
    headers = {"Content-Type": "application/json"}
    if retry_after is not None:
        headers["Retry-After"] = str(retry_after)
    return Reply(status, json.dumps(body).encode(), headers)


def text(status: int, body: str, content_type: str = "text/plain; charset=utf-8") -> Reply:
    """Return an answer of something in between that does not speak the API's language."""
    return Reply(status, body.encode(), {"Content-Type": content_type})


QUOTA = 'pods "callback" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=9, limited: pods=9'
MODIFIED = (
    'Operation cannot be fulfilled on resourcequotas "pods": the object has been modified; please apply '
    "your changes to the latest version and try again"
)
CLASH = "Error from server (ServerTimeout): the server could not complete this operation, try again later"
HTML = "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
THROTTLED = refusal(429, "TooManyRequests", "too many requests, please try again later", retry_after=2)
BROKEN = refusal(500, "InternalError", 'failed calling webhook "policy.example": connection refused')


@dataclass(frozen=True)
class Refuse:
    """Answer without asking the API server."""

    reply: Reply

    def apply(self, exchange: Exchange) -> None:
        exchange.send(self.reply)


@dataclass(frozen=True)
class Reset:
    """Break the connection off before the API server is asked."""

    def apply(self, exchange: Exchange) -> None:
        exchange.reset()


@dataclass(frozen=True)
class LoseAnswer:
    """Ask the API server, and put something else in place of its answer: a reset, or a reply."""

    instead: Reply | None = None

    def apply(self, exchange: Exchange) -> None:
        exchange.forward()
        if self.instead is None:
            exchange.reset()
        else:
            exchange.send(self.instead)


@dataclass(frozen=True)
class Truncate:
    """Ask the API server, and break off in the middle of its answer."""

    def apply(self, exchange: Exchange) -> None:
        reply = exchange.forward()
        exchange.send_part(reply, len(reply.body) // 2)


@dataclass(frozen=True)
class Repeat:
    """Ask the API server twice, as a proxy that retries does, and give its second answer."""

    def apply(self, exchange: Exchange) -> None:
        exchange.forward()
        exchange.send(exchange.forward())


@dataclass(frozen=True)
class Delay:
    """Take some time before the API server is asked, whether or not the client still waits then."""

    seconds: float

    def apply(self, exchange: Exchange) -> None:
        exchange.released.wait(self.seconds)
        exchange.send(exchange.forward())


@dataclass(frozen=True)
class DelayAnswer:
    """Ask the API server at once, and take some time before its answer is given."""

    seconds: float

    def apply(self, exchange: Exchange) -> None:
        reply = exchange.forward()
        exchange.released.wait(self.seconds)
        exchange.send(reply)


@dataclass(frozen=True)
class Hang:
    """Never answer; when the test lets go, the connection breaks off."""

    def apply(self, exchange: Exchange) -> None:
        exchange.released.wait()
        exchange.reset()


@dataclass(frozen=True)
class HalfOpen:
    """Let some events of a watch through, then nothing any more, without closing the connection."""

    after: int = 0

    def apply(self, exchange: Exchange) -> None:
        with exchange.stream() as lines:
            for _, line in zip(range(self.after), lines, strict=False):
                exchange.send_line(line)
            exchange.released.wait()
        exchange.reset()


@dataclass(frozen=True)
class FailStream:
    """Let some events of a watch through, then send an ERROR event in place of the next one."""

    status: int
    reason: str
    after: int = 0

    def apply(self, exchange: Exchange) -> None:
        message = f"too old resource version, says the {self.status} of a test"
        with exchange.stream() as lines:
            for number, line in enumerate(lines):
                if number < self.after:
                    exchange.send_line(line)
                    continue
                status = json.loads(refusal(self.status, self.reason, message).body)
                exchange.send_line(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
                break
        exchange.end_stream()


@dataclass(frozen=True)
class CutStream:
    """Let some events of a watch through, then break off in the middle of the next one."""

    after: int = 0

    def apply(self, exchange: Exchange) -> None:
        with exchange.stream() as lines:
            for number, line in enumerate(lines):
                if number < self.after:
                    exchange.send_line(line)
                    continue
                exchange.send_line(line[: len(line) // 2])
                break
        exchange.reset()


@dataclass(frozen=True)
class GarbleStream:
    """Make the next events of a watch unreadable, each in another way; then pass them on."""

    GARBAGE = (
        b"<html>not JSON</html>\n",
        b"\xff\xfe\n",
        b'{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"annotations":null}}}\n',
    )

    def apply(self, exchange: Exchange) -> None:
        with exchange.stream() as lines:
            for number, line in enumerate(lines):
                exchange.send_line(self.GARBAGE[number] if number < len(self.GARBAGE) else line)
        exchange.end_stream()
