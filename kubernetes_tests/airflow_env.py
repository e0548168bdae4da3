"""An AIRFLOW_HOME of its own and the Airflow processes that run in it.

Only the standard library is imported: the demo uses this module too, before anything is installed.

Nothing is left behind. Every process is started with a marker in its environment and in a session of
its own; :meth:`AirflowEnv.stop` kills all that carry the marker, and a small guard process does the same
as soon as the process that made the :class:`AirflowEnv` is gone, however it went.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

T = TypeVar("T")

MARKER = "AIRFLOW_ENV_ID"


class WaitTimeoutError(AssertionError):
    """Something that was waited for did not happen; the message says what was seen instead."""


def wait_for(
    what: str,
    look: Callable[[], T | Literal[False] | None],
    timeout: float = 120.0,
    *,
    interval: float = 0.2,
    otherwise: Callable[[], object] | None = None,
) -> T:
    """Call *look* until it returns something true, and return that.

    :param otherwise: called when the time is over; what it returns is put into the message.
    :raises WaitTimeoutError: after *timeout* seconds.
    """
    end = time.monotonic() + timeout
    while True:
        if result := look():
            return result
        if time.monotonic() > end:
            seen = "" if otherwise is None else f"\n{otherwise()}"
            raise WaitTimeoutError(f"not within {timeout:g} s: {what}{seen}")
        time.sleep(interval)


def free_port(host: str = "127.0.0.1") -> int:
    """Return a TCP port on which nothing listens at the moment."""
    with socket.socket() as listener:
        listener.bind((host, 0))
        return int(listener.getsockname()[1])


def marked_processes(marker: str) -> list[int]:
    """Return the ids of the processes that were started with *marker*, zombies excepted."""
    wanted = f"{MARKER}={marker}".encode()
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if wanted in Path(entry.path, "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def session_members(session: int) -> list[int]:
    """Return the living processes of a session, those with a process group of their own included."""
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            state, _, _, member_of = Path(entry.path, "stat").read_text().rpartition(")")[2].split()[:4]
            if int(member_of) == session and state not in "ZX":
                found.append(int(entry.name))
    return found


def kill_marked(marker: str) -> None:
    """Kill every process that was started with *marker*; what they fork meanwhile as well."""
    while pids := marked_processes(marker):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def environment_name(option: str) -> str:
    """Return the environment variable that sets the option ``section.key``."""
    section, _, key = option.partition(".")
    if not key:
        raise ValueError(f"{option!r} does not name an option: write section.key")
    return f"AIRFLOW__{section.upper()}__{key.upper()}"


def configuration_variables(config: Mapping[str, object]) -> dict[str, str]:
    return {environment_name(option): str(value) for option, value in config.items()}


class AirflowProcess:
    """One Airflow component as a process group of its own, and its log."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log_path = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                command,
                env=dict(environment),
                cwd=environment["AIRFLOW_HOME"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def exit_status(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self._popen.poll()

    @property
    def running(self) -> bool:
        return self.exit_status is None

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def tail(self, lines: int = 30) -> str:
        text = "\n".join(self.log().splitlines()[-lines:])
        state = "running" if self.running else f"exit status {self.exit_status}"
        return f"--- {self.name} ({state}), end of {self.log_path}\n{text}"

    def wait_for_log(self, pattern: str, timeout: float = 120.0) -> re.Match[str]:
        """Wait until the log contains *pattern* (a regular expression)."""
        return wait_for(
            f"{pattern!r} in the log of {self.name}",
            lambda: re.search(pattern, self.log()),
            timeout,
            otherwise=self.tail,
        )

    def wait_for_exit(self, timeout: float = 120.0) -> int:
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise WaitTimeoutError(f"not within {timeout:g} s: {self.name} exits\n{self.tail()}") from None

    def signal(self, number: int) -> None:
        """Send a signal to the main process alone."""
        if self.running:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it and all its children at once, as a container is killed; nothing gets to clean up."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        while pids := session_members(self.pid):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        self._popen.wait()

    def terminate(self, timeout: float = 30.0) -> int:
        """Ask the main process to end, kill the group when it does not or when it leaves children."""
        self.signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout)
        self.kill()
        return self._popen.returncode


class AirflowEnv:
    """An Airflow installation for one purpose: home, database, configuration, processes.

    :param home: becomes AIRFLOW_HOME; made if missing. Logs of the processes are in ``home/processes``.
    :param config: options as ``{"section.key": value}`` for every process. Those that a process is
        started with come on top.
    :param database: SQLAlchemy URL; sqlite in *home* by default.
    :param host: address on which the API server listens.
    :param host_for_workers: address at which workers reach it; *host* by default.
    :param environment: more environment variables for every process.
    :param python: interpreter of the virtual environment that has Airflow; this one by default.
    """

    def __init__(
        self,
        home: Path,
        *,
        dags_folder: Path | None = None,
        config: Mapping[str, object] | None = None,
        database: str | None = None,
        host: str = "127.0.0.1",
        host_for_workers: str | None = None,
        port: int | None = None,
        environment: Mapping[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        self.home = home.absolute()
        self.home.mkdir(parents=True, exist_ok=True)
        self.python = python
        self.host = host
        self.port = port or free_port()
        self.database = database or f"sqlite:///{self.home}/airflow.db"
        self.marker = secrets.token_hex(16)
        self.processes: dict[str, AirflowProcess] = {}
        self._starts: dict[str, int] = {}
        self._token: str | None = None

        bin_folder = str(Path(python).absolute().parent)
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")
        }
        self.environment.update(
            {
                "AIRFLOW_HOME": str(self.home),
                MARKER: self.marker,
                # setproctitle must not overwrite the environment that the marker is found in
                "SPT_NOENV": "1",
                "PATH": os.pathsep.join([bin_folder, self.environment.get("PATH", os.defpath)]),
            }
        )
        self.environment.update(environment or {})
        defaults: dict[str, object] = {
            "core.dags_folder": dags_folder or self.home / "dags",
            "core.load_examples": False,
            "core.dags_are_paused_at_creation": False,
            "core.simple_auth_manager_all_admins": True,
            "core.fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            "core.execution_api_server_url": self.execution_api_url(host_for_workers or self.local_host),
            "api.secret_key": secrets.token_urlsafe(32),
            "api.base_url": f"http://{self.local_host}:{self.port}",
            "api_auth.jwt_secret": secrets.token_urlsafe(48),
            "database.sql_alchemy_conn": self.database,
            "logging.base_log_folder": self.home / "logs",
            "logging.worker_log_server_port": free_port(),
            "logging.trigger_log_server_port": free_port(),
            "usage_data_collection.enabled": False,
        }
        self.configure(defaults)
        self.configure(config or {})
        self._guard = subprocess.Popen(
            [sys.executable, "-I", __file__, self.marker],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    @property
    def local_host(self) -> str:
        """The address at which processes of this machine reach the API server."""
        return "127.0.0.1" if self.host in ("0.0.0.0", "127.0.0.1", "localhost") else self.host

    @property
    def url(self) -> str:
        return f"http://{self.local_host}:{self.port}"

    def execution_api_url(self, host: str) -> str:
        """Return the URL of the execution API for workers that reach this machine as *host*."""
        return f"http://{host}:{self.port}/execution/"

    def configure(self, config: Mapping[str, object]) -> None:
        """Set options for the processes that are started from now on."""
        self.environment.update(configuration_variables(config))

    # --- commands and processes ---

    def airflow(self, *arguments: str, timeout: float = 300.0) -> str:
        """Run one ``airflow`` command to its end and return what it printed.

        :raises RuntimeError: with the end of the output, when it fails.
        """
        done = subprocess.run(
            [self.python, "-m", "airflow", *arguments],
            env=self.environment,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(
                f"airflow {' '.join(arguments)}: exit status {done.returncode}\n{done.stdout[-5000:]}"
            )
        return done.stdout

    def migrate(self) -> None:
        """Create or upgrade the database."""
        self.airflow("db", "migrate")

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        config: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> AirflowProcess:
        """Start a process under *name*; the same name again when the earlier one has ended.

        Each start has a log of its own: ``processes/NAME.log``, ``processes/NAME.2.log``, ...
        """
        earlier = self.processes.get(name)
        if earlier is not None and earlier.running:
            raise RuntimeError(f"{name} is running already (pid {earlier.pid})")
        self._starts[name] = count = self._starts.get(name, 0) + 1
        log = self.home / "processes" / (f"{name}.log" if count == 1 else f"{name}.{count}.log")
        variables = {**self.environment, **configuration_variables(config or {}), **(environment or {})}
        self.processes[name] = process = AirflowProcess(name, command, variables, log)
        return process

    def start_api_server(
        self, *, wait: float | None = 180.0, config: Mapping[str, object] | None = None
    ) -> AirflowProcess:
        """Start the API server and, unless *wait* is None, wait until it answers."""
        process = self.start(
            "api-server",
            [
                *[self.python, "-m", "airflow", "api-server"],
                *["--host", self.host, "--port", str(self.port), "--workers", "1"],
            ],
            config=config,
        )
        if wait is not None:
            self.wait_for_api_server(wait)
        return process

    def wait_for_api_server(self, timeout: float = 180.0) -> None:
        process = self.processes["api-server"]

        def answers() -> bool:
            if not process.running:
                raise WaitTimeoutError(f"the API server ended\n{process.tail()}")
            with contextlib.suppress(OSError, urllib.error.URLError):
                return bool(self.api("GET", "/api/v2/version"))
            return False

        wait_for(f"the API server answers at {self.url}", answers, timeout, otherwise=process.tail)

    def start_scheduler(
        self,
        name: str = "scheduler",
        *,
        config: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> AirflowProcess:
        return self.start(
            name,
            [self.python, "-m", "airflow", "scheduler", "--skip-serve-logs"],
            config=config,
            environment=environment,
        )

    def start_dag_processor(self, *, config: Mapping[str, object] | None = None) -> AirflowProcess:
        return self.start("dag-processor", [self.python, "-m", "airflow", "dag-processor"], config=config)

    def start_triggerer(self, *, config: Mapping[str, object] | None = None) -> AirflowProcess:
        return self.start(
            "triggerer", [self.python, "-m", "airflow", "triggerer", "--skip-serve-logs"], config=config
        )

    def stop(self) -> None:
        """Kill everything that was started here. Safe to call twice."""
        for process in self.processes.values():
            if process.running:
                process.kill()
        kill_marked(self.marker)
        if self._guard.stdin is not None and not self._guard.stdin.closed:
            self._guard.stdin.close()
            self._guard.wait()

    def __enter__(self) -> AirflowEnv:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    # --- REST API ---

    def api(self, method: str, path: str, body: object = None, *, timeout: float = 30.0) -> Any:
        """Call the REST API as an administrator and return the decoded answer."""
        headers = {"Content-Type": "application/json"}
        if path.startswith("/api/v2") and path != "/api/v2/version":
            headers["Authorization"] = f"Bearer {self.token()}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            error.add_note(error.read().decode(errors="replace")[:2000])
            raise
        return json.loads(text) if text else None

    def token(self) -> str:
        """Return a token for the REST API (every visitor is an administrator here)."""
        if self._token is None:
            self._token = self.api("GET", "/auth/token")["access_token"]
        return self._token

    def wait_for_dag(self, dag_id: str, timeout: float = 180.0) -> None:
        """Wait until the Dag has been parsed."""

        def known() -> bool:
            try:
                self.api("GET", f"/api/v2/dags/{dag_id}")
            except urllib.error.HTTPError as error:
                if error.code != 404:
                    raise
                return False
            return True

        wait_for(f"Dag {dag_id} is known", known, timeout, interval=0.5)

    def trigger(self, dag_id: str, conf: object = None) -> str:
        """Trigger a run of the Dag now and return its run id."""
        body = {"logical_date": None, "conf": conf or {}}
        run: dict[str, Any] = self.api("POST", f"/api/v2/dags/{dag_id}/dagRuns", body)
        return str(run["dag_run_id"])


@contextlib.contextmanager
def airflow_env(home: Path, **arguments: Any) -> Iterator[AirflowEnv]:
    """Make an :class:`AirflowEnv`, with its database migrated, and stop it at the end."""
    with AirflowEnv(home, **arguments) as env:
        env.migrate()
        yield env


def _guard(marker: str) -> None:
    """Wait until the process that started this one closes its end of the pipe, then kill."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    kill_marked(marker)


if __name__ == "__main__":
    _guard(sys.argv[1])
