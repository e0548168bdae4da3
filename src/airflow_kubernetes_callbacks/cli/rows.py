"""Callback rows as a person asks for them: found by id or filter, with deadline and Dag run. Reads only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from airflow.models.log import Log
from airflow.utils.session import create_session
from sqlalchemy import and_, or_, select

from airflow_kubernetes_callbacks.cli.model import CallbackRecord
from airflow_kubernetes_callbacks.routing import ExecutorEntry, resolve
from airflow_kubernetes_callbacks.row_data import RECORD_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Select
    from sqlalchemy.orm import Session

_PAGE = 200
_POD_NAME = re.compile(
    r"(?:callback-)?([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})(?:-(\d{1,9}))?"
)
_PREFIX = re.compile(r"[0-9a-f]{4,32}")
_NIL = "0" * 32


class UnknownCallbackError(Exception):
    """No callback, or more than one, is meant by what was given; the message says which."""


class NoIdError(UnknownCallbackError):
    """What was given can mean no callback, whatever this database holds."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which callbacks; what is empty does not restrict."""

    states: tuple[str, ...] = ()
    dag_id: str | None = None
    run_id: str | None = None
    team: str | None = None
    older_than: float | None = None
    newer_than: float | None = None


class AuditEntry(NamedTuple):
    """One line of Airflow's audit log."""

    at: datetime
    event: str
    by: str | None
    extra: str


def id_range(text: str) -> tuple[UUID, UUID]:
    """Return the first and the last id that *text* may mean: an id, a pod's name, or how an id begins.

    :raises NoIdError: it is none of these.
    """
    cleaned = _cleaned(text)
    if match := _POD_NAME.fullmatch(cleaned):
        whole = UUID(match[1])
        return whole, whole
    digits = cleaned.replace("-", "")
    if not _PREFIX.fullmatch(digits):
        raise NoIdError(
            f"{text!r} is no callback: give its id, the beginning of it (4 characters or more), or its pod's name."
        )
    return UUID(digits + _NIL[len(digits) :]), UUID(digits + "f" * (32 - len(digits)))


def attempt_named(text: str) -> int | None:
    """Return the attempt that *text* names where it is the name of a pod."""
    match = _POD_NAME.fullmatch(_cleaned(text))
    return int(match[2]) if match and match[2] else None


def _cleaned(text: str) -> str:
    return text.strip().lower().rpartition("/")[2]


class CallbackRows:
    """Executor callbacks of this database, whatever executor they go to.

    :param executors: every configured executor, in order.
    :param own: those of them that are of this package.
    """

    def __init__(
        self, executors: Sequence[ExecutorEntry], own: Sequence[ExecutorEntry], *, multi_team: bool
    ) -> None:
        self._executors = tuple(executors)
        self._own = frozenset(own)
        self._multi_team = multi_team
        self._teams: dict[str, str | None] = {}

    def find(self, texts: Sequence[str]) -> list[CallbackRecord]:
        """Return the callback that each text means, in the order of the texts.

        :raises UnknownCallbackError: a text means none, or several.
        """
        with create_session(scoped=False) as session:
            return [self._find_one(text, session) for text in texts]

    def _find_one(self, text: str, session: Session) -> CallbackRecord:
        from airflow.models.callback import Callback

        first, last = id_range(text)
        query = _rows_with_context().where(Callback.id >= first, Callback.id <= last).limit(10)
        found = [self._record(row, session) for row in session.execute(query)]
        if not found:
            raise UnknownCallbackError(f"There is no executor callback {text} in this database.")
        if len(found) > 1:
            ids = "\n  ".join(record.id for record in found)
            raise UnknownCallbackError(f"{text} may be any of these; give more of the id:\n  {ids}")
        return found[0]

    def known(self, callback_ids: Sequence[str]) -> dict[str, CallbackRecord]:
        """Return the records of those ids that there are rows of, by id."""
        from airflow.models.callback import Callback

        found: dict[str, CallbackRecord] = {}
        with create_session(scoped=False) as session:
            for start in range(0, len(callback_ids), _PAGE):
                ids = [UUID(callback_id) for callback_id in callback_ids[start : start + _PAGE]]
                for row in session.execute(_rows_with_context().where(Callback.id.in_(ids))):
                    record = self._record(row, session)
                    found[record.id] = record
        return found

    def select(self, wanted: Filter, *, now: datetime | None = None) -> Iterator[CallbackRecord]:
        """Yield what the filter lets through and concerns this package, the newest first.

        That is what goes to one of its executors, and what goes nowhere: nobody else would show that.
        """
        with create_session(scoped=False) as session:
            query = _filtered(_rows_with_context(), wanted)
            for row in session.execute(query.execution_options(yield_per=_PAGE)):
                record = self._record(row, session)
                if (record.ours or not record.routable) and _fits(record, wanted, now or datetime.now(UTC)):
                    yield record

    def audit(self, record: CallbackRecord) -> list[AuditEntry]:
        """Return what the Dag run's audit log says about this callback, the oldest first."""
        if record.dag_id is None or record.run_id is None:
            return []
        query = (
            select(Log.dttm, Log.event, Log.owner, Log.extra)
            .where(Log.dag_id == record.dag_id, Log.run_id == record.run_id, Log.extra.contains(record.id))
            .order_by(Log.dttm)
            .limit(100)
        )
        with create_session(scoped=False) as session:
            return [
                AuditEntry(at, event, by, extra or "")
                for at, event, by, extra in session.execute(query)
                if at
            ]

    def _record(self, row: Any, session: Session) -> CallbackRecord:
        callback, deadline, name, run = row
        data: dict[str, Any] = callback.data if isinstance(callback.data, dict) else {}
        context = _context(data)
        if run is None:
            run = _dag_run(data.get("dag_run_id"), session)
        dag_id = run.dag_id if run is not None else data.get("dag_id")
        team = self._team_of(dag_id, session)
        routed = resolve(data.get("executor"), team, self._executors)
        kept = data.get(RECORD_KEY)
        return CallbackRecord(
            id=str(callback.id),
            state=str(callback.state or ""),
            output=callback.output,
            path=str(data.get("path") or ""),
            kwargs=tuple(sorted(_kwargs(data).keys() - {"context"})),
            executor=data.get("executor"),
            ours=routed in self._own,
            routable=routed is not None,
            team=team,
            dag_id=dag_id,
            run_id=run.run_id if run is not None else context.get("dag_run_id"),
            dag_run_id=run.id if run is not None else _integer(data.get("dag_run_id")),
            dag_run_exists=run is not None,
            dag_run_state=str(run.state) if run is not None and run.state else None,
            priority_weight=callback.priority_weight,
            created_at=callback.created_at,
            deadline_id=str(deadline.id) if deadline is not None else data.get("deadline_id"),
            deadline_name=name,
            deadline_time=deadline.deadline_time if deadline is not None else None,
            noticed_at=deadline.last_updated_at if deadline is not None and deadline.missed else None,
            kept=kept if isinstance(kept, dict) else {},
        )

    def _team_of(self, dag_id: str | None, session: Session) -> str | None:
        if not self._multi_team or not dag_id:
            return None
        if dag_id not in self._teams:
            from airflow.models.dag import DagModel

            self._teams[dag_id] = DagModel.get_team_name(dag_id, session=session)
        return self._teams[dag_id]


def _rows_with_context() -> Select[Any]:
    from airflow.models.callback import Callback, CallbackType
    from airflow.models.dagrun import DagRun
    from airflow.models.deadline import Deadline
    from airflow.models.deadline_alert import DeadlineAlert

    query: Any = (
        select(Callback, Deadline, DeadlineAlert.name, DagRun)
        .join(Deadline, Deadline.callback_id == Callback.id, isouter=True)
        .join(DeadlineAlert, DeadlineAlert.id == Deadline.deadline_alert_id, isouter=True)
        .join(DagRun, DagRun.id == Deadline.dagrun_id, isouter=True)
        .where(Callback.type == CallbackType.EXECUTOR.value)
        .order_by(Callback.created_at.desc(), Callback.id.desc())
    )
    rows: Select[Any] = query
    return rows


def _filtered(query: Select[Any], wanted: Filter) -> Select[Any]:
    """Restrict the query as far as the database can; :func:`_fits` looks at the rest."""
    from airflow.models.callback import Callback
    from airflow.models.dagrun import DagRun
    from airflow.models.deadline import Deadline

    if wanted.states:
        query = query.where(Callback.state.in_(wanted.states))
    for column, value in ((DagRun.dag_id, wanted.dag_id), (DagRun.run_id, wanted.run_id)):
        if value is not None:  # of a run that is gone, only ``data`` knows
            query = query.where(or_(column == value, and_(Deadline.id.is_(None), column.is_(None))))
    return query


def _fits(record: CallbackRecord, wanted: Filter, now: datetime) -> bool:
    age = (now - record.since).total_seconds()
    return (
        (wanted.dag_id is None or record.dag_id == wanted.dag_id)
        and (wanted.run_id is None or record.run_id == wanted.run_id)
        and (wanted.team is None or record.team == wanted.team)
        and (wanted.older_than is None or age >= wanted.older_than)
        and (wanted.newer_than is None or age <= wanted.newer_than)
    )


def _dag_run(dag_run_id: Any, session: Session) -> Any:
    from airflow.models.dagrun import DagRun

    number = _integer(dag_run_id)
    return session.get(DagRun, number) if number is not None else None


def _integer(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


def _plain(value: Any) -> dict[str, Any]:
    """Return an object out of its encodings (Airflow 3.4 stores kwargs encoded), or an empty one."""
    while isinstance(value, dict):
        if "__data__" in value:
            value = value["__data__"]
        elif "__var" in value:
            value = value["__var"]
        else:
            return value
    return {}


def _kwargs(data: dict[str, Any]) -> dict[str, Any]:
    return _plain(data.get("kwargs"))


def _context(data: dict[str, Any]) -> dict[str, Any]:
    return _plain(_plain(_kwargs(data).get("context")).get("dag_run"))
