"""The only module that reads or writes callback rows.

Reads take no lock. Writes touch only ``data``, only of rows that are still QUEUED, and only under
one key of it: what core has no column for. States are never written here; they go through the
event buffer, so that the scheduler records them as it does for every executor.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from airflow.configuration import conf
from airflow.jobs.job import Job, JobState
from airflow.utils.session import create_session
from airflow.utils.sqlalchemy import with_row_locks
from airflow.utils.state import CallbackState
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from airflow_kubernetes_callbacks.errors import LaunchError
from airflow_kubernetes_callbacks.routing import ExecutorEntry, resolve
from airflow_kubernetes_callbacks.row_data import (
    ACTIVE,
    LaunchRecord,
    row_state,
    row_view,
    run_id_in_context,
    run_number,
    with_record,
)
from airflow_kubernetes_callbacks.situation import RowState, RowView

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from airflow.executors.workloads import ExecuteCallback
    from sqlalchemy.orm import Session

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

_CHUNK = 500


def _chunks(ids: Iterable[str]) -> Iterator[list[UUID]]:
    uuids = [UUID(callback_id) for callback_id in ids]
    for start in range(0, len(uuids), _CHUNK):
        yield uuids[start : start + _CHUNK]


class CallbackStore:
    """Rows of executor callbacks that are routed to one executor.

    :param executors: every executor of this scheduler, in the configured order.
    :param own: the entry among them whose rows this store is about.
    :param multi_team: ``[core] multi_team``; the team of a Dag is only looked up where it is on.
    :param namespace_of: tells from a row's ``data`` where its pod goes, for :meth:`namespaces`.
    """

    def __init__(
        self,
        executors: Sequence[ExecutorEntry],
        own: ExecutorEntry,
        *,
        multi_team: bool,
        namespace_of: Callable[[Mapping[str, Any]], str | None] | None = None,
    ) -> None:
        self._executors = tuple(executors)
        self._own = own
        self._multi_team = multi_team
        self._namespace_of = namespace_of
        self._teams: dict[str, str | None] = {}
        self._fixed: dict[str, RowView] = {}

    def active_states(self) -> dict[str, RowState]:
        """Return the id and state of every executor callback that is QUEUED or RUNNING, of any executor."""
        from airflow.models.callback import Callback, CallbackType

        query = select(Callback.id, Callback.state).where(
            Callback.type == CallbackType.EXECUTOR.value, Callback.state.in_(list(ACTIVE))
        )
        with create_session(scoped=False) as session:
            return {str(row_id): ACTIVE[str(state)] for row_id, state in session.execute(query)}

    def rows(self, callback_ids: Iterable[str], *, with_live_pod: Collection[str] = ()) -> dict[str, RowView]:
        """Return the view of each row, by id; of a row that does not exist, one that says so.

        :param with_live_pod: for these the record of launches does not matter, and their ``data``, which
            may be large, is not read again: what else it says of them never changes.
        """
        from airflow.models.callback import Callback, CallbackType

        views = {cid: RowView(cid, RowState.ABSENT) for cid in callback_ids}
        with create_session(scoped=False) as session:
            # Worker threads read rows too, so what is taken from the memory is taken once.
            light = {cid: fixed for cid in views if cid in with_live_pod and (fixed := self._fixed.get(cid))}
            for chunk in _chunks(light):
                for row_id, state, output in session.execute(
                    select(Callback.id, Callback.state, Callback.output).where(Callback.id.in_(chunk))
                ):
                    views[str(row_id)] = replace(
                        light[str(row_id)], state=row_state(state, ours=True), recorded_end=output
                    )
            columns = (Callback.id, Callback.state, Callback.type, Callback.data, Callback.output)
            for chunk in _chunks(set(views).difference(light)):
                rows, unreadable = _read(session, columns, chunk)
                # There is such a row, so its pod is not to be taken for a leftover.
                views.update((str(row_id), RowView(str(row_id), RowState.NOT_OURS)) for row_id in unreadable)
                run_ids = _run_ids([row.data for row in rows], session)
                for row_id, state, row_type, data, output in rows:
                    ours = row_type == CallbackType.EXECUTOR.value and self._is_ours(data, session)
                    view = row_view(str(row_id), state, data, output, run_ids, ours=ours)
                    views[str(row_id)] = view
                    if view.state.active:
                        self._fixed[view.callback_id] = replace(
                            view, next_attempt=1, launched_pod=None, recorded_end=None
                        )
        for view in views.values():
            if not view.state.active:
                self._fixed.pop(view.callback_id, None)
        return views

    def namespaces(self, callback_ids: Iterable[str]) -> dict[str, str | None]:
        """Return where the pods of these callbacks go; None where that cannot be told."""
        from airflow.models.callback import Callback

        found: dict[str, str | None] = {}
        with create_session(scoped=False) as session:
            for chunk in _chunks(callback_ids):
                for row_id, data in _read(session, (Callback.id, Callback.data), chunk)[0]:
                    told = self._namespace_of(data) if self._namespace_of and isinstance(data, dict) else None
                    found[str(row_id)] = told
        return found

    def make_workload(self, callback_id: str, generator: Any) -> ExecuteCallback:
        """Build the workload anew from the row, with a fresh token.

        :raises LaunchError: the row, or the Dag run it belongs to, is gone.
        """
        from airflow.executors.workloads import ExecuteCallback
        from airflow.models.callback import ExecutorCallback
        from airflow.models.dagrun import DagRun

        with create_session(scoped=False) as session:
            callback = session.get(ExecutorCallback, UUID(callback_id))
            if callback is None:
                raise LaunchError("The callback's row was deleted before its pod was created.")
            run_id = (callback.data or {}).get("dag_run_id")
            dag_run = session.get(DagRun, int(run_id)) if run_id is not None else None
            if dag_run is None:
                raise LaunchError(
                    f"The Dag run of this callback (id {run_id}) was deleted before its pod was created."
                )
            return ExecuteCallback.make(callback=callback, dag_run=dag_run, generator=generator)

    def record_launches(self, records: Sequence[LaunchRecord]) -> set[str]:
        """Write the records into rows that are still QUEUED; others are past needing them.

        A row that cannot be decoded, or written, keeps what it has, and no other from its record. The
        scheduler's loop waits for no row that another transaction holds, except where Airflow uses no row
        locks: a database without them, or ``[scheduler] use_row_level_locking = False``.

        :returns: the callbacks whose rows are held so: they have no record yet.
        :raises SQLAlchemyError: the database does not answer.
        """
        by_id = {record.callback_id: record for record in records}
        held, _ = _apart(
            lambda ids: self._record({callback_id: by_id[callback_id] for callback_id in ids}), list(by_id)
        )
        return set().union(*held)

    def _record(self, by_id: Mapping[str, LaunchRecord]) -> set[str]:
        from airflow.models.callback import Callback

        held: set[str] = set()
        with create_session(scoped=False) as session:
            for chunk in _chunks(by_id):
                queued = Callback.id.in_(chunk), Callback.state == CallbackState.QUEUED.value
                query = with_row_locks(select(Callback).where(*queued), session, skip_locked=True)
                found = session.scalars(query).all()
                for callback in found:
                    if isinstance(callback.data, dict):
                        callback.data = with_record(callback.data, by_id[str(callback.id)])
                if len(found) < len(chunk):
                    taken = {callback.id for callback in found}
                    still_queued = session.scalars(select(Callback.id).where(*queued))
                    held.update(str(callback_id) for callback_id in still_queued if callback_id not in taken)
        return held

    def trace_carrier(self, dag_id: str, run_id: str) -> Mapping[str, str] | None:
        """Return the trace context of this Dag run, if it has one."""
        from airflow.models.dagrun import DagRun

        query = select(DagRun.context_carrier).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
        with create_session(scoped=False) as session:
            return session.scalar(query)

    def alive_schedulers(self) -> frozenset[str]:
        """Return the job ids of all schedulers whose heartbeat is recent."""
        threshold = conf.getint("scheduler", "scheduler_health_check_threshold")
        query = select(Job.id).where(
            Job.job_type == "SchedulerJob",
            Job.state == JobState.RUNNING,
            Job.latest_heartbeat >= datetime.now(UTC) - timedelta(seconds=threshold),
        )
        with create_session(scoped=False) as session:
            return frozenset(str(job_id) for job_id in session.scalars(query))

    def _is_ours(self, data: Any, session: Session) -> bool:
        values: Mapping[str, Any] = data if isinstance(data, dict) else {}
        team = self._team_of(values.get("dag_id"), session)
        return resolve(values.get("executor"), team, self._executors) == self._own

    def _team_of(self, dag_id: str | None, session: Session) -> str | None:
        if not self._multi_team or not dag_id:
            return None
        if dag_id not in self._teams:
            from airflow.models.dag import DagModel

            get_team_name: Callable[..., str | None] = DagModel.get_team_name
            self._teams[dag_id] = get_team_name(dag_id, session=session)
        return self._teams[dag_id]

    def forget_teams(self) -> None:
        """Look the teams of Dags up again: they may have moved."""
        self._teams.clear()


def _apart(work: Callable[[list[T]], R], ids: list[T]) -> tuple[list[R], list[T]]:
    """Do *work* for these ids; if one of their rows spoils it, for each by itself.

    The error of one row's decoder (its ``data`` was written by a newer Airflow, say) is that of the whole
    query, and must not be taken for a database that does not answer.

    :returns: what *work* returned, and the ids for which it failed.
    """
    try:
        return [work(ids)], []
    except SQLAlchemyError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the decoder raises
        if len(ids) == 1:
            log.error("Row of callback %s cannot be used: %s: %s", ids[0], type(error).__name__, error)
            return [], ids
    parts = [_apart(work, [one]) for one in ids]
    return [done for part, _ in parts for done in part], [one for _, failed in parts for one in failed]


def _read(session: Session, columns: tuple[Any, ...], ids: list[UUID]) -> tuple[list[Any], list[UUID]]:
    """Return these columns of the rows with these ids, and the ids of those that cannot be decoded."""
    from airflow.models.callback import Callback

    found, unreadable = _apart(
        lambda some: session.execute(select(*columns).where(Callback.id.in_(some))).all(), ids
    )
    return [row for rows in found for row in rows], unreadable


def _run_ids(datas: Iterable[Any], session: Session) -> dict[int, str]:
    """Return the ids, by number, of the Dag runs that only their number is known of: deadlines bring the id."""
    from airflow.models.dagrun import DagRun

    numbers = {number for data in datas if not run_id_in_context(data) and (number := run_number(data))}
    if not numbers:
        return {}
    query = select(DagRun.id, DagRun.run_id).where(DagRun.id.in_(numbers))
    return {row.id: row.run_id for row in session.execute(query)}
