"""``airflow kubernetes-callbacks show ID``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_kubernetes_callbacks.api_errors import classify
from airflow_kubernetes_callbacks.cli.deployment import Deployment
from airflow_kubernetes_callbacks.cli.durations import age_text
from airflow_kubernetes_callbacks.cli.model import current_pod, last_attempt
from airflow_kubernetes_callbacks.cli.output import (
    CommandError,
    Status,
    command,
    fail,
    heading,
    print_document,
    print_pairs,
    print_rows,
)
from airflow_kubernetes_callbacks.cli.overview import one_line, short_path, why_stuck
from airflow_kubernetes_callbacks.cli.rows import NoIdError, UnknownCallbackError
from airflow_kubernetes_callbacks.cli.story import as_document, timeline
from airflow_kubernetes_callbacks.errors import CallbackPodsError
from airflow_kubernetes_callbacks.identity import pod_name

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from airflow_kubernetes_callbacks.cli.model import CallbackRecord, PodFacts
    from airflow_kubernetes_callbacks.cli.story import Step

#: So many attempts, the last ones, are asked about where their pods are gone.
_ATTEMPTS_LOOKED_UP = 5


@command
def show_callback(args: Namespace) -> Status:
    """Print the whole story of one callback."""
    deployment = Deployment()
    record = find_one(deployment, args.callback_id)
    found = deployment.pods([record.id])
    pods = found.pods.get(record.id, ())
    events, trouble = _events(deployment, record, pods) if found.complete else ([], None)
    around = deployment.surroundings(pods_known=found.complete)
    stuck = why_stuck(record, current_pod(pods), around)
    steps = timeline(record, pods, events, deployment.rows.audit(record))
    for text in (*found.trouble, *([trouble] if trouble else ())):
        fail(text)
    document = as_document(record, pods, steps, stuck)
    if args.output in ("json", "yaml"):
        print_document(document, args.output)
    else:
        age = age_text(around.now - record.since.timestamp())
        _print_for_people(document, steps, age, plain=args.output == "plain")
    return Status.OK if found.complete else Status.INCOMPLETE


def find_one(deployment: Deployment, text: str) -> CallbackRecord:
    """Return the callback that *text* means.

    :raises CommandError: it means none, or several.
    """
    try:
        return deployment.rows.find([text])[0]
    except UnknownCallbackError as error:
        raise not_found(error) from error


def not_found(error: UnknownCallbackError) -> CommandError:
    """Return how a command ends for this reason."""
    return CommandError(str(error), Status.USAGE if isinstance(error, NoIdError) else Status.FAILED)


def _events(
    deployment: Deployment, record: CallbackRecord, pods: Sequence[PodFacts]
) -> tuple[list[dict[str, Any]], str | None]:
    try:
        own = deployment.executor_of(record)
        wanted = [(pod.view.namespace, pod.view.name) for pod in pods]
        there = {name for _, name in wanted}
        last = last_attempt(record, pods)
        names = [pod_name(record.id, number) for number in range(1, last + 1)][-_ATTEMPTS_LOOKED_UP:]
        namespaces = own.cluster.namespaces or {namespace for namespace, _ in wanted}
        wanted += [
            (namespace, name) for name in names if name not in there for namespace in sorted(namespaces)
        ]
        return [event for namespace, name in wanted for event in own.cluster.events(namespace, name)], None
    except CallbackPodsError as error:
        return [], str(error)
    except Exception as error:  # noqa: BLE001 - the story is told without events then
        return [], f"Kubernetes' events cannot be read: {classify(error).message}"


def _print_for_people(document: dict[str, Any], steps: Sequence[Step], age: str, *, plain: bool) -> None:
    callback, run, deadline = document["callback"], document["dag_run"], document["deadline"]
    gone = "" if run["exists"] else " (deleted)"
    state = f"{callback['state']}, {age} after the deadline" if deadline["time"] else callback["state"]
    print_pairs(
        [
            ("callback", callback["id"]),
            ("state", state),
            ("stuck", callback["stuck_reason"]),
            ("output", short_path(callback["output"] or "")),
            ("path", short_path(callback["path"])),
            ("kwargs", ", ".join(callback["kwargs"])),
            ("executor", callback["executor"] or "the default one"),
            ("team", callback["team"]),
            ("Dag", run["dag_id"]),
            ("Dag run", f"{run['run_id']}{gone}"),
            ("deadline", " ".join(text for text in (deadline["time"], deadline["name"]) if text)),
        ]
    )
    if document["pods"]:
        heading("Pods")
        fields = ("attempt", "name", "phase", "outcome", "node", "scheduler", "image", "reason")
        _print_table([{name: pod[name] for name in fields} for pod in document["pods"]], plain)
    heading("Timeline")
    _print_table(
        [
            {"time": step.when or "", "what": step.what, "detail": one_line(short_path(step.detail), 500)}
            for step in steps
        ],
        plain,
    )


def _print_table(rows: list[dict[str, Any]], plain: bool) -> None:
    print_rows(
        [{key: "" if value is None else value for key, value in row.items()} for row in rows],
        "plain" if plain else "table",
    )
