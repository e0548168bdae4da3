"""The commands under ``airflow kubernetes-callbacks``. Only their shape: their code loads when one runs."""

from __future__ import annotations

from airflow.cli.cli_config import ARG_OUTPUT, ARG_VERBOSE, ActionCommand, GroupCommand, lazy_load_command

COMMANDS = (
    ActionCommand(
        name="settings",
        help="Show the options of [kubernetes_callbacks] as they are in force",
        description=(
            "Shows every option of [kubernetes_callbacks] with the value in force here, where that value "
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
