"""Forwards requests to the API server, except where a rule says otherwise.

Plain HTTP on the loopback address towards the executor, TLS with the cluster's own credentials towards
the API server. One thread per connection; what is not faulted passes unchanged, watches line by line.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import ssl
import struct
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import yaml

from kubernetes_tests.airflow_env import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from kubernetes import client

#: Headers that belong to one connection, not to the message.
_HOP_BY_HOP = frozenset({"connection", "content-length", "host", "keep-alive", "transfer-encoding"})
_CALLBACK = re.compile(rb"callback-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})-\d+")


@dataclass(frozen=True)
class Reply:
    """An answer, complete."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Match:
    """Which requests are meant.

    :param path: a regular expression that is searched in the path, without the query.
    :param watch: only watches, or only what is none; None for both.
    """

    method: str
    path: str
    watch: bool | None = None

    def matches(self, exchange: Exchange) -> bool:
        return (
            exchange.method == self.method
            and self.watch in (None, exchange.is_watch)
            and re.search(self.path, exchange.path) is not None
        )


class Fault(Protocol):
    """Something that goes wrong with one request."""

    def apply(self, exchange: Exchange) -> None:
        """Answer the request, or do not."""


@dataclass(eq=False)
class Rule:
    """A fault, and the requests that it befalls.

    :param times: how many of them; None for all until the rule is removed.
    :param sticky: only those about one callback: the first that comes and has no such rule yet.
    """

    fault: Fault
    match: Match
    times: int | None = 1
    sticky: bool = False
    hits: int = 0
    #: The callback that a sticky rule has.
    callback_id: str | None = None

    @property
    def spent(self) -> bool:
        return self.times is not None and self.hits >= self.times

    def wait_for_hits(self, hits: int = 1, timeout: float = 90.0) -> None:
        """Wait until the fault has begun that many times."""
        wait_for(f"{self} hits {hits} times", lambda: self.hits >= hits, timeout, interval=0.05)


@dataclass(frozen=True)
class Seen:
    """A request that came."""

    method: str
    path: str
    is_watch: bool
    callback_id: str | None


class FaultProxy:
    """The proxy. A ``with`` block starts and stops it.

    :param upstream: how the API server is reached, as the ``kubernetes`` package has it.
    """

    def __init__(self, upstream: client.Configuration) -> None:
        self._upstream = upstream
        self._tls: ssl.SSLContext | None = None
        if upstream.host.startswith("https"):
            self._tls = ssl.create_default_context(cafile=upstream.ssl_ca_cert)
            self._tls.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the certificates of test clusters are simple
            if upstream.cert_file:
                self._tls.load_cert_chain(upstream.cert_file, upstream.key_file)
        self._headers = {
            setting["key"]: str(setting["value"])
            for setting in upstream.auth_settings().values()
            if setting["in"] == "header"
        }
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._released = threading.Event()
        self._streams: set[http.client.HTTPConnection] = set()
        self._connections: set[socket.socket] = set()
        self._seen: list[Seen] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                with proxy._lock:
                    proxy._connections.add(self.connection)

            def finish(self) -> None:
                with proxy._lock:
                    proxy._connections.discard(self.connection)
                super().finish()

            def handle_any(self) -> None:
                proxy._handle(Exchange(proxy, self))

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, name="fault-proxy", daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.clear()
        self.end_streams()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        with self._lock:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def write_kubeconfig(self, path: Path, context: str = "proxy") -> Path:
        """Write a kubeconfig that leads to the proxy; it needs no credentials."""
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "proxy", "cluster": {"server": self.url}}],
                    "users": [{"name": "nobody", "user": {}}],
                    "contexts": [{"name": context, "context": {"cluster": "proxy", "user": "nobody"}}],
                    "current-context": context,
                }
            )
        )
        return path

    # --- rules ---

    def inject(self, fault: Fault, match: Match, *, times: int | None = 1, sticky: bool = False) -> Rule:
        """Let *fault* befall the next requests that match."""
        rule = Rule(fault, match, times, sticky)
        with self._lock:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """Remove all rules and let go of all that a fault holds."""
        with self._lock:
            self._rules.clear()
            released, self._released = self._released, threading.Event()
        released.set()

    def end_streams(self) -> None:
        """End the watches that are open, as the API server does from time to time."""
        with self._lock:
            for upstream in self._streams:
                if upstream.sock is not None:
                    with contextlib.suppress(OSError):
                        upstream.sock.shutdown(socket.SHUT_RDWR)

    def seen(self, match: Match, callback_id: str | None = None) -> int:
        """Return how many requests of this kind have come, about one callback or about any."""
        with self._lock:
            return sum(
                seen.method == match.method
                and match.watch in (None, seen.is_watch)
                and re.search(match.path, seen.path) is not None
                and callback_id in (None, seen.callback_id)
                for seen in self._seen
            )

    def _rule_for(self, exchange: Exchange) -> Rule | None:
        subject = exchange.callback_id
        with self._lock:
            self._seen.append(Seen(exchange.method, exchange.path, exchange.is_watch, subject))
            exchange.released = self._released
            taken = {rule.callback_id for rule in self._rules if rule.callback_id is not None}
            for rule in self._rules:
                if rule.spent or not rule.match.matches(exchange):
                    continue
                if rule.sticky:
                    if subject is None or rule.callback_id not in (None, subject):
                        continue
                    if rule.callback_id is None and subject in taken:
                        continue
                    rule.callback_id = subject
                rule.hits += 1
                return rule
        return None

    def _handle(self, exchange: Exchange) -> None:
        rule = self._rule_for(exchange)
        try:
            if rule is not None:
                rule.fault.apply(exchange)
            elif exchange.is_watch:
                exchange.pass_stream()
            else:
                exchange.send(exchange.forward())
        except (OSError, http.client.HTTPException):
            exchange.reset()  # one of the two sides is gone

    def connect(self) -> http.client.HTTPConnection:
        """Return a new connection to the API server."""
        address = urlsplit(self._upstream.host)
        host, port = address.hostname or "127.0.0.1", address.port
        if self._tls is None:
            return http.client.HTTPConnection(host, port, timeout=120)
        return http.client.HTTPSConnection(host, port, timeout=120, context=self._tls)


class Exchange:
    """One request, and how it is answered."""

    def __init__(self, proxy: FaultProxy, handler: BaseHTTPRequestHandler) -> None:
        self._proxy = proxy
        self._handler = handler
        self.method = handler.command
        self.target = handler.path
        address = urlsplit(handler.path)
        self.path = address.path
        self.is_watch = "watch=True" in address.query or "watch=true" in address.query
        self.body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        about = _CALLBACK.search(self.path.encode()) or _CALLBACK.search(self.body)
        #: The callback that the request is about, if it is about one.
        self.callback_id = about[1].decode() if about else None
        #: Set when the test lets go of what a fault holds.
        self.released = threading.Event()

    # --- towards the API server ---

    def forward(self) -> Reply:
        """Make the request and return the whole answer."""
        with contextlib.closing(self._proxy.connect()) as upstream:
            response = self._request(upstream)
            headers = {
                name: value for name, value in response.getheaders() if name.lower() not in _HOP_BY_HOP
            }
            return Reply(response.status, response.read(), headers)

    def _request(self, upstream: http.client.HTTPConnection) -> http.client.HTTPResponse:
        headers = {
            name: value for name, value in self._handler.headers.items() if name.lower() not in _HOP_BY_HOP
        }
        upstream.request(self.method, self.target, self.body or None, headers | self._proxy._headers)
        return upstream.getresponse()

    @contextlib.contextmanager
    def stream(self) -> Iterator[Iterator[bytes]]:
        """Open the watch and begin the answer; yield its lines, one event each."""
        upstream = self._proxy.connect()
        with contextlib.closing(upstream):
            response = self._request(upstream)
            if upstream.sock is not None:
                upstream.sock.settimeout(None)
            with self._proxy._lock:
                self._proxy._streams.add(upstream)
            try:
                self._begin(
                    response.status,
                    {
                        "Content-Type": response.getheader("Content-Type") or "application/json",
                        "Transfer-Encoding": "chunked",
                    },
                )
                yield iter(response.readline, b"")
            finally:
                with self._proxy._lock:
                    self._proxy._streams.discard(upstream)

    # --- towards the client ---

    def send(self, reply: Reply) -> None:
        self._begin(reply.status, {**reply.headers, "Content-Length": str(len(reply.body))})
        self._handler.wfile.write(reply.body)

    def send_part(self, reply: Reply, size: int) -> None:
        """Send the beginning of an answer, as if the connection broke then."""
        self._begin(reply.status, {**reply.headers, "Content-Length": str(len(reply.body))})
        self._handler.wfile.write(reply.body[:size])
        self.reset()

    def pass_stream(self) -> None:
        with self.stream() as lines:
            for line in lines:
                self.send_line(line)
        self.end_stream()

    def send_line(self, line: bytes) -> None:
        """Send one line of an answer that :meth:`stream` began."""
        self._handler.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

    def end_stream(self) -> None:
        self._handler.wfile.write(b"0\r\n\r\n")

    def _begin(self, status: int, headers: Mapping[str, Any]) -> None:
        self._handler.send_response_only(status)
        for name, value in headers.items():
            self._handler.send_header(name, value)
        self._handler.end_headers()

    def reset(self) -> None:
        """Break the connection off, with a reset."""
        self._handler.close_connection = True
        with contextlib.suppress(OSError):
            self._handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._handler.rfile.close()
            self._handler.connection.close()
