"""What is measured inside a process with an executor: ``python -m kubernetes_tests.bench.child``.

It reads one command per line (JSON: ``{"do": NAME, ...arguments}``) and answers with one line of JSON.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import statistics
import sys
import time
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.utils.state import CallbackState

from kubernetes_tests.bench import pods, rows
from kubernetes_tests.bench.loop import PAUSE, Loop

if TYPE_CHECKING:
    from collections.abc import Callable

KUBECONFIG = os.environ["BENCH_KUBECONFIG"]
NAMESPACE = os.environ["BENCH_NAMESPACE"]

_loop: Loop | None = None


def loop() -> Loop:
    global _loop
    if _loop is None:
        _loop = Loop()
    return _loop


def _rss(pid: int | str = "self") -> int:
    """Return the resident memory of a process in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def start() -> dict[str, Any]:
    begin = time.monotonic()
    loop().turn()
    return {"seconds": time.monotonic() - begin, "job": loop().job_id}


# Tasks ----------------------------------------------------------------------------------------------


def create_tasks(count: int, batch: str) -> dict[str, Any]:
    """Queue tasks and beat until every one has its pod."""
    executor = loop().executor
    made = rows.task_workloads(count, batch, loop().job_id)
    begin, used = time.monotonic(), time.process_time()
    for workload in made:
        executor.queue_workload(workload, session=None)
    loop().turn()
    loop().until(lambda: executor.task_queue.empty(), "every task has its pod")
    cpu = time.process_time() - used
    if len(executor.running) < count:
        raise RuntimeError(f"only {len(executor.running)} of {count} tasks got a pod")
    return {"seconds": time.monotonic() - begin, "cpu": cpu}


def finish_tasks() -> dict[str, Any]:
    """Beat until every task's end was told and its pod is deleted; the player ends them meanwhile."""
    executor = loop().executor
    begin = time.monotonic()
    loop().until(lambda: not executor.running, "every task's end is told")
    told = time.monotonic() - begin
    while pods.count(KUBECONFIG, NAMESPACE):
        loop().turn()
    seconds = time.monotonic() - begin
    _finish_with_tasks()
    return {"seconds": seconds, "told": told}


def _finish_with_tasks() -> None:
    """Beat until the executor has nothing left to do about tasks.

    The stock executor asks for a pod's deletion with each event that tells of its end, also when the pod is
    gone: some hundred requests that are not to be counted as those of whatever is measured next.
    """
    scheduler = loop().executor.kube_scheduler
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < 1.0:
        if not (scheduler.watcher_queue.empty() and loop().executor.result_queue.empty()):
            quiet_since = time.monotonic()
        loop().turn()
        time.sleep(PAUSE)


def adopt_tasks(count: int) -> dict[str, Any]:
    """Adopt the running task pods of a scheduler that is gone, as the stock executor does."""
    executor, made = loop().executor, rows.task_workloads(count, "adopt", loop().job_id)
    loop().turn()
    for workload in made:
        executor.queue_workload(workload, session=None)
    loop().turn()
    loop().until(lambda: executor.task_queue.empty(), "every task has its pod")
    executor.running.clear()
    dead, executor.job_id = loop().job_id, str(loop().job_id + 100_000)
    executor.scheduler_job_id = executor.job_id
    tis = [rows.adoptable(workload, dead) for workload in made]
    begin = time.monotonic()
    left = executor.try_adopt_task_instances(tis)
    return {"seconds": time.monotonic() - begin, "left": len(list(left))}


# Callbacks ------------------------------------------------------------------------------------------


def create_callbacks(count: int) -> dict[str, Any]:
    """Hand callbacks to the executor and beat until every one has its pod."""
    executor = loop().executor
    before = loop().live()
    ids = rows.make_callbacks(count)
    made = rows.callback_workloads(ids, executor.jwt_generator)
    loop().beats.clear()
    begin, used = time.monotonic(), time.process_time()
    for workload in made:
        executor.queue_workload(workload, session=None)
    loop().until(lambda: loop().live() >= before + count, "every callback has its pod")
    seconds, cpu = time.monotonic() - begin, time.process_time() - used
    return {"seconds": seconds, "cpu": cpu, "longest_beat": max(loop().beats)}


def finish_callbacks(count: int) -> dict[str, Any]:
    """Beat until every row is terminal and every pod is deleted; the player ends them meanwhile."""
    begin = time.monotonic()
    loop().until(lambda: not loop().executor.running, "every callback's end is told")
    told = time.monotonic() - begin
    loop().until(lambda: not loop().live(), "every pod is deleted")
    seconds = time.monotonic() - begin
    counted = rows.states()
    rows.clear_callbacks()
    return {"seconds": seconds, "told": told, "states": counted}


def burst(count: int) -> dict[str, Any]:
    """Let core hand out *count* missed deadlines at once; beat until every row is terminal."""
    rows.make_callbacks(count, CallbackState.PENDING)
    here = loop()
    here.beats.clear()
    begin = time.monotonic()

    def over() -> bool:
        here.enqueue()
        return rows.states().get("success", 0) >= count

    here.until(over, "every callback of the burst has succeeded")
    seconds = time.monotonic() - begin
    beats = list(here.beats)
    here.until(lambda: not here.live(), "every pod is deleted")
    rows.clear_callbacks()
    return {
        "seconds": seconds,
        "longest_beat": max(beats),
        "p99_beat": _percentile(beats, 0.99),
        "median_beat": statistics.median(beats),
        "beats": len(beats),
    }


def sample_body() -> dict[str, Any]:
    """Return the pod (and the Secret) of one callback as this executor makes them."""
    executor = loop().executor
    [callback_id] = rows.make_callbacks(1)
    [workload] = rows.callback_workloads([callback_id], executor.jwt_generator)
    plan = executor.kube_scheduler.planner.plan(workload, 1)
    pod = executor.kube_scheduler.kube_client.api_client.sanitize_for_serialization(plan.pod)
    rows.clear_callbacks()
    secret = None
    if type(plan.payload).__name__ == "SecretPayload":
        from airflow_kubernetes_callbacks.payload import construct_payload_secret

        secret = construct_payload_secret(
            **plan.secret_parts(), namespace=NAMESPACE, pod_name="x", pod_uid="x"
        )
        del secret["metadata"]["ownerReferences"]
    return {"pod": pod, "secret": secret, "callback_id": callback_id}


def _as_pod_of(body: dict[str, Any], callback_id: str, owner: int) -> None:
    """Make the pod of another callback of *body*."""
    metadata = body["metadata"]
    metadata["labels"] |= {"callback-id": callback_id, "airflow-worker": str(owner)}
    metadata["annotations"]["callback_id"] = callback_id


def populate(count: int, state: str, owner: int | None = None) -> dict[str, Any]:
    """Make *count* callbacks with their pods, past the executor: as if it had launched them."""
    body = sample_body()["pod"]
    ids = rows.make_callbacks(count, state)
    waiting = iter(ids)
    mine = loop().job_id if owner is None else owner
    seconds = pods.create(
        KUBECONFIG,
        NAMESPACE,
        body,
        [f"callback-{row_id}-1" for row_id in ids],
        change=lambda item: _as_pod_of(item, next(waiting), mine),
    )
    return {"seconds": seconds}


def settle(count: int) -> dict[str, Any]:
    """Take in *count* live pods by a full comparison; return what that cost the loop."""
    here = loop()
    here.beats.clear()
    begin = time.monotonic()
    here.callbacks.resync()
    here.until(lambda: here.live() >= count, "every pod is known")
    known = time.monotonic() - begin
    here.beats.clear()
    taken = here.callbacks.comparisons.listed_at
    here.callbacks.resync()
    here.until(lambda: here.callbacks.comparisons.listed_at > taken, "a comparison without news")
    return {"seconds": known, "longest_beat_of_a_pass": max(here.beats)}


def idle(beats: int) -> dict[str, Any]:
    """Measure ``sync()`` with nothing to do."""
    here = loop()
    for _ in range(50):
        here.executor.sync()
    gc.collect()
    here.syncs.clear()
    for _ in range(beats):
        here.executor.sync()
    return {
        "median": statistics.median(here.syncs),
        "p99": _percentile(here.syncs, 0.99),
        "live": len(here.executor.running),
    }


def memory() -> dict[str, Any]:
    """Return what Python holds at present, and what the processes have resident, in bytes."""
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] if tracemalloc.is_tracing() else 0
    watchers = [watcher.pid for watcher in loop().executor.kube_scheduler.kube_watchers.values()]
    return {"held": held, "rss": _rss(), "watcher_rss": sum(_rss(pid) for pid in watchers)}


def trace_memory() -> dict[str, Any]:
    tracemalloc.start()
    return {}


def adopt_callbacks(count: int) -> dict[str, Any]:
    """Adopt the pods of a scheduler that is gone: beat until each has this one's label."""
    here = loop()

    def adopted() -> int:
        return sum(view.owner == str(here.job_id) for view in here.callbacks.cache.all_pods())

    here.beats.clear()
    begin = time.monotonic()
    here.callbacks.resync()
    here.until(lambda: adopted() >= count, "every pod is adopted")
    return {"seconds": time.monotonic() - begin, "longest_beat": max(here.beats)}


def miss_and_wait(path: str) -> dict[str, Any]:
    """Miss one deadline; return when that was committed and when its row was seen to be terminal."""
    [callback_id] = rows.make_callbacks(1, CallbackState.PENDING, path=path)
    missed = time.time()
    end = time.monotonic() + 180
    while rows.state_of(callback_id) not in ("success", "failed"):
        if time.monotonic() > end:
            raise TimeoutError(f"callback {callback_id} is {rows.state_of(callback_id)} after 180 s")
        time.sleep(0.01)
    return {"id": callback_id, "missed": missed, "terminal": time.time()}


def count_requests() -> dict[str, Any]:
    """Count from now on what is asked of the API server, by verb and kind."""
    from kubernetes.client.rest import RESTClientObject

    counted: dict[str, int] = {}
    request = RESTClientObject.request

    def counting(self: Any, method: str, url: str, *args: Any, **kwargs: Any) -> Any:
        kind = next((part for part in ("/log", "secrets", "events", "pods") if part in url), "other")
        name = f"{method} {kind.strip('/')}"
        counted[name] = counted.get(name, 0) + 1
        return request(self, method, url, *args, **kwargs)

    RESTClientObject.request = counting
    COUNTED.append(counted)
    return {}


COUNTED: list[dict[str, int]] = []


def requests_counted() -> dict[str, Any]:
    return dict(COUNTED[-1])


def end() -> dict[str, Any]:
    if _loop is not None:
        _loop.executor.end()
    return {}


COMMANDS: dict[str, Callable[..., dict[str, Any]]] = {
    command.__name__: command
    for command in (
        start, create_tasks, finish_tasks, adopt_tasks, create_callbacks, finish_callbacks,
        burst, sample_body, populate, settle, idle, memory, trace_memory, adopt_callbacks, count_requests,
        requests_counted, miss_and_wait, end,
    )
}  # fmt: skip


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Airflow prints goes to the log of this process
    logging.disable(logging.INFO)
    for line in sys.stdin:
        command = json.loads(line)
        answer = COMMANDS[command.pop("do")](**command)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
