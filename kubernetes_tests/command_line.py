"""``airflow kubernetes-callbacks`` as its user calls it: a process of its own."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kubernetes_tests.airflow_env import configuration_variables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kubernetes_tests.scenario import Scenario


@dataclass(frozen=True)
class Done:
    """What a command printed, and how it ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.out, self.err
        return json.loads(self.out)


class CommandLine:
    """Runs commands with the configuration of a scenario's scheduler."""

    def __init__(self, scenario: Scenario, config: Mapping[str, object] | None = None) -> None:
        self.scenario = scenario
        variables = configuration_variables({**scenario.config, **(config or {})})
        self.environment = {**scenario.env.environment, **variables}

    def __call__(self, *arguments: str) -> Done:
        done = subprocess.run(
            [self.scenario.env.python, "-m", "airflow", "kubernetes-callbacks", *arguments],
            env=self.environment,
            cwd=self.scenario.env.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=180,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)
