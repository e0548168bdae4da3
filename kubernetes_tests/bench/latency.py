"""From a missed deadline to the pod, and from the end of the container to the row: real schedulers.

Beside it, the same callbacks on the LocalExecutor. The pods are ended by this process in the kubelet's
place, so that the moment of the end is known to the millisecond.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import threading
import time
from typing import TYPE_CHECKING, Any

from kubernetes_asyncio import watch

from kubernetes_tests.airflow_env import wait_for
from kubernetes_tests.bench.lab import PYTHON_PATH, Child
from kubernetes_tests.bench.pods import connected, end_pod
from kubernetes_tests.heartbeats import Heartbeats

if TYPE_CHECKING:
    from pathlib import Path

    from kubernetes_asyncio import client

    from kubernetes_tests.bench.lab import Lab
    from kubernetes_tests.bench.measures import Results, Size

NOTE = "kubernetes_tests.bench.callback.note"


class Ends:
    """Ends each callback pod of a namespace as soon as it exists, and remembers both moments."""

    def __init__(self, kubeconfig: str, namespace: str) -> None:
        self._kubeconfig = kubeconfig
        self._namespace = namespace
        self.created: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Ends:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopping = True
        self._thread.join(30)

    def _run(self) -> None:
        asyncio.run(connected(self._kubeconfig, self._serve))

    async def _serve(self, core: client.CoreV1Api) -> None:
        endings = set()
        while not self._stopping:
            stream = watch.Watch().stream(
                core.list_namespaced_pod, self._namespace, timeout_seconds=1, _preload_content=True
            )
            async for event in stream:
                metadata = event["raw_object"]["metadata"]
                callback_id = metadata.get("annotations", {}).get("callback_id")
                if event["type"] == "ADDED" and callback_id and callback_id not in self.created:
                    self.created[callback_id] = time.time()
                    endings.add(asyncio.create_task(self._end(core, callback_id, metadata["name"])))
        await asyncio.gather(*endings)

    async def _end(self, core: client.CoreV1Api, callback_id: str, name: str) -> None:
        if (when := await end_pod(core, self._namespace, name)) is not None:
            self.ended[callback_id] = when


def latency(lab: Lab, size: Size, results: Results) -> None:
    """Median and 99th percentile of the two delays, ours and the LocalExecutor's."""
    ours, loop = _on_pods(lab, size.latencies)
    local = _on_local_executor(lab, size.latencies)
    results.measured["end_to_row"] = [(statistics.median(ours["end_to_row"]) - loop) * 1000]
    results.figures["scheduler loop, s"] = loop
    for name, found in (("ours", ours), ("LocalExecutor", local)):
        results.figures[f"latency, s, {name}"] = {
            what: {"median": statistics.median(values), "p99": _p99(values)} for what, values in found.items()
        }


def _p99(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]


def _on_pods(lab: Lab, count: int) -> tuple[dict[str, list[float]], float]:
    with lab.cluster.namespace() as namespace:
        env = lab.environment(namespace, {})
        beats = Heartbeats(env.home / "heartbeats")
        child = Child(env, namespace, beats.config)
        try:
            began = time.time()
            env.start_scheduler(environment=beats.environment)
            wait_for("a heartbeat of the scheduler", lambda: len(beats.since(began)) > 3)
            with Ends(str(lab.cluster.kubeconfig), namespace.name) as ends:
                missed, terminal = _miss_one_by_one(child, count, "alerts.notify")
            gaps = [later.begin - earlier.begin for earlier, later in itertools.pairwise(beats.since(began))]
            return {
                "missed_to_pod": [ends.created[each] - missed[each] for each in missed],
                "end_to_row": [terminal[each] - ends.ended[each] for each in missed],
            }, statistics.median(gaps)
        finally:
            child.close()


def _on_local_executor(lab: Lab, count: int) -> dict[str, list[float]]:
    with lab.cluster.namespace() as namespace:
        config: dict[str, object] = {"core.executor": "LocalExecutor", "core.parallelism": 32}
        env = lab.environment(namespace, config)
        notes = env.home / "notes"
        notes.mkdir()
        child = Child(env, namespace, config)
        try:
            env.start_api_server()
            env.start_scheduler(environment={"BENCH_NOTES": str(notes), "PYTHONPATH": PYTHON_PATH})
            missed, terminal = _miss_one_by_one(child, count, NOTE)
            began, ended = _noted(notes)
            return {
                "missed_to_begin": [began[each] - missed[each] for each in missed],
                "end_to_row": [terminal[each] - ended[each] for each in missed],
            }
        finally:
            child.close()


def _miss_one_by_one(child: Child, count: int, path: str) -> tuple[dict[str, float], dict[str, float]]:
    """Let deadlines be missed one after the other; return when each was, and when its row was terminal."""
    missed: dict[str, float] = {}
    terminal: dict[str, float] = {}
    for number in range(count + 1):
        answer: dict[str, Any] = child.do("miss_and_wait", path=path)
        if number:  # the first one also waits for the scheduler to be there
            missed[answer["id"]], terminal[answer["id"]] = answer["missed"], answer["terminal"]
    return missed, terminal


def _noted(folder: Path) -> tuple[dict[str, float], dict[str, float]]:
    found = [json.loads(path.read_text()) for path in folder.iterdir()]
    return {each["id"]: each["began"] for each in found}, {each["id"]: each["ended"] for each in found}
