"""``airflow kubernetes-callbacks pod ID``: the pod as it is, or as a launch would make it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from airflow_kubernetes_callbacks.cli.deployment import Deployment
from airflow_kubernetes_callbacks.cli.model import current_pod, shown_pod
from airflow_kubernetes_callbacks.cli.output import CommandError, Status, command, print_document, say
from airflow_kubernetes_callbacks.cli.rows import attempt_named
from airflow_kubernetes_callbacks.cli.show_command import find_one
from airflow_kubernetes_callbacks.payload import SecretPayload, size_in_bytes

if TYPE_CHECKING:
    from argparse import Namespace

    from airflow_kubernetes_callbacks.cli.deployment import OwnExecutor
    from airflow_kubernetes_callbacks.cli.model import CallbackRecord
    from airflow_kubernetes_callbacks.launch_plan import LaunchPlan


@command
def print_pod(args: Namespace) -> Status:
    """Print the pod, without the workload."""
    deployment = Deployment()
    record = find_one(deployment, args.callback_id)
    if args.render:
        own = deployment.executor_of(record)
        plan = render(
            own, deployment.store.make_workload(record.id, None), attempt=record.recorded_attempt or 1
        )
        carrier = "a Secret" if isinstance(plan.payload, SecretPayload) else "an argument"
        say(f"The workload, {size_in_bytes(plan.payload.text):,} bytes, goes in {carrier}.")
        print_document(shown_pod(document_of(plan)), args.output)
        return Status.OK
    found = deployment.pods([record.id])
    pods, named = found.pods.get(record.id, ()), attempt_named(args.callback_id)
    pod = current_pod(pods, attempt=named)
    if pod is None:
        status = Status.FAILED if found.complete else Status.INCOMPLETE
        raise CommandError(_no_pod(record, named, found.trouble), status)
    print_document(shown_pod(pod.document), args.output)
    return Status.OK


def render(own: OwnExecutor, workload: Any, *, attempt: int) -> LaunchPlan:
    """Return what a launch would create: the same planner, but no token is made.

    :raises LaunchError: a launch would fail like this.
    """
    planner = dataclasses.replace(own.planner, me="0", fresh_token=lambda *_: "-")
    return planner.plan(workload, attempt)


def document_of(plan: LaunchPlan) -> dict[str, Any]:
    from kubernetes.client import ApiClient

    document: dict[str, Any] = ApiClient().sanitize_for_serialization(plan.pod)
    return document


def _no_pod(record: CallbackRecord, named: int | None, trouble: tuple[str, ...]) -> str:
    if trouble:
        return "; ".join(trouble)
    of_attempt = f" of attempt {named}" if named else ""
    return (
        f"Callback {record.id} ({record.state}) has no pod{of_attempt}. See what it would be with --render."
    )
