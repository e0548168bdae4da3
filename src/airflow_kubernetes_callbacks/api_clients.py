"""Clients of the API server made from the executor's own, for those who must not wait long.

The executor's client makes a request up to eleven times, each with a time limit of its own, or with none,
and waits in between for as long as a throttled server says. Whoever makes a request here makes it again
later, and has other things to do meanwhile.
"""

from __future__ import annotations

import copy
import functools
from typing import TYPE_CHECKING, Any

from airflow.configuration import conf
from kubernetes.client import ApiClient, CoreV1Api
from urllib3.util import Retry

if TYPE_CHECKING:
    from kubernetes.client import Configuration


class _TimedApiClient(ApiClient):  # type: ignore[misc]
    """Puts a limit on requests that have none."""

    def __init__(self, configuration: Configuration, timeout: tuple[float, float] | None) -> None:
        super().__init__(configuration)
        self._timeout = timeout

    def call_api(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["_request_timeout"] = kwargs.get("_request_timeout") or self._timeout
        return super().call_api(*args, **kwargs)


class _Hurried:
    """Somebody's own client, as it is, with a limit on requests that have none."""

    def __init__(self, core: CoreV1Api, timeout: tuple[float, float]) -> None:
        self._core = core
        self._timeout = timeout

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._core, name)
        return functools.partial(method, _request_timeout=self._timeout) if callable(method) else method


def impatient(
    core: CoreV1Api,
    *,
    repeats: int,
    timeout: tuple[float, float] | None = None,
    connections: int = 0,
) -> CoreV1Api:
    """Return a client with the same server and credentials, which does not wait long.

    It has connections of its own, unless ``[kubernetes_executor] client_factory`` made *core*: such a client
    may sign requests or renew its credentials in ways that no copy has, so it is used itself.

    :param repeats: how often a request is made again at once if the connection breaks: one that creates
        something only if it was not sent, since the error tells of the last try alone. A client of a
        factory has its own way.
    :param timeout: connect and read timeout in seconds of requests that come without one.
    :param connections: how many to keep open, where the client has its own.
    """
    if conf.get("kubernetes_executor", "client_factory", fallback=None):
        return core if timeout is None else _Hurried(core, timeout)
    configuration = copy.copy(core.api_client.configuration)
    configuration.retries = Retry(repeats, other=0, respect_retry_after_header=False)
    configuration.connection_pool_maxsize = max(configuration.connection_pool_maxsize or 0, connections)
    api_client = _TimedApiClient(configuration, timeout)
    api_client.default_headers = dict(core.api_client.default_headers)
    return CoreV1Api(api_client)
