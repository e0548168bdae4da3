"""Logs that are kept when their pod goes: where they lie, and what is not in them."""

from __future__ import annotations

import pytest
from kubernetes import client, config

from airflow_kubernetes_callbacks.callback_log import log_file, save_log
from airflow_kubernetes_callbacks.outcome import pod_view
from airflow_kubernetes_callbacks.pod_client import PodClient
from airflow_kubernetes_callbacks.pod_requests import Requests
from airflow_kubernetes_callbacks.redact import mask_log
from tests.fakes.life import pod_of
from tests.fakes.scheduler import wait_until

ID = "018f0000-0000-7000-8000-00000000000a"
#: As long as a real one, and of nobody's.
TOKEN = f"eyJhbGciOiJIUzUxMiJ9.eyJzdWIiOi{'J4' * 40}.{'s1-_' * 20}"


@pytest.fixture
def pods(api_server, tmp_path):
    configuration = client.Configuration()
    config.load_kube_config(
        str(api_server.write_kubeconfig(tmp_path / "kubeconfig")), client_configuration=configuration
    )
    with client.ApiClient(configuration) as api_client:
        yield PodClient(client.CoreV1Api(api_client), namespaces=["airflow"])


@pytest.fixture
def requests(pods, tmp_path):
    made = Requests(
        client=pods,
        store=None,
        launcher=None,
        token_generator=lambda: None,
        me="7",
        concurrency=1,
        log_folder=str(tmp_path / "logs"),
    )
    yield made
    made.stop()


@pytest.mark.parametrize(
    ("dag_id", "run_id", "inside"),
    [
        pytest.param("reports", "manual__2026-06-07T01:50:23+00:00_x/y", True, id="slash"),
        pytest.param("a..b", "日次", True, id="dots_and_unicode"),
        pytest.param("../../etc", "run", False, id="above_its_folder"),
        pytest.param("reports", "../../../../tmp/x", False, id="run_above_its_folder"),
        pytest.param("", "run", False, id="no_dag_id"),
        pytest.param("reports", "", False, id="no_run_id"),
    ],
)
def test_log_lies_inside_its_own_folder_or_nowhere(tmp_path, dag_id, run_id, inside):
    path = log_file(str(tmp_path), dag_id, run_id, ID)
    assert (path is not None) == inside
    if path is not None:
        assert path == tmp_path / "executor_callbacks" / dag_id / run_id / ID


def test_log_that_is_there_already_is_kept(tmp_path):
    path = tmp_path / "new" / "folder" / ID
    save_log(path, b"first")
    save_log(path, b"second")
    assert path.read_bytes() == b"first"
    assert [one.name for one in path.parent.iterdir()] == [ID]


def test_tokens_in_a_log_are_masked_and_all_else_is_as_it_was():
    log = b"caf\xc3\xa9 \xff\x1b[31m\r\n{" + f'"token":"{TOKEN}","n":1'.encode() + b"}\n\x00end"
    masked = mask_log(log)
    assert masked == log.replace(TOKEN.encode(), b"***")


def test_log_is_kept_without_the_token_that_the_callback_printed(api_server, requests, tmp_path):
    pod = pod_of(api_server, ID, "7", "succeeded")
    api_server.logs[pod["metadata"]["name"]] = f"sent with {TOKEN}, it says\n".encode()
    view = pod_view(pod)
    requests.delete(view, only_if_unchanged=False)
    wait_until(lambda: list(requests.answers()), "the pod is deleted")
    (kept,) = [path for path in (tmp_path / "logs").rglob(ID) if path.is_file()]
    assert kept.read_bytes() == b"sent with ***, it says\n"


@pytest.mark.parametrize(("phase", "kept"), [("succeeded", True), ("failed", True), ("pending", False)])
def test_log_of_a_pod_that_stays_is_kept_too(api_server, requests, tmp_path, phase, kept):
    pod = pod_of(api_server, ID, "7", phase)
    api_server.logs[pod["metadata"]["name"]] = b"what it said\n"
    requests.mark_done(pod_view(pod))
    wait_until(lambda: list(requests.answers()), "the pod is labelled done")
    files = [path for path in (tmp_path / "logs").rglob(ID) if path.is_file()]
    assert [path.read_bytes() for path in files] == ([b"what it said\n"] if kept else [])
