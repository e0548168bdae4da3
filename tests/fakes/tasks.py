"""Task instances that are queued in the database, and their workloads."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.executors.workloads import ExecuteTask
from airflow.models.dag_version import DagVersion
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.sdk import DAG, BaseOperator
from airflow.serialization.serialized_objects import DagSerialization
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState

from tests.fakes.fixtures import make_dag


def queued_tasks(
    dag_id: str, task_ids: list[str], job_id: int, **operator: dict[str, Any]
) -> list[ExecuteTask]:
    """Make one Dag run with these tasks, queued by the scheduler *job_id*; return their workloads.

    :param operator: arguments of single operators, by task id.
    """
    with DAG(dag_id, schedule=None) as dag:
        for task_id in task_ids:
            BaseOperator(task_id=task_id, **operator.get(task_id, {}))
    serialized = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    with create_session(scoped=False) as session:
        make_dag(session, dag_id)
        version = DagVersion(dag_id=dag_id, version_number=1, bundle_name="bundle")
        now = datetime.now(UTC)
        run = DagRun(
            dag_id=dag_id,
            run_id="manual__tasks",
            run_type="manual",
            logical_date=None,
            run_after=now,
            start_date=now,
            state="running",
        )
        session.add_all([version, run])
        session.flush()
        workloads = []
        for task_id in task_ids:
            ti = TaskInstance(
                task=serialized.get_task(task_id),
                dag_version_id=version.id,
                run_id=run.run_id,
                state=TaskInstanceState.QUEUED,
            )
            ti.try_number = 1
            ti.queued_by_job_id = job_id
            ti.queued_dttm = now
            session.add(ti)
            session.flush()
            workloads.append(ExecuteTask.make(ti, generator=None))
        return workloads
