"""``airflow kubernetes-callbacks retry ID...``: a person decides that a callback runs again."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from airflow.utils.platform import getuser

from airflow_kubernetes_callbacks.api_errors import classify
from airflow_kubernetes_callbacks.cli.cancel_command import find_all, outcome_row, print_outcome
from airflow_kubernetes_callbacks.cli.changes import retry_row
from airflow_kubernetes_callbacks.cli.deployment import Deployment
from airflow_kubernetes_callbacks.cli.interventions import Refusal, retry
from airflow_kubernetes_callbacks.cli.kept_logs import keep_log, set_log_aside
from airflow_kubernetes_callbacks.cli.output import Status, audited, command, fail, say
from airflow_kubernetes_callbacks.cli.overview import short_path

if TYPE_CHECKING:
    from argparse import Namespace

    from airflow_kubernetes_callbacks.cli.cluster import Cluster
    from airflow_kubernetes_callbacks.cli.interventions import Retry
    from airflow_kubernetes_callbacks.cli.model import CallbackRecord, PodFacts

_POLL = 0.5


@audited
@command
def retry_callbacks(args: Namespace) -> Status:
    """Hand each callback out again, after asking about those that may have run."""
    deployment = Deployment()
    records = find_all(deployment, args.callback_ids)
    found = deployment.pods([record.id for record in records])
    for trouble in found.trouble:
        fail(trouble)
    decisions = {
        record.id: retry(record, found.pods.get(record.id, ()), pods_known=found.complete, force=args.force)
        for record in records
    }
    agreed = args.dry_run or _agreed(records, decisions, yes=args.yes)
    rows, all_done = [], True
    for record in records:
        done: bool | None
        decision = decisions[record.id]
        if isinstance(decision, Refusal):
            done, text = False, decision.why
        elif args.dry_run:
            warning = f" (careful: {decision.warning})" if decision.warning else ""
            done, text = None, f"would {decision.text}{warning}"
        elif decision.warning and not agreed:
            done, text = False, f"not agreed to: {decision.warning}"
        else:
            done, text = _retry(deployment, record, decision, wait=args.wait)
        rows.append(outcome_row(record, done, text))
        all_done = all_done and done is not False
    print_outcome(rows, args.output)
    return Status.OK if all_done else Status.FAILED


def _agreed(records: list[CallbackRecord], decisions: dict[str, Retry | Refusal], *, yes: bool) -> bool:
    """Tell what may happen twice, and ask."""
    warned = False
    for record in records:
        decision = decisions[record.id]
        if not isinstance(decision, Refusal) and decision.warning:
            warned = True
            say(f"Careful: {short_path(record.path)} ({record.id}): {decision.warning}.")
    return confirmed("Run again?", yes=yes) if warned else True


def confirmed(question: str, *, yes: bool) -> bool:
    """Ask; without a terminal the answer is no."""
    if yes:
        return True
    if not sys.stdin.isatty():
        say(f"{question} There is no terminal to ask; give --yes.")
        return False
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _retry(deployment: Deployment, record: CallbackRecord, decision: Retry, *, wait: int) -> tuple[bool, str]:
    own = deployment.executor_of(record)
    cluster = own.cluster
    try:
        for pod in decision.pods:
            keep_log(own, pod)
            cluster.delete_pod(pod.view)
            if pod.view.finalizer:
                cluster.remove_finalizer(pod.view)
        if (left := _wait_until_gone(cluster, decision.pods, wait)) is not None:
            return False, f"pod {left.where} is not gone after {wait} s; try again later"
    except Exception as error:  # noqa: BLE001
        return False, f"its old pod cannot be deleted: {classify(error).message}"
    note = f"handed out again by a person, after {record.state}: {record.output or 'no output'}"
    if not retry_row(record, attempt=decision.attempt, by=getuser(), output=note):
        return False, "its state changed in the meantime; look again"
    set_log_aside(record, decision.attempt)
    return True, f"handed out again, as attempt {decision.attempt}"


def _wait_until_gone(cluster: Cluster, pods: tuple[PodFacts, ...], seconds: float) -> PodFacts | None:
    """Wait for the pods to go; return one that has not. Two pods of one callback must never run at once."""
    end = time.monotonic() + seconds
    for pod in pods:
        while True:
            there = cluster.read_facts(pod.view.namespace, pod.view.name)
            if there is None or there.view.uid != pod.view.uid:
                break
            if time.monotonic() >= end:
                return pod
            time.sleep(_POLL)
    return None
