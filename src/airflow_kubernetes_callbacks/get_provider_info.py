"""What Airflow is told about this provider: its executor, its options and its commands.

Every ``airflow`` command and every component imports this module, so it imports nothing but the list
of options.
"""

from __future__ import annotations

from typing import Any

from airflow_kubernetes_callbacks import __version__
from airflow_kubernetes_callbacks.settings import OPTIONS, SECTION


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata, in the shape of Airflow's ``provider_info.schema.json``."""
    return {
        "package-name": "airflow-provider-kubernetes-callbacks",
        "name": "Kubernetes callbacks",
        "description": "Runs executor callbacks (Deadline Alerts) as pods on the KubernetesExecutor.",
        "versions": [__version__],
        "executors": ["airflow_kubernetes_callbacks.KubernetesExecutor"],
        "cli": ["airflow_kubernetes_callbacks.cli.definition.get_kubernetes_callbacks_cli_commands"],
        "config": {
            SECTION: {
                "description": (
                    "Executor callbacks (Deadline Alerts with a SyncCallback) that run as pods. Which "
                    "cluster, namespace, image and pod template they use is read from "
                    "[kubernetes_executor], as for tasks."
                ),
                "options": {
                    option.name: {
                        "description": option.description,
                        "version_added": option.version_added,
                        "type": option.type,
                        "example": option.example,
                        "default": option.default,
                    }
                    for option in OPTIONS
                },
            },
        },
    }
