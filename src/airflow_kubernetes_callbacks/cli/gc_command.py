"""``airflow kubernetes-callbacks gc``: what is left over goes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from airflow_kubernetes_callbacks.api_errors import ApiAnswer, classify, not_permitted
from airflow_kubernetes_callbacks.cli.deployment import Deployment, api_trouble
from airflow_kubernetes_callbacks.cli.durations import parse_age
from airflow_kubernetes_callbacks.cli.interventions import Known, Leftover, leftovers
from airflow_kubernetes_callbacks.cli.kept_logs import keep_log
from airflow_kubernetes_callbacks.cli.model import PodFacts
from airflow_kubernetes_callbacks.cli.output import (
    CommandError,
    Status,
    audited,
    command,
    fail,
    print_rows,
    say,
)
from airflow_kubernetes_callbacks.cli.retry_command import confirmed
from airflow_kubernetes_callbacks.connection_test_store import ConnectionTestStore

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable

    from airflow_kubernetes_callbacks.cli.cluster import Cluster, SecretFacts
    from airflow_kubernetes_callbacks.cli.deployment import OwnExecutor


@audited
@command
def collect_garbage(args: Namespace) -> Status:
    """Remove what nothing needs, and print what that was."""
    try:
        older_than = parse_age(args.older_than)
    except ValueError as error:
        raise CommandError(str(error), Status.USAGE) from error
    deployment = Deployment()
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    complete = True
    for own in deployment.own:
        try:
            pods = [*own.cluster.pods(), *own.cluster.connection_test_pods()]
        except Exception as error:  # noqa: BLE001
            fail(f"{own.title}: pods cannot be listed: {api_trouble(error)}")
            complete = False
            continue
        secrets = _secrets(own.cluster)
        known = _known(deployment, pods, secrets)
        found = leftovers(pods, secrets, known, now=time.time(), older_than=older_than)
        skip_foreign = (
            not args.dry_run and any(item.foreign for item in found) and not _claimed(found, args.yes)
        )
        for item in found:
            key = (item.kind, item.namespace, item.name)
            if key not in rows:
                rows[key] = _row(item, _remove(own, item, args.dry_run, skip_foreign))
    nothing = "Nothing is left over." if complete else "What is left over is not known."
    print_rows(list(rows.values()), args.output, nothing=nothing)
    if not complete:
        return Status.INCOMPLETE
    return Status.FAILED if any(row["done"] is False for row in rows.values()) else Status.OK


def _known(deployment: Deployment, pods: Iterable[PodFacts], secrets: Iterable[SecretFacts]) -> Known:
    """Ask this database about everything whose pod or Secret is there."""
    owners = {(pod.view.callback_id, pod.of_connection_test) for pod in pods}
    owners |= {(secret.owner_id, secret.of_connection_test) for secret in secrets}
    callbacks = sorted(owner_id for owner_id, of_connection_test in owners if not of_connection_test)
    tests = sorted(owner_id for owner_id, of_connection_test in owners if of_connection_test)
    return Known(deployment.rows.known(callbacks), ConnectionTestStore().progress(tests) if tests else {})


def _secrets(cluster: Cluster) -> list[SecretFacts]:
    try:
        return cluster.secrets()
    except Exception as error:  # noqa: BLE001 - each Secret goes with its pod anyway
        failure = classify(error)
        if not not_permitted(failure):
            fail(f"Secrets cannot be listed: {failure.message}")
        else:
            say(
                "Secrets are not looked at: this account may not list them. Kubernetes removes each with its pod."
            )
        return []


def _claimed(found: list[Leftover], yes: bool) -> bool:
    count = sum(item.foreign for item in found)
    say(
        f"{count} of these belong to no callback and no connection test of this database. If another Airflow uses "
        "the same namespace, they may be its own."
    )
    return confirmed("Remove them too?", yes=yes)


def _remove(own: OwnExecutor, item: Leftover, dry_run: bool, skip_foreign: bool) -> tuple[bool | None, str]:
    if dry_run:
        return None, "would be removed"
    if item.foreign and skip_foreign:
        return None, "kept: it may be another Airflow's"
    try:
        if isinstance(item.target, PodFacts):
            view = item.target.view
            if not item.foreign:
                keep_log(own, item.target)
            # A pod that has begun meanwhile is left alone: the version that was seen is required.
            own.cluster.delete_pod(view, only_if_unchanged=True)
            if view.finalizer:
                own.cluster.remove_finalizer(view)
        else:
            own.cluster.delete_secret(item.target)
    except Exception as error:  # noqa: BLE001
        failure = classify(error)
        if failure.answer is ApiAnswer.CONFLICT:
            return None, "kept: it has changed in the meantime"
        return False, f"not removed: {failure.message}"
    return True, "removed"


def _row(item: Leftover, result: tuple[bool | None, str]) -> dict[str, Any]:
    done, text = result
    return {
        "kind": item.kind,
        "namespace": item.namespace,
        "name": item.name,
        "why": item.why,
        "done": done,
        "what": text,
    }
