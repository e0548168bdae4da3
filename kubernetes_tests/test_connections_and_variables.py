"""What a callback may read of Airflow: its Connections and Variables, through a real execution API."""

from __future__ import annotations

import contextlib
import email
import email.policy
import socketserver
import threading
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from email.message import EmailMessage

    from kubernetes_tests.scenario import MissedDeadline, Scenario

pytestmark = pytest.mark.extended

#: Airflow 3.3 only: a token that reads Connections is a wide one, and travels in nothing but a Secret.
REMEDY = "connections_and_variables = True and its workload in a Secret (payload_delivery)"


@pytest.fixture(scope="module")
def with_options(
    scenarios: Callable[[str, dict[str, object]], Scenario],
) -> Callable[..., Scenario]:
    """Return a scenario whose scheduler runs with these options of ``[kubernetes_callbacks]``.

    One scheduler at a time: all of them would take the callbacks of the one database.
    """
    made: dict[tuple[tuple[str, object], ...], Scenario] = {}

    def scenario(**options: object) -> Scenario:
        key = tuple(sorted(options.items()))
        for other in made.keys() - {key}:
            made[other].stop_schedulers()
        if key not in made:
            config = {f"kubernetes_callbacks.{name}": value for name, value in options.items()}
            made[key] = scenarios("sqlite", config)
        if not any(scheduler.running for scheduler in made[key].schedulers):
            made[key].start_scheduler()
        made[key].installation.call(
            "set_connection", conn_id="alerts", uri="http://:pass-word@alerts.example/"
        )
        made[key].installation.call("set_variable", name="recipient", value="on-call")
        return made[key]

    return scenario


def readers(scenario: Scenario) -> tuple[MissedDeadline, MissedDeadline]:
    """Miss two deadlines: one callback reads the Connection, one the Variable."""
    (connection,) = scenario.miss("read_connection", conn_id="alerts")
    (variable,) = scenario.miss("read_variable", name="recipient")
    return connection, variable


def assert_read(scenario: Scenario, connection: MissedDeadline, variable: MissedDeadline) -> None:
    scenario.wait_for_state([connection, variable], "success")
    (entry,) = scenario.ledger.entries(connection.key)
    assert (entry.details["host"], entry.details["password"]) == ("alerts.example", "pass-word")
    (entry,) = scenario.ledger.entries(variable.key)
    assert entry.details["value"] == "on-call"


def assert_refused(scenario: Scenario, *callbacks: MissedDeadline) -> None:
    for row in scenario.wait_for_state(callbacks, "failed"):
        output = row.output or ""
        assert output.startswith("Ran and failed: "), output
        assert "Access denied for " in output, output
        assert REMEDY in output, output
    assert not scenario.begun(callbacks)


@pytest.mark.parametrize("delivery", ["auto", "secret"])
def test_callback_whose_workload_is_in_a_secret_reads_connections_and_variables(
    with_options: Callable[..., Scenario], delivery: str
) -> None:
    scenario = with_options(payload_delivery=delivery)
    assert_read(scenario, *readers(scenario))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"connections_and_variables": False}, id="option_off"),
        pytest.param({"payload_delivery": "argument"}, id="argument"),
    ],
)
def test_narrow_token_reads_neither_on_airflow_3_3_and_the_row_says_what_to_do(
    with_options: Callable[..., Scenario], options: dict[str, object], airflow_version: tuple[int, ...]
) -> None:
    """Airflow 3.4 needs no wide token: there the pod itself exchanges the narrow one."""
    scenario = with_options(**options)
    callbacks = readers(scenario)
    if airflow_version < (3, 4):
        assert_refused(scenario, *callbacks)
    else:
        assert_read(scenario, *callbacks)


def test_connection_that_does_not_exist_is_named(with_options: Callable[..., Scenario]) -> None:
    scenario = with_options(payload_delivery="auto")
    (callback,) = scenario.miss("read_connection", conn_id="no_such_connection")
    (row,) = scenario.wait_for_state(callback, "failed")
    assert "no_such_connection" in (row.output or "")
    assert REMEDY not in (row.output or "")


def test_notifier_of_a_provider_sends_mail_with_a_stored_connection(
    with_options: Callable[..., Scenario],
) -> None:
    """The SMTP provider's notifier, unchanged, and a mail server of this test."""
    scenario = with_options(payload_delivery="auto")
    if scenario.cluster.name != "local":
        pytest.skip("the image of the pods need not have the SMTP provider")
    with MailServer(scenario.cluster.host) as server:
        uri = (
            f"smtp://{scenario.cluster.host_from_pods}:{server.port}"
            "?disable_ssl=true&disable_tls=true&from_email=airflow%40alerts.example"
        )
        scenario.installation.call("set_connection", conn_id="mail", uri=uri)
        (callback,) = scenario.miss(
            path="airflow.providers.smtp.notifications.smtp.SmtpNotifier",
            smtp_conn_id="mail",
            to="on-call@alerts.example",
            subject="{{ dag_run.dag_id }} is late",
            html_content="run {{ dag_run.dag_run_id }}",
        )
        (row,) = scenario.wait_for_state(callback, "success")
    (message,) = server.messages
    assert message["From"] == "airflow@alerts.example"
    assert message["To"] == "on-call@alerts.example"
    assert message["Subject"] == "no_tasks_to_run is late"
    body = message.get_body()
    assert body is not None
    assert "run manual__" in body.get_content()
    assert not row.output


class MailServer:
    """Takes mail over SMTP, as much of it as ``smtplib`` speaks, and keeps it."""

    def __init__(self, host: str) -> None:
        self.messages: list[EmailMessage] = []
        messages = self.messages

        class Handler(socketserver.StreamRequestHandler):
            def say(self, line: str) -> None:
                self.wfile.write(f"{line}\r\n".encode())

            def handle(self) -> None:
                self.say("220 mail.example")
                with contextlib.suppress(OSError):
                    while line := self.rfile.readline().decode().strip().upper():
                        if line == "DATA":
                            self.say("354 go on")
                            messages.append(self.message())
                        self.say("221 bye" if line == "QUIT" else "250 ok")

            def message(self) -> EmailMessage:
                lines = iter(self.rfile.readline, b".\r\n")
                text: Any = email.message_from_bytes(b"".join(lines), policy=email.policy.default)
                return text

        self._server = socketserver.ThreadingTCPServer((host, 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="mail", daemon=True)

    def __enter__(self) -> MailServer:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
