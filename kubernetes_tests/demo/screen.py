"""What the demo prints."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kubernetes_tests.demo.timeline import CallbackSeen, Moment

KINDS = {"deadline": "magenta", "row": "blue", "pod": "cyan", "log": "dim"}
FUNCTION_WIDTH = 15


class Screen:
    """Prints steps, then the timeline, then the result. Made for a terminal, readable in a file."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        if not self.console.is_terminal and "COLUMNS" not in os.environ:
            self.console.width = 120
        self._zero: float | None = None

    def title(self, airflow: str) -> None:
        self.console.print(
            Panel.fit(
                "A Dag run misses two deadlines. Each has a callback, and each callback runs as a pod.",
                title=f"airflow-provider-kubernetes-callbacks on Airflow {airflow}",
                border_style="blue",
            )
        )

    @contextlib.contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Show that something is under way, then how long it took."""
        began = time.monotonic()
        with self.console.status(text) if self.console.is_terminal else contextlib.nullcontext():
            yield
        self.console.print(f"[green]✓[/] {escape(text)} [dim]({time.monotonic() - began:.1f} s)[/]")

    def say(self, text: str) -> None:
        self.console.print(f"  [dim]{escape(text)}[/]")

    def moment(self, moment: Moment) -> None:
        """Print one line of the timeline; times count from the first missed deadline."""
        if self._zero is None:
            self._zero = time.monotonic()
        line = Table.grid(padding=(0, 1))
        line.add_column(width=8, justify="right", style="dim")
        line.add_column(width=FUNCTION_WIDTH)
        line.add_column(width=8)
        line.add_column(overflow="fold")
        style = {True: "bold green", False: "bold red", None: ""}[moment.good]
        line.add_row(
            f"{time.monotonic() - self._zero:5.1f} s",
            moment.function,
            Text(moment.kind, KINDS[moment.kind]),
            Text(moment.text, style),
        )
        self.console.print(line)

    def result(self, callbacks: Sequence[CallbackSeen]) -> None:
        table = Table(title="Callbacks in Airflow's database", title_justify="left")
        table.add_column("callback")
        table.add_column("state")
        table.add_column("output", overflow="fold")
        for callback in callbacks:
            good = callback.state == "success"
            state = Text((callback.state or "-").upper(), "bold green" if good else "bold red")
            table.add_row(callback.function, state, Text(callback.output or ""))
        self.console.print()
        self.console.print(table)
