"""Draws ``bench.json``: ``python -m kubernetes_tests.bench.plot FOLDER``. Needs matplotlib and nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot

MET, MISSED = "#2a9d8f", "#e76f51"
#: What should stay flat, by its name in the figures and in the legend.
FLAT = {
    "launch_ms": "one launch, ms",
    "idle_sync_ms": "idle sync(), ms",
    "pass_longest_beat_ms": "longest heartbeat of a reconcile pass, ms",
    "kib_per_callback": "memory per callback, KiB",
}


def draw(document: dict[str, Any], path: Path) -> None:
    """Draw how much of each target is used, and what grows with the number of live callbacks."""
    drawing, (left, right) = pyplot.subplots(1, 2, figsize=(14, 5), width_ratios=(3, 2))
    targets = document["targets"]
    names = [target["text"] for target in targets]
    left.barh(
        names, [_used(target) for target in targets], color=[MET if t["met"] else MISSED for t in targets]
    )
    left.axvline(1.0, color="black", linewidth=1)
    left.set_xlabel("share of the target that is used (up to 1: met)")
    left.invert_yaxis()
    growth = document["figures"].get("growth", {})
    for name, label in FLAT.items():
        if points := [
            (int(size), values[name]) for size, values in growth.items() if values.get(name) is not None
        ]:
            right.plot(*zip(*points, strict=True), marker="o", label=label)
    if growth:
        right.set_xscale("log")
        right.set_yscale("log")
        right.set_xlabel("live callbacks")
        right.legend()
    drawing.tight_layout()
    drawing.savefig(path)


def _used(target: dict[str, Any]) -> float:
    value, limit = target["median"], target["limit"]
    used = limit / value if target["at_least"] else value / limit
    return float(min(max(used, 0.0), 3.0))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    draw(json.loads((folder / "bench.json").read_text()), folder / "bench.svg")
    print(folder / "bench.svg")
