"""A function is called, in a pod of its own, when a run is late.

Trigger the Dag: the report may take five seconds and takes twenty, so after five seconds a callback pod
appears beside the task's pod. Its log has the message.
"""

from __future__ import annotations

import logging
import time
from datetime import timedelta

from airflow.sdk import DeadlineAlert, DeadlineReference, SyncCallback, dag, task

log = logging.getLogger(__name__)


def report_is_late() -> None:
    """Say that the report is late.

    Any function at the top level of a module that the worker image has will do; one in the Dag file
    itself, like this, needs nothing but the Dag bundle in the pod.
    """
    log.warning("The report is late; whoever waits for it has been told")


@dag(
    schedule=None,
    tags=["example", "deadline"],
    deadline=DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(seconds=5),
        callback=SyncCallback(report_is_late),
        name="report is late",
    ),
)
def example_deadline_function():
    @task
    def report():
        time.sleep(20)

    report()


example_deadline_function()
