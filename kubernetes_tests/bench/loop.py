"""One executor and the loop around it, as the scheduler turns it: heartbeat, then take the events."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.executors.executor_loader import ExecutorLoader
from airflow.jobs.job import Job, JobState
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models.callback import CallbackKey
from airflow.utils.session import create_session

if TYPE_CHECKING:
    from collections.abc import Callable

#: Between two heartbeats; a scheduler does its other work there.
PAUSE = 0.02
PATIENCE = 1800.0


class Loop:
    """A scheduler's job, its executor and the beats of it."""

    def __init__(self) -> None:
        with create_session(scoped=False) as session:
            job = Job(job_type="SchedulerJob", state=JobState.RUNNING)
            job.latest_heartbeat = datetime(2099, 1, 1, tzinfo=UTC)
            session.add(job)
            session.flush()
            self.job_id = int(job.id)
        [self.executor] = ExecutorLoader.init_executors()
        self.executor.job_id = self.job_id
        job = Job(job_type="SchedulerJob")
        job.id = self.job_id
        self.runner = SchedulerJobRunner(job, executors=[self.executor])
        self.beats: list[float] = []
        self.syncs: list[float] = []
        self._time_sync()
        self.executor.start()

    def _time_sync(self) -> None:
        sync = self.executor.sync

        def timed() -> None:
            begin = time.perf_counter()
            sync()
            self.syncs.append(time.perf_counter() - begin)

        self.executor.sync = timed

    @property
    def callbacks(self) -> Any:
        """The controller of our executor."""
        return self.executor._callbacks

    def turn(self) -> dict[Any, Any]:
        """One heartbeat; return the events of tasks. Those of callbacks go where core puts them."""
        begin = time.perf_counter()
        self.executor.heartbeat()
        self.beats.append(time.perf_counter() - begin)
        if any(isinstance(key, CallbackKey) for key in self.executor.event_buffer):
            with create_session(scoped=False) as session:
                self.runner._process_executor_events(self.executor, session)
            return {}
        return dict(self.executor.get_event_buffer())

    def until(self, reached: Callable[[], bool], what: str) -> dict[Any, Any]:
        """Turn until it is so; return the task events that came."""
        events: dict[Any, Any] = {}
        end = time.monotonic() + PATIENCE
        while not reached():
            events.update(self.turn())
            if time.monotonic() > end:
                raise TimeoutError(f"not in {PATIENCE:.0f} s: {what}")
            time.sleep(PAUSE)
        return events

    def enqueue(self) -> None:
        """Have core hand out the callbacks that are PENDING."""
        with create_session(scoped=False) as session:
            self.runner._enqueue_executor_callbacks(session)

    def live(self) -> int:
        """How many callbacks have a pod that this executor knows."""
        return len(self.callbacks.cache.ids_with_live_pod())
