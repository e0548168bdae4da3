"""``airflow kubernetes-callbacks list``."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING

from airflow_kubernetes_callbacks.cli.deployment import Deployment
from airflow_kubernetes_callbacks.cli.durations import parse_age
from airflow_kubernetes_callbacks.cli.model import ACTIVE_STATES, STATES, TERMINAL_STATES
from airflow_kubernetes_callbacks.cli.output import CommandError, Status, command, fail, print_rows, say
from airflow_kubernetes_callbacks.cli.overview import as_cells, as_row, overview
from airflow_kubernetes_callbacks.cli.rows import Filter

if TYPE_CHECKING:
    from argparse import Namespace

    from airflow_kubernetes_callbacks.cli.overview import Overview

#: A callback whose deadline is not missed yet is nothing to look after; it is shown when asked for.
_DEFAULT_STATES = (*ACTIVE_STATES, *TERMINAL_STATES)


@command
def list_callbacks(args: Namespace) -> Status:
    """Print one line per callback."""
    wanted = _filter(args)
    deployment = Deployment()
    limit = min(args.limit, sys.maxsize - 1)  # no row is beyond that, and islice counts no further
    records = list(islice(deployment.rows.select(wanted), limit + 1))
    more = len(records) > limit
    records = records[:limit]
    found = (
        deployment.pods()
        if any(record.active for record in records) or len(records) > 1
        else (deployment.pods([record.id for record in records]))
    )
    around = deployment.surroundings(pods_known=found.complete)
    lines = [overview(record, found.pods.get(record.id, ()), around) for record in records]
    if args.stuck:
        lines = [line for line in lines if line.stuck]
    for trouble in found.trouble:
        fail(trouble)
    print_rows(
        [as_row(line) for line in lines],
        args.output,
        cells=[as_cells(line) for line in lines],
        nothing=_nothing(args, known=found.complete or not any(record.active for record in records)),
        marked=lambda index: _style(lines[index]),
    )
    if more:
        say(f"There are more than {args.limit}; see --limit, or narrow the search.")
    return Status.OK if found.complete else Status.INCOMPLETE


def _nothing(args: Namespace, *, known: bool) -> str:
    """Return what an empty list means.

    :param known: the pods are, as far as they matter here.
    """
    if not args.stuck:
        return "There are no such callbacks."
    return "No callback is stuck." if known else "Whether a callback is stuck is not known."


def _filter(args: Namespace) -> Filter:
    try:
        older = parse_age(args.older_than) if args.older_than is not None else None
        newer = parse_age(args.newer_than) if args.newer_than is not None else None
    except ValueError as error:
        raise CommandError(str(error), Status.USAGE) from error
    states = tuple(args.state or (ACTIVE_STATES if args.stuck else _DEFAULT_STATES))
    return Filter(
        states=states if set(states) != set(STATES) else (),
        dag_id=args.dag_id,
        run_id=args.run_id,
        team=args.team,
        older_than=older,
        newer_than=newer,
    )


def _style(line: Overview) -> str | None:
    if line.stuck:
        return "bold yellow"
    return {"failed": "red", "success": "green"}.get(line.record.state)
