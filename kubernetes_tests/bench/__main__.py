"""Measure, show, write, judge; see ``--help``."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kubernetes_tests.bench import report
from kubernetes_tests.bench.lab import Lab
from kubernetes_tests.bench.latency import latency
from kubernetes_tests.bench.measures import MEASURES, SIZES, Results, Size
from kubernetes_tests.bench.targets import verdicts
from kubernetes_tests.databases import NoPostgresqlError, postgresql_server
from kubernetes_tests.local import local_cluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kubernetes_tests.databases import PostgresqlServer

ALL = {**MEASURES, "latency": latency}


def options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--only", choices=ALL, nargs="+", default=list(ALL), metavar="MEASURE")
    parser.add_argument("--rounds", type=int, help="how often what is compared is measured")
    parser.add_argument("--burst", type=int, help="callbacks of the burst")
    parser.add_argument("--growth", type=int, nargs="*", help="numbers of live callbacks, smallest first")
    parser.add_argument("--output", type=Path, default=Path("build/bench"), help="folder for JSON and plot")
    parser.add_argument(
        "--judge", action="store_true", help="fail if a ratio is far outside its target, twice"
    )
    parser.add_argument("--sqlite", action="store_true", help="sqlite even where PostgreSQL is to be had")
    return parser.parse_args(arguments)


def size_of(chosen: argparse.Namespace) -> Size:
    changes = {
        name: value for name in ("rounds", "burst", "growth") if (value := getattr(chosen, name)) is not None
    }
    return dataclasses.replace(SIZES[chosen.size], **changes)


def database(chosen: argparse.Namespace, stack: contextlib.ExitStack) -> PostgresqlServer | None:
    if not chosen.sqlite:
        with contextlib.suppress(NoPostgresqlError):
            return stack.enter_context(postgresql_server())
    return None


def measured(name: str, lab: Lab, size: Size, *, again: bool) -> Results:
    """Measure one thing.

    :param again: measure it once more if something is far outside its target; what is so only once was the
        machine's other work.
    """
    found = Results()
    begin = time.monotonic()
    ALL[name](lab, size, found)
    print(f"measured: {name} ({time.monotonic() - begin:.0f} s)", flush=True)
    if again and (outside := far_outside(found)):
        print(f"once more, since it was far outside the target: {'; '.join(outside)}", flush=True)
        return measured(name, lab, size, again=False)
    return found


def far_outside(results: Results) -> list[str]:
    return [f"{v.target.text} {v.median:.2f}" for v in verdicts(results.measured) if v.far_outside]


def main(arguments: Sequence[str]) -> int:
    chosen = options(arguments)
    size, results = size_of(chosen), Results()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        cluster = stack.enter_context(local_cluster(folder / "cluster"))
        lab = Lab(cluster, database(chosen, stack), folder)
        results.figures["database"] = lab.database
        for name in chosen.only:
            results.add(measured(name, lab, size, again=chosen.judge))
    found = verdicts(results.measured)
    report.show(found, results.figures)
    report.write(chosen.output, found, results.figures, chosen.size)
    outside = far_outside(results)
    if chosen.judge and outside:
        print(f"Far outside the targets: {'; '.join(outside)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
