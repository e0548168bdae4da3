"""What the commands print arrives, whatever is in it and wherever it goes."""

# ruff: noqa: F811 - fixtures of another module

from __future__ import annotations

import io

import pytest

from tests.fakes.scheduler import set_row
from tests.test_cli_commands import airflow, make_pod, missed  # noqa: F401

WORDS = "für später → 未"
ESCAPED = WORDS.encode("ascii", "backslashreplace").decode()


class AsciiStdout(io.TextIOWrapper):
    """A stdout that has only ASCII."""

    def __init__(self, errors="strict"):
        super().__init__(io.BytesIO(), encoding="ascii", errors=errors)

    @property
    def text(self):
        self.flush()
        return self.buffer.getvalue().decode("ascii")


@pytest.fixture
def ascii_stdout(monkeypatch):
    """Replaces stdout. To be called in the test: pytest itself replaces it before."""

    def replace(**options):
        stdout = AsciiStdout(**options)
        monkeypatch.setattr("sys.stdout", stdout)
        return stdout

    return replace


@pytest.mark.parametrize("output", ["table", "plain"])
def test_rows_are_printed_in_any_encoding(airflow, api_server, missed, ascii_stdout, monkeypatch, output):
    monkeypatch.setenv("COLUMNS", "300")
    set_row(missed(state="failed"), output=WORDS)
    stdout = ascii_stdout()
    assert airflow("list", "-o", output).status == 0
    assert ESCAPED in stdout.text


def test_log_of_a_pod_is_printed_in_any_encoding(airflow, api_server, missed, ascii_stdout):
    callback_id = missed(state="running")
    pod = api_server.node.start(make_pod(api_server, callback_id))
    api_server.logs[pod["metadata"]["name"]] = f"{WORDS}\n".encode()
    stdout = ascii_stdout()
    assert airflow("logs", callback_id).status == 0
    assert stdout.text == f"{ESCAPED}\n"


def test_kept_log_is_printed_in_any_encoding(airflow, api_server, missed, tmp_path, ascii_stdout):
    callback_id = missed(state="success", run_id="run1")
    kept = tmp_path / "logs" / "executor_callbacks" / "reports" / "run1" / callback_id
    kept.parent.mkdir(parents=True)
    kept.write_text(f"{WORDS}\n", encoding="utf-8")
    stdout = ascii_stdout()
    assert airflow("logs", callback_id).status == 0
    assert stdout.text == f"{ESCAPED}\n"


def test_way_of_writing_that_was_chosen_is_kept(airflow, api_server, missed, ascii_stdout):
    set_row(missed(state="failed"), output="spät")
    stdout = ascii_stdout(errors="replace")
    assert airflow("list", "-o", "plain").status == 0
    assert "sp?t" in stdout.text


@pytest.mark.parametrize("value", ["ghcr.io/[a-c]/airflow", "[/ab]*", "[red]no[/red]"])
@pytest.mark.parametrize("output", ["table", "plain"])
def test_settings_show_square_brackets(airflow, kube_environment, monkeypatch, output, value):
    monkeypatch.setenv("COLUMNS", "300")
    kube_environment(KUBERNETES_CALLBACKS__IMAGE=value)
    assert value in airflow("settings", "-o", output).out
