"""The commands under ``airflow kubernetes-callbacks``. Only their shape: their code loads when one runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

from airflow.cli.cli_config import (
    ARG_OUTPUT,
    ARG_VERBOSE,
    ARG_YES,
    ActionCommand,
    Arg,
    GroupCommand,
    lazy_load_command,
    positive_int,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_COUNT, _SECONDS = (cast("Any", positive_int)(allow_zero=allowed) for allowed in (False, True))


def _arg(*flags: str, **options: Any) -> Arg:
    argument: Arg = cast("Any", Arg)(flags, **options)
    return argument


def _command(name: str) -> Callable[[Any], Any]:
    """Return the command of that module and function; older Airflow than 3.3 has nothing for it to work on."""

    def run(args: Any) -> Any:
        from airflow_kubernetes_callbacks.version_compat import SUPPORTS_EXECUTOR_CALLBACKS

        if not SUPPORTS_EXECUTOR_CALLBACKS:
            sys.exit("Airflow 3.3 or newer is needed: older ones have no executor callbacks.")
        return lazy_load_command(f"airflow_kubernetes_callbacks.cli.{name}")(args)

    return run


_STATUSES = """
Exit status: 0 if all is done or shown; 1 if something could not be done or is wrong; 2 for wrong usage;
3 if what is shown is not all, because the Kubernetes API did not answer."""

_ID_HELP = "Id of a callback, the beginning of one (4 characters or more), or the name of its pod"
ARG_ID = _arg("callback_id", metavar="ID", help=_ID_HELP)
ARG_IDS = _arg("callback_ids", metavar="ID", nargs="+", help=_ID_HELP)
ARG_DRY_RUN = _arg("--dry-run", help="Say what would be done, and do nothing", action="store_true")
ARG_STATE = _arg(
    "--state",
    help="Only callbacks in this state; may be given more than once (default: all but scheduled)",
    choices=("scheduled", "pending", "queued", "running", "success", "failed"),
    action="append",
)
ARG_DAG_ID = _arg("-d", "--dag-id", help="Only callbacks of this Dag")
ARG_RUN_ID = _arg("-r", "--run-id", help="Only callbacks of this Dag run")
ARG_TEAM = _arg("--team", help="Only callbacks of this team's Dags")
ARG_OLDER_THAN = _arg(
    "--older-than",
    metavar="AGE",
    help="Only those whose deadline is further back than this: 90s, 15m, 2h30m, 7d",
)
ARG_NEWER_THAN = _arg(
    "--newer-than", metavar="AGE", help="Only those whose deadline is not as far back as this"
)
ARG_STUCK = _arg(
    "--stuck", help="Only callbacks that do not get on by themselves, with the reason", action="store_true"
)
ARG_LIMIT = _arg("--limit", help="At most this many, the newest first", type=_COUNT, default=100)
ARG_FOLLOW = _arg("-f", "--follow", help="Go on until the callback ends", action="store_true")
ARG_TAIL = _arg("--tail", metavar="LINES", help="Only the last lines", type=_COUNT)
ARG_CONTAINER = _arg(
    "-c", "--container", help="Another container of the pod than the callback's own", default="base"
)
ARG_RAW = _arg("--raw", help="The lines as they were logged, in JSON", action="store_true")
ARG_RENDER = _arg(
    "--render", help="The pod as it would be launched now, without creating it", action="store_true"
)
ARG_POD_OUTPUT = _arg(
    "-o",
    "--output",
    help="Output format. Allowed values: yaml, json (default: yaml)",
    metavar="(yaml, json)",
    choices=("yaml", "json"),
    default="yaml",
)
ARG_REASON = _arg("--reason", metavar="TEXT", help="Why; kept in the callback's output and in the audit log")
ARG_FORCE = _arg("--force", help="Also a callback that succeeded", action="store_true")
ARG_WAIT = _arg(
    "--wait",
    metavar="SECONDS",
    help="How long to wait for an old pod to be gone (default: 60)",
    type=_SECONDS,
    default=60,
)
ARG_LEFT_FOR = _arg(
    "--older-than",
    metavar="AGE",
    help="Only what was left this long ago; younger leftovers are the executor's own business (default: 30m)",
    default="30m",
)

COMMANDS = (
    ActionCommand(
        name="list",
        help="List callbacks with their pods; stuck ones are marked",
        description="Lists the callbacks that go to executors of this package, with their pods." + _STATUSES,
        func=_command("list_command.list_callbacks"),
        args=(
            ARG_STATE,
            ARG_DAG_ID,
            ARG_RUN_ID,
            ARG_TEAM,
            ARG_OLDER_THAN,
            ARG_NEWER_THAN,
            ARG_STUCK,
            ARG_LIMIT,
            ARG_OUTPUT,
            ARG_VERBOSE,
        ),
    ),
    ActionCommand(
        name="show",
        help="Tell the whole story of one callback",
        description=(
            "Shows the row, the deadline, the pods and a timeline from the deadline to the recorded result, with "
            "Kubernetes' events and Airflow's audit log in it." + _STATUSES
        ),
        func=_command("show_command.show_callback"),
        args=(ARG_ID, ARG_OUTPUT, ARG_VERBOSE),
    ),
    ActionCommand(
        name="logs",
        help="Print the log of a callback",
        description=(
            "Prints the log of the callback's pod; when the pod is gone, the log that was kept in the log folder "
            "or in remote storage." + _STATUSES
        ),
        func=_command("logs_command.print_logs"),
        args=(ARG_ID, ARG_FOLLOW, ARG_TAIL, ARG_CONTAINER, ARG_RAW, ARG_VERBOSE),
    ),
    ActionCommand(
        name="pod",
        help="Print the pod of a callback, as it is or as it would be",
        description=(
            "Prints the callback's pod as YAML or JSON. With --render, builds the pod that a launch would create "
            "now, template, rules and pod_mutation_hook included. The workload, which holds the token and the "
            "kwargs, is never printed." + _STATUSES
        ),
        func=_command("pod_command.print_pod"),
        args=(ARG_ID, ARG_RENDER, ARG_POD_OUTPUT, ARG_VERBOSE),
    ),
    ActionCommand(
        name="cancel",
        help="End callbacks: pending ones never start, running ones get their grace period",
        description=(
            "Marks callbacks as failed, 'Cancelled by ...', and ends their pods. A scheduler in another process "
            "sees it at its next look: a callback that waits is not launched, the pod of one that runs is "
            "deleted with its grace period." + _STATUSES
        ),
        func=_command("cancel_command.cancel_callbacks"),
        args=(ARG_IDS, ARG_REASON, ARG_DRY_RUN, ARG_OUTPUT, ARG_VERBOSE),
    ),
    ActionCommand(
        name="retry",
        help="Run callbacks again that have failed",
        description=(
            "Hands callbacks out again that have failed (with --force: succeeded), or whose pod is gone while "
            "their row says that they run. Asks first if one may have run already." + _STATUSES
        ),
        func=_command("retry_command.retry_callbacks"),
        args=(ARG_IDS, ARG_FORCE, ARG_WAIT, ARG_YES, ARG_DRY_RUN, ARG_OUTPUT, ARG_VERBOSE),
    ),
    ActionCommand(
        name="gc",
        help="Remove pods and Secrets that no callback or connection test needs any more",
        description=(
            "Removes pods of this package that do not run and whose callback or connection test has ended or is in "
            "this database no more, and payload Secrets without a pod. Pods that the deployment keeps on purpose "
            "(delete_worker_pods = False) count as leftovers too." + _STATUSES
        ),
        func=_command("gc_command.collect_garbage"),
        args=(ARG_LEFT_FOR, ARG_YES, ARG_DRY_RUN, ARG_OUTPUT, ARG_VERBOSE),
    ),
    ActionCommand(
        name="check",
        help="Check whether callbacks can run here, and name what is missing",
        description=(
            "Checks configuration, access to the Kubernetes API verb by verb, namespaces, pod templates, images, "
            "admission (a trial creation that creates nothing), clocks and tokens. Run it where the scheduler "
            "runs, with its service account. Exit status: 0 if nothing is wrong (there may be warnings), else 1."
        ),
        func=_command("check_command.check"),
        args=(ARG_OUTPUT, ARG_VERBOSE),
    ),
    ActionCommand(
        name="settings",
        # No square brackets: rich, which prints the help, takes them for markup.
        help="Show the options of the section kubernetes_callbacks as they are in force",
        description=(
            "Shows every option of the section kubernetes_callbacks with the value in force here, where that value "
            "comes from, and the default. Ends with status 1 if the executor would refuse a value. Run it "
            "where the scheduler runs: another machine may have another configuration."
        ),
        func=lazy_load_command("airflow_kubernetes_callbacks.cli.settings_command.show_settings"),
        args=(ARG_OUTPUT, ARG_VERBOSE),
    ),
)


def get_kubernetes_callbacks_cli_commands() -> list[GroupCommand]:
    """Return the command group of this provider; Airflow calls it for every ``airflow`` command."""
    return [
        GroupCommand(
            name="kubernetes-callbacks",
            help="Look after executor callbacks that run as pods",
            subcommands=COMMANDS,
        )
    ]
