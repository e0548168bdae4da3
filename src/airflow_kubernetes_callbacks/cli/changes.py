"""What a person changes in callback rows: ending one, handing one out again. Each is one guarded update."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from uuid import UUID

from airflow.models.log import Log
from airflow.utils.session import create_session
from sqlalchemy import select, update

from airflow_kubernetes_callbacks.cli.model import ACTIVE_STATES, FAILED, PENDING
from airflow_kubernetes_callbacks.row_data import RECORD_KEY

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from airflow_kubernetes_callbacks.cli.model import CallbackRecord

CANCELLED_EVENT = "callback cancelled"
RETRIED_EVENT = "callback retried"


def cancel_row(record: CallbackRecord, *, by: str, output: str) -> bool:
    """End the callback: FAILED, with *output*; False where it has ended, or gone, meanwhile.

    What core writes without looking can still follow and overwrite the state: an event that is under way
    in a scheduler, or the hand-over to the executor. It leaves the output alone, and by that the executor
    knows that the end is recorded (:class:`~airflow_kubernetes_callbacks.situation.RowView`).
    """
    with create_session(scoped=False) as session:
        done = _update(session, record.id, ACTIVE_STATES, state=FAILED, output=output)
        if done:
            _log(session, record, CANCELLED_EVENT, by, output)
        return done


def retry_row(record: CallbackRecord, *, attempt: int, by: str, output: str) -> bool:
    """Hand the callback out again: PENDING, as after its deadline; False where its state has changed meanwhile.

    :param attempt: the number of the next launch: beyond that of every pod that exists or existed.
    """
    kept = {"attempt": attempt, "history": attempt - 1, "retried_at": round(time.time(), 3)}
    with create_session(scoped=False) as session:
        row = _locked(record.id, session)
        if row is None or row.state != record.state:
            return False
        data = {**row.data, RECORD_KEY: kept}
        done = _update(session, record.id, (row.state,), state=PENDING, output=None, data=data)
        if done:
            _log(session, record, RETRIED_EVENT, by, output)
        return done


def _locked(callback_id: str, session: Session) -> Any:
    from airflow.models.callback import Callback

    query = select(Callback.state, Callback.data).where(Callback.id == UUID(callback_id)).with_for_update()
    return session.execute(query).one_or_none()


def _update(session: Session, callback_id: str, only_in: tuple[str, ...], **values: Any) -> bool:
    """Change the row if it is in one of these states."""
    from airflow.models.callback import Callback

    done = session.execute(
        update(Callback)
        .where(Callback.id == UUID(callback_id), Callback.state.in_(only_in))
        .values(**values)
        .execution_options(synchronize_session=False)
    )
    return int(getattr(done, "rowcount", 0)) == 1


def _log(session: Session, record: CallbackRecord, event: str, by: str, text: str) -> None:
    """Leave a line in the Dag run's audit log."""
    session.add(
        Log(
            event=event,
            owner=by,
            owner_display_name=by,
            dag_id=record.dag_id,
            run_id=record.run_id,
            extra=f"callback {record.id}: {text}",
        )
    )
