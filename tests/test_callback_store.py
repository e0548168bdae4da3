"""Rows of callbacks: whose they are, what they say, and what is written into them."""

from __future__ import annotations

from uuid import UUID

import pytest
from airflow.models.callback import Callback
from airflow.utils import sqlalchemy as core_sqlalchemy
from airflow.utils.session import create_session
from sqlalchemy import event, text
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.orm import Session

from airflow_kubernetes_callbacks.callback_store import CallbackStore
from airflow_kubernetes_callbacks.errors import LaunchError
from airflow_kubernetes_callbacks.routing import ExecutorEntry
from airflow_kubernetes_callbacks.row_data import RECORD_KEY, LaunchRecord, run_number
from airflow_kubernetes_callbacks.situation import RowState
from tests.fakes.life import other_scheduler
from tests.fakes.scheduler import data_of, delete_row, set_row, state_of

OURS = ExecutorEntry("airflow_kubernetes_callbacks.KubernetesExecutor", "KubernetesExecutor")
LOCAL = ExecutorEntry("airflow.executors.local_executor.LocalExecutor", "LocalExecutor")


@pytest.fixture
def store(session):
    return CallbackStore([OURS, LOCAL], OURS, multi_team=False)


def row(store, callback_id, **how):
    return store.rows([callback_id], **how)[callback_id]


@pytest.mark.parametrize(
    ("state", "seen"),
    [
        ("scheduled", RowState.NOT_OURS),
        ("pending", RowState.NOT_OURS),
        ("queued", RowState.QUEUED),
        ("running", RowState.RUNNING),
        ("success", RowState.TERMINAL),
        ("failed", RowState.TERMINAL),
    ],
)
def test_state_of_a_row_of_ours_reads_as(store, new_callback, state, seen):
    assert row(store, new_callback(state=state)).state is seen


@pytest.mark.parametrize("state", ["queued", "running", "success", "failed"])
def test_a21_row_of_another_executor_is_not_ours_in_any_state(store, new_callback, state):
    assert row(store, new_callback(state=state, executor="LocalExecutor")).state is RowState.NOT_OURS


@pytest.mark.parametrize("name", [None, "KubernetesExecutor", OURS.module_path])
def test_row_that_names_us_or_nobody_is_ours(store, new_callback, name):
    assert row(store, new_callback(state="queued", executor=name)).state is RowState.QUEUED


def test_row_that_names_nobody_belongs_to_the_first_executor(session, new_callback):
    store = CallbackStore([LOCAL, OURS], OURS, multi_team=False)
    assert row(store, new_callback(state="queued")).state is RowState.NOT_OURS


def test_row_that_does_not_exist_is_absent(store):
    nobody = "018f0000-0000-7000-8000-00000000ffff"
    assert row(store, nobody).state is RowState.ABSENT
    assert store.rows([]) == {}


def test_more_rows_than_one_query_takes_are_read(store, new_callback):
    real = [new_callback(state="queued") for _ in range(3)]
    asked = [*(f"018f0000-0000-7000-8000-{number:012}" for number in range(1200)), *real]
    found = store.rows(asked)
    assert len(found) == 1203
    assert {found[callback_id].state for callback_id in real} == {RowState.QUEUED}


@pytest.mark.parametrize(
    "record",
    [None, [], "text", {}, {"attempt": "2"}, {"attempt": 0}, {"attempt": -1, "pod": 5}, {"history": "x"}],
    ids=repr,
)
def test_record_that_cannot_be_read_is_none(store, new_callback, record):
    view = row(store, new_callback(state="queued", **{RECORD_KEY: record}))
    assert (view.next_attempt, view.launched_pod, view.history) == (1, None, 0)


def test_record_comes_back_as_it_was_written(store, new_callback):
    callback_id = new_callback(state="queued")
    before = data_of(callback_id)
    store.record_launches([LaunchRecord(callback_id, 2, "airflow/callback-2")])
    view = row(store, callback_id)
    assert (view.next_attempt, view.launched_pod) == (2, "airflow/callback-2")
    assert {key: value for key, value in data_of(callback_id).items() if key != RECORD_KEY} == before


def test_record_of_the_next_attempt_forgets_the_pod_of_the_last(store, new_callback):
    callback_id = new_callback(state="queued")
    store.record_launches([LaunchRecord(callback_id, 1, "airflow/callback-1")])
    store.record_launches([LaunchRecord(callback_id, 2, None)])
    view = row(store, callback_id)
    assert (view.next_attempt, view.launched_pod) == (2, None)


def test_record_keeps_what_a_person_has_left_beside_it(store, new_callback):
    callback_id = new_callback(state="queued", **{RECORD_KEY: {"attempt": 4, "history": 3}})
    store.record_launches([LaunchRecord(callback_id, 5, None)])
    assert (row(store, callback_id).next_attempt, row(store, callback_id).history) == (5, 3)


@pytest.mark.parametrize("state", ["pending", "running", "success", "failed"])
def test_only_queued_rows_are_written_to(store, new_callback, state):
    callback_id = new_callback(state=state)
    before = data_of(callback_id)
    store.record_launches([LaunchRecord(callback_id, 2, None)])
    assert (data_of(callback_id), state_of(callback_id)) == (before, state)


def test_record_of_a_row_that_is_gone_is_dropped(store, new_callback):
    callback_id = new_callback(state="queued")
    delete_row(callback_id)
    store.record_launches([LaunchRecord(callback_id, 2, None)])


@pytest.mark.parametrize("dialect", [postgresql, mysql], ids=["postgresql", "mysql"])
def test_record_does_not_wait_for_a_row_that_is_held(store, new_callback, dialect):
    """apache/airflow#66794: SQLite, on which the tests run, locks no rows."""
    callback_id, asked = new_callback(state="queued"), []

    def note(state):
        asked.append(str(state.statement.compile(dialect=dialect.dialect())))

    event.listen(Session, "do_orm_execute", note)
    try:
        store.record_launches([LaunchRecord(callback_id, 2, None)])
    finally:
        event.remove(Session, "do_orm_execute", note)
    assert [one for one in asked if one.endswith("UPDATE SKIP LOCKED")] == asked
    assert asked


@pytest.mark.parametrize(
    "without",
    [
        pytest.param(("USE_ROW_LEVEL_LOCKING", False), id="switched-off"),
        pytest.param(("get_dialect_name", lambda session: "mysql"), id="mysql-or-mariadb-without-such-locks"),
    ],
)
def test_record_is_written_where_airflow_uses_no_row_locks(store, new_callback, monkeypatch, without):
    """The words for them are an error of syntax on MariaDB before 10.6."""
    callback_id, locks = new_callback(state="queued"), []
    monkeypatch.setattr(core_sqlalchemy, *without)

    def note(state):
        locks.append(state.statement._for_update_arg if state.is_select else None)

    event.listen(Session, "do_orm_execute", note)
    try:
        assert store.record_launches([LaunchRecord(callback_id, 2, None)]) == set()
    finally:
        event.remove(Session, "do_orm_execute", note)
    assert locks == [None] * len(locks)
    assert row(store, callback_id).next_attempt == 2


def test_record_says_whose_rows_are_held_and_writes_the_others(store, new_callback, monkeypatch):
    """As if the database had skipped the row of *held*."""
    held, free = new_callback(state="queued"), new_callback(state="queued")
    over, gone = new_callback(state="running"), new_callback(state="queued")
    delete_row(gone)

    def skip(state):
        if state.is_select and state.statement._for_update_arg is not None:
            state.statement = state.statement.where(Callback.id != UUID(held))

    event.listen(Session, "do_orm_execute", skip)
    try:
        records = [LaunchRecord(one, 2, f"airflow/{one}-2") for one in (held, free, over, gone)]
        assert store.record_launches(records) == {held}
    finally:
        event.remove(Session, "do_orm_execute", skip)
    assert (row(store, held).next_attempt, row(store, free).next_attempt) == (1, 2)
    assert store.record_launches(records) == set()
    assert row(store, held).next_attempt == 2


@pytest.mark.parametrize(
    ("late", "kept"),
    [
        pytest.param((1, "airflow/callback-1"), (2, "airflow/callback-2"), id="earlier-pod"),
        pytest.param((1, None), (2, "airflow/callback-2"), id="earlier-attempt"),
        pytest.param((2, None), (2, "airflow/callback-2"), id="attempt-whose-pod-is-recorded"),
        pytest.param((3, None), (3, None), id="next-attempt"),
    ],
)
def test_record_of_a_scheduler_that_hung_winds_nothing_back(store, new_callback, late, kept):
    callback_id = new_callback(state="queued")
    store.record_launches([LaunchRecord(callback_id, 2, "airflow/callback-2")])
    store.record_launches([LaunchRecord(callback_id, *late)])
    view = row(store, callback_id)
    assert (view.next_attempt, view.launched_pod) == kept


def test_end_that_is_recorded_beside_an_active_state_is_told(store, new_callback):
    """A person cancelled it, and core wrote over the state."""
    callback_id = new_callback(state="queued")
    set_row(callback_id, output="cancelled by a person")
    assert row(store, callback_id).recorded_end == "cancelled by a person"
    assert row(store, callback_id, with_live_pod=[callback_id]).recorded_end == "cancelled by a person"


def test_state_is_read_anew_though_data_is_not(store, new_callback):
    callback_id = new_callback(state="queued")
    row(store, callback_id)
    for state, seen in (("running", RowState.RUNNING), ("success", RowState.TERMINAL)):
        set_row(callback_id, state=state)
        assert row(store, callback_id, with_live_pod=[callback_id]).state is seen
    delete_row(callback_id)
    assert row(store, callback_id, with_live_pod=[callback_id]).state is RowState.ABSENT


def test_active_states_are_those_of_executor_callbacks(store, new_callback):
    active = {state: new_callback(state=state) for state in ("queued", "running")}
    others = new_callback(state="queued", executor="LocalExecutor")
    for state in ("pending", "success", "failed"):
        new_callback(state=state)
    assert store.active_states() == {
        active["queued"]: RowState.QUEUED,
        active["running"]: RowState.RUNNING,
        others: RowState.QUEUED,
    }


@pytest.mark.parametrize(("age", "alive"), [(0, True), (25, True), (31, False), (3600, False)])
def test_scheduler_is_alive_while_its_heartbeat_is_recent(store, age, alive):
    job_id = other_scheduler(age)
    assert (job_id in store.alive_schedulers()) is alive


def test_workload_is_made_anew_with_what_the_row_says(store, new_callback):
    callback_id = new_callback(state="queued", run_id="manual__2026-06-07T01:50:23+00:00")
    workload = store.make_workload(callback_id, None)
    assert workload.callback.id == callback_id
    assert workload.log_path.endswith(f"reports/manual__2026-06-07T01:50:23+00:00/{callback_id}")


@pytest.mark.parametrize("run", ["4711", None])
def test_f4_workload_without_dag_run_is_an_error_that_names_it(store, new_callback, run):
    callback_id = new_callback(state="queued", dag_run_id=run)
    with pytest.raises(LaunchError, match=f"Dag run.*{run}"):
        store.make_workload(callback_id, None)


def test_workload_of_a_row_that_is_gone_is_an_error(store, new_callback):
    callback_id = new_callback(state="queued")
    delete_row(callback_id)
    with pytest.raises(LaunchError, match="row was deleted"):
        store.make_workload(callback_id, None)


def test_g10_reads_take_no_locks_and_leave_the_schedulers_own_transaction_alone(store, new_callback):
    """apache/airflow#67813: a scoped session would be the scheduler's, and its commit too."""
    from airflow import settings

    callback_id = new_callback(state="queued")
    own = settings.Session()
    changed = own.get(Callback, UUID(callback_id))
    changed.output = "not committed"
    statements = []

    def note(connection, cursor, statement, *rest):
        statements.append(statement)

    engine = settings.engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        with own.no_autoflush:
            store.rows([callback_id])
            store.active_states()
            store.alive_schedulers()
    finally:
        event.remove(engine, "before_cursor_execute", note)
    assert statements
    assert not [one for one in statements if "FOR UPDATE" in one or not one.lstrip().startswith("SELECT")]
    assert changed in own.dirty
    own.rollback()
    with create_session(scoped=False) as fresh:
        assert fresh.get(Callback, UUID(callback_id)).output is None


def test_team_of_a_dag_is_looked_up_once_until_it_is_forgotten(session, new_callback, monkeypatch):
    from airflow.models.dag import DagModel

    asked = []
    monkeypatch.setattr(DagModel, "get_team_name", lambda dag_id, session: asked.append(dag_id) or "a")
    team = ExecutorEntry("airflow_kubernetes_callbacks.KubernetesExecutor", "pods", "a")
    store = CallbackStore([LOCAL, team], team, multi_team=True)
    callback_id = new_callback(state="queued")
    assert row(store, callback_id).state is row(store, callback_id).state is RowState.QUEUED
    assert asked == ["reports"]
    store.forget_teams()
    row(store, callback_id)
    assert asked == ["reports", "reports"]


# Rows that are not as they should be ---------------------------------------------------------------


def spoil(callback_id, data):
    """Write *data*, JSON text, past every check."""
    with create_session() as session:
        session.execute(
            text("UPDATE callback SET data = :data WHERE id = :id"),
            {"data": data, "id": UUID(callback_id).hex},
        )


@pytest.mark.parametrize("data", ["[]", "null", '"text"'])
def test_row_with_odd_data_is_read_as_one_that_says_nothing(store, new_callback, data):
    callback_id = new_callback(state="queued")
    spoil(callback_id, data)
    found = row(store, callback_id)
    assert (found.state, found.next_attempt, found.launched_pod) == (RowState.QUEUED, 1, None)
    store.record_launches([LaunchRecord(callback_id, 2, None)])


def test_row_that_cannot_be_decoded_hides_no_other_and_is_not_taken_for_a_deleted_one(
    store, new_callback, caplog
):
    good, bad = new_callback(state="queued"), new_callback(state="queued")
    spoil(bad, "{this is no JSON")
    found = store.rows([good, bad])
    assert found[good].state is RowState.QUEUED
    assert found[bad].state is RowState.NOT_OURS
    assert bad in caplog.text
    assert set(store.active_states()) >= {good, bad}


def test_row_that_cannot_be_decoded_keeps_no_other_from_its_record(store, new_callback, caplog):
    good, bad = new_callback(state="queued"), new_callback(state="queued")
    spoil(bad, "{this is no JSON")
    store.record_launches([LaunchRecord(bad, 2, None), LaunchRecord(good, 3, "airflow/x")])
    assert data_of(good)[RECORD_KEY] == {"attempt": 3, "pod": "airflow/x"}
    assert bad in caplog.text


def test_namespaces_are_told_from_the_data(session, new_callback):
    store = CallbackStore(
        [OURS], OURS, multi_team=False, namespace_of=lambda data: f"of {data.get('path', '?')}"
    )
    one, odd = new_callback(state="queued"), new_callback(state="queued")
    spoil(odd, "[]")
    assert store.namespaces([one, odd]) == {one: f"of {data_of(one)['path']}", odd: None}


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("17", 17),
        (17, 17),
        ("9" * 5000, None),
        ("9" * 19, None),
        ("-1", None),
        (None, None),
        ([], None),
        ("x", None),
    ],
)
def test_number_of_a_dag_run_that_no_database_has_spoils_no_query(number, expected):
    assert run_number({"dag_run_id": number}) == expected
