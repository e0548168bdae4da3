"""Starts, stops and commands a local cluster."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubernetes_tests.cluster.build import build

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from kubernetes.client import ApiClient

START_SECONDS = 180.0
STOP_SECONDS = 30.0


class ClusterError(Exception):
    """The cluster did not do what was asked."""


@dataclass(frozen=True)
class Image:
    """What stands for a container image on this machine.

    :param pattern: shell pattern over the image's name, e.g. ``local/airflow:*``.
    :param path: folders put before the default ``PATH``, e.g. the ``bin`` of a virtual environment.
    :param env: the environment that the image defines.
    :param entrypoint: the image's ``ENTRYPOINT``, used when a container has no ``command``.
    :param command: the image's ``CMD``, used when a container has neither ``command`` nor ``args``.
    :param workdir: the image's ``WORKDIR``; without one, each container gets an empty folder.
    """

    pattern: str
    path: Sequence[str | Path] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    workdir: str = ""


@dataclass(frozen=True)
class Capacity:
    """What the node says it has. It may be more than the machine has."""

    cpu: int = 256
    memory: str = "1Ti"
    ephemeral_storage: str = "1Ti"
    pods: int = 5000


def default_images() -> tuple[Image, ...]:
    """Return one image, ``local/*``: this machine, with this Python first on PATH."""
    return (Image("local/*", path=(Path(sys.prefix) / "bin",)),)


class LocalCluster:
    """A Kubernetes cluster whose containers are processes.

    It ends with :meth:`stop`, at the end of a ``with`` block and when this process ends, however that
    happens; with ``daemon`` only with :meth:`stop`.

    :param state_dir: where everything of the cluster is kept; a temporary folder by default, which is
        removed at the end.
    :param images: the images that exist; the first whose pattern matches is used.
    :param arguments: further command line arguments of ``kube-apiserver``, ``kube-controller-manager`` and
        ``kube-scheduler``.
    :param apiserver_port: a fixed port; a free one by default.
    :param isolation: how volumes come to their mount paths: ``namespaces``, ``none`` (paths in the command
        and the environment are rewritten) or ``auto`` (the first if the machine allows it).
    :param keep_data: start with the objects that an earlier cluster left in ``state_dir``.
    :param daemon: outlive this process.
    """

    def __init__(
        self,
        state_dir: str | Path | None = None,
        *,
        images: Sequence[Image] = (),
        capacity: Capacity = Capacity(),
        arguments: Mapping[str, Sequence[str]] | None = None,
        apiserver_port: int = 0,
        isolation: str = "auto",
        keep_data: bool = False,
        daemon: bool = False,
        report: Callable[[str], None] | None = None,
    ) -> None:
        self._temporary = state_dir is None
        self.state_dir = Path(state_dir or tempfile.mkdtemp(prefix="local-cluster-")).absolute()
        self._images = tuple(images) or default_images()
        self._capacity = capacity
        self._arguments = {name: list(values) for name, values in (arguments or {}).items()}
        self._apiserver_port = apiserver_port
        self._isolation = isolation
        self._keep_data = keep_data
        self._daemon = daemon
        self._report = report
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of a cluster administrator."""
        return self.state_dir / "kubeconfig"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Build the programs if necessary, and return when pods can be created."""
        if self.running():
            raise ClusterError(f"a cluster is already running in {self.state_dir}")
        programs = build(self._report)
        self._prepare_state()
        config = {
            "state": str(self.state_dir),
            "enter": str(programs.enter),
            "apiserver_port": self._apiserver_port,
            "capacity": asdict(self._capacity),
            "images": [_image_config(image) for image in self._images],
            "isolation": self._isolation,
            "arguments": self._arguments,
            "parent_pid": 0 if self._daemon else os.getpid(),
        }
        (self.state_dir / "config.json").write_text(json.dumps(config, indent=2))
        self._process = self._spawn([str(programs.cluster), "serve", str(self.state_dir)])
        try:
            self._wait_until_ready(self._process)
        except BaseException:
            self.stop()
            raise

    def _spawn(self, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        with self._log_path.open("wb") as log:
            return subprocess.Popen(
                command,
                # The other end of the pipe closes when this process ends.
                stdin=subprocess.DEVNULL if self._daemon else subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **options,
            )

    def _prepare_state(self) -> None:
        if not self._keep_data:
            for name in ("etcd", "kubelet", "sandboxes", "containers", "pods", "logs", "pki"):
                shutil.rmtree(self.state_dir / name, ignore_errors=True)
        # Whoever may list the folder can read Secrets: it is the user's alone.
        self.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.state_dir / "logs").mkdir(exist_ok=True)

    @property
    def _log_path(self) -> Path:
        return self.state_dir / "logs" / "supervisor.log"

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if process.poll() is not None:
                log = self._log_path.read_text(errors="replace")[-3000:]
                raise ClusterError(f"the cluster ended with code {process.returncode}:\n{log}")
            if self.status().get("ready"):
                return
            time.sleep(0.05)
        raise ClusterError(
            f"the cluster is not ready after {START_SECONDS:.0f} s; logs: {self.state_dir}/logs"
        )

    def stop(self) -> None:
        """End the cluster and every process in it. Does nothing when it does not run."""
        with contextlib.suppress(ClusterError):
            pid = self.status().get("components", {}).get("supervisor")
            if pid:
                self._command("/stop")
                self._wait_until_gone(pid)
        if self._process is not None:
            if self._process.stdin:
                self._process.stdin.close()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._temporary:
            shutil.rmtree(self.state_dir, ignore_errors=True)

    def _wait_until_gone(self, pid: int) -> None:
        deadline = time.monotonic() + STOP_SECONDS
        while time.monotonic() < deadline:
            if self._process is not None:
                if self._process.poll() is not None:
                    return
            elif not _alive(pid):
                return
            time.sleep(0.02)
        os.kill(pid, signal.SIGKILL)

    def status(self) -> dict[str, Any]:
        """Return what the cluster says about itself; empty when it does not run."""
        try:
            answer: dict[str, Any] = json.loads(self._request("GET", "/status"))
        except (OSError, http.client.HTTPException):
            return {}
        return answer

    def running(self) -> bool:
        return bool(self.status())

    def lose_node(self) -> None:
        """End the node and its containers at once, as a power cut does."""
        self._command("/node/lose")

    def restore_node(self) -> None:
        """Start the node again, and return when it is ready."""
        self._command("/node/restore")

    def wait_for_node(self) -> None:
        """Return when the node is ready and short of nothing."""
        self._command("/node/wait")

    def evict(self, namespace: str, pod: str) -> None:
        """Have the kubelet evict a running pod for shortage of memory, and return when it has.

        That takes up to 15 seconds, and for about as long again the node takes no pods without memory requests:
        see :meth:`wait_for_node`. The eviction API needs no help: it works as in every cluster.
        """
        query = urllib.parse.urlencode({"namespace": namespace, "pod": pod})
        self._command(f"/evict?{query}")

    def stop_apiserver(self) -> None:
        """Kill the API server; the other components and the pods go on."""
        self._command("/apiserver/stop")

    def start_apiserver(self) -> None:
        """Start the API server again at the same address, with its data, and return when it is ready."""
        self._command("/apiserver/start")

    def restart_apiserver(self) -> None:
        """Kill the API server and start it again."""
        self.stop_apiserver()
        self.start_apiserver()

    def client(self) -> ApiClient:
        """Return a client of the ``kubernetes`` package for an administrator."""
        from kubernetes.config import new_client_from_config

        return new_client_from_config(config_file=str(self.kubeconfig))

    def _command(self, path: str) -> None:
        try:
            self._request("POST", path)
        except OSError as error:
            raise ClusterError(f"no cluster is running in {self.state_dir}: {error}") from error

    def _request(self, method: str, path: str) -> bytes:
        with contextlib.closing(_UnixConnection(self.state_dir)) as connection:
            connection.request(method, path)
            response = connection.getresponse()
            body = response.read()
        if response.status >= 300:
            raise ClusterError(f"{method} {path}: {body.decode(errors='replace').strip()}")
        return body


class _UnixConnection(http.client.HTTPConnection):
    """A connection to the supervisor's socket."""

    def __init__(self, state_dir: Path) -> None:
        super().__init__("local-cluster", timeout=150)
        self._state_dir = state_dir

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._state_dir / "control.sock"))


def _image_config(image: Image) -> dict[str, Any]:
    return {
        "pattern": image.pattern,
        "path": [str(path) for path in image.path],
        "env": dict(image.env),
        "entrypoint": list(image.entrypoint),
        "command": list(image.command),
        "workdir": image.workdir,
    }


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
