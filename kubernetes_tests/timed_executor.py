"""The executor with a clock on its heartbeat: for scheduler processes only, it imports Airflow.

Each heartbeat is written down as a line ``begin seconds`` (epoch, duration) in the file that the
environment variable ``HEARTBEATS_FILE`` names; :mod:`kubernetes_tests.heartbeats` reads it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import airflow_kubernetes_callbacks


class KubernetesExecutor(airflow_kubernetes_callbacks.KubernetesExecutor):
    """Ours, unchanged but for the clock."""

    def heartbeat(self) -> None:
        begin, clock = time.time(), time.monotonic()
        try:
            super().heartbeat()
        finally:
            line = f"{begin:.3f} {time.monotonic() - clock:.3f}\n"
            with Path(os.environ["HEARTBEATS_FILE"]).open("a") as file:
                file.write(line)
