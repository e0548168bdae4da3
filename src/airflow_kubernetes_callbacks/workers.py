"""A few daemon threads that make requests, so that the scheduler's thread need not wait for them."""

from __future__ import annotations

import logging
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)


class WorkerPool:
    """Runs functions in daemon threads, first come, first served.

    Daemon threads, because a request that hangs must not keep a scheduler from exiting (the standard
    pool joins its threads at exit). A thread is started when there is work and none is idle.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._unfinished = 0
        self._stopped = False

    def submit(self, work: Callable[[], None]) -> None:
        """Have *work* done; it must not raise (what it raises is logged and lost)."""
        with self._lock:
            if self._stopped:
                return
            self._unfinished += 1
            if self._unfinished > self._threads and self._threads < self._size:
                self._threads += 1
                name = f"{self._name}-{self._threads}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()
        self._queue.put(work)

    def stop(self) -> None:
        """Drop what has not begun; what is under way ends with its request, or with the process."""
        with self._lock:
            self._stopped = True
            threads = self._threads
        for _ in range(threads):
            self._queue.put(None)

    def _serve(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                if not self._stopped:
                    work()
            except BaseException:  # a library's panic must not take the thread along
                log.exception("A request for a callback pod failed in a way that nobody expected.")
            finally:
                with self._lock:
                    self._unfinished -= 1
