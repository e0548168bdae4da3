"""Makes Dag runs, deadlines and callbacks through Airflow's own models, in a process of its own.

The tests never import Airflow: its configuration is global and is read at import. They start this file
once per installation, with the installation's environment, and send it one JSON request per line.
Missing a deadline is left to the scheduler (``Deadline.handle_miss``).
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import traceback
from datetime import UTC
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubernetes_tests.airflow_env import AirflowEnv


class Driver:
    """The tests' end of the process."""

    def __init__(self, env: AirflowEnv) -> None:
        self._lock = threading.Lock()
        self._log = env.home / "processes" / "driver.log"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._popen = subprocess.Popen(
                [env.python, __file__],
                env=env.environment,
                cwd=env.home,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def call(self, operation: str, **arguments: Any) -> Any:
        """Run one of the operations below and return its result.

        :raises RuntimeError: with the traceback, when it fails.
        """
        with self._lock:
            assert self._popen.stdin is not None
            assert self._popen.stdout is not None
            self._popen.stdin.write(json.dumps([operation, arguments]) + "\n")
            self._popen.stdin.flush()
            line = self._popen.stdout.readline()
        if not line:
            raise RuntimeError(f"the driver ended:\n{self._log.read_text()[-5000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{operation}: {answer['error']}")
        return answer["result"]

    def close(self) -> None:
        """End the process. Safe to call when it has ended by itself."""
        with self._popen:  # closes the pipes and waits
            pass


# --- the process's end ---


def parse_dags() -> list[str]:
    """Parse the Dags folder into the database and return the ids of the Dags."""
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    done = subprocess.run(
        [sys.executable, "-m", "airflow", "dags", "reserialize"],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        stderr=sys.stderr,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"airflow dags reserialize: exit status {done.returncode}")
    with create_session() as session:
        return list(session.scalars(select(DagModel.dag_id)))


def run_dag(dag_id: str, conf: dict[str, Any] | None = None) -> dict[str, Any]:
    """Trigger the Dag, as the command line does, and return the run's ids."""
    from airflow.api.common.trigger_dag import trigger_dag
    from airflow.utils.types import DagRunTriggeredByType

    run = trigger_dag(dag_id, triggered_by=DagRunTriggeredByType.TEST, conf=conf)
    assert run is not None
    return {"id": run.id, "run_id": run.run_id}


def miss_deadlines(dag_run: int, callbacks: list[dict[str, Any]], seconds_ago: float = 1.0) -> list[str]:
    """Give the Dag run a deadline in the past per callback; return the callbacks' ids.

    A callback is ``path``, ``kwargs`` and ``executor``. ``python`` is an expression for a dictionary of
    more keyword arguments, for values that JSON cannot carry.
    """
    from datetime import datetime, timedelta

    from airflow.models.dagrun import DagRun
    from airflow.models.deadline import Deadline
    from airflow.sdk import SyncCallback
    from airflow.utils.session import create_session

    when = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    with create_session() as session:
        run = session.get(DagRun, dag_run)
        assert run is not None
        deadlines = []
        for callback in callbacks:
            kwargs = dict(callback.get("kwargs") or {})
            if expression := callback.get("python"):
                kwargs.update(eval(expression))  # the tests' own text
            definition = SyncCallback("no.such.module", kwargs, executor=callback.get("executor"))
            definition.path = callback["path"]
            deadlines.append(
                Deadline(
                    deadline_time=when,
                    callback=definition,
                    dagrun_id=run.id,
                    deadline_alert_id=None,
                    dag_id=run.dag_id,
                    bundle_name=run.dag_model.bundle_name,
                )
            )
        session.add_all(deadlines)
        session.flush()
        return [str(deadline.callback.id) for deadline in deadlines]


def set_connection(conn_id: str, uri: str) -> None:
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    with create_session() as session:
        session.execute(delete(Connection).where(Connection.conn_id == conn_id))
        session.add(Connection(conn_id=conn_id, uri=uri))


def set_variable(name: str, value: str) -> None:
    from airflow.models.variable import Variable

    Variable.set(name, value)


def delete_dag_runs() -> None:
    """Delete every Dag run, as a person does in the UI: deadlines and callbacks go with them."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        for run in session.scalars(select(DagRun)):
            session.delete(run)


def wipe() -> None:
    """Delete every run, callback, deadline and scheduler job, so that the next scenario starts clean."""
    from airflow.jobs.job import Job
    from airflow.models.callback import Callback
    from airflow.models.dagrun import DagRun
    from airflow.models.deadline import Deadline
    from airflow.models.log import Log
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    with create_session() as session:
        for model in (Deadline, Callback, TaskInstance, DagRun, Log):
            session.execute(delete(model).execution_options(synchronize_session=False))
        session.execute(
            delete(Job).where(Job.job_type == "SchedulerJob").execution_options(synchronize_session=False)
        )


def end_heartbeats() -> None:
    """Let every scheduler job look long dead, as it does when its health check has failed for a while."""
    from datetime import datetime, timedelta

    from airflow.jobs.job import Job
    from airflow.utils.session import create_session
    from sqlalchemy import update

    with create_session() as session:
        session.execute(
            update(Job)
            .where(Job.job_type == "SchedulerJob", Job.state == "running")
            .values(latest_heartbeat=datetime.now(UTC) - timedelta(hours=1))
        )


OPERATIONS: dict[str, Callable[..., Any]] = {
    operation.__name__: operation
    for operation in (
        parse_dags,
        run_dag,
        miss_deadlines,
        set_connection,
        set_variable,
        delete_dag_runs,
        wipe,
        end_heartbeats,
    )
}


def main() -> None:
    answers = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        operation, arguments = json.loads(line)
        try:
            answer = {"result": OPERATIONS[operation](**arguments)}
        except Exception:
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
