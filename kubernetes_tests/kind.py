"""kind: a cluster for this run, or one that is there, and an image with this package for its pods.

Environment variables:

``KIND_CLUSTER_NAME``  cluster to use; made when it is not there, and then deleted at the end
``KIND_NODE_IMAGE``    node image for a cluster that is made
``BASE_IMAGE``         Airflow image to build on; by default ``apache/airflow:VERSION`` of this interpreter
``HOST_FROM_PODS``     address at which pods reach this machine; the gateway of kind's network by default
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kubernetes_tests.clusters import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
IMAGE = "airflow-kubernetes-callbacks-tests"

DOCKERFILE = """\
FROM {base}
COPY wheels /tmp/wheels
COPY --chown=airflow:0 dags /opt/airflow/dags
# the base image has the dependencies; the package comes without asking an index
RUN python -m pip --version >/dev/null 2>&1 && pip="python -m pip" || pip="uv pip"; \\
    $pip install --no-cache-dir --no-deps --no-index /tmp/wheels/*.whl
ENV AIRFLOW__CORE__LOAD_EXAMPLES=False AIRFLOW__CORE__DAGS_FOLDER=/opt/airflow/dags
"""


def run(*command: str | Path, cwd: Path | None = None, timeout: float = 1800.0) -> str:
    """Run a command and return its standard output.

    :raises RuntimeError: with all that it printed, when it fails.
    """
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, "DOCKER_BUILDKIT": os.environ.get("DOCKER_BUILDKIT", "0")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(map(str, command))}: exit status {done.returncode}\n"
            f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
        )
    return done.stdout


def tool(name: str) -> str:
    """Return the path of a program, or say that it is missing."""
    if path := shutil.which(name):
        return path
    raise RuntimeError(f"--cluster kind needs {name} on PATH")


def build_wheel(folder: Path) -> Path:
    """Build this package's wheel into *folder*, without asking a package index where that is possible."""
    folder.mkdir(parents=True, exist_ok=True)
    if importlib.util.find_spec("pip"):
        run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder, ROOT)
    else:
        run(tool("uv"), "build", "--wheel", "--out-dir", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def build_image(base: str, work: Path) -> str:
    """Build the image for the pods and return its name, whose tag is made from its contents."""
    context = work / "image"
    shutil.rmtree(context, ignore_errors=True)
    (context / "dags").mkdir(parents=True)
    wheel = build_wheel(context / "wheels")
    for folder in (ROOT / "kubernetes_tests" / "dags", ROOT / "example_dags"):
        for source in folder.glob("*.py"):
            shutil.copy(source, context / "dags")
    (context / "Dockerfile").write_text(DOCKERFILE.format(base=base))

    digest = hashlib.sha256(run(tool("docker"), "image", "inspect", "-f", "{{.Id}}", base).encode())
    for path in sorted([*(context / "dags").iterdir(), wheel, context / "Dockerfile"]):
        digest.update(path.name.encode() + path.read_bytes())
    name = f"{IMAGE}:{digest.hexdigest()[:16]}"
    run(tool("docker"), "build", "--quiet", "--tag", name, context)
    return name


def can_listen(address: str) -> bool:
    with socket.socket() as listener, contextlib.suppress(OSError):
        listener.bind((address, 0))
        return True
    return False


def network_gateway() -> str:
    """Return the IPv4 address of this machine in kind's network."""
    gateways = run(
        tool("docker"),
        *("network", "inspect", "kind", "-f", "{{range .IPAM.Config}}{{println .Gateway}}{{end}}"),
    )
    for gateway in gateways.split():
        if "." in gateway:
            return gateway
    raise RuntimeError("kind's network has no IPv4 gateway: set HOST_FROM_PODS")


@contextlib.contextmanager
def kind_cluster(work: Path) -> Iterator[Cluster]:
    """Yield the kind cluster with the image loaded; undo what was done for this run at the end."""
    kind, docker = tool("kind"), tool("docker")
    airflow = importlib.metadata.version("apache-airflow-core")
    base = os.environ.get("BASE_IMAGE") or f"apache/airflow:{airflow}"
    name = os.environ.get("KIND_CLUSTER_NAME") or "callbacks-tests"
    kubeconfig = work / "kubeconfig"

    made = name not in run(kind, "get", "clusters").split()
    if made:
        node_image = os.environ.get("KIND_NODE_IMAGE")
        run(
            *(kind, "create", "cluster", "--name", name, "--wait", "180s"),
            *("--kubeconfig", kubeconfig),
            *(("--image", node_image) if node_image else ()),
        )
    else:
        run(kind, "export", "kubeconfig", "--name", name, "--kubeconfig", kubeconfig)
    image = None
    try:
        image = build_image(base, work)
        run(kind, "load", "docker-image", image, "--name", name)
        host_from_pods = os.environ.get("HOST_FROM_PODS") or network_gateway()
        yield Cluster(
            name="kind",
            kubeconfig=kubeconfig,
            context=f"kind-{name}",
            image=image,
            image_pull_policy="Never",
            host=host_from_pods if can_listen(host_from_pods) else "0.0.0.0",
            host_from_pods=host_from_pods,
        )
    finally:
        if made:
            run(kind, "delete", "cluster", "--name", name)
        elif image:
            for node in run(kind, "get", "nodes", "--name", name).split():
                with contextlib.suppress(RuntimeError):  # pods of the last test may still end
                    run(docker, "exec", node, "crictl", "rmi", f"docker.io/library/{image}")
        if image:
            with contextlib.suppress(RuntimeError):
                run(docker, "rmi", image)
