"""The environment of the demo's processes, and of the command that looks at them. Pure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from kubernetes_tests.airflow_env import MARKER

if TYPE_CHECKING:
    from collections.abc import Mapping

NO_PROXY = ("no_proxy", "NO_PROXY")
#: All of the demo talks over this machine's loopback.
LOOPBACK = ("127.0.0.1", "localhost")


def past_proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which no proxy is asked for what runs on this machine.

    Programs read one spelling or the other, so both are set, to what either said before and the loopback.
    """
    said = ",".join(environment.get(name, "") for name in NO_PROXY)
    hosts = dict.fromkeys(host for entry in (*said.split(","), *LOOPBACK) if (host := entry.strip()))
    return dict.fromkeys(NO_PROXY, ",".join(hosts))


def airflow_script(airflow: str, environment: Mapping[str, str]) -> str:
    """Return a shell script that is *airflow* with the configuration in *environment*.

    It holds the secrets of that configuration. What it starts is not one of the demo's processes: the mark
    by which those are found and killed is left out.
    """
    names = sorted(
        name
        for name in environment
        if (name.startswith("AIRFLOW_") and name != MARKER) or name in ("PYTHONPATH", *NO_PROXY)
    )
    return "\n".join(
        [
            "#!/bin/sh",
            "# Airflow's command with the configuration, the database and the cluster of the demo.",
            "unset $(env | sed -n 's/^\\(AIRFLOW_[A-Za-z0-9_]*\\)=.*/\\1/p')",
            *(f"export {name}={shlex.quote(environment[name])}" for name in names),
            f'exec {shlex.quote(airflow)} "$@"',
            "",
        ]
    )
