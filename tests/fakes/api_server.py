"""A small Kubernetes API server on loopback: real HTTP beneath the real client.

It knows pods and secrets, lists with pages, watches with selectors, preconditions, grace periods and
finalizers as the real one does, and can be told to fail. It is no authority: where it differs from a
real API server, it is wrong (kubernetes_tests run against a real one).
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import socket
import struct
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from tests.fakes.faults import Fault, status_body
from tests.fakes.node import Node
from tests.fakes.objects import ApiStatusError, ObjectStore, Selection

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_COLLECTION = re.compile(
    r"^/api/v1(?:/namespaces/(?P<namespace>[^/]+))?/(?P<plural>pods|secrets|events|configmaps)$"
)
_OBJECT = re.compile(
    r"^/api/v1/namespaces/(?P<namespace>[^/]+)/(?P<plural>pods|secrets|configmaps)/(?P<name>[^/]+)(?P<log>/log)?$"
)
_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
#: Seconds after which a quiet watch looks whether it should end.
_TICK = 0.05


@dataclass(frozen=True)
class Request:
    """One request as it arrived, and the status of its answer."""

    method: str
    #: The method, or LIST and WATCH for the two kinds of GET on a collection.
    verb: str
    path: str
    query: dict[str, str]
    body: Any
    status: int | None
    headers: dict[str, str]


class FakeApiServer:
    """Start it with ``with``; ``store``, ``node`` and ``faults`` are for the test to use."""

    def __init__(self) -> None:
        self.store = ObjectStore()
        self.node = Node(self.store)
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.logs: dict[str, bytes] = {}
        #: Quiet watches that ask for bookmarks get them.
        self.bookmarks = False
        self.allowed: Callable[[str, str, str | None], bool] = lambda verb, resource, namespace: True
        self.stopping = threading.Event()
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.api = self
        self._watches: set[_Handler] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> FakeApiServer:
        threading.Thread(
            target=self._http.serve_forever,
            kwargs={"poll_interval": 0.02},
            name="fake-api-server",
            daemon=True,
        ).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stopping.set()
        for fault in self.faults:
            for gate in (fault.gate, fault.answer_gate):
                if gate is not None:
                    gate.set()
        self.drop_watches()
        self._http.shutdown()
        self._http.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def write_kubeconfig(self, path: Path) -> Path:
        name = "fake"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "clusters": [{"name": name, "cluster": {"server": self.url}}],
            "users": [{"name": name, "user": {"token": "token-of-the-service-account"}}],
        }
        path.write_text(json.dumps(document))
        return path

    # For tests -------------------------------------------------------------------------------------

    def fail(self, method: str, path: str = "", **how: Any) -> Fault:
        """Have requests fail; see :class:`Fault`. ``status`` with ``reason`` and ``message`` makes a Status."""
        if "status" in how and "body" not in how:
            reason, message = how.pop("reason", "InternalError"), how.pop("message", "it does not work")
            how["body"] = status_body(how["status"], reason, message)
        fault = Fault(method, path, **how)
        with self._lock:
            self.faults.append(fault)
        return fault

    def heal(self) -> None:
        with self._lock:
            self.faults.clear()

    def count(self, verb: str, path: str = "", **query: str) -> int:
        return len(self.made(verb, path, **query))

    def made(self, verb: str, path: str = "", **query: str) -> list[Request]:
        """Return the requests of this verb whose path and query have these."""
        with self._lock:
            return [
                request
                for request in self.requests
                if verb in (request.method, request.verb)
                and re.search(path, request.path)
                and all(value in request.query.get(name, "") for name, value in query.items())
            ]

    def pods(self, labels: str = "", namespace: str | None = None) -> list[dict[str, Any]]:
        return self.store.select(Selection("pods", namespace, labels))[0]

    def secrets(self, labels: str = "") -> list[dict[str, Any]]:
        return self.store.select(Selection("secrets", None, labels))[0]

    def drop_watches(self) -> None:
        """Break the connections of all watches, as an API server does that restarts."""
        with self._lock:
            watches = list(self._watches)
        for handler in watches:
            with contextlib.suppress(OSError):
                handler.connection.shutdown(socket.SHUT_RDWR)

    @property
    def watching(self) -> int:
        with self._lock:
            return len(self._watches)

    # For the handler -------------------------------------------------------------------------------

    def fault_for(self, method: str, verb: str, path: str) -> Fault | None:
        with self._lock:
            for fault in self.faults:
                if fault.fits(method, verb, path):
                    fault.hits += 1
                    return fault
        return None

    def note(self, request: Request) -> None:
        with self._lock:
            self.requests.append(request)

    def note_watch(self, handler: _Handler, *, open_now: bool) -> None:
        with self._lock:
            (self._watches.add if open_now else self._watches.discard)(handler)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    api: FakeApiServer

    def handle_error(self, request: object, client_address: object) -> None:
        """Connections that break are what the tests are about."""


class _ResetError(Exception):
    """The connection is to break without an answer."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    _note_as: Callable[[int | None], None]

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Quiet: requests are kept in ``requests``."""

    def _handle(self) -> None:
        split = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(split.query, keep_blank_values=True).items()}
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        collection = _COLLECTION.match(split.path)
        verb = self.command
        if verb == "GET" and collection:
            verb = "WATCH" if query.get("watch") in ("true", "True", "1") else "LIST"
        # Noted before the answer goes out: whoever has the answer finds the request in the list.
        self._note_as = lambda status: self.server.api.note(
            Request(self.command, verb, split.path, query, body, status, dict(self.headers))
        )
        try:
            self._answer(verb, split.path, query, body)
        except _ResetError:
            self._note_as(None)
            self._break_connection()

    do_GET = do_POST = do_PATCH = do_DELETE = _handle  # noqa: N815

    def _answer(self, verb: str, path: str, query: dict[str, str], body: Any) -> int:
        fault = self.server.api.fault_for(self.command, verb, self.path)
        if fault is not None:
            if fault.gate is not None:
                fault.gate.wait()
            if fault.after_storing:
                with contextlib.suppress(ApiStatusError):
                    self._carry_out(verb, path, query, body)
            if fault.reset:
                raise _ResetError
            if fault.status is not None:
                return self._send(fault.status, fault.body, fault.headers)
            if fault.silent:
                return self._stream(iter(()), silent=True)
        try:
            if verb == "WATCH":
                return self._watch(path, query)
            status, document = self._carry_out(verb, path, query, body)
        except ApiStatusError as error:
            status, document = error.code, error.document()
        if fault is not None and fault.answer_gate is not None:
            fault.answer_gate.wait()
        if isinstance(document, bytes):
            return self._send(status, document, {"Content-Type": "text/plain"})
        return self._send(status, json.dumps(document).encode(), {})

    def _carry_out(self, verb: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        api = self.server.api
        if path == _REVIEW:
            asked = body["spec"]["resourceAttributes"]
            allowed = api.allowed(asked["verb"], asked["resource"], asked.get("namespace"))
            return 201, {**body, "status": {"allowed": allowed}}
        if found := _COLLECTION.match(path):
            plural, namespace = found["plural"], found["namespace"]
            if verb == "LIST":
                return 200, self._page(plural, namespace, query)
            return 201, api.store.create(plural, namespace, body)
        if found := _OBJECT.match(path):
            key = (found["plural"], found["namespace"], found["name"])
            if found["log"]:
                api.store.get(*key)
                return 200, api.logs.get(found["name"], b"")
            if verb == "GET":
                return 200, api.store.get(*key)
            if verb == "PATCH":
                return 200, api.store.patch(*key, body)
            if verb == "DELETE":
                return 200, api.store.delete(*key, body or {})
        if path in _DISCOVERY:
            return 200, _DISCOVERY[path]
        raise ApiStatusError(404, "NotFound", "the server could not find the requested resource")

    def _page(self, plural: str, namespace: str | None, query: dict[str, str]) -> dict[str, Any]:
        selection = _selection(plural, namespace, query)
        items, version = self.server.api.store.select(selection)
        start, limit = 0, int(query.get("limit") or 0)
        if token := query.get("continue"):
            known = json.loads(base64.b64decode(token))
            start, version = known["start"], known["version"]
            if version < self.server.api.store.oldest:
                raise ApiStatusError(410, "Expired", "The provided continue parameter is too old")
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        if limit and len(items) > start + limit:
            token = json.dumps({"start": start + limit, "version": version})
            metadata["continue"] = base64.b64encode(token.encode()).decode()
            metadata["remainingItemCount"] = len(items) - start - limit
        page = items[start : start + limit] if limit else items[start:]
        if "PartialObjectMetadataList" in (self.headers.get("Accept") or ""):
            version_of_meta = "meta.k8s.io/v1"
            partial = [
                {"apiVersion": version_of_meta, "kind": "PartialObjectMetadata", "metadata": item["metadata"]}
                for item in page
            ]
            return {
                "apiVersion": version_of_meta,
                "kind": "PartialObjectMetadataList",
                "metadata": metadata,
                "items": partial,
            }
        return {"apiVersion": "v1", "kind": "PodList", "metadata": metadata, "items": page}

    # Watching --------------------------------------------------------------------------------------

    def _watch(self, path: str, query: dict[str, str]) -> int:
        found = _COLLECTION.match(path)
        assert found is not None
        selection = _selection(found["plural"], found["namespace"], query)
        store = self.server.api.store
        since = query.get("resourceVersion") or "0"
        present: list[dict[str, Any]] = []
        version = int(since)
        if since == "0":
            present, version = store.select(selection)
        bookmarks = self.server.api.bookmarks and query.get("allowWatchBookmarks") == "True"
        return self._stream(self._events(selection, present, version, bookmarks))

    def _events(
        self, selection: Selection, present: list[dict[str, Any]], version: int, bookmarks: bool
    ) -> Any:
        for document in present:
            yield "ADDED", document
        store = self.server.api.store
        try:
            for change in store.changes(selection, version, self.server.api.stopping.is_set, _TICK):
                if change is None and bookmarks:
                    yield "BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(store.version)}}
                else:
                    yield change
        except ApiStatusError as error:
            yield "ERROR", error.document()

    def _stream(self, events: Any, *, silent: bool = False) -> int:
        api = self.server.api
        self._note_as(200)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        api.note_watch(self, open_now=True)
        try:
            if silent:
                api.stopping.wait()
            for event in events:
                if event is not None:
                    line = json.dumps({"type": event[0], "object": event[1]}).encode() + b"\n"
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                    self.wfile.flush()
                elif self._client_left():
                    break
                if event is not None and event[0] == "ERROR":
                    break
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            pass
        finally:
            api.note_watch(self, open_now=False)
            self.close_connection = True
        return 200

    def _client_left(self) -> bool:
        try:
            return self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    # Answering -------------------------------------------------------------------------------------

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> int:
        self._note_as(status)
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return status

    def _break_connection(self) -> None:
        self.close_connection = True
        # A reset, not an orderly end.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()


def _selection(plural: str, namespace: str | None, query: dict[str, str]) -> Selection:
    return Selection(plural, namespace, query.get("labelSelector", ""), query.get("fieldSelector", ""))


_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
_DISCOVERY: dict[str, Any] = {
    "/version": {"major": "1", "minor": "34", "gitVersion": "v1.34.0-fake"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": _VERBS},
            {
                "name": "secrets",
                "singularName": "secret",
                "namespaced": True,
                "kind": "Secret",
                "verbs": _VERBS,
            },
        ],
    },
}
