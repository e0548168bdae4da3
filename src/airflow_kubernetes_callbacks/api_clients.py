"""Clients of the API server made from the executor's own, for those who must not wait long.

The executor's client makes a request up to eleven times, each with a time limit of its own, or with none,
and waits in between for as long as a throttled server says. Whoever makes a request here makes it again
later, and has other things to do meanwhile.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

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


def impatient(core: CoreV1Api, *, repeats: int, timeout: tuple[float, float] | None = None) -> CoreV1Api:
    """Return a client with the same server, credentials and headers, and with connections of its own.

    :param repeats: how often a request is made again at once if the connection breaks: one that creates
        something only if it was not sent, since the error tells of the last try alone.
    :param timeout: connect and read timeout in seconds of requests that come without one.
    """
    configuration = copy.copy(core.api_client.configuration)
    configuration.retries = Retry(repeats, other=0, respect_retry_after_header=False)
    api_client = _TimedApiClient(configuration, timeout)
    api_client.default_headers = dict(core.api_client.default_headers)
    return CoreV1Api(api_client)
