"""Looks at the rows and pods of the demo, and follows the logs of its callback pods."""

from __future__ import annotations

import contextlib
import json
import queue
import sqlite3
import threading
from typing import TYPE_CHECKING
from uuid import UUID

from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from kubernetes_tests.demo.timeline import CallbackSeen, Moment, function_name, log_line, moments, pod_seen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kubernetes_tests.clusters import Namespace

ROWS = """
    SELECT callback.id, callback.data, callback.state, callback.output, deadline.missed
    FROM deadline JOIN callback ON deadline.callback_id = callback.id
    ORDER BY callback.created_at
"""


class Watch:
    """What is known of the demo's callbacks; :meth:`look` says what has changed since the last look."""

    def __init__(self, database: Path, namespace: Namespace) -> None:
        self._database = database
        self._namespace = namespace
        self._seen: dict[str, CallbackSeen] = {}
        self._followed: set[str] = set()
        self._lines: queue.SimpleQueue[Moment] = queue.SimpleQueue()

    @property
    def callbacks(self) -> list[CallbackSeen]:
        return list(self._seen.values())

    @property
    def done(self) -> bool:
        """Whether every callback has ended. Pods that failed stay, as they do for tasks."""
        return bool(self._seen) and all(one.ended for one in self.callbacks)

    def look(self) -> Iterator[Moment]:
        """Yield what has happened since the last look."""
        for now in self._callbacks():
            yield from self._log_lines()
            yield from moments(self._seen.get(now.id), now)
            self._seen[now.id] = now
        yield from self._log_lines()

    def rows(self) -> list[CallbackSeen]:
        """Return the rows of the database as they are now, without their pods."""
        address = f"file:{self._database}?mode=ro"
        with contextlib.closing(sqlite3.connect(address, uri=True, timeout=30)) as connection:
            found = connection.execute(ROWS).fetchall()
        return [
            CallbackSeen(str(UUID(key)), function_name(json.loads(data)), bool(missed), state, output)
            for key, data, state, output, missed in found
        ]

    def _callbacks(self) -> Iterator[CallbackSeen]:
        # The pods first: a pod that is seen has its row, and a row's result is not shown before the pod's.
        pods = {}
        for pod in self._namespace.callback_pods():
            callback_id = pod["metadata"]["annotations"]["callback_id"]
            pods[callback_id] = pod
        for row in self.rows():
            seen = pod_seen(pods[row.id]) if row.id in pods else None
            if seen is not None and seen.started:
                self._follow(seen.name, row.function)
            yield CallbackSeen(row.id, row.function, row.missed, row.state, row.output, seen)

    def _follow(self, pod: str, function: str) -> None:
        if pod not in self._followed:
            self._followed.add(pod)
            threading.Thread(target=self._read_log, args=(pod, function), daemon=True).start()

    def _read_log(self, pod: str, function: str) -> None:
        # The pod may be gone before its log is read to the end; the timeline then lacks some lines.
        with contextlib.suppress(ApiException, HTTPError, OSError):
            answer = self._namespace.cluster.core.read_namespaced_pod_log(
                pod, self._namespace.name, container="base", follow=True, _preload_content=False
            )
            for line in answer:
                if text := log_line(line.decode(errors="replace")):
                    self._lines.put(Moment(function, "log", text))

    def _log_lines(self) -> Iterator[Moment]:
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._lines.get_nowait()
