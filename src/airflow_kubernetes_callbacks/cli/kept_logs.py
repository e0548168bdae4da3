"""Logs in the log folder, as a command keeps them when it deletes a pod or has a callback run again.

The executor keeps the log of a pod that it deletes. Pods that were left standing on purpose it does not
delete, so whoever does has to keep theirs. All of it is as good as it gets: a log that cannot be kept
is said, and stands in nobody's way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.configuration import conf

from airflow_kubernetes_callbacks.api_errors import classify
from airflow_kubernetes_callbacks.callback_log import log_file, save_log
from airflow_kubernetes_callbacks.cli.output import say
from airflow_kubernetes_callbacks.redact import mask_log

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_kubernetes_callbacks.cli.deployment import OwnExecutor
    from airflow_kubernetes_callbacks.cli.model import CallbackRecord, PodFacts


def kept_log_file(record: CallbackRecord, *, before_attempt: int | None = None) -> Path | None:
    """Return the callback's log in the log folder here, if it is there; a folder that cannot be read is said.

    :param before_attempt: the log that was set aside when a person had this attempt launched, not the last one's.
    """
    path = _path(record.dag_id, record.run_id, record.id)
    if path is not None and before_attempt is not None:
        path = _set_aside(path, before_attempt)
    try:
        return path if path is not None and path.is_file() else None
    except OSError as error:
        say(f"The log folder cannot be looked into, at {path}: {error.strerror}.")
        return None


def keep_log(own: OwnExecutor, pod: PodFacts) -> None:
    """Write the log of a pod that has run and is about to be deleted into the log folder, if it is not there."""
    view = pod.view
    path = _path(view.dag_id, view.run_id, view.callback_id)
    ran = view.started_at is not None and view.outcome.terminal
    if path is None or not ran or not own.settings.save_logs:
        return
    try:
        # A Dag's id may be longer than a file's name can be: then even this look raises.
        if not path.exists():
            log = own.cluster.log_tail(view, limit_bytes=own.settings.log_limit_bytes)
            save_log(path, mask_log(log))
    except Exception as error:  # noqa: BLE001
        say(f"The log of pod {pod.where} cannot be kept at {path}: {classify(error).message}")


def set_log_aside(record: CallbackRecord, attempt: int) -> None:
    """Give the log of the runs so far another name: the next run's would not be written over it.

    :param attempt: the number of the next launch.
    """
    path = kept_log_file(record)
    try:
        if path is not None:
            path.rename(_set_aside(path, attempt))
    except OSError as error:
        say(f"The log of the earlier run stays in the way of the next one's, at {path}: {error.strerror}.")


def _set_aside(path: Path, attempt: int) -> Path:
    return path.with_name(f"{path.name}.before-attempt-{attempt}")


def _path(dag_id: str | None, run_id: str | None, callback_id: str) -> Path | None:
    return log_file(conf.get("logging", "base_log_folder"), dag_id or "", run_id or "", callback_id)
