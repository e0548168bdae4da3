"""``airflow kubernetes-callbacks settings``: what is in force, and where it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.configuration import conf

from airflow_kubernetes_callbacks.cli.output import Status, command, print_rows
from airflow_kubernetes_callbacks.rules import load_rules
from airflow_kubernetes_callbacks.settings import OPTIONS, SECTION, load_settings

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

UNKNOWN = "unknown option, ignored"


def settings_rows(section: Mapping[str, Any]) -> list[dict[str, str | None]]:
    """Return one row per option, then one per name in the section that is no option.

    :param section: name to value and source, as ``conf.as_dict(display_source=True)`` has it
    """
    rows: list[dict[str, str | None]] = []
    for option in OPTIONS:
        value, source = section.get(option.name, (option.default, "default"))
        if source.startswith("provider-"):  # Airflow's name for the defaults in a provider's metadata
            source = "default"
        rows.append({"option": option.name, "value": value, "source": source, "default": option.default})
    known = {option.name for option in OPTIONS}
    for name, (value, source) in section.items():
        if name not in known:
            rows.append({"option": name, "value": value, "source": f"{source}: {UNKNOWN}", "default": None})
    return rows


@command
def show_settings(args: Namespace) -> Status:
    """Print the options, and then the reason why a value or a rule cannot be used, if one cannot.

    :raises SettingsError: one cannot.
    """
    section = conf.as_dict(display_source=True, display_sensitive=True).get(SECTION, {})
    print_rows(settings_rows(section), args.output)
    load_rules(load_settings(conf))
    return Status.OK
