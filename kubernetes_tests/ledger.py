"""The ledger: what callbacks did, written down outside Airflow and outside the cluster.

Callback functions of the fixtures (``dags/ledger_callbacks.py``) post a line to it when they begin and
when they end. Pods of a real cluster share no disk with the tests, so the ledger listens on the network.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType


@dataclass(frozen=True)
class Entry:
    """One line: *event* (``begin``, ``end`` or what the callback calls it) of the run named *key*."""

    key: str
    event: str
    details: dict[str, Any]


class Ledger:
    """An HTTP server in a thread that remembers what is posted to it.

    :param host: address to listen on.
    :param host_for_pods: address at which pods reach it.
    """

    def __init__(self, host: str, host_for_pods: str) -> None:
        self._entries: list[Entry] = []
        self._lock = threading.Lock()
        ledger = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                line = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with ledger._lock:
                    ledger._entries.append(Entry(line["key"], line["event"], line.get("details", {})))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer((host, 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://{host_for_pods}:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, name="ledger", daemon=True)

    def entries(self, key: str | None = None, event: str | None = None) -> list[Entry]:
        with self._lock:
            return [
                entry for entry in self._entries if key in (None, entry.key) and event in (None, entry.event)
            ]

    def runs(self, key: str) -> int:
        """Return how many times the callback called *key* began."""
        return len(self.entries(key, "begin"))

    def __enter__(self) -> Ledger:
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
