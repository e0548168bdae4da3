"""Command line: ``python -m kubernetes_tests.cluster start|stop|status|kubeconfig``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from kubernetes_tests.cluster.build import BuildError, build
from kubernetes_tests.cluster.launcher import Capacity, ClusterError, Image, LocalCluster, default_images

COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")


def main() -> int:
    arguments = _parser().parse_args()
    try:
        return int(arguments.action(arguments) or 0)
    except (BuildError, ClusterError) as error:
        print(error, file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m kubernetes_tests.cluster", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, action: object, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(action=action)
        sub.add_argument(
            "--state", type=Path, default=_default_state(), help="folder of the cluster (%(default)s)"
        )
        return sub

    start = command("start", _start, "Start a cluster in the background.")
    start.add_argument("--port", type=int, default=0, help="port of the API server; a free one by default")
    start.add_argument(
        "--image",
        action="append",
        default=[],
        metavar="PATTERN[=VENV]",
        help="an image that exists, and the virtual environment that is first on its PATH; repeatable",
    )
    start.add_argument("--images", type=Path, help="JSON file with a list of images; see README.md")
    start.add_argument("--cpu", type=int, default=Capacity.cpu, help="the node's CPUs (%(default)s)")
    start.add_argument("--memory", default=Capacity.memory, help="the node's memory (%(default)s)")
    start.add_argument("--pods", type=int, default=Capacity.pods, help="the node's pods (%(default)s)")
    start.add_argument("--isolation", choices=("auto", "namespaces", "none"), default="auto")
    start.add_argument(
        "--keep-data", action="store_true", help="go on with the objects of an earlier cluster"
    )
    for component in COMPONENTS:
        start.add_argument(
            f"--{component.removeprefix('kube-')}-arg",
            dest=component,
            action="append",
            default=[],
            metavar="ARGUMENT",
            help=f"further argument of {component}, e.g. --{component.removeprefix('kube-')}-arg=--v=4; repeatable",
        )
    command("stop", _stop, "Stop the cluster.")
    command("status", _status, "Say whether the cluster runs; exit code 3 when it does not.")
    command("kubeconfig", _kubeconfig, "Print the path of the kubeconfig.")
    command("build", _build, "Only build the programs.")
    return parser


def _default_state() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "airflow-k8s-callbacks"


def _start(arguments: argparse.Namespace) -> None:
    cluster = LocalCluster(
        arguments.state,
        images=_images(arguments),
        capacity=Capacity(cpu=arguments.cpu, memory=arguments.memory, pods=arguments.pods),
        arguments={name: getattr(arguments, name) for name in COMPONENTS},
        apiserver_port=arguments.port,
        isolation=arguments.isolation,
        keep_data=arguments.keep_data,
        daemon=True,
    )
    cluster.start()
    print(f"export KUBECONFIG={cluster.kubeconfig}")


def _images(arguments: argparse.Namespace) -> list[Image]:
    images = []
    if arguments.images:
        images += [Image(**entry) for entry in json.loads(arguments.images.read_text())]
    for option in arguments.image:
        pattern, _, venv = option.partition("=")
        images.append(Image(pattern, path=(Path(venv).absolute() / "bin",) if venv else ()))
    return images or list(default_images())


def _stop(arguments: argparse.Namespace) -> None:
    LocalCluster(arguments.state, daemon=True).stop()


def _status(arguments: argparse.Namespace) -> int:
    status = LocalCluster(arguments.state, daemon=True).status()
    print(json.dumps(status or {"ready": False}, indent=2))
    return 0 if status else 3


def _kubeconfig(arguments: argparse.Namespace) -> None:
    print(LocalCluster(arguments.state, daemon=True).kubeconfig)


def _build(arguments: argparse.Namespace) -> None:
    print(build().cluster)


if __name__ == "__main__":
    sys.exit(main())
