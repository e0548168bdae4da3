"""A scheduler for tests: the real executor and core's real functions around it, one loop at a time."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from airflow.executors.executor_loader import ExecutorLoader
from airflow.jobs.job import Job, JobState
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models.callback import Callback, CallbackKey
from airflow.utils.session import create_session
from airflow.utils.state import CallbackState

from airflow_kubernetes_callbacks.version_compat import EXECUTION_API_OWNS_RUNNING

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 20.0


def wait_until(
    condition: Callable[[], Any], what: str = "", *, step: Callable[[], None] | None = None
) -> Any:
    """Return what *condition* returns once it is true; *step* is done in between."""
    end = time.monotonic() + PATIENCE
    while True:
        if step is not None:
            step()
        if found := condition():
            return found
        if time.monotonic() > end:
            raise AssertionError(f"did not come true in {PATIENCE:.0f} s: {what or condition}")
        time.sleep(0.01)


class Scheduler:
    """One scheduler: a job row, a runner and its executors. ``loop`` is one round of its loop."""

    def __init__(self) -> None:
        now = datetime.now(UTC)
        with create_session() as session:
            job = Job(job_type="SchedulerJob", state=JobState.RUNNING)
            job.latest_heartbeat = now
            session.add(job)
            session.flush()
            self.job_id = int(job.id)
        self.executors = ExecutorLoader.init_executors()
        job = Job(job_type="SchedulerJob")
        job.id = self.job_id
        self.runner = SchedulerJobRunner(job, executors=self.executors)
        self.crashed = False
        for executor in self.executors:
            executor.job_id = self.job_id

    @property
    def executor(self) -> Any:
        """Ours among the executors."""
        return next(e for e in self.executors if type(e).__name__ == "KubernetesExecutor")

    @property
    def me(self) -> str:
        return str(self.job_id)

    @property
    def callbacks(self) -> Any:
        return self.executor._callbacks

    def start(self) -> Scheduler:
        for executor in self.executors:
            executor.start()
        return self

    # One round of the loop, and its parts ----------------------------------------------------------

    def loop(self) -> None:
        """Do what core's loop does, in its order, as far as callbacks are concerned."""
        self.heartbeat()
        self.take_events()
        self.enqueue()

    def heartbeat(self) -> None:
        for executor in self.executors:
            executor.heartbeat()

    def take_events(self, *, commit: bool = True) -> None:
        """Process the event buffer; without *commit* the database fails when it should keep the result."""
        with create_session(scoped=False) as session:
            for executor in self.executors:
                self.runner._process_executor_events(executor, session)
            if not commit:
                session.rollback()

    def enqueue(self) -> None:
        with create_session(scoped=False) as session:
            self.runner._enqueue_executor_callbacks(session)

    def resync(self) -> None:
        """Have everything compared at the next heartbeat."""
        self.callbacks.resync()

    def until(self, condition: Callable[[], Any], what: str = "", *, resync: bool = False) -> Any:
        def step() -> None:
            if resync:
                self.resync()
            self.loop()

        return wait_until(condition, what, step=step)

    def settle(self, rounds: int = 8) -> None:
        """Loop until requests and comparisons under way are answered and taken in, several times over."""
        for _ in range(rounds):
            self.resync()
            wait_until(
                lambda: not self.callbacks.comparisons.under_way and not self._busy(),
                "settled",
                step=self.loop,
            )

    def _busy(self) -> bool:
        return any(track.busy for track in self.callbacks.cache._tracks.values())

    # Its end ---------------------------------------------------------------------------------------

    def crash(self) -> None:
        """Die without a word: nothing is flushed, the heartbeat stops."""
        self.crashed = True
        for executor in self.executors:
            if getattr(executor, "_callbacks", None) is not None:
                executor._callbacks.stop()
            if getattr(executor, "kube_scheduler", None) is not None:
                for watcher in executor.kube_scheduler.kube_watchers.values():
                    watcher.terminate()
        self.set_heartbeat(age=3600)

    def stop(self) -> None:
        """End as on SIGTERM."""
        if self.crashed:
            return
        self.crashed = True
        for executor in self.executors:
            executor.end()
        self.set_heartbeat(age=3600)

    def set_heartbeat(self, age: float) -> None:
        with create_session(scoped=False) as session:
            job = session.get(Job, self.job_id)
            if job is not None:
                job.latest_heartbeat = datetime.now(UTC) - timedelta(seconds=age)

    # What can be seen of it ------------------------------------------------------------------------

    @property
    def running(self) -> set[str]:
        return {str(key) for key in self.executor.running if isinstance(key, CallbackKey)}

    @property
    def events(self) -> dict[str, tuple[Any, Any]]:
        return {str(key): value for key, value in self.executor.event_buffer.items()}


# Rows -----------------------------------------------------------------------------------------------


def state_of(callback_id: str) -> str | None:
    """Return the state of the row; None where it is gone."""
    with create_session(scoped=False) as session:
        callback = session.get(Callback, UUID(callback_id))
        return str(callback.state) if callback is not None else None


def output_of(callback_id: str) -> str | None:
    with create_session(scoped=False) as session:
        callback = session.get(Callback, UUID(callback_id))
        return callback.output if callback is not None else None


def data_of(callback_id: str) -> dict[str, Any]:
    with create_session(scoped=False) as session:
        callback = session.get(Callback, UUID(callback_id))
        assert callback is not None
        return dict(callback.data)


def set_row(callback_id: str, **values: Any) -> None:
    with create_session(scoped=False) as session:
        callback = session.get(Callback, UUID(callback_id))
        assert callback is not None
        for name, value in values.items():
            setattr(callback, name, value)


def delete_row(callback_id: str) -> None:
    with create_session(scoped=False) as session:
        session.delete(session.get(Callback, UUID(callback_id)))


def pod_tells_api_that_it_runs(callback_id: str) -> bool:
    """What the supervisor in the pod does on Airflow 3.4 (``PATCH /execution/callbacks/{id}/run``).

    False is the API's 409: the callback must not begin.
    """
    if not EXECUTION_API_OWNS_RUNNING:
        return True
    with create_session(scoped=False) as session:
        callback = session.get(Callback, UUID(callback_id))
        if callback is None or callback.state != CallbackState.QUEUED:
            return False
        callback.state = CallbackState.RUNNING
        return True
