"""``airflow kubernetes-callbacks cancel ID...``.

The row comes first: FAILED is final, every scheduler sees it at its next look, whether the callback
waits or runs there. The pod is deleted after that, so that its end is never recorded as the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.utils.platform import getuser

from airflow_kubernetes_callbacks.api_errors import classify
from airflow_kubernetes_callbacks.cli.changes import cancel_row
from airflow_kubernetes_callbacks.cli.deployment import Deployment
from airflow_kubernetes_callbacks.cli.interventions import Refusal, cancellation
from airflow_kubernetes_callbacks.cli.output import Status, audited, command, fail, print_rows
from airflow_kubernetes_callbacks.cli.overview import short_path
from airflow_kubernetes_callbacks.cli.rows import UnknownCallbackError
from airflow_kubernetes_callbacks.cli.show_command import not_found

if TYPE_CHECKING:
    from argparse import Namespace

    from airflow_kubernetes_callbacks.cli.interventions import Cancellation
    from airflow_kubernetes_callbacks.cli.model import CallbackRecord


@audited
@command
def cancel_callbacks(args: Namespace) -> Status:
    """End each callback; those that cannot be ended are said, and the others are ended all the same."""
    deployment = Deployment()
    records = find_all(deployment, args.callback_ids)
    found = deployment.pods([record.id for record in records])
    for trouble in found.trouble:
        fail(f"{trouble}. Its scheduler removes the pods of what is cancelled.")
    by = getuser()
    rows, all_done = [], True
    for record in records:
        done: bool | None
        pods = found.pods.get(record.id, ())
        decision = cancellation(record, pods, pods_known=found.complete, by=by, reason=args.reason)
        if isinstance(decision, Refusal):
            done, text = False, decision.why
        elif args.dry_run:
            done, text = None, f"would {decision.text}"
        else:
            done, text = _cancel(deployment, record, decision, by)
        rows.append(outcome_row(record, done, text))
        all_done = all_done and done is not False
    print_outcome(rows, args.output)
    return Status.OK if all_done else Status.FAILED


def find_all(deployment: Deployment, texts: list[str]) -> list[CallbackRecord]:
    """Return the callbacks that the texts mean, each once; all are found before anything is changed.

    :raises CommandError: one of them means none, or several.
    """
    try:
        return list({record.id: record for record in deployment.rows.find(texts)}.values())
    except UnknownCallbackError as error:
        raise not_found(error) from error


def outcome_row(record: CallbackRecord, done: bool | None, text: str) -> dict[str, Any]:
    """Return the line about one callback; *done* is None where a dry run found nothing in the way."""
    return {"callback": record.id, "path": record.path, "was": record.state, "done": done, "what": text}


def print_outcome(rows: list[dict[str, Any]], output: str) -> None:
    print_rows(rows, output, cells=[{**row, "path": short_path(row["path"])} for row in rows])


def _cancel(
    deployment: Deployment, record: CallbackRecord, decision: Cancellation, by: str
) -> tuple[bool, str]:
    if not cancel_row(record, by=by, output=decision.output):
        return False, "it ended, or was deleted, in the meantime"
    told = []
    for pod in decision.pods:
        try:
            deployment.executor_of(record).cluster.delete_pod(pod.view)
            told.append(f"pod {pod.where} is being ended")
        except Exception as error:  # noqa: BLE001 - the row is what counts: the executor deletes the pod
            told.append(f"pod {pod.where} is left to the scheduler ({classify(error).message})")
    return True, "; ".join(["cancelled", *told])
