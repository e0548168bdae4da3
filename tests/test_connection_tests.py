"""Connection tests as pods: decisions as tables, rows, and the executor on a fake API server."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
import warnings
from uuid import UUID

import pytest
from airflow.models.connection_test import ConnectionTestRequest, ConnectionTestState
from airflow.utils.session import create_session

from airflow_kubernetes_callbacks import connection_tests
from airflow_kubernetes_callbacks.connection_test import (
    END_GRACE,
    Progress,
    Step,
    active_deadline,
    connection_test_identity,
    decide_test,
    is_leftover,
    start_limit,
)
from airflow_kubernetes_callbacks.connection_test_store import MAX_MESSAGE, ConnectionTestStore
from airflow_kubernetes_callbacks.identity import (
    CONNECTION_TEST_ID_ANNOTATION,
    OWNER_LABEL,
    RESERVED_KEYS,
    STOCK_EXECUTOR_LABEL,
    connection_test_id_of,
)
from airflow_kubernetes_callbacks.outcome import pod_view
from airflow_kubernetes_callbacks.payload import unescaped
from airflow_kubernetes_callbacks.settings import CallbackSettings
from airflow_kubernetes_callbacks.version_compat import HAS_WORKLOAD_TYPES
from tests import pods
from tests.fakes.scheduler import wait_until

ID = "0199aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee"
CREATED = 1780308000.0  # of the pods of tests.pods


def view(phase="Running", *statuses, **more):
    pod = pods.pod(phase, list(statuses), annotations={CONNECTION_TEST_ID_ANNOTATION: ID}, **more)
    found = pod_view(pod, id_of=connection_test_id_of)
    assert found is not None
    return found


PENDING = view("Pending")
UNSCHEDULABLE = view(
    "Pending",
    node=None,
    conditions=[pods.condition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available")],
)
NO_IMAGE = view("Pending", pods.status(state=pods.waiting("ImagePullBackOff", "no such image")))
RUNNING = view("Running", pods.status(state=pods.running()))
SUCCEEDED = view("Succeeded", pods.status(state=pods.terminated(0)))
KILLED = view("Failed", pods.status(state=pods.terminated(137, "OOMKilled")))
EVICTED = view("Failed", reason="Evicted", message="The node was low on memory", start_time=None, node=None)


class TestDecision:
    @pytest.mark.parametrize(
        ("pod", "progress", "more", "step", "words"),
        [
            pytest.param(PENDING, Progress.ACTIVE, {}, Step.WAIT, "", id="just_created"),
            pytest.param(RUNNING, Progress.ACTIVE, {"waited": 999}, Step.WAIT, "", id="runs"),
            pytest.param(SUCCEEDED, Progress.SETTLED, {}, Step.CLEAN_UP, "", id="reported_and_ended"),
            pytest.param(RUNNING, Progress.SETTLED, {}, Step.WAIT, "", id="reported_and_about_to_end"),
            pytest.param(
                RUNNING,
                Progress.SETTLED,
                {"settled_for": END_GRACE},
                Step.CLEAN_UP,
                "",
                id="reported_and_does_not_end",
            ),
            pytest.param(PENDING, Progress.SETTLED, {}, Step.CLEAN_UP, "", id="failed_by_core_while_pending"),
            pytest.param(None, Progress.SETTLED, {}, Step.CLEAN_UP, "", id="reported_and_gone"),
            pytest.param(RUNNING, Progress.ABSENT, {"settled_for": 99}, Step.CLEAN_UP, "", id="row_is_gone"),
            pytest.param(None, Progress.ACTIVE, {}, Step.FAIL, "was deleted", id="pod_is_gone"),
            pytest.param(SUCCEEDED, Progress.ACTIVE, {}, Step.FAIL, "without telling", id="ended_in_silence"),
            pytest.param(KILLED, Progress.ACTIVE, {}, Step.FAIL, "OOMKilled", id="killed"),
            pytest.param(EVICTED, Progress.ACTIVE, {}, Step.FAIL, "low on memory", id="evicted"),
            pytest.param(
                NO_IMAGE,
                Progress.ACTIVE,
                {"waited": 70, "faulty_for": 9.9},
                Step.WAIT,
                "",
                id="image_may_come_yet",
            ),
            pytest.param(
                NO_IMAGE,
                Progress.ACTIVE,
                {"waited": 11, "faulty_for": 10.0},
                Step.FAIL,
                "no such image",
                id="image_does_not_come",
            ),
            pytest.param(
                NO_IMAGE,
                Progress.ACTIVE,
                {"waited": 85, "faulty_for": 1.0},
                Step.FAIL,
                "no such image",
                id="image_does_not_come_before_core_gives_up",
            ),
            pytest.param(
                UNSCHEDULABLE, Progress.ACTIVE, {"waited": 80}, Step.WAIT, "", id="room_may_come_yet"
            ),
            pytest.param(
                UNSCHEDULABLE,
                Progress.ACTIVE,
                {"waited": 85},
                Step.FAIL,
                "Could not start: Unschedulable: 0/3 nodes",
                id="no_room_before_core_gives_up",
            ),
        ],
    )
    def test_what_is_done(self, pod, progress, more, step, words):
        known = {
            "waited": 1.0,
            "faulty_for": 0.0,
            "settled_for": 0.0,
            "timeout": 60,
            "error_grace": 10.0,
            **more,
        }
        decision = decide_test(pod, progress, **known)
        assert decision.step is step
        assert words in decision.reason
        assert bool(decision.reason) is (step is Step.FAIL)

    @pytest.mark.parametrize("timeout", [1, 20, 59, 60, 61, 600])
    def test_reason_is_told_before_core_fails_the_test_without_one(self, timeout):
        core_gives_up = timeout + max(30, timeout // 2)  # _reap_stale_connection_tests
        assert 0 < start_limit(timeout) < core_gives_up
        assert active_deadline(timeout, CallbackSettings()) >= start_limit(timeout) + timeout

    @pytest.mark.parametrize(
        ("pod", "age", "left_over"),
        [
            pytest.param(RUNNING, 100, False, id="runs"),
            pytest.param(RUNNING, 301, True, id="runs_beyond_its_lifetime"),
            pytest.param(PENDING, 301, True, id="pending_beyond_its_lifetime"),
            pytest.param(SUCCEEDED, 30, False, id="ended_a_moment_ago"),
            pytest.param(SUCCEEDED, 71, True, id="ended_and_nobody_came"),
            pytest.param(
                dataclasses.replace(SUCCEEDED, deleting=True), 999, False, id="being_deleted_already"
            ),
        ],
    )
    def test_what_is_left_over(self, pod, age, left_over):
        assert is_leftover(pod, CREATED + age, 300.0) is left_over


class TestIdentity:
    def test_no_watcher_and_no_stock_executor_selects_the_pod(self):
        known_by = connection_test_identity(ID, "my_db", owner="7", executor="K8s", team="blue")
        assert not {OWNER_LABEL, STOCK_EXECUTOR_LABEL} & known_by.labels.keys()
        assert {*known_by.labels, *known_by.annotations} <= RESERVED_KEYS

    def test_id_is_read_back(self):
        known_by = connection_test_identity(ID, "my_db", owner="7", executor=None, team=None)
        assert connection_test_id_of({"annotations": known_by.annotations}) == ID
        assert known_by.name == f"connection-test-{ID}"


@pytest.fixture
def new_test(session):
    """Makes rows of connection tests; returns the id."""

    def make(state=ConnectionTestState.PENDING, connection_id="my_db"):
        with create_session(scoped=False) as own:
            row = ConnectionTestRequest(
                connection_id=connection_id, conn_type="postgres", host="db", password="hidden in the row"
            )
            own.add(row)
            own.flush()
            row.state = state
            return str(row.id)

    return make


def row_of(test_id):
    with create_session(scoped=False) as session:
        row = session.get(ConnectionTestRequest, UUID(test_id))
        session.expunge(row)
        return row


def execution_api():
    """Core's own routes, as functions."""
    with warnings.catch_warnings():
        # Core imports starlette's test client with the HTTP library that starlette is about to leave.
        warnings.simplefilter("ignore")
        from airflow.api_fastapi.execution_api.routes import connection_tests as routes
    return routes


def pod_takes_connection(test_id):
    with create_session(scoped=False) as session:
        return execution_api().get_connection_test_connection(UUID(test_id), session)


def pod_reports(test_id, state=ConnectionTestState.SUCCESS, message="Connection successfully tested"):
    routes = execution_api()
    body = routes.ConnectionTestResultBody(state=state, result_message=message)
    with create_session(scoped=False) as session:
        routes.patch_connection_test(UUID(test_id), body, session)


class TestStore:
    store = ConnectionTestStore()

    def test_progress_of_every_state(self, new_test):
        ids = {state: new_test(state, f"c_{state}") for state in ConnectionTestState}
        told = self.store.progress([*ids.values(), ID])
        assert told.pop(ID) is Progress.ABSENT
        assert {state for state in ids if told[ids[state]] is Progress.SETTLED} == {"success", "failed"}
        assert {state for state in ids if told[ids[state]] is Progress.ACTIVE} == {
            "pending",
            "queued",
            "running",
        }

    @pytest.mark.parametrize("state", ["pending", "queued", "running"])
    def test_active_test_fails_with_the_reason_and_another_may_be_made(self, new_test, state):
        test_id = new_test(ConnectionTestState(state))
        assert self.store.fail(test_id, "the image is gone")
        row = row_of(test_id)
        assert (row.state, row.result_message) == ("failed", "the image is gone")
        assert row.active_connection_id is None
        new_test()

    @pytest.mark.parametrize("state", ["success", "failed"])
    def test_recorded_result_is_left_alone(self, new_test, state):
        test_id = new_test(ConnectionTestState(state))
        assert not self.store.fail(test_id, "the image is gone")
        assert (row_of(test_id).state, row_of(test_id).result_message) == (state, None)

    def test_row_that_is_gone_is_no_error(self, session):
        assert not self.store.fail(ID, "the image is gone")

    def test_reason_fits_the_column(self, new_test):
        test_id = new_test()
        self.store.fail(test_id, "ü" * 5000 + " token: 'secret-secret-secret'")
        message = row_of(test_id).result_message
        assert len(message) <= MAX_MESSAGE
        assert "secret-secret" not in message


# The executor ---------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(connection_tests, "INTERVAL", 0.02)


@pytest.fixture
def scheduler(quick, new_scheduler):
    return new_scheduler()


def loop(scheduler):
    scheduler.loop()
    with create_session(scoped=False) as session:
        scheduler.runner._enqueue_connection_tests(session=session)


def until(scheduler, condition, what=""):
    return wait_until(condition, what, step=lambda: loop(scheduler))


def slots_taken(scheduler):
    return scheduler.executor.slots_occupied


def wait_for_end(scheduler, api_server):
    until(scheduler, lambda: not api_server.pods(), "pod is gone")
    until(scheduler, lambda: not slots_taken(scheduler), "slot is free")


class TestExecutor:
    def test_executor_declares_support(self, scheduler):
        if HAS_WORKLOAD_TYPES:
            assert "TestConnection" in {kind.value for kind in scheduler.executor.supported_workload_types}
        else:
            assert scheduler.executor.supports_connection_test is True

    @pytest.mark.parametrize("state", ["success", "failed"])
    def test_pod_tells_the_result_then_slot_is_free_and_pod_is_gone(
        self, api_server, scheduler, new_test, state
    ):
        test_id = new_test()
        [pod] = until(scheduler, api_server.pods, "pod is created")
        assert row_of(test_id).state == "queued"
        assert slots_taken(scheduler) == 1
        api_server.node.bind(pod)
        api_server.node.start(pod)
        assert pod_takes_connection(test_id).password == "hidden in the row"
        pod_reports(test_id, ConnectionTestState(state), "what the hook said")
        api_server.node.finish(pod)
        wait_for_end(scheduler, api_server)
        assert (row_of(test_id).state, row_of(test_id).result_message) == (state, "what the hook said")
        assert api_server.count("POST", "/pods$") == 1
        assert scheduler.events == {}

    def test_pod_is_built_as_those_of_callbacks(self, api_server, quick, new_scheduler, new_test):
        scheduler = new_scheduler(
            KUBERNETES_CALLBACKS__IMAGE="airflow:alerts",
            KUBERNETES_CALLBACKS__PRIORITY_CLASS_NAME="alerts",
            CONNECTION_TEST__TIMEOUT="40",
        )
        test_id = new_test()
        [pod] = until(scheduler, api_server.pods)
        (container,) = pod["spec"]["containers"]
        assert pod["metadata"]["name"] == f"connection-test-{test_id}"
        assert pod["metadata"]["annotations"]["connection_id"] == "my_db"
        assert pod["metadata"]["labels"]["airflow-workload-type"] == "connection-test"
        assert container["image"] == "airflow:alerts"
        assert container["securityContext"]["runAsNonRoot"] is True
        assert pod["spec"]["priorityClassName"] == "alerts"
        assert pod["spec"]["activeDeadlineSeconds"] == 40 + 30 - 5 + 40 + 60
        assert "hidden" not in json.dumps(pod)
        assert "token" not in json.dumps(container)
        [secret] = until(scheduler, api_server.secrets)
        assert secret["metadata"]["name"] == pod["metadata"]["name"]
        assert secret["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]

    def test_workload_as_an_argument_where_secrets_are_not_allowed(self, api_server, scheduler, new_test):
        api_server.allowed = lambda verb, resource, namespace: resource != "secrets"
        test_id = new_test(connection_id="db_$$5_$(HOME)")
        [pod] = until(scheduler, api_server.pods)
        arguments = pod["spec"]["containers"][0]["args"]
        assert "db_$$$$5_$$(HOME)" in arguments[-1]
        workload = json.loads(unescaped(arguments[-1]))
        assert workload["connection_test_id"] == test_id
        assert workload["connection_id"] == "db_$$5_$(HOME)"
        assert workload["type"] == "TestConnection"
        assert api_server.secrets() == []

    @pytest.mark.parametrize(
        ("end", "words"),
        [
            pytest.param(lambda node, pod: node.finish(pod, 0), "without telling", id="in_silence"),
            pytest.param(
                lambda node, pod: node.finish(pod, 137, reason="OOMKilled"), "OOMKilled", id="killed"
            ),
            pytest.param(lambda node, pod: node.remove(pod), "was deleted", id="deleted"),
        ],
    )
    def test_pod_that_cannot_tell_any_more_fails_the_test_with_the_reason(
        self, api_server, scheduler, new_test, end, words
    ):
        test_id = new_test()
        [pod] = until(scheduler, api_server.pods)
        api_server.node.bind(pod)
        api_server.node.start(pod)
        pod_takes_connection(test_id)
        end(api_server.node, pod)
        wait_for_end(scheduler, api_server)
        assert row_of(test_id).state == "failed"
        assert words in row_of(test_id).result_message

    def test_image_that_does_not_come_fails_the_test_with_the_reason(
        self, api_server, quick, new_scheduler, new_test
    ):
        scheduler = new_scheduler(KUBERNETES_CALLBACKS__START_ERROR_GRACE="0")
        test_id = new_test()
        [pod] = until(scheduler, api_server.pods)
        api_server.node.bind(pod)
        api_server.node.wait(pod, "ErrImagePull", "no such image: airflow:worker")
        until(scheduler, lambda: not slots_taken(scheduler), "slot is free")
        [pod] = api_server.pods()
        assert pod["metadata"]["deletionTimestamp"]
        assert row_of(test_id).state == "failed"
        assert "no such image: airflow:worker" in row_of(test_id).result_message

    def test_error_has_its_grace_from_when_it_is_seen_and_anew_once_it_has_passed(
        self, api_server, quick, new_scheduler, new_test
    ):
        scheduler = new_scheduler(KUBERNETES_CALLBACKS__START_ERROR_GRACE="20")
        test_id = new_test()
        [pod] = until(scheduler, api_server.pods)
        api_server.node.bind(pod)
        flight = scheduler.executor._connection_tests._flights[test_id]
        flight.submitted -= 30
        api_server.node.wait(pod, "ErrImagePull", "no such image: airflow:worker")
        until(scheduler, lambda: flight.faulty_since is not None, "error is seen")
        api_server.node.wait(pod, "ContainerCreating", "")
        until(scheduler, lambda: flight.faulty_since is None, "error has passed")
        assert row_of(test_id).state == "queued"
        api_server.node.wait(pod, "ErrImagePull", "no such image: airflow:worker")
        until(scheduler, lambda: flight.faulty_since is not None, "error is seen again")
        flight.faulty_since -= 20
        until(scheduler, lambda: not slots_taken(scheduler), "slot is free")
        assert "no such image: airflow:worker" in row_of(test_id).result_message

    def test_pods_are_kept_where_all_pods_are(self, api_server, quick, new_scheduler, new_test):
        scheduler = new_scheduler(KUBERNETES_EXECUTOR__DELETE_WORKER_PODS="False")
        new_test()
        [pod] = until(scheduler, api_server.pods)
        api_server.node.bind(pod)
        api_server.node.start(pod)
        api_server.node.finish(pod, 1)
        until(scheduler, lambda: not slots_taken(scheduler))
        [pod] = api_server.pods()
        assert pod["metadata"]["labels"]["airflow_executor_done"] == "True"

    def test_pod_of_which_a_sidecar_still_runs_is_not_kept(self, api_server, quick, new_scheduler, new_test):
        scheduler = new_scheduler(KUBERNETES_EXECUTOR__DELETE_WORKER_PODS="False")
        new_test()
        [pod] = until(scheduler, api_server.pods)
        api_server.node.bind(pod)
        pod = api_server.node.start(pod)
        [base] = pod["status"]["containerStatuses"]
        ended = {**base, "state": {"terminated": {"exitCode": 1, "finishedAt": "2026-06-01T10:00:00Z"}}}
        sidecar = {"name": "proxy", "state": {"running": {}}}
        api_server.node.mark(pod, containerStatuses=[ended, sidecar])
        until(scheduler, lambda: not slots_taken(scheduler))
        [pod] = api_server.pods()
        assert pod["metadata"]["deletionTimestamp"]

    def test_refused_pod_fails_the_test_with_the_api_servers_words(self, api_server, scheduler, new_test):
        api_server.fail("POST", "/pods$", status=403, message="pods is forbidden: User cannot create")
        test_id = new_test()
        until(scheduler, lambda: row_of(test_id).state == "failed")
        until(scheduler, lambda: not slots_taken(scheduler))
        message = row_of(test_id).result_message
        assert message.startswith("Could not start: the API server refused the pod")
        assert "pods is forbidden: User cannot create" in message

    def test_template_that_is_missing_fails_the_test(self, api_server, quick, new_scheduler, new_test):
        scheduler = new_scheduler(KUBERNETES_CALLBACKS__POD_TEMPLATE_FILE="/no/such/file.yaml")
        test_id = new_test()
        until(scheduler, lambda: row_of(test_id).state == "failed")
        assert "/no/such/file.yaml" in row_of(test_id).result_message
        until(scheduler, lambda: not slots_taken(scheduler))

    def test_refused_secret_fails_the_test_and_takes_the_pod_along(self, api_server, scheduler, new_test):
        api_server.fail("POST", "/secrets$", status=403, message="secrets is forbidden")
        test_id = new_test()
        until(scheduler, lambda: row_of(test_id).state == "failed")
        assert "secrets is forbidden" in row_of(test_id).result_message
        wait_for_end(scheduler, api_server)

    def test_server_error_is_tried_again_under_the_same_name(self, api_server, scheduler, new_test):
        api_server.fail("POST", "/pods$", status=500, times=None)
        test_id = new_test()
        until(scheduler, lambda: api_server.count("POST", "/pods$") >= 2)
        assert row_of(test_id).state == "queued"
        api_server.heal()
        [pod] = until(scheduler, api_server.pods)
        assert pod["metadata"]["name"] == f"connection-test-{test_id}"
        assert slots_taken(scheduler) == 1

    def test_pod_whose_creation_was_not_answered_is_taken_as_ours(self, api_server, scheduler, new_test):
        api_server.fail("POST", "/pods$", reset=True, after_storing=True)
        new_test()
        until(scheduler, api_server.secrets)
        assert len(api_server.pods()) == 1

    def test_api_server_that_hangs_does_not_hold_up_the_loop(self, api_server, scheduler, new_test):
        gate = threading.Event()
        api_server.fail("POST", "/pods$", gate=gate)
        new_test()
        for _ in range(20):
            begun = time.monotonic()
            loop(scheduler)
            assert time.monotonic() - begun < 5.0
        gate.set()
        until(scheduler, api_server.pods)

    def test_reaped_test_gives_up_its_pod_and_slot(self, api_server, scheduler, new_test):
        test_id = new_test()
        until(scheduler, api_server.pods)
        reap(scheduler, test_id)
        assert slots_taken(scheduler) == 0
        until(scheduler, lambda: not api_server.pods())
        assert "never started before timeout" in row_of(test_id).result_message

    def test_test_reaped_by_another_scheduler_gives_up_its_pod_and_slot(
        self, api_server, scheduler, new_test
    ):
        test_id = new_test()
        until(scheduler, api_server.pods)
        ConnectionTestStore().fail(test_id, "reaped elsewhere")
        wait_for_end(scheduler, api_server)
        assert row_of(test_id).result_message == "reaped elsewhere"

    def test_database_that_is_away_for_a_while_loses_nothing(
        self, api_server, scheduler, new_test, monkeypatch
    ):
        test_id = new_test()
        [pod] = until(scheduler, api_server.pods)
        broken = []

        def progress(self, ids):
            broken.append(ids)
            raise ConnectionError("the database is away")

        with monkeypatch.context() as patch:
            patch.setattr(ConnectionTestStore, "progress", progress)
            api_server.node.bind(pod)
            api_server.node.start(pod)
            pod_reports(test_id)
            api_server.node.finish(pod)
            until(scheduler, lambda: len(broken) >= 2)
            assert slots_taken(scheduler) == 1
        wait_for_end(scheduler, api_server)

    def test_tasks_and_callbacks_beside_it_go_on(self, api_server, scheduler, new_test, new_callback):
        callback_id, _ = new_callback(), new_test()
        until(scheduler, lambda: len(api_server.pods()) == 2)
        kinds = {pod["metadata"]["labels"]["airflow-workload-type"] for pod in api_server.pods()}
        assert kinds == {"callback", "connection-test"}
        assert scheduler.running == {callback_id}


def reap(scheduler, test_id):
    """Have core take the test for stale."""
    from datetime import UTC, datetime, timedelta

    from sqlalchemy import update

    with create_session(scoped=False) as session:
        session.execute(
            update(ConnectionTestRequest)
            .where(ConnectionTestRequest.id == UUID(test_id))
            .values(updated_at=datetime.now(UTC) - timedelta(hours=1))
        )
    with create_session(scoped=False) as session:
        scheduler.runner._reap_stale_connection_tests(session=session)


class TestLeftovers:
    def leave_behind(self, scheduler, api_server, new_test):
        test_id = new_test()
        [pod] = until(scheduler, api_server.pods)
        api_server.node.bind(pod)
        api_server.node.start(pod)
        scheduler.crash()
        assert scheduler.executor._connection_tests._idle.wait(20)
        return test_id, pod

    def test_pod_of_a_dead_scheduler_that_has_ended_is_removed_and_its_test_fails(
        self, api_server, scheduler, new_scheduler, new_test, monkeypatch
    ):
        test_id, pod = self.leave_behind(scheduler, api_server, new_test)
        api_server.node.finish(pod, 0)
        monkeypatch.setattr("airflow_kubernetes_callbacks.connection_test.LEFTOVER_GRACE", -1.0)
        successor = new_scheduler()
        wait_for_end(successor, api_server)
        assert row_of(test_id).state == "failed"

    def test_pod_of_a_dead_scheduler_that_runs_is_left_to_report(
        self, api_server, scheduler, new_scheduler, new_test
    ):
        test_id, _ = self.leave_behind(scheduler, api_server, new_test)
        successor = new_scheduler()
        until(successor, lambda: successor.executor._connection_tests._sweep_at > 0)
        assert len(api_server.pods()) == 1
        pod_reports(test_id)
        assert row_of(test_id).state == "success"

    def test_pod_of_another_database_is_left_alone(
        self, api_server, scheduler, new_scheduler, new_test, session, monkeypatch
    ):
        test_id, pod = self.leave_behind(scheduler, api_server, new_test)
        api_server.node.finish(pod, 0)
        with create_session(scoped=False) as own:
            own.delete(own.get(ConnectionTestRequest, UUID(test_id)))
        monkeypatch.setattr("airflow_kubernetes_callbacks.connection_test.LEFTOVER_GRACE", -1.0)
        successor = new_scheduler()
        until(successor, lambda: successor.executor._connection_tests._sweep_at > 0)
        assert len(api_server.pods()) == 1
