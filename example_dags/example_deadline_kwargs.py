"""Two deadlines on one Dag call one function with different arguments: first a note, then a page.

The callback names its executor. That matters where several are configured, for example
``executor = LocalExecutor,airflow_kubernetes_callbacks.KubernetesExecutor``: tasks stay with the first and
these callbacks run as pods. Leave it out to use the default executor.
"""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from typing import Any

from airflow.sdk import DeadlineAlert, DeadlineReference, SyncCallback, dag, task

log = logging.getLogger(__name__)


def escalate(severity: str, recipients: list[str], context: dict[str, Any]) -> None:
    """Tell the recipients which run is late.

    :param context: given by Airflow to a callable with an argument of this name. It has ``dag_run``, with
        the fields that the REST API shows of a run, and ``deadline``, with ``id`` and ``deadline_time``.
    """
    run = context["dag_run"]
    log.warning(
        "%s to %s: %s, run %s, missed its deadline of %s (conf: %s)",
        severity.upper(),
        ", ".join(recipients),
        run["dag_id"],
        run["dag_run_id"],
        context["deadline"]["deadline_time"],
        run["conf"],
    )


def late_by(seconds: int, severity: str, recipients: list[str]) -> DeadlineAlert:
    return DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(seconds=seconds),
        callback=SyncCallback(
            escalate,
            kwargs={"severity": severity, "recipients": recipients},
            executor="KubernetesExecutor",
        ),
        name=f"late by {seconds} seconds",
    )


@dag(
    schedule=None,
    tags=["example", "deadline"],
    deadline=[
        late_by(5, "note", ["data-team@example.com"]),
        late_by(15, "page", ["on-call@example.com", "data-team@example.com"]),
    ],
)
def example_deadline_kwargs():
    @task
    def report():
        time.sleep(30)

    report()


example_deadline_kwargs()
