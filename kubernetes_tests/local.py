"""The local cluster for this run: its pods are processes with the virtual environment of the tests."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kubernetes_tests.cluster.launcher import Image, LocalCluster
from kubernetes_tests.clusters import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

IMAGE = "local/airflow:tests"


def worker_image(home: Path, dags: Path) -> Image:
    """Return the image of workers: what an Airflow image has in its environment, for this machine.

    :param home: AIRFLOW_HOME of the pods; one that has a configuration file is not written to at import,
        so many pods can begin at once.
    """
    home.mkdir(parents=True, exist_ok=True)
    (home / "airflow.cfg").touch()
    environment = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
        "HOME": str(home),
        "LANG": "C.UTF-8",
    }
    if "PYTHONPATH" in os.environ:
        environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
    return Image("local/airflow:*", path=(Path(sys.prefix) / "bin",), env=environment)


@contextlib.contextmanager
def local_cluster(work: Path) -> Iterator[Cluster]:
    """Start a local cluster and stop it at the end."""
    image = worker_image(work / "worker", Path(__file__).with_name("dags"))
    with LocalCluster(images=[image]) as cluster:
        yield Cluster(
            name="local",
            kubeconfig=cluster.kubeconfig,
            context=None,
            image=IMAGE,
            image_pull_policy="IfNotPresent",
            host="127.0.0.1",
            host_from_pods="127.0.0.1",
            # containers are processes of this user, and where that is root the kubelet has to be told
            pod_security_context={"runAsNonRoot": False},
            local=cluster,
        )
