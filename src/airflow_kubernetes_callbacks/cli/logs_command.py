"""``airflow kubernetes-callbacks logs ID``: from the pod while there is one, then from where logs are kept."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_kubernetes_callbacks.api_errors import ApiAnswer, classify
from airflow_kubernetes_callbacks.cli.deployment import Deployment
from airflow_kubernetes_callbacks.cli.following import followed
from airflow_kubernetes_callbacks.cli.kept_logs import kept_log_file
from airflow_kubernetes_callbacks.cli.log_lines import plain, readable
from airflow_kubernetes_callbacks.cli.model import current_pod, last_attempt
from airflow_kubernetes_callbacks.cli.output import (
    DATABASE_ERRORS,
    CommandError,
    Status,
    command,
    fail,
    say,
    write,
)
from airflow_kubernetes_callbacks.cli.rows import UnknownCallbackError, attempt_named
from airflow_kubernetes_callbacks.cli.show_command import find_one
from airflow_kubernetes_callbacks.outcome import CallbackOutcome

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable, Iterator

    from airflow_kubernetes_callbacks.cli.cluster import Cluster
    from airflow_kubernetes_callbacks.cli.model import CallbackRecord, PodFacts

#: Seconds between two looks at a callback whose container has yet to start.
_POLL = 2.0


class _Look(NamedTuple):
    """What was found of the pod."""

    #: The pod whose container has begun.
    pod: PodFacts | None
    #: Why there is none; None where it is simply gone.
    why: str | None
    #: The Kubernetes API has told all.
    complete: bool
    #: The number of the last launch.
    last: int


@command
def print_logs(args: Namespace) -> Status:
    """Print the log; with ``--follow``, wait for it and go on until it ends."""
    deployment = Deployment()
    record = find_one(deployment, args.callback_id)
    named = attempt_named(args.callback_id)
    shown = plain if args.raw else readable
    look = _pod_to_read(deployment, record, named, follow=args.follow)
    if look.pod is not None:
        if named or look.last > 1:
            say(f"This is attempt {look.pod.view.attempt}.")
        cluster = deployment.executor_of(record).cluster
        try:
            _write(_lines(cluster, look.pod, args, partial(_active, deployment, record.id)), shown)
            return Status.OK
        except (BrokenPipeError, CommandError, *DATABASE_ERRORS):
            raise
        except Exception as error:  # noqa: BLE001 - what is kept elsewhere may still be there
            failure = classify(error)
            look = look._replace(
                why=f"The log of pod {look.pod.where} cannot be read: {failure.message}",
                complete=failure.answer is not ApiAnswer.TRANSIENT,
            )
    older = named if named is not None and named < look.last else None
    status = Status.OK if look.complete else Status.INCOMPLETE
    if (kept := _kept_log(record, older)) is not None:
        source, lines = kept
        of_attempt = f" of attempt {named or look.last}" if named or look.last > 1 else ""
        say(f"{look.why or f'The pod{of_attempt} is gone'}; this is from {source}.")
        _write(lines[-args.tail :] if args.tail else lines, shown)
        return status
    raise CommandError(_no_log(record, older, look.why), status or Status.FAILED)


def _lines(cluster: Cluster, pod: PodFacts, args: Namespace, active: Callable[[], bool]) -> Iterator[str]:
    if args.follow:
        return followed(cluster, pod, container=args.container, tail=args.tail, active=active)
    return cluster.log_lines(pod.view, container=args.container, tail=args.tail)


def _active(deployment: Deployment, callback_id: str) -> bool:
    """Tell whether the callback has yet to end, as its row has it now."""
    try:
        return deployment.rows.find([callback_id])[0].active
    except UnknownCallbackError:
        return False


def _no_log(record: CallbackRecord, older: int | None, why: str | None) -> str:
    """Return that there is no log, and where it was looked for.

    :param older: the attempt that is meant, if it is not the last one.
    """
    why = why or "it has no pod"
    if older:
        return (
            f"There is no log of attempt {older} of callback {record.id}: {why}, and none was kept in the log folder. "
            "Without the attempt's number, the last one's is printed."
        )
    return (
        f"There is no log of callback {record.id} ({record.state}): "
        f"{why}, and none was kept in the log folder or in remote storage."
    )


def _write(lines: Iterable[str], shown: Any) -> None:
    for line in lines:
        write(shown(line))


def _pod_to_read(deployment: Deployment, record: CallbackRecord, named: int | None, *, follow: bool) -> _Look:
    """Look for the pod whose container has begun; with *follow*, wait for one.

    :param named: the attempt that is meant, if one is.
    :raises CommandError: there was no such attempt.
    """
    told: str | None = None
    while True:
        found = deployment.pods([record.id])
        pods = found.pods.get(record.id, ())
        last = last_attempt(record, pods)
        if named is not None and not 0 < named <= last:
            raise CommandError(f"Callback {record.id} has had no attempt {named}; its last is {last}.")
        pod = current_pod(pods, attempt=named)
        why = "; ".join(found.trouble) or None
        look = _Look(None, why, found.complete, last)
        if pod is not None:
            if pod.view.outcome not in (CallbackOutcome.PENDING, CallbackOutcome.NEVER_STARTED):
                return _Look(pod, None, complete=True, last=last)
            look = look._replace(why=f"pod {pod.where} has not started: {pod.view.reason or pod.phase}")
        if not follow or (named is not None and named < last):
            return look
        record = deployment.rows.find([record.id])[0]
        if not record.active:
            return look
        if (news := look.why or f"The callback is {record.state} and has no pod yet.") != told:
            told = news
            fail(f"Waiting: {news}")
        time.sleep(_POLL)


def _kept_log(record: CallbackRecord, older: int | None) -> tuple[str, list[str]] | None:
    """Return the log that was kept, and where; of the last run, or of an *older* attempt, before a retry."""
    if record.dag_id is None or record.run_id is None:
        return None
    path = kept_log_file(record, before_attempt=older + 1 if older else None)
    if path is not None:
        return str(path), path.read_text(encoding="utf-8", errors="replace").splitlines()
    if older:
        return None
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
