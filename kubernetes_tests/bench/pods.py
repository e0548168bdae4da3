"""The API server without an executor: pods made and ended by an asynchronous client, as fast as it can.

What :func:`create` reaches is the limit of the machine for everything that creates pods on it. The
:class:`Player` is the node of pods that no node runs: it writes what a kubelet would write.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import sys
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kubernetes_asyncio import client, config

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

_PATCH = {"_content_type": "application/strategic-merge-patch+json"}
#: Requests of the player that are under way at once.
_PLAYERS = 8


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def connected(kubeconfig: str, work: Callable[[client.CoreV1Api], Awaitable[Any]]) -> Any:
    settings = client.Configuration()
    await config.load_kube_config(kubeconfig, client_configuration=settings)
    settings.connection_pool_maxsize = 64
    async with client.ApiClient(settings) as api:
        return await work(client.CoreV1Api(api))


async def _all(jobs: Sequence[Callable[[], Awaitable[Any]]], concurrency: int) -> None:
    """Do all jobs, *concurrency* at once."""
    waiting = iter(jobs)

    async def worker() -> None:
        for job in waiting:
            await job()

    await asyncio.gather(*(worker() for _ in range(concurrency)))


def _renamed(body: dict[str, Any], name: str, **labels: str) -> dict[str, Any]:
    body = copy.deepcopy(body)
    body["metadata"]["name"] = name
    body["metadata"].setdefault("labels", {}).update(labels)
    return body


def create(
    kubeconfig: str,
    namespace: str,
    body: dict[str, Any],
    names: Sequence[str],
    *,
    concurrency: int = 16,
    secret: dict[str, Any] | None = None,
    change: Callable[[dict[str, Any]], None] | None = None,
) -> float:
    """Create one pod of *body* per name, and a Secret for each where one is given; return the seconds."""

    async def work(core: client.CoreV1Api) -> float:
        bodies = [_renamed(body, name) for name in names]
        for item in bodies:
            if change is not None:
                change(item)

        def job(item: dict[str, Any]) -> Callable[[], Awaitable[Any]]:
            async def both() -> None:
                await core.create_namespaced_pod(namespace, item, _preload_content=False)
                if secret is not None:
                    own = _renamed(secret, item["metadata"]["name"])
                    await core.create_namespaced_secret(namespace, own, _preload_content=False)

            return both

        await core.list_namespaced_pod(namespace, limit=1)  # connected before the clock runs
        begin = time.monotonic()
        await _all([job(item) for item in bodies], concurrency)
        return time.monotonic() - begin

    return float(asyncio.run(connected(kubeconfig, work)))


def count(kubeconfig: str, namespace: str) -> int:
    """Return how many pods there are in the namespace."""

    async def work(core: client.CoreV1Api) -> int:
        answer = await core.list_namespaced_pod(namespace, limit=1)
        return len(answer.items) + int(answer.metadata.remaining_item_count or 0)

    return int(asyncio.run(connected(kubeconfig, work)))


def clear(kubeconfig: str, namespace: str) -> None:
    """Delete every pod of the namespace and wait until none is left."""

    async def work(core: client.CoreV1Api) -> None:
        while True:
            page = await core.list_namespaced_pod(namespace, limit=2000)
            if not page.items:
                return
            await core.delete_collection_namespaced_pod(namespace, grace_period_seconds=0)
            await asyncio.sleep(0.2)

    asyncio.run(connected(kubeconfig, work))


def status(step: str, began: str) -> dict[str, Any]:
    """Return what a kubelet writes into the status of a pod: ``running``, ``succeeded`` or ``failed``."""
    base: dict[str, Any] = {"name": "base", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    if step == "running":
        base |= {"ready": True, "state": {"running": {"startedAt": began}}}
        return {"phase": "Running", "containerStatuses": [base]}
    code = 0 if step == "succeeded" else 1
    end = {"exitCode": code, "reason": "Completed", "startedAt": began, "finishedAt": _now()}
    base["state"] = {"terminated": end}
    return {"phase": "Succeeded" if code == 0 else "Failed", "containerStatuses": [base]}


async def end_pod(core: client.CoreV1Api, namespace: str, name: str) -> float | None:
    """Let the pod run and succeed; return when the API server had it (epoch seconds), None if it is gone."""
    for step in ("running", "succeeded"):
        patch = {"status": status(step, _now())}
        try:
            await core.patch_namespaced_pod_status(name, namespace, patch, _preload_content=False, **_PATCH)
        except client.ApiException as error:
            if error.status == 404:
                return None
            raise
    return time.time()


class Player:
    """Ends pods of one namespace, beside whatever else runs here: a process of its own."""

    def __init__(self, kubeconfig: str, namespace: str) -> None:
        self._kubeconfig = kubeconfig
        self._namespace = namespace
        self._done: set[str] = set()

    async def _play(self, core: client.CoreV1Api) -> None:
        while True:
            page = await core.list_namespaced_pod(self._namespace, _preload_content=False)
            pods = json.loads(await page.read())["items"]
            names = [
                pod["metadata"]["name"]
                for pod in pods
                if pod["metadata"]["uid"] not in self._done and "deletionTimestamp" not in pod["metadata"]
            ]
            self._done.update(pod["metadata"]["uid"] for pod in pods)
            await _all([lambda name=name: end_pod(core, self._namespace, name) for name in names], _PLAYERS)  # type: ignore[misc]
            if not names:
                await asyncio.sleep(0.05)

    def run(self) -> None:
        asyncio.run(connected(self._kubeconfig, self._play))


def _main() -> None:
    """``python -m kubernetes_tests.bench.pods KUBECONFIG NAMESPACE``: play the node until stdin is closed."""
    player = Player(*sys.argv[1:3])

    def end_with_parent() -> None:
        sys.stdin.read()
        with contextlib.suppress(Exception):
            import os

            os._exit(0)

    threading.Thread(target=end_with_parent, daemon=True).start()
    player.run()


if __name__ == "__main__":
    _main()
