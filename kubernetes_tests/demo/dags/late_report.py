"""A Dag run that is late on purpose: one of its two alerts goes out, the other cannot."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from typing import Any

from airflow.sdk import DeadlineAlert, DeadlineReference, SyncCallback, dag, task

log = logging.getLogger(__name__)


def page_on_call(team: str, context: dict[str, Any]) -> None:
    """The alert that goes out."""
    run = context["dag_run"]
    log.info("Run %s of %s is late", run["dag_run_id"], run["dag_id"])
    time.sleep(1)
    log.info("Paging %s", team)
    time.sleep(1)
    log.info("%s has been paged", team)


def post_to_webhook(url: str) -> None:
    """The alert that cannot go out: the receiver is down."""
    log.info("Posting to %s", url)
    time.sleep(1)
    raise ConnectionError(f"{url} answered 503 Service Unavailable")


def late_by(seconds: float, callback: SyncCallback) -> DeadlineAlert:
    return DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(seconds=seconds),
        callback=callback,
    )


@dag(
    schedule=None,
    deadline=[
        late_by(2, SyncCallback(page_on_call, kwargs={"team": "data-platform"})),
        late_by(2, SyncCallback(post_to_webhook, kwargs={"url": "https://alerts.example.com/hook"})),
    ],
)
def late_report() -> None:
    @task
    def write_report() -> None:
        log.info("This takes a minute, and the report was wanted after two seconds")
        time.sleep(60)

    write_report()


late_report()
