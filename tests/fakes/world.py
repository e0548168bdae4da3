"""A cluster, a database and schedulers in memory, one step at a time: for random walks.

What decides is real: controller, cache, reconciler, requests, reports, slots, pod client, creation and
watcher. What they rest on is imitated with its semantics: unique names, preconditions and grace periods
(the object store of the fake API server), blind writes of core, transactions, clocks. Threads are lists
of what is still to be done.
"""

from __future__ import annotations

import errno
import json
import logging
import queue
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from airflow.executors.workloads import ExecuteCallback
from airflow.executors.workloads.callback import CallbackDTO
from airflow.models.callback import CallbackKey
from kubernetes.client.rest import ApiException
from sqlalchemy.exc import OperationalError
from urllib3.exceptions import ProtocolError

from airflow_kubernetes_callbacks import (
    acting,
    answers,
    comparison,
    comparisons,
    controller,
    launches,
    merging,
    pod_client,
    pod_requests,
    reports,
    row_data,
)
from airflow_kubernetes_callbacks.errors import LaunchError
from airflow_kubernetes_callbacks.identity import (
    CALLBACK_ID_ANNOTATION,
    DONE_LABEL,
    OWNER_LABEL,
    RESULT_FINALIZER,
    WORKLOAD_TYPE_LABEL,
)
from airflow_kubernetes_callbacks.payload import SecretPayload
from airflow_kubernetes_callbacks.pod_client import PodClient
from airflow_kubernetes_callbacks.pod_launcher import CallbackKubernetesScheduler
from airflow_kubernetes_callbacks.situation import RowState, RowView
from airflow_kubernetes_callbacks.slots import ExecutorSlots
from airflow_kubernetes_callbacks.version_compat import HAS_WORKLOAD_TYPES
from airflow_kubernetes_callbacks.watcher import MOVED, RESYNC, CallbackJobWatcher, view_from_plain
from tests.fakes.life import pod_document
from tests.fakes.node import Node
from tests.fakes.objects import ApiStatusError, ObjectStore, Selection, told

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from airflow_kubernetes_callbacks.settings import CallbackSettings

PENDING, QUEUED, RUNNING, SUCCESS, FAILED = "pending", "queued", "running", "success", "failed"
NAMESPACE = "airflow"


class Broken(AssertionError):  # noqa: N818
    """An invariant of the design does not hold."""


class FakeTime:
    """``time`` for the modules that look at the clock."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now - 1_799_990_000.0

    def moment(self, later: float = 0.0) -> datetime:
        return datetime.fromtimestamp(self.now + later, UTC)


@dataclass
class Row:
    """A row, and what really became of its callback."""

    callback_id: str
    #: succeeds, raises, never_starts, starts_at_second (its first pod never starts, the others succeed) or
    #: refused (the API server takes no such pod).
    kind: str
    state: str = PENDING
    data: dict[str, Any] = field(default_factory=dict)
    output: str | None = None
    deleted: bool = False
    #: Results of the runs that began, in their order; None while one runs.
    runs: list[str | None] = field(default_factory=list)
    #: Somebody from outside took a pod away, or core wrote over the state: the result may be lost.
    disturbed: bool = False
    #: A second run is a limit that docs/explanation/guarantees.md tells of, or a person's wish.
    may_run_again: bool = False
    #: Its pod was not to be deleted: it may have begun after its end was told.
    not_deleted: bool = False

    @property
    def succeeds(self) -> bool:
        """Every run of it ends well."""
        return self.kind in ("succeeds", "starts_at_second")

    def starts_in(self, pod: dict[str, Any]) -> bool:
        """Tell whether the container of this pod can start."""
        first = pod["metadata"]["name"].endswith("-1")
        return self.kind != "never_starts" and not (self.kind == "starts_at_second" and first)


class Database:
    """The callback table, as core and this package use it. ``broken``: how many statements fail next."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.broken = 0

    def statement(self) -> None:
        if self.broken:
            self.broken -= 1
            raise OperationalError("SELECT", {}, Exception("deadlock found"))

    def get(self, callback_id: str) -> Row | None:
        row = self.rows.get(callback_id)
        return row if row is not None and not row.deleted else None


class MemoryStore:
    """``CallbackStore`` on the database of the world."""

    def __init__(self, world: World) -> None:
        self._world, self._database = world, world.database

    def active_states(self) -> dict[str, RowState]:
        self._database.statement()
        return {
            row.callback_id: RowState(row.state)
            for row in self._database.rows.values()
            if not row.deleted and row.state in (QUEUED, RUNNING)
        }

    def rows(self, callback_ids: Iterable[str], *, with_live_pod: Collection[str] = ()) -> dict[str, RowView]:
        self._database.statement()
        views = {}
        for callback_id in callback_ids:
            row = self._database.get(callback_id)
            if row is None:
                views[callback_id] = RowView(callback_id, RowState.ABSENT)
            else:
                data = _history(row.data) if callback_id in with_live_pod else row.data
                views[callback_id] = row_data.row_view(
                    callback_id, row.state, data, row.output, {}, ours=True
                )
        return views

    def namespaces(self, callback_ids: Iterable[str]) -> dict[str, str | None]:
        return dict.fromkeys(callback_ids, NAMESPACE)

    def alive_schedulers(self) -> frozenset[str]:
        self._database.statement()
        return frozenset(s.me for s in self._world.schedulers if s.heartbeat_is_fresh)

    def forget_teams(self) -> None:
        """There are no teams."""

    def make_workload(self, callback_id: str, generator: Any) -> Any:
        self._database.statement()
        if self._database.get(callback_id) is None:
            raise LaunchError("The callback's row was deleted before its pod was created.")
        return workload(callback_id)

    def record_launches(self, records: Iterable[Any]) -> set[str]:
        self._database.statement()
        for record in records:
            row = self._database.get(record.callback_id)
            if row is not None and row.state == QUEUED:
                row.data = row_data.with_record(row.data, record)
        return set()


def _history(data: dict[str, Any]) -> dict[str, Any]:
    """Return what the store reads of the record of a callback with a live pod."""
    history = data.get("kubernetes_pod", {}).get("history")
    return {} if history is None else {"kubernetes_pod": {"history": history}}


def workload(callback_id: str) -> Any:
    dto = CallbackDTO.model_construct(id=callback_id, data={})
    return ExecuteCallback.model_construct(callback=dto, token="", log_path="")


class InProcessApi:
    """The methods of ``CoreV1Api`` that the pod client calls, on the object store. ``faults``: next answers."""

    #: Each request is made once.
    api_client = SimpleNamespace(configuration=SimpleNamespace(retries=False))

    def __init__(self, world: World) -> None:
        self._world, self._store = world, world.store
        self.faults: deque[str | None] = deque()

    def _answer(self, request: Callable[[], Any]) -> Any:
        fault = self.faults.popleft() if self.faults else None
        if fault == "lost before":
            raise ProtocolError("Connection reset")
        if fault == "no connection":
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        if fault is not None and fault.isdecimal():
            raise ApiException(status=int(fault), reason="fault")
        try:
            document = request()
        except ApiStatusError as error:
            answer = ApiException(status=error.code, reason=error.reason)
            answer.body = json.dumps(error.document())
            raise answer from error
        if fault == "lost after":
            raise ProtocolError("Connection reset")
        return SimpleNamespace(
            data=json.dumps(document).encode(), release_conn=lambda: None, stream=lambda size: iter(())
        )

    def create_namespaced_pod(self, namespace: str, body: dict[str, Any], **kwargs: Any) -> Any:
        def create() -> Any:
            self._world.check_creation(body)
            return self._store.create("pods", namespace, body)

        return self._answer(create)

    def create_namespaced_secret(self, namespace: str, body: dict[str, Any], **kwargs: Any) -> Any:
        return self._answer(lambda: self._store.create("secrets", namespace, body))

    def read_namespaced_secret(self, name: str, namespace: str, **kwargs: Any) -> Any:
        return self._answer(lambda: self._store.get("secrets", namespace, name))

    def read_namespaced_pod(self, name: str, namespace: str, **kwargs: Any) -> Any:
        return self._answer(lambda: self._store.get("pods", namespace, name))

    def read_namespaced_pod_log(self, name: str, namespace: str, **kwargs: Any) -> Any:
        return self._answer(lambda: self._store.get("pods", namespace, name) and {})

    def list_namespaced_event(self, namespace: str, **kwargs: Any) -> Any:
        return self._answer(lambda: {"kind": "EventList", "items": []})

    def list_namespaced_pod(self, namespace: str, *, label_selector: str, **kwargs: Any) -> Any:
        def select() -> Any:
            items, version = self._store.select(Selection("pods", namespace, label_selector))
            return {"kind": "PodList", "metadata": {"resourceVersion": str(version)}, "items": items}

        return self._answer(select)

    def patch_namespaced_pod(self, name: str, namespace: str, body: dict[str, Any], **kwargs: Any) -> Any:
        def patch() -> Any:
            self._world.check_permission("patch")
            if (
                DONE_LABEL in body["metadata"].get("labels", {})
                or "$deleteFromPrimitiveList/finalizers" in body["metadata"]
            ):
                self._world.check_removal(self._store.get("pods", namespace, name), "labelled done or let go")
            return self._store.patch("pods", namespace, name, body)

        return self._answer(patch)

    def delete_namespaced_pod(self, name: str, namespace: str, *, body: dict[str, Any], **kwargs: Any) -> Any:
        def delete() -> Any:
            pod = self._store.get("pods", namespace, name)
            self._store._check(pod, body.get("preconditions") or {})
            row = self._world.row_of(pod)
            row.not_deleted |= "delete" in self._world.forbidden and row.state in (QUEUED, RUNNING)
            self._world.check_permission("delete")
            self._world.check_removal(pod, "deleted")
            return self._store.delete("pods", namespace, name, body)

        return self._answer(delete)


class ManualPool:
    """A worker pool whose work is done when the walk says so."""

    def __init__(self, size: int, name: str) -> None:
        self.pending: list[Callable[[], None]] = []
        self.stopped = False

    def submit(self, work: Callable[[], None]) -> None:
        if not self.stopped:
            self.pending.append(work)

    def stop(self) -> None:
        self.stopped = True
        self.pending.clear()


class Nothing:
    """Takes every call: metrics that nobody reads."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


class MemoryExecutor:
    """What ``ExecutorSlots`` and core use of an executor."""

    def __init__(self, parallelism: int) -> None:
        self.parallelism = parallelism
        self.running: set[CallbackKey] = set()
        self.event_buffer: dict[CallbackKey, tuple[str, Any]] = {}
        self.queued_callbacks: dict[CallbackKey, Any] = {}
        self._task_event_logs: deque[Any] = deque()
        if HAS_WORKLOAD_TYPES:
            from airflow.executors.workloads import WorkloadType

            self.executor_queues = {WorkloadType.EXECUTE_CALLBACK: self.queued_callbacks}

    @property
    def slots_available(self) -> int:
        return self.parallelism - len(self.running) - len(self.queued_callbacks)

    def success(self, key: CallbackKey) -> None:
        self._end(key, SUCCESS, None)

    def fail(self, key: CallbackKey, info: Any) -> None:
        self._end(key, FAILED, info)

    def _end(self, key: CallbackKey, state: str, info: Any) -> None:
        self.running.discard(key)
        self.event_buffer[key] = (state, info)

    def running_state(self, key: CallbackKey) -> None:
        self.event_buffer[key] = (RUNNING, None)


class SimulatedScheduler:
    """One scheduler: a loop that the walk turns, requests that the walk makes, a watch that it feeds."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.me = str(number)
        self.alive = True
        #: False: the others take it for dead, rightly or not.
        self.heartbeat_is_fresh = True
        self.executor = MemoryExecutor(world.parallelism)
        self.api = InProcessApi(world)
        self.client = PodClient(self.api, namespaces=[NAMESPACE])  # type: ignore[arg-type]
        store = MemoryStore(world)
        with (
            mock.patch.object(pod_requests, "WorkerPool", ManualPool),
            mock.patch.object(launches, "WorkerPool", ManualPool),
        ):
            self.requests = pod_requests.Requests(
                client=self.client,
                store=store,  # type: ignore[arg-type]
                launcher=_launcher(self.me, self.client, world),
                token_generator=lambda: None,
                me=self.me,
                concurrency=4,
            )
        self.controller = controller.CallbackController(
            settings=world.settings,
            me=self.me,
            executor=ExecutorSlots(self.executor),
            store=store,  # type: ignore[arg-type]
            client=self.client,
            clock=self.client.clock,
            requests=self.requests,
            metrics=Nothing(),  # type: ignore[arg-type]
            api_owns_running=world.api_owns_running,
            keep_finished=False,
            keep_failed=world.keep_failed,
        )
        self.selection = Selection("pods", NAMESPACE, f"airflow-worker={self.me},{DONE_LABEL}!=True")
        self.watcher = CallbackJobWatcher(NAMESPACE, queue.Queue(), "0", self.me, SimpleNamespace())
        self.seen_version = world.store.version
        #: Callbacks that core has handed to this executor in a transaction that is not committed.
        self.uncommitted: list[str] = []

    # The loop --------------------------------------------------------------------------------------

    def heartbeat(self) -> None:
        while not self.watcher.watcher_queue.empty():
            message = self.watcher.watcher_queue.get_nowait()
            if message.state == RESYNC:
                self.controller.resync()
            elif message.state == MOVED:
                self.controller.moved(view_from_plain(message.failure_details))
            else:
                self.controller.observe(view_from_plain(message.failure_details))
        free = self.executor.parallelism - len(self.executor.running)
        for key in list(self.executor.queued_callbacks)[: max(0, free)]:
            handed = self.executor.queued_callbacks.pop(key)
            self.executor.running.add(key)
            self.controller.submit(key.id, handed)
        self.controller.tick()

    def drain(self) -> dict[CallbackKey, tuple[str, Any]]:
        events, self.executor.event_buffer = self.executor.event_buffer, {}
        return events

    def record(self, events: dict[CallbackKey, tuple[str, Any]]) -> None:
        """Write what the events say as core does: without looking."""
        for key, (state, info) in events.items():
            row = self.world.database.get(key.id)
            if row is None or (state == RUNNING and self.world.api_owns_running):
                continue
            if row.state in (SUCCESS, FAILED) and state != row.state:
                raise Broken(f"terminal is final: {row} gets {state} ({info})")
            if row.state == PENDING:
                raise Broken(f"event for a row that was never handed out: {row} gets {state}")
            row.state = state
            if state == FAILED:
                row.output = str(info)

    def hand_out(self) -> None:
        """Begin the transaction in which core hands out pending callbacks."""
        free = self.executor.slots_available
        for row in self.world.database.rows.values():
            if row.state == PENDING and not row.deleted and free > len(self.uncommitted):
                self.uncommitted.append(row.callback_id)
                self.controller.hold(row.callback_id)
                self.executor.queued_callbacks[CallbackKey(row.callback_id)] = workload(row.callback_id)

    def commit_hand_out(self) -> None:
        for callback_id in self.uncommitted:
            if (row := self.world.database.get(callback_id)) is not None:
                if row.state in (SUCCESS, FAILED):
                    row.disturbed = row.may_run_again = True  # core writes over the end
                row.state = QUEUED
        self.uncommitted.clear()

    # Beside the loop -------------------------------------------------------------------------------

    @property
    def work(self) -> list[tuple[ManualPool, Callable[[], None]]]:
        pools = dict.fromkeys((self.requests._pool, self.requests._launches._pool, self.requests._background))
        return [(pool, work) for pool in pools for work in pool.pending]

    def do_work(self, index: int, faults: Iterable[str | None] = ()) -> None:
        work = self.work
        if not work:
            return
        pool, request = work[index % len(work)]
        pool.pending.remove(request)
        self.api.faults = deque(faults)
        try:
            request()
        finally:
            self.api.faults.clear()

    def do_all_work(self) -> None:
        while self.work:
            self.do_work(0)

    def watch(self, limit: int = 1000, *, lose: bool = False) -> None:
        """Let the next events of the watch arrive, or get lost."""
        for change in [c for c in self.world.store._history if c.version > self.seen_version][:limit]:
            self.seen_version = change.version
            event = told(change, self.selection) if change.plural == "pods" else None
            if event is not None and not lose:
                self.watcher._send_callback_event(*event)

    def crash(self) -> None:
        self.alive = False

    def forget(self) -> None:
        """Be dead for the others; nothing of it arrives any more."""
        self.heartbeat_is_fresh = False
        if not self.alive:
            self.requests.stop()


def _launcher(me: str, client: PodClient, world: World) -> CallbackKubernetesScheduler:
    """The real launcher, without the parent's manager and watchers."""

    def plan(handed: Any, attempt: int) -> Any:
        document = pod_document(handed.callback.id, me, attempt=attempt, finalizer=world.finalizer)
        metadata = SimpleNamespace(
            namespace=NAMESPACE,
            name=document["metadata"]["name"],
            annotations={CALLBACK_ID_ANNOTATION: handed.callback.id},
        )
        payload = SecretPayload("{}")
        parts = {"payload": payload, "labels": {}}
        return SimpleNamespace(
            pod=SimpleNamespace(metadata=metadata, document=document),
            payload=payload,
            secret_parts=lambda: parts,
        )

    launcher = object.__new__(CallbackKubernetesScheduler)
    launcher._log = logging.getLogger(__name__)
    launcher.planner = SimpleNamespace(plan=plan)  # type: ignore[assignment]
    launcher._callback_pods = client
    launcher._plans, launcher._created = {}, {}
    launcher.scheduler_job_id = me
    launcher.kube_config = SimpleNamespace(kube_client_request_args={})
    launcher.kube_client = SimpleNamespace(
        api_client=SimpleNamespace(sanitize_for_serialization=lambda pod: pod.document)
    )
    return launcher


class World:
    """All of it, and the invariants that can be checked when something is about to happen."""

    def __init__(
        self,
        settings: CallbackSettings,
        *,
        api_owns_running: bool,
        finalizer: bool = False,
        keep_failed: bool = True,
        parallelism: int = 3,
        skew: float = 0.0,
    ) -> None:
        """``skew``: seconds that the schedulers' clocks are ahead of the cluster's."""
        self.settings = settings
        self.api_owns_running = api_owns_running
        self.finalizer = finalizer
        self.keep_failed = keep_failed
        self.parallelism = parallelism
        self.clock = FakeTime()
        self.store = ObjectStore(lambda: self.clock.moment(-skew))
        #: Verbs on pods that no scheduler's account has.
        self.forbidden: set[str] = set()
        self.node = Node(self.store)
        self.database = Database()
        self.schedulers: list[SimulatedScheduler] = []
        self.violations: list[str] = []
        self._patches = ExitStack()
        for module in (acting, answers, comparison, comparisons, controller, merging, pod_client, reports):
            self._patches.enter_context(mock.patch.object(module, "time", self.clock))

    def close(self) -> None:
        self._patches.close()

    def add_scheduler(self) -> SimulatedScheduler:
        scheduler = SimulatedScheduler(self, len(self.schedulers) + 1)
        self.schedulers.append(scheduler)
        return scheduler

    def add_callback(self, kind: str) -> Row:
        number = len(self.database.rows) + 1
        row = Row(f"018f0000-0000-7000-8000-{number:012}", kind)
        self.database.rows[row.callback_id] = row
        return row

    def pods(self, *, done: bool = True) -> list[dict[str, Any]]:
        labels = "" if done else f"{DONE_LABEL}!=True"
        return self.store.select(Selection("pods", NAMESPACE, labels))[0]

    def row_of(self, pod: dict[str, Any]) -> Row:
        """By its name, which nobody can take off."""
        return self.database.rows[pod["metadata"]["name"].removeprefix("callback-").rpartition("-")[0]]

    # What nodes, and people, do --------------------------------------------------------------------

    def progress(self, pod: dict[str, Any]) -> None:
        """Let the node do the next thing that there is to do for this pod."""
        row, status, metadata = self.row_of(pod), pod["status"], pod["metadata"]
        deleting = bool(metadata.get("deletionTimestamp"))
        state = (status.get("containerStatuses") or [{"state": {}}])[0]["state"]
        if "running" in state:
            row.runs[-1] = SUCCESS if row.succeeds else FAILED
            if row.succeeds:
                self.node.finish(pod)
            else:
                self.node.finish_callback(pod, "ValueError: it raises")
        elif status["phase"] in ("Succeeded", "Failed"):
            if deleting:
                self.remove(pod)
        elif deleting:
            self.node.give_up(pod)
        elif not pod["spec"].get("nodeName"):
            self.node.bind(pod)
        elif not row.starts_in(pod):
            if state.get("waiting", {}).get("reason") != "ErrImagePull":
                self.node.wait(pod, "ErrImagePull", "no such image")
        elif self.store.find("secrets", NAMESPACE, metadata["name"]):
            self._begin(pod, row)

    def runs(self, pod: dict[str, Any]) -> bool:
        """Tell whether the base container of this pod runs."""
        return any("running" in item["state"] for item in pod["status"].get("containerStatuses") or ())

    def _begin(self, pod: dict[str, Any], row: Row) -> None:
        present = self.database.get(row.callback_id)
        if self.api_owns_running:
            if present is None or present.state != QUEUED:
                self.node.finish(pod, 1, message="the API says 409")
                return
            present.state = RUNNING
        if row.runs and not row.may_run_again:
            raise Broken(f"begun is never repeated: {row} runs again in {pod['metadata']['name']}")
        row.runs.append(None)
        self.node.start(pod)

    def reject(self, pod: dict[str, Any]) -> None:
        """The node does not take the pod."""
        if pod["status"]["phase"] == "Pending" and not pod["status"].get("containerStatuses"):
            self.node.fail(pod, "OutOfcpu", "Pod was rejected: no cpu left")

    def remove(self, pod: dict[str, Any]) -> None:
        """The pod object goes, if no finalizer holds it, and what belongs to it."""
        self.node.remove(pod)
        self._collect_garbage()

    def _goes_unseen(self, row: Row) -> bool:
        """Tell whether nothing says that the pod was there, once it is gone (docs/explanation/guarantees.md)."""
        recorded = row_data.record_in(row.data).get("pod") is not None or row.state == RUNNING
        return bool(row.runs) and not self.api_owns_running and not recorded

    def delete_from_outside(self, pod: dict[str, Any], *, force: bool) -> None:
        """A person, or the garbage collection of a lost node."""
        row = self.row_of(pod)
        row.disturbed = True
        row.may_run_again = row.may_run_again or self._goes_unseen(row)
        if force and row.runs and row.runs[-1] is None:
            row.runs[-1] = FAILED
        options = {"gracePeriodSeconds": 0} if force else {}
        self.store.delete("pods", NAMESPACE, pod["metadata"]["name"], options)
        self._collect_garbage()

    def take_labels_off(self, pod: dict[str, Any]) -> None:
        """A person, or a webhook: no list and no watch finds the pod any more."""

        def change(found: dict[str, Any]) -> None:
            found["metadata"]["labels"] = {}

        self.store.update("pods", NAMESPACE, pod["metadata"]["name"], change)

    def _collect_garbage(self) -> None:
        names = {pod["metadata"]["name"] for pod in self.pods()}
        for secret in self.store.select(Selection("secrets", NAMESPACE))[0]:
            if secret["metadata"]["name"] not in names:
                self.store.delete("secrets", NAMESPACE, secret["metadata"]["name"], {})

    # Invariants ------------------------------------------------------------------------------------

    def check_creation(self, body: dict[str, Any]) -> None:
        row = self.row_of(body)
        if row.kind == "refused":
            raise ApiStatusError(422, "Invalid", "no such volume")

    def check_permission(self, verb: str) -> None:
        if verb in self.forbidden:
            raise ApiStatusError(403, "Forbidden", f'User "scheduler" cannot {verb} resource "pods"')

    def check_removal(self, pod: dict[str, Any], how: str) -> None:
        row = self.database.get(self.row_of(pod).callback_id)
        states = [item["state"] for item in pod["status"].get("containerStatuses") or ()]
        began = any("running" in state or state.get("terminated", {}).get("startedAt") for state in states)
        if row is not None and row.state in (QUEUED, RUNNING) and began:
            # Raised later: here it would be an answer to a request.
            self.violations.append(f"record, then delete: {pod['metadata']['name']} is {how} while {row}")

    def is_nobodys(self, pod: dict[str, Any]) -> bool:
        """Tell whether nobody is left who knows that this pod, whose row is gone, was of this database.

        Its like is left alone (design, invariant 9) until a person says that it may go. And nobody looks for
        one without labels whose callback is over.
        """
        row, alive = self.row_of(pod), [scheduler for scheduler in self.schedulers if scheduler.alive]
        labels = pod["metadata"].get("labels") or {}
        if WORKLOAD_TYPE_LABEL not in labels and (row.deleted or row.state in (SUCCESS, FAILED)):
            return not any(s.controller.cache.pods(row.callback_id) for s in alive)
        return row.deleted and labels.get(OWNER_LABEL) not in {scheduler.me for scheduler in alive}

    def check(self) -> None:
        """Check what holds at any time."""
        if self.violations:
            raise Broken("; ".join(self.violations))
        unfinished: dict[str, int] = {}
        for pod in self.pods():
            may_begin = pod["spec"].get("nodeName") or not pod["metadata"].get("deletionTimestamp")
            if pod["status"]["phase"] not in ("Succeeded", "Failed") and may_begin:
                callback_id = self.row_of(pod).callback_id
                unfinished[callback_id] = unfinished.get(callback_id, 0) + 1
        for callback_id, count in unfinished.items():
            if count > 1:
                raise Broken(f"one: {self.database.rows[callback_id]} has {count} live pods")

    def check_end(self) -> None:
        """Check what holds once everything has come to rest."""
        for row in self.database.rows.values():
            if row.deleted:
                continue
            if row.state not in (SUCCESS, FAILED):
                raise Broken(f"bounded: {row} came to no end")
            if row.state == SUCCESS and SUCCESS not in row.runs:
                raise Broken(f"success without a run: {row}")
            if row.runs and not (row.disturbed or row.not_deleted) and row.state != row.runs[-1]:
                raise Broken(f"the row tells something else than what happened: {row}")
            if row.kind == "refused" and "no such volume" not in (row.output or ""):
                raise Broken(f"the reason is missing: {row}")
        left = [pod["metadata"]["name"] for pod in self.pods(done=False) if not self.is_nobodys(pod)]
        if left:
            raise Broken(f"pods are left: {left}")
        for pod in self.pods():
            if RESULT_FINALIZER in pod["metadata"].get("finalizers", ()) and not self.is_nobodys(pod):
                raise Broken(f"finalizer is left on {pod['metadata']['name']}")
        for scheduler in self.schedulers:
            if scheduler.alive and (scheduler.executor.running or scheduler.executor.event_buffer):
                raise Broken(f"slots are left in scheduler {scheduler.me}: {scheduler.executor.running}")
