"""A TCP relay before the API server, so that tests can take the API server away and bring it back."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import yaml

from kubernetes_tests.airflow_env import free_port

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType


class Relay:
    """Hands connections on, byte for byte, while it is open. TLS passes through it untouched."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self.port = free_port()
        self._listener: socket.socket | None = None
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def open(self) -> None:
        """Accept connections from now on."""
        self._listener = listener = socket.create_server(("127.0.0.1", self.port))
        thread = threading.Thread(target=self._accept, args=(listener,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def close(self) -> None:
        """Refuse connections from now on, and break those that there are."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        with self._lock:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        self._threads.clear()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._relay, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _relay(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._target) as server:
            with self._lock:
                self._connections.update((client, server))
            try:
                with selectors.DefaultSelector() as selector:
                    selector.register(client, selectors.EVENT_READ, server)
                    selector.register(server, selectors.EVENT_READ, client)
                    while True:
                        for key, _ in selector.select():
                            data = key.fileobj.recv(65536)  # type: ignore[union-attr]
                            if not data:
                                return
                            key.data.sendall(data)
            finally:
                with self._lock:
                    self._connections.difference_update((client, server))

    def __enter__(self) -> Relay:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def relayed_kubeconfig(kubeconfig: Path, context: str | None, copy: Path) -> Relay:
    """Write a copy of *kubeconfig* that goes through a relay, which is closed, and return the relay."""
    document = yaml.safe_load(kubeconfig.read_text())
    name = context or document["current-context"]
    (chosen,) = [entry["context"] for entry in document["contexts"] if entry["name"] == name]
    (cluster,) = [entry["cluster"] for entry in document["clusters"] if entry["name"] == chosen["cluster"]]
    server = urlsplit(cluster["server"])
    relay = Relay(server.hostname or "127.0.0.1", server.port or 443)
    cluster["server"] = f"{server.scheme}://127.0.0.1:{relay.port}"
    cluster.setdefault("tls-server-name", server.hostname)
    copy.write_text(yaml.safe_dump(document))
    copy.chmod(0o600)
    return relay
