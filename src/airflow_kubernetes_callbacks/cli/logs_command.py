"""``airflow kubernetes-callbacks logs ID``: from the pod while there is one, then from where logs are kept."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from airflow_kubernetes_callbacks.api_errors import classify
from airflow_kubernetes_callbacks.cli.deployment import Deployment
from airflow_kubernetes_callbacks.cli.kept_logs import kept_log_file
from airflow_kubernetes_callbacks.cli.log_lines import plain, readable
from airflow_kubernetes_callbacks.cli.model import current_pod
from airflow_kubernetes_callbacks.cli.output import CommandError, Status, command, fail, say, write
from airflow_kubernetes_callbacks.cli.show_command import find_one
from airflow_kubernetes_callbacks.outcome import CallbackOutcome

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Iterator

    from airflow_kubernetes_callbacks.cli.model import CallbackRecord, PodFacts

#: Seconds between two looks at a callback whose container has yet to start.
_POLL = 2.0


@command
def print_logs(args: Namespace) -> Status:
    """Print the log; with ``--follow``, wait for it and go on until it ends."""
    deployment = Deployment()
    record = find_one(deployment, args.callback_id)
    shown = plain if args.raw else readable
    pod, trouble = _pod_to_read(deployment, record, follow=args.follow)
    if pod is not None:
        cluster = deployment.executor_of(record).cluster
        try:
            _write(
                cluster.log_lines(pod.view, container=args.container, tail=args.tail, follow=args.follow),
                shown,
            )
            return Status.OK
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001 - what is kept elsewhere may still be there
            trouble = f"The log of pod {pod.where} cannot be read: {classify(error).message}"
    if (kept := _kept_log(record)) is not None:
        source, lines = kept
        say(f"The pod's log is not to be had; this is from {source}.")
        _write(lines[-args.tail :] if args.tail else lines, shown)
        return Status.OK
    raise CommandError(
        f"There is no log of callback {record.id} ({record.state}): "
        f"{trouble or 'it has no pod'}, and none was kept in the log folder or in remote storage."
    )


def _write(lines: Iterable[str], shown: Any) -> None:
    for line in lines:
        write(shown(line))


def _pod_to_read(
    deployment: Deployment, record: CallbackRecord, *, follow: bool
) -> tuple[PodFacts | None, str | None]:
    """Return the pod whose container has begun, or why there is none; with *follow*, wait for one."""
    told: str | None = None
    while True:
        found = deployment.pods([record.id])
        pod = current_pod(found.pods.get(record.id, ()))
        if pod is not None and pod.view.outcome not in (
            CallbackOutcome.PENDING,
            CallbackOutcome.NEVER_STARTED,
        ):
            return pod, None
        trouble = "; ".join(found.trouble) or None
        if pod is not None:
            trouble = f"pod {pod.where} has not started: {pod.view.reason or pod.phase}"
        if not follow:
            return None, trouble
        record = deployment.rows.find([record.id])[0]
        if not record.active:
            return None, trouble
        if (news := trouble or f"The callback is {record.state} and has no pod yet.") != told:
            told = news
            fail(f"Waiting: {news}")
        time.sleep(_POLL)


def _kept_log(record: CallbackRecord) -> tuple[str, list[str]] | None:
    if record.dag_id is None or record.run_id is None:
        return None
    path = kept_log_file(record)
    if path is not None:
        return str(path), path.read_text(encoding="utf-8", errors="replace").splitlines()
    relative = f"executor_callbacks/{record.dag_id}/{record.run_id}/{record.id}"
    lines = _remote_lines(relative)
    return (f"remote storage, {relative}", lines) if lines else None


def _remote_lines(relative: str) -> list[str]:
    """Return the lines that the remote log handler has at this path, if one is configured."""
    try:
        from airflow.logging_config import get_remote_task_log

        handler: Any = get_remote_task_log()
        if handler is None:
            return []
        _, logs = handler.read(relative, None)
        return [line for text in logs or () for line in _lines_of(text)]
    except Exception as error:  # noqa: BLE001 - each provider's handler fails in its own way
        fail(f"Remote storage cannot be read: {type(error).__name__}: {error}")
        return []


def _lines_of(text: Any) -> Iterator[str]:
    if isinstance(text, str):
        yield from text.splitlines()
