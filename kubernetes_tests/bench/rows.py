"""Rows and workloads by the thousand, as core would have made them."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from airflow.executors import workloads
from airflow.executors.workloads.base import BundleInfo
from airflow.models.callback import Callback, ExecutorCallback
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from airflow.utils.state import CallbackState
from sqlalchemy import delete, insert, select, update
from uuid6 import uuid7

if TYPE_CHECKING:
    from collections.abc import Sequence

DAG = "bench"
_CHUNK = 5000


def the_run() -> int:
    """Return the id of the Dag run that every callback belongs to; made if there is none."""
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel

    with create_session(scoped=False) as session:
        found = session.scalar(select(DagRun.id).where(DagRun.dag_id == DAG))
        if found is not None:
            return int(found)
        session.add(DagBundleModel(name="bundle"))
        session.flush()
        session.add(DagModel(dag_id=DAG, bundle_name="bundle", relative_fileloc="b.py", fileloc="/dags/b.py"))
        session.flush()
        now = datetime.now(UTC)
        run = DagRun(
            dag_id=DAG,
            run_id="manual__bench",
            run_type="manual",
            logical_date=None,
            run_after=now,
            start_date=now,
            state="running",
        )
        session.add(run)
        session.flush()
        return int(run.id)


def make_callbacks(count: int, state: str = CallbackState.QUEUED, path: str = "alerts.notify") -> list[str]:
    """Insert *count* callbacks of missed deadlines and return their ids; each gets its id as ``key``."""
    from airflow.sdk import SyncCallback

    run = the_run()
    definition = SyncCallback(path, kwargs={"text": "x" * 200})
    ids: list[str] = []
    with create_session(scoped=False) as session:
        for start in range(0, count, _CHUNK):
            rows = []
            for _ in range(min(_CHUNK, count - start)):
                row = Callback.create_from_sdk_def(definition, prefix="deadline_alerts")
                row.id = uuid7()
                kwargs = {**row.data["kwargs"], "key": str(row.id)}
                row.data = {
                    **row.data,
                    "kwargs": kwargs,
                    "dag_id": DAG,
                    "dag_run_id": str(run),
                    "deadline_id": str(uuid4()),
                }
                row.state = state
                rows.append(row)
            session.add_all(rows)
            session.flush()
            ids += [str(row.id) for row in rows]
            session.expunge_all()
    return ids


def callback_workloads(ids: Sequence[str], generator: Any) -> list[Any]:
    """Return the workloads that core hands to the executor for these rows."""
    made = []
    with create_session(scoped=False) as session:
        run = session.get(DagRun, the_run())
        for start in range(0, len(ids), 500):
            chunk = [UUID(row_id) for row_id in ids[start : start + 500]]
            for row in session.scalars(select(ExecutorCallback).where(Callback.id.in_(chunk))):
                made.append(workloads.ExecuteCallback.make(callback=row, dag_run=run, generator=generator))
    return made


def set_states(ids: Sequence[str], state: str) -> None:
    with create_session(scoped=False) as session:
        for start in range(0, len(ids), 500):
            chunk = [UUID(row_id) for row_id in ids[start : start + 500]]
            session.execute(update(Callback).where(Callback.id.in_(chunk)).values(state=state))


def state_of(callback_id: str) -> str:
    with create_session(scoped=False) as session:
        return str(session.scalar(select(Callback.state).where(Callback.id == UUID(callback_id))))


def states() -> dict[str, int]:
    """Return how many callbacks there are in each state."""
    counted: dict[str, int] = {}
    with create_session(scoped=False) as session:
        for state in session.scalars(select(Callback.state)):
            counted[str(state)] = counted.get(str(state), 0) + 1
    return counted


def clear_callbacks() -> None:
    with create_session(scoped=False) as session:
        session.execute(delete(Callback))


def task_workloads(count: int, batch: str, job_id: int) -> list[Any]:
    """Insert *count* queued task instances of this scheduler and return their workloads."""
    from airflow.models.taskinstance import TaskInstance

    the_run()
    made = _task_workloads(count, batch)
    known = {"dag_id": DAG, "run_id": "manual__bench", "map_index": -1, "try_number": 1, "max_tries": 0}
    known |= {"state": "queued", "queued_by_job_id": job_id, "pool": "default_pool", "pool_slots": 1}
    known |= {"priority_weight": 1, "queue": "default", "operator": "EmptyOperator", "executor_config": {}}
    values = [{**known, "id": work.ti.id, "task_id": work.ti.task_id} for work in made]
    with create_session(scoped=False) as session:
        session.execute(insert(TaskInstance.__table__), values)
    return made


def _task_workloads(count: int, batch: str) -> list[Any]:
    return [
        workloads.ExecuteTask(
            token="",
            dag_rel_path="b.py",
            bundle_info=BundleInfo(name="bundle", version=None),
            log_path=f"dag_id=bench/{number}.log",
            ti=workloads.TaskInstance(
                id=uuid4(),
                dag_version_id=uuid4(),
                task_id=f"task_{batch}_{number}",
                dag_id=DAG,
                run_id="manual__bench",
                try_number=1,
                map_index=-1,
                queue="default",
                pool_slots=1,
                priority_weight=1,
            ),
        )
        for number in range(count)
    ]


def adoptable(workload: Any, job_id: int) -> Any:
    """Return what the stock adoption reads of a task instance whose scheduler is gone."""
    return SimpleNamespace(
        queued_by_job_id=job_id, key=workload.ti.key, id=workload.ti.id, external_executor_id=None
    )
