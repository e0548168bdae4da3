"""Requests that are not answered cost bounded time, in the scheduler's loop above all."""

from __future__ import annotations

import threading
import time

import pytest
from kubernetes.client import ApiClient, Configuration, CoreV1Api
from kubernetes.client.exceptions import ApiException
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import HTTPError, NewConnectionError, ProxyError, SSLError

from airflow_kubernetes_callbacks import api_clients, mixin
from airflow_kubernetes_callbacks.api_clients import impatient


@pytest.fixture
def never():
    """A gate that opens when the test is over."""
    gate = threading.Event()
    yield gate
    gate.set()


def test_hanging_list_of_completed_task_pods_holds_the_loop_up_for_bounded_time_only(
    api_server, new_scheduler, never, monkeypatch
):
    """The parent makes it in ``sync()``, without a time limit and again and again."""
    monkeypatch.setattr(mixin, "TASK_ADOPTION_TIMEOUT", (0.3, 0.3))
    scheduler = new_scheduler(SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL="0")
    client = scheduler.executor.kube_client
    api_server.fail("GET", "kubernetes_executor", gate=never, times=None)
    before = api_server.count("LIST", labelSelector="kubernetes_executor=True")
    begin = time.monotonic()
    scheduler.heartbeat()
    assert time.monotonic() - begin < 5
    assert scheduler.executor.kube_client is client
    assert api_server.count("LIST", labelSelector="kubernetes_executor=True") - before <= 1


def test_request_is_repeated_as_often_as_asked_and_no_more(api_server, new_scheduler, never):
    core = new_scheduler().executor.kube_client
    stuck = api_server.fail("GET", "/pods/never-answered", gate=never, times=None)
    for repeats in (0, 1):
        hits = stuck.hits
        with pytest.raises(HTTPError):
            impatient(core, repeats=repeats, timeout=(0.3, 0.3)).read_namespaced_pod(
                "never-answered", "airflow"
            )
        assert stuck.hits - hits == repeats + 1


def test_retry_after_is_left_to_the_caller(api_server, new_scheduler):
    core = new_scheduler().executor.kube_client
    api_server.fail("GET", "/pods/throttled", status=429, headers={"Retry-After": "600"}, times=None)
    with pytest.raises(ApiException) as refusal:
        impatient(core, repeats=1).read_namespaced_pod("throttled", "airflow")
    assert (refusal.value.status, refusal.value.headers["Retry-After"]) == (429, "600")


@pytest.mark.parametrize(
    ("error", "tries"),
    [
        pytest.param(NewConnectionError(None, "refused"), 2, id="no-connection"),
        pytest.param(ProxyError("no proxy", NewConnectionError(None, "refused")), 2, id="no-proxy"),
        pytest.param(SSLError("EOF occurred in violation of protocol"), 1, id="tls-ends-early"),
        pytest.param(ProxyError("no proxy", ConnectionResetError(104, "reset")), 1, id="proxy-breaks-off"),
        pytest.param(ConnectionResetError(104, "reset"), 1, id="reset"),
        pytest.param(TimeoutError("read timed out"), 1, id="no-answer"),
    ],
)
def test_creation_is_repeated_only_if_it_was_not_sent(monkeypatch, error, tries):
    """An earlier try that arrived would be forgotten over the last one's error."""
    core = impatient(CoreV1Api(ApiClient(Configuration(host="http://127.0.0.1:1"))), repeats=1)
    made = []

    def fail(pool, conn, method, *args, **kwargs):
        made.append(method)
        raise error

    monkeypatch.setattr(HTTPConnectionPool, "_make_request", fail)
    with pytest.raises((HTTPError, OSError)):
        core.create_namespaced_pod("airflow", {})
    assert made == ["POST"] * tries


# What a client_factory may return --------------------------------------------------------------------


class SigningClient(ApiClient):
    """As a deployment may have it: credentials that it makes for each request."""

    def request(self, method, url, headers=None, **more):
        return super().request(method, url, headers={**headers, "X-Signature": "signed"}, **more)


def signing_client():
    """Return the client of the configuration as another class."""
    from airflow.providers.cncf.kubernetes.kube_client import get_kube_client

    return CoreV1Api(SigningClient(get_kube_client().api_client.configuration))


def test_client_of_a_factory_makes_the_requests_about_callbacks(api_server, new_scheduler, new_callback):
    scheduler = new_scheduler(KUBERNETES_EXECUTOR__CLIENT_FACTORY=f"{__name__}.signing_client")
    new_callback()
    scheduler.until(lambda: api_server.pods(), "created")
    made = api_server.made("POST")
    assert made
    assert all(request.headers.get("X-Signature") == "signed" for request in made)


def test_client_of_a_factory_is_used_itself_and_hurried_where_that_is_asked_for(
    monkeypatch, api_server, never
):
    monkeypatch.setattr(api_clients.conf, "get", lambda *args, **kwargs: "some.factory")
    core = CoreV1Api(SigningClient(Configuration(host=api_server.url)))
    assert impatient(core, repeats=1) is core
    api_server.fail("GET", "/pods/never-answered", gate=never, times=None)
    hurried = impatient(core, repeats=0, timeout=(0.3, 0.3))
    assert hurried.api_client is core.api_client
    with pytest.raises(HTTPError):
        hurried.read_namespaced_pod("never-answered", "airflow")
