"""Callbacks of the fixtures. Each posts to the ledger that it began, so that runs can be counted.

They run in pods, so only the standard library and Airflow are imported.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
import urllib.request
from pathlib import Path

from airflow.sdk import BaseNotifier, Connection, Variable


def post(ledger: str, key: str, event: str, **details: object) -> None:
    line = {"key": key, "event": event, "details": {"host": socket.gethostname(), **details}}
    request = urllib.request.Request(ledger, json.dumps(line).encode(), {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=20).close()


def succeed(ledger: str, key: str, sleep: float = 0, **ignored: object) -> None:
    """Begin, perhaps take some time, end."""
    post(ledger, key, "begin")
    time.sleep(sleep)
    post(ledger, key, "end")
    print(f"alert {key} went out")


def fail(ledger: str, key: str, text: str = "the webhook refused the alert", sleep: float = 0) -> None:
    """Begin and raise a ValueError that says *text*."""
    post(ledger, key, "begin")
    time.sleep(sleep)
    raise ValueError(text)


def echo(ledger: str, key: str, context: dict, **kwargs: object) -> None:
    """Post the keyword arguments and the context that arrived."""
    post(ledger, key, "begin", kwargs=kwargs, context=context)


def measure(ledger: str, key: str, context: dict, filler: str) -> None:
    """Post how many bytes of filler, and of the run's conf, have arrived."""
    table = (context["dag_run"]["conf"] or {}).get("table", "")
    post(ledger, key, "begin", size=len(filler.encode()), conf=len(table))


def ignore_sigterm(ledger: str, key: str, sleep: float) -> None:
    """Go on when asked to end, as code does that must not stop half way."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    succeed(ledger, key, sleep)


def refuse(ledger: str, key: str, **ignored: object) -> None:
    """Begin and raise, whatever else there is among the arguments."""
    post(ledger, key, "begin")
    raise ValueError("the webhook refused the alert")


def reveal(ledger: str, key: str, fails: bool, **ignored: object) -> None:
    """Print the workload, token included, and perhaps raise with it, as careless code does."""
    post(ledger, key, "begin")
    workload = " ".join(argument for argument in sys.argv if '"token"' in argument)
    workload += "".join(path.read_text() for path in Path("/var/run/airflow-callback").glob("*.json"))
    token = json.loads(workload)["token"]
    print(f"workload: {workload}, token: {token}")
    if fails:
        raise ValueError(f"refused with {token}")


def exit_hard(ledger: str, key: str, status: int = 3) -> None:
    """End the process without raising, as a crash in a native library does."""
    post(ledger, key, "begin")
    os._exit(status)


def kill_supervisor(ledger: str, key: str) -> None:
    """Kill the container's main process, as the kernel does when memory runs out."""
    post(ledger, key, "begin")
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)


def use_memory(ledger: str, key: str, megabytes: int = 4096) -> None:
    """Use memory until the limit of the container is reached."""
    post(ledger, key, "begin")
    hoard = []
    for _ in range(megabytes):
        hoard.append(b"x" * 1024 * 1024)
    time.sleep(60)


def use_disk(ledger: str, key: str, megabytes: int) -> None:
    """Write a file into the folder that the variable SCRATCH names."""
    post(ledger, key, "begin")
    with Path(os.environ["SCRATCH"], "file").open("wb") as file:
        for _ in range(megabytes):
            file.write(b"x" * 1024 * 1024)
    time.sleep(120)


def read_connection(ledger: str, key: str, conn_id: str) -> None:
    """Read a connection, as notifiers for Slack or e-mail do."""
    connection = Connection.get(conn_id)
    post(ledger, key, "begin", host=connection.host, password=connection.password)


def read_variable(ledger: str, key: str, name: str) -> None:
    """Read a variable."""
    post(ledger, key, "begin", value=Variable.get(name))


class LedgerNotifier(BaseNotifier):
    """A notifier, as providers ship them: constructed with the kwargs, called with the context."""

    template_fields = ("message",)

    def __init__(self, ledger: str, key: str, message: str = "") -> None:
        super().__init__()
        self.ledger = ledger
        self.key = key
        self.message = message

    def notify(self, context: dict) -> None:
        run_id = context["dag_run"]["dag_run_id"]
        post(self.ledger, self.key, "begin", message=self.message, run_id=run_id)
