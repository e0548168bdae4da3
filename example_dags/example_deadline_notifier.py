"""A notifier class is called when a run is late, and its template fields are rendered.

Notifiers of providers are used in the same way, for example
``SyncCallback(SlackWebhookNotifier, kwargs={"slack_webhook_conn_id": "alerts", "text": "..."})``.
"""

from __future__ import annotations

import json
import logging
import os
import time
import urllib.request
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseNotifier, DeadlineAlert, DeadlineReference, SyncCallback, dag, task

log = logging.getLogger(__name__)


class WebhookNotifier(BaseNotifier):
    """Post a message to the webhook in ``ALERT_WEBHOOK``; without one, log it.

    :param text: the message, a template
    """

    template_fields = ("text",)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def notify(self, context: Any) -> None:
        url = os.environ.get("ALERT_WEBHOOK")
        if not url:
            log.warning("%s (set ALERT_WEBHOOK in the pod template to send this)", self.text)
            return
        body = json.dumps({"text": self.text}).encode()
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        # An exception ends the callback as failed, and its text is kept in the callback's output.
        with urllib.request.urlopen(request, timeout=30) as answer:
            log.info("The webhook answered %s", answer.status)


@dag(
    schedule=None,
    tags=["example", "deadline"],
    deadline=DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(seconds=5),
        callback=SyncCallback(
            WebhookNotifier,
            kwargs={"text": "{{ dag_run.dag_id }}, run {{ dag_run.dag_run_id }}, is late"},
        ),
    ),
)
def example_deadline_notifier():
    @task
    def report():
        time.sleep(20)

    report()


example_deadline_notifier()
