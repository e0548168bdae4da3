"""Core's own scheduler functions, run for real against the executor and a database.

They pin down what the package rests on: which state core writes for which event, and what it does not
look at. Where a new Airflow behaves differently, the test that fails says what to think over again.
"""

from __future__ import annotations

import gc
import pickle
from datetime import UTC, datetime
from uuid import UUID

import jwt
import pytest
from airflow.executors.workloads import ExecuteCallback
from airflow.models.callback import Callback, CallbackKey
from airflow.models.log import Log
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import KubernetesExecutor as Stock
from airflow.utils.session import create_session
from airflow.utils.state import CallbackState
from sqlalchemy import select

from airflow_kubernetes_callbacks.version_compat import (
    EXECUTION_API_OWNS_RUNNING,
    HAS_WORKLOAD_TYPES,
    queued_callbacks_of,
)
from tests.fakes.scheduler import data_of, delete_row, output_of, state_of

PENDING, QUEUED, RUNNING, SUCCESS, FAILED = "pending", "queued", "running", "success", "failed"


@pytest.fixture
def scheduler(new_scheduler):
    return new_scheduler()


# Handing out ----------------------------------------------------------------------------------------


def test_pending_callback_is_queued_in_the_executor(scheduler, new_callback):
    callback_id = new_callback()
    scheduler.enqueue()
    assert state_of(callback_id) == QUEUED
    [(key, workload)] = queued_callbacks_of(scheduler.executor).items()
    assert key == CallbackKey(callback_id)
    assert isinstance(workload, ExecuteCallback)
    assert workload.callback.data["kwargs"]
    assert workload.log_path == f"executor_callbacks/reports/manual__{workload.log_path.split('__')[1]}"
    assert scheduler.executor.slots_occupied == 1


def test_heartbeat_hands_the_callback_from_the_queue_to_the_running_ones(scheduler, new_callback):
    callback_id = new_callback()
    scheduler.enqueue()
    scheduler.heartbeat()
    assert not queued_callbacks_of(scheduler.executor)
    assert scheduler.running == {callback_id}


@pytest.mark.parametrize("name", ["KubernetesExecutor", "airflow_kubernetes_callbacks.KubernetesExecutor"])
def test_callback_that_names_this_executor_comes_to_it(scheduler, new_callback, name):
    callback_id = new_callback(executor=name)
    scheduler.enqueue()
    assert state_of(callback_id) == QUEUED
    assert CallbackKey(callback_id) in queued_callbacks_of(scheduler.executor)


def test_callback_of_an_executor_that_is_not_there_stays_pending(scheduler, new_callback):
    callback_id = new_callback(executor="CeleryExecutor")
    scheduler.enqueue()
    assert state_of(callback_id) == PENDING
    assert not queued_callbacks_of(scheduler.executor)


def test_callback_whose_dag_run_is_gone_stays_pending(scheduler, new_callback):
    callback_id = new_callback(dag_run_id="4711")
    scheduler.enqueue()
    assert state_of(callback_id) == PENDING


def test_second_scheduler_may_be_handed_the_same_callback(new_scheduler, new_callback):
    """Core takes no row lock: whoever reads the row before the other commits gets it too."""
    first, second = new_scheduler(), new_scheduler()
    callback_id = new_callback()
    with create_session(scoped=False) as one, create_session(scoped=False) as two:
        second_reads = two.get(Callback, UUID(callback_id))
        first.runner._enqueue_executor_callbacks(one)
        one.commit()
        assert second_reads.state == PENDING
        two.expunge_all()
        two.rollback()
    assert CallbackKey(callback_id) in queued_callbacks_of(first.executor)
    assert second.job_id != first.job_id


def test_no_more_callbacks_are_handed_out_than_there_are_slots(new_scheduler, new_callback):
    """F11: parallelism bounds callbacks too (apache/airflow#72048)."""
    scheduler = new_scheduler(CORE__PARALLELISM="2")
    ids = [new_callback() for _ in range(5)]
    scheduler.enqueue()
    scheduler.enqueue()
    assert [state_of(callback_id) for callback_id in ids].count(QUEUED) == 2


def test_stock_executor_raises_into_the_scheduler_loop(new_scheduler, new_callback):
    """The problem that this package solves: the row goes back to PENDING and the scheduler exits."""
    scheduler = new_scheduler(start=False, CORE__EXECUTOR="KubernetesExecutor")
    assert type(scheduler.executor) is Stock
    callback_id = new_callback()
    with pytest.raises(NotImplementedError):
        scheduler.enqueue()
    assert state_of(callback_id) == PENDING


# Taking results -------------------------------------------------------------------------------------


def put(scheduler, callback_id, state, info=None):
    scheduler.executor.event_buffer[CallbackKey(callback_id)] = (state, info)
    scheduler.take_events()


@pytest.fixture
def queued_callback(new_callback):
    return new_callback(state=CallbackState.QUEUED)


def test_success_is_recorded(scheduler, queued_callback):
    put(scheduler, queued_callback, CallbackState.SUCCESS)
    assert state_of(queued_callback) == SUCCESS
    assert scheduler.events == {}


def test_failure_is_recorded_with_its_reason_whole(scheduler, queued_callback):
    reason = "ValueError: kein Kanal „alerts“ 🔔\n" + "x" * 5000
    put(scheduler, queued_callback, CallbackState.FAILED, reason)
    assert (state_of(queued_callback), output_of(queued_callback)) == (FAILED, reason)


def test_failure_without_reason_says_nothing_useful(scheduler, queued_callback):
    put(scheduler, queued_callback, CallbackState.FAILED)
    assert output_of(queued_callback) == "Execution failed"


def test_running_is_recorded_only_where_the_api_does_not_own_it(scheduler, queued_callback):
    put(scheduler, queued_callback, CallbackState.RUNNING)
    assert state_of(queued_callback) == (QUEUED if EXECUTION_API_OWNS_RUNNING else RUNNING)


@pytest.mark.parametrize("state", [CallbackState.SUCCESS, CallbackState.FAILED])
def test_event_of_a_row_that_is_gone_is_dropped(scheduler, queued_callback, state):
    delete_row(queued_callback)
    put(scheduler, queued_callback, state)
    assert scheduler.events == {}


@pytest.mark.skipif(EXECUTION_API_OWNS_RUNNING, reason="Airflow 3.4 drops the event RUNNING")
def test_core_does_not_look_at_the_present_state_so_the_executor_must(scheduler, queued_callback):
    put(scheduler, queued_callback, CallbackState.SUCCESS)
    put(scheduler, queued_callback, CallbackState.RUNNING)
    assert state_of(queued_callback) == RUNNING


def test_event_buffer_is_empty_before_the_commit(scheduler, queued_callback):
    """F1, apache/airflow#69975: a result that the database does not keep is nowhere else."""
    scheduler.executor.event_buffer[CallbackKey(queued_callback)] = (CallbackState.SUCCESS, None)
    scheduler.take_events(commit=False)
    assert scheduler.events == {}
    assert state_of(queued_callback) == QUEUED


def test_state_of_the_event_changes_nothing_else_in_the_row(scheduler, queued_callback):
    before = data_of(queued_callback)
    put(scheduler, queued_callback, CallbackState.SUCCESS)
    assert data_of(queued_callback) == before


def test_audit_log_entry_of_a_callback_is_written(scheduler, new_callback):
    """Airflow 3.3 holds the entries so loosely that they are gone before they are written."""
    new_callback(dag_id="audited", run_id="run-1")
    scheduler.executor._slots.note("callback failed", "audited", "run-1", "why")
    gc.collect()
    with create_session(scoped=False) as session:
        scheduler.runner._process_task_event_logs(scheduler.executor._task_event_logs, session)
    with create_session(scoped=False) as session:
        [entry] = session.scalars(select(Log).where(Log.event == "callback failed"))
        assert (entry.dag_id, entry.run_id, entry.extra) == ("audited", "run-1", "why")


# Keys and tokens ------------------------------------------------------------------------------------


def test_key_survives_pickling_and_equals_no_text():
    """F13, apache/airflow#67268."""
    key = CallbackKey("018f0000-0000-7000-8000-000000000001")
    assert pickle.loads(pickle.dumps(key)) == key
    assert key != str(key)


def test_token_of_a_workload_is_for_its_callback(scheduler, new_callback):
    callback_id = new_callback()
    scheduler.enqueue()
    [workload] = queued_callbacks_of(scheduler.executor).values()
    claims = jwt.decode(workload.token, options={"verify_signature": False})
    assert claims["sub"] == callback_id
    assert claims["scope"] == ("callback" if EXECUTION_API_OWNS_RUNNING else "workload")
    assert claims["exp"] <= datetime.now(UTC).timestamp() + 601


def test_support_of_callbacks_is_declared_as_this_airflow_wants_it(scheduler):
    """F10: one NotImplementedError ends the scheduler (apache/airflow#63491)."""
    if HAS_WORKLOAD_TYPES:
        from airflow.executors.workloads import WorkloadType

        supported = type(scheduler.executor).supported_workload_types
        assert supported >= {WorkloadType.EXECUTE_TASK, WorkloadType.EXECUTE_CALLBACK}
        assert "supports_callbacks" not in vars(type(scheduler.executor))
    else:
        assert type(scheduler.executor).supports_callbacks is True


def test_airflow_tells_whether_the_deployment_has_a_pod_mutation_hook():
    """``settings.pod_mutation_hook`` itself is always there, and calls the hooks that are registered."""
    from airflow.policies import hookimpl
    from airflow.settings import get_policy_plugin_manager

    class LocalSettings:
        @staticmethod
        @hookimpl
        def pod_mutation_hook(pod):
            pod.metadata.namespace = "elsewhere"

    manager = get_policy_plugin_manager()
    assert not manager.hook.pod_mutation_hook.get_hookimpls()
    manager.register(LocalSettings)
    try:
        assert manager.hook.pod_mutation_hook.get_hookimpls()
    finally:
        manager.unregister(LocalSettings)
