"""Dags of the fixtures: one that scenarios hang deadlines on, and some that miss their own."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import ledger_callbacks
from airflow.sdk import DeadlineAlert, DeadlineReference, SyncCallback, dag, task

LEDGER = os.environ.get("LEDGER_URL", "")
LONG_AGO = DeadlineReference.FIXED_DATETIME(datetime(2024, 1, 1, tzinfo=UTC))


@dag(schedule=None)
def no_tasks_to_run() -> None:
    """A run of it ends by itself: the scheduler marks an empty task without giving it to an executor."""
    from airflow.providers.standard.operators.empty import EmptyOperator

    EmptyOperator(task_id="nothing")


@dag(
    schedule=None,
    deadline=DeadlineAlert(
        reference=LONG_AGO,
        interval=timedelta(seconds=1),
        callback=SyncCallback(ledger_callbacks.succeed, {"ledger": LEDGER, "key": "missed_deadline"}),
    ),
)
def missed_deadline() -> None:
    """Its deadline is over before it begins."""
    from airflow.providers.standard.operators.empty import EmptyOperator

    EmptyOperator(task_id="nothing")


@dag(schedule=None)
def some_tasks() -> None:
    """Three small tasks that need a worker, the third after the others."""

    @task
    def one() -> int:
        return 1

    @task
    def add(left: int, right: int) -> int:
        return left + right

    add(one.override(task_id="left")(), one.override(task_id="right")())


@dag(schedule=None)
def slow_task() -> None:
    """One task, which tells the ledger when it begins and when it ends; the run's conf says the rest."""

    @task
    def wait(**context) -> None:
        ledger_callbacks.succeed(**context["dag_run"].conf)

    wait()


no_tasks_to_run()
missed_deadline()
some_tasks()
slow_task()
