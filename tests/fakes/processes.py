"""Stand-ins for the processes of the stock executor: queues that pickle, watchers in threads.

What crosses a process border is pickled here too, so that something that could not cross fails.
"""

from __future__ import annotations

import contextlib
import pickle
import queue
import threading
from typing import Any

from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_utils import KubernetesJobWatcher

from airflow_kubernetes_callbacks.watcher import CallbackJobWatcher


class PicklingQueue(queue.Queue):
    """A queue of a ``multiprocessing.Manager``, as far as the executor uses it."""

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        super().put(pickle.dumps(item), block, timeout)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        return pickle.loads(super().get(block, timeout))


class LocalManager:
    """``multiprocessing.Manager`` without its process."""

    def Queue(self) -> PicklingQueue:  # noqa: N802
        return PicklingQueue()

    JoinableQueue = Queue

    def shutdown(self) -> None:
        """Nothing to shut down."""


_watchers: list[_InThread] = []


def end_watchers() -> None:
    """End the watchers of the test that is over, and wait until they have."""
    for watcher in _watchers:
        watcher.terminate()
    for watcher in _watchers:
        watcher.thread.join(10)
    _watchers.clear()


class _InThread:
    """Makes a watcher process a thread of the test's process."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._live, name="watcher", daemon=True)

    def _live(self) -> None:
        """Run until it is ended, or dies; a process that dies takes nothing with it."""
        with contextlib.suppress(Exception, SystemExit):
            self.run()  # type: ignore[attr-defined]

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        if self.stopping.is_set():
            raise SystemExit
        return super()._run(*args, **kwargs)  # type: ignore[misc]

    def _pod_events(self, kube_client: Any, query_kwargs: dict[str, Any]) -> Any:
        for event in super()._pod_events(kube_client=kube_client, query_kwargs=query_kwargs):  # type: ignore[misc]
            if self.stopping.is_set():
                raise SystemExit
            yield event

    def start(self) -> None:
        _watchers.append(self)
        self.thread.start()

    def is_alive(self) -> bool:
        return self.thread.is_alive()

    def terminate(self) -> None:
        self.stopping.set()

    def join(self, timeout: float | None = None) -> None:
        """A watcher process dies at once; the thread ends when its stream does."""

    kill = terminate


class ThreadWatcher(_InThread, CallbackJobWatcher):
    """The watcher of this package, in a thread."""


class StockThreadWatcher(_InThread, KubernetesJobWatcher):
    """The stock watcher, in a thread."""


def quick_sleep(seconds: float) -> None:
    """Pauses of the watcher, cut short."""
    threading.Event().wait(min(seconds, 0.05))
