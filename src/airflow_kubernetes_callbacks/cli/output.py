"""How commands print and end. Data goes to stdout, everything else to stderr."""

from __future__ import annotations

import functools
import io
import sys
from enum import IntEnum
from typing import TYPE_CHECKING, Any, cast

from airflow.cli.simple_table import AirflowConsole, SimpleTable
from airflow.utils.cli import action_cli, suppress_logs_and_warning
from airflow.utils.providers_configuration_loader import providers_configuration_loaded
from rich.text import Text
from sqlalchemy.exc import OperationalError, ProgrammingError

from airflow_kubernetes_callbacks.errors import CallbackPodsError
from airflow_kubernetes_callbacks.redact import presentable
from airflow_kubernetes_callbacks.version_compat import substituted

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sqlalchemy.exc import DBAPIError

#: No database, or one without Airflow's tables: which of the two classes says so depends on the driver.
DATABASE_ERRORS = (OperationalError, ProgrammingError)

#: Exit status of a command that Ctrl-C ended, as a shell has it.
_INTERRUPTED = 130


class Status(IntEnum):
    """Exit status of a command; argparse ends with 2 by itself."""

    #: All is done, or shown.
    OK = 0
    #: It could not be done, or something is wrong.
    FAILED = 1
    #: How the command was called makes no sense.
    USAGE = 2
    #: What is shown is not all: the Kubernetes API did not answer.
    INCOMPLETE = 3


class CommandError(CallbackPodsError):
    """A command ends here; the message is for the person who called it."""

    def __init__(self, message: str, status: Status = Status.FAILED) -> None:
        super().__init__(message)
        self.status = status


def command(function: Callable[[Namespace], Status | None]) -> Callable[[Namespace], None]:
    """Make a command of a function that returns its exit status: quiet, and with errors in one line."""

    @functools.wraps(function)
    def run(args: Namespace) -> None:
        _write_anything()
        try:
            status = function(args) or Status.OK
        except CommandError as error:
            fail(str(error))
            status = error.status
        except CallbackPodsError as error:
            fail(str(error))
            status = Status.FAILED
        except DATABASE_ERRORS as error:
            fail(database_trouble(error))
            status = Status.FAILED
        except BrokenPipeError:  # the reader, 'head' or a pager, has seen enough
            sys.stderr.close()
            status = Status.OK
        except KeyboardInterrupt:
            sys.exit(_INTERRUPTED)
        if status:
            sys.exit(int(status))

    wrapped: Callable[[Namespace], None] = suppress_logs_and_warning(providers_configuration_loaded(run))
    return wrapped


def _write_anything() -> None:
    """Have characters that the terminal's or the file's encoding lacks written as escapes."""
    for stream in (sys.stdout, sys.stderr):
        # Who chose another way for them (PYTHONIOENCODING=ascii:replace) keeps it.
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="backslashreplace")


def database_trouble(error: DBAPIError) -> str:
    """Return what the database's driver says, in one line without the statement, and what to look at."""
    told = str(error.orig).strip().partition("\n")[0].rstrip(".")
    return (
        f"The database cannot be read: {told}. Was 'airflow db migrate' run, and is "
        "[database] sql_alchemy_conn that of the scheduler?"
    )


def audited(function: Callable[[Namespace], None]) -> Callable[[Namespace], None]:
    """Have the call of this command written to Airflow's audit log, as for Airflow's own commands.

    Airflow takes the command line from ``sys.argv``, whatever a person has put into it.
    """
    recorded: Callable[[Namespace], None] = cast("Any", action_cli)(check_db=False)(function)

    @functools.wraps(function)
    def run(args: Namespace) -> None:
        with substituted(sys, "argv", [presentable(argument) for argument in sys.argv]):
            recorded(args)

    return run


def say(text: str) -> None:
    """Tell the person something that is not data."""
    print(text, file=sys.stderr)  # noqa: T201


def fail(text: str) -> None:
    say(presentable(text))


def write(text: str) -> None:
    """Write a line of data."""
    print(text)  # noqa: T201


def print_rows(
    rows: Sequence[Mapping[str, Any]],
    output: str,
    *,
    cells: Sequence[Mapping[str, str]] | None = None,
    nothing: str = "No data found",
    marked: Callable[[int], str | None] = lambda _index: None,
) -> None:
    """Print rows as Airflow's own commands do.

    :param rows: every field, with its own type: what json and yaml print.
    :param cells: short texts for ``table`` and ``plain``; the rows themselves if there are none.
    :param marked: the style of the row at an index, for ``table``.
    """
    console: Any = AirflowConsole()
    if output == "json":
        console.print_as_json([dict(row) for row in rows])
    elif output == "yaml":
        console.print_as_yaml([dict(row) for row in rows])
    elif not rows:
        say(nothing)
    elif output == "plain":
        console.print_as_plain_table([dict(row) for row in (cells or rows)])
    else:
        _print_table(console, cells or rows, marked)


def _print_table(
    console: AirflowConsole, rows: Sequence[Mapping[str, Any]], marked: Callable[[int], str | None]
) -> None:
    table = _table(show_header=True)
    for name in rows[0]:
        # An id is copied from the table: it is never broken.
        table.add_column(name, no_wrap=name in ("callback", "state", "age"), overflow="fold")
    for index, row in enumerate(rows):
        # As Text: square brackets in what a callback says are not markup.
        table.add_row(
            *(Text("" if value is None else str(value)) for value in row.values()), style=marked(index)
        )
    console.print(table)


def _table(*, show_header: bool) -> SimpleTable:
    table: SimpleTable = cast("Any", SimpleTable)(show_header=show_header)
    return table


def print_document(document: Any, output: str) -> None:
    """Print one document as JSON or YAML."""
    console = AirflowConsole()
    if output == "json":
        console.print_as_json(document)
    else:
        console.print_as_yaml(document)


def print_pairs(pairs: Iterable[tuple[str, Any]]) -> None:
    """Print names and values below each other; empty values are left out."""
    table = _table(show_header=False)
    table.add_column("name", style="bold", no_wrap=True)
    table.add_column("value", overflow="fold")
    for name, value in pairs:
        if value not in (None, "", (), []):
            table.add_row(Text(name), Text(str(value)))
    AirflowConsole().print(table)


def heading(text: str) -> None:
    AirflowConsole().print(Text(text, style="bold green"))
