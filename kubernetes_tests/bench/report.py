"""The figures as a table and as JSON."""

from __future__ import annotations

import json
import os
import platform
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kubernetes_tests.bench.targets import Verdict


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def show(verdicts: Sequence[Verdict], figures: Mapping[str, Any]) -> None:
    """Print the targets and, below them, every figure that was measured."""
    console = Console()
    table = Table(title="Targets")
    for heading in ("measure", "target", "median", "spread", "rounds", ""):
        table.add_column(heading, justify="left" if heading in ("measure", "") else "right")
    for verdict in verdicts:
        target = verdict.target
        sign = "≥" if target.at_least else "≤"
        table.add_row(
            target.text,
            f"{sign} {_number(target.limit)} {target.unit}".strip(),
            f"{_number(verdict.median)} {target.unit}".strip(),
            f"{_number(min(verdict.values))} … {_number(max(verdict.values))}",
            str(len(verdict.values)),
            "met" if verdict.met else "[bold]NOT MET[/bold]",
        )
    console.print(table)
    details = Table(title="Figures")
    details.add_column("what")
    details.add_column("values, one per round or size")
    for name, value in figures.items():
        details.add_row(name, _shown(value))
    console.print(details)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, list):
        return ", ".join(_shown(item) for item in value)
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_shown(item)}" for name, item in value.items())
    return str(value)


def write(folder: Path, verdicts: Sequence[Verdict], figures: Mapping[str, Any], size: str) -> None:
    """Write ``bench.json``, from which ``plot.py`` draws."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "size": size,
        "machine": {"cores": os.cpu_count(), "python": platform.python_version()},
        "targets": [
            {
                "name": verdict.target.name,
                "text": verdict.target.text,
                "limit": verdict.target.limit,
                "unit": verdict.target.unit,
                "at_least": verdict.target.at_least,
                "values": verdict.values,
                "median": verdict.median,
                "met": verdict.met,
            }
            for verdict in verdicts
        ],
        "figures": figures,
    }
    (folder / "bench.json").write_text(json.dumps(document, indent=1) + "\n")
