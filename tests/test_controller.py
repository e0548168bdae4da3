"""What the controller does with decisions, answers and comparisons, step by step in a world in memory.

The scenarios at the end are walks that :mod:`tests.test_random_walk` once failed on.
"""

from __future__ import annotations

import contextlib
import itertools
import logging

import pytest

from airflow_kubernetes_callbacks.identity import DONE_LABEL
from airflow_kubernetes_callbacks.row_data import RECORD_KEY
from airflow_kubernetes_callbacks.situation import RowState
from airflow_kubernetes_callbacks.watcher import view_from_plain
from tests.fakes.objects import ApiStatusError
from tests.fakes.world import FAILED, QUEUED, RUNNING, SUCCESS, World
from tests.test_random_walk import SETTINGS, at_rest, rest


@pytest.fixture
def make_world():
    made = []

    def make(*kinds, schedulers=1, **options):
        world = World(SETTINGS, **{"api_owns_running": False, **options})
        made.append(world)
        for _ in range(schedulers):
            world.add_scheduler()
        for kind in kinds:
            world.add_callback(kind)
        return world

    yield make
    for world in made:
        world.close()


def turn(world, scheduler=None, *, work=True):
    """One round of the loop, and the requests that it leads to."""
    scheduler = scheduler or world.schedulers[0]
    scheduler.watch()
    scheduler.heartbeat()
    scheduler.record(scheduler.drain())
    scheduler.hand_out()
    scheduler.commit_hand_out()
    if work:
        scheduler.do_all_work()


def until_pod(world, scheduler=None):
    for _ in range(5):
        turn(world, scheduler)
        if pods := world.pods():
            return pods[0]
    raise AssertionError("no pod was created")


def only_row(world):
    [row] = world.database.rows.values()
    return row


def run_to_the_end(world, pod):
    for _ in range(3):
        world.progress(world.store.get("pods", "airflow", pod["metadata"]["name"]))


# Requests and their answers -------------------------------------------------------------------------


def test_callback_is_not_looked_at_while_a_request_about_it_is_under_way(make_world):
    world = make_world("succeeds")
    scheduler = world.schedulers[0]
    turn(world)
    turn(world, work=False)
    assert len(scheduler.work) == 1
    for _ in range(5):
        turn(world, work=False)
    assert len(scheduler.work) == 1


@pytest.mark.parametrize("fault", ["lost before", "lost after", "500", "429"])
def test_request_that_fails_is_made_again(make_world, fault):
    world = make_world("succeeds")
    pod = until_pod(world)
    run_to_the_end(world, pod)
    scheduler = world.schedulers[0]
    for _ in range(6):
        turn(world, work=False)
        while scheduler.work:
            deletes = only_row(world).state == SUCCESS
            scheduler.do_work(0, [fault] if deletes else [])
            if deletes:
                break
    assert only_row(world).state == SUCCESS
    rest(world)
    world.check_end()


def try_to_create(world, faults):
    """Turn the loop until the request that creates the pod was made with these faults, one each."""
    scheduler = world.schedulers[0]
    for fault in faults:
        for _ in range(40):
            world.clock.now += 5
            turn(world, work=False)
            if scheduler.work:
                # a comparison may be under way too: it is made without faults
                of_launches = scheduler.requests._launches._pool
                launches = [i for i, (pool, _) in enumerate(scheduler.work) if pool is of_launches]
                if launches:
                    scheduler.do_work(launches[0], [fault])
                    break
                scheduler.do_all_work()
        else:
            raise AssertionError("nothing was asked of the API server")


def test_pod_that_was_created_though_no_try_was_answered_is_found_before_anything_is_reported(make_world):
    world = make_world("succeeds")
    scheduler = world.schedulers[0]
    try_to_create(world, ["lost before", "lost before", "lost before", "lost after"])
    scheduler.watch(lose=True)
    for _ in range(3):
        turn(world, work=False)
    assert scheduler.executor.event_buffer == {}
    assert only_row(world).state == QUEUED
    run_to_the_end(world, world.pods()[0])
    rest(world)
    assert only_row(world).state == SUCCESS


def test_callback_whose_pod_cannot_be_created_in_all_tries_fails_once_a_list_shows_none(make_world):
    world = make_world("succeeds")
    try_to_create(world, ["lost before", "429", "500", "lost before"])
    turn(world, work=False)
    assert only_row(world).state == QUEUED
    rest(world)
    assert only_row(world).state == FAILED
    assert "could not be created in 4 tries" in only_row(world).output


def test_callback_whose_pod_was_never_asked_for_fails_without_a_list(make_world):
    """An API server that cannot be reached cannot be listed either, and cannot have created anything."""
    world = make_world("succeeds")
    try_to_create(world, ["no connection"] * 4)
    turn(world, work=False)
    turn(world, work=False)
    assert only_row(world).state == FAILED
    assert "could not be created in 4 tries" in only_row(world).output


def test_callback_that_was_cancelled_while_its_launch_was_refused_stays_cancelled(make_world):
    world = make_world("refused")
    scheduler = world.schedulers[0]
    for _ in range(3):
        turn(world, work=False)
    row = only_row(world)
    assert row.state == QUEUED
    assert scheduler.work
    row.state, row.output = FAILED, "Cancelled by somebody"
    scheduler.do_all_work()
    rest(world)
    assert (row.state, row.output) == (FAILED, "Cancelled by somebody")


def test_node_that_never_confirms_a_deletion_is_given_up(make_world):
    world = make_world("succeeds")
    pod = until_pod(world)
    world.progress(pod)
    world.progress(world.store.get("pods", "airflow", pod["metadata"]["name"]))
    turn(world)
    assert only_row(world).state == RUNNING
    world.delete_from_outside(pod, force=False)
    for _ in range(60):
        world.clock.now += 10
        turn(world)
    assert only_row(world).state == FAILED
    assert "has not confirmed that" in only_row(world).output


def test_pod_that_a_queue_holds_without_a_node_does_not_keep_its_callback_from_being_launched_again(
    make_world,
):
    world = make_world("succeeds")
    pod = until_pod(world)
    name = pod["metadata"]["name"]
    world.store.update(
        "pods",
        "airflow",
        name,
        lambda document: document["metadata"].update(finalizers=["kueue.x-k8s.io/managed"]),
    )
    for _ in range(30):
        world.clock.now += 5
        turn(world)
        if len(world.pods()) == 2:
            break
    held, second = sorted(world.pods(), key=lambda one: one["metadata"]["name"])
    assert held["metadata"]["name"] == name
    assert "deletionTimestamp" in held["metadata"]
    run_to_the_end(world, second)
    for _ in range(5):
        turn(world)
    assert only_row(world).state == SUCCESS
    assert [one["metadata"]["name"] for one in world.pods()] == [name]


@pytest.mark.parametrize("sidecar", ["never ends", "ends after a while"])
def test_kept_pod_is_deleted_if_a_sidecar_goes_on_running(make_world, sidecar):
    world = make_world("raises")
    pod = until_pod(world)
    run_to_the_end(world, pod)
    name = pod["metadata"]["name"]
    world.store.update("pods", "airflow", name, lambda document: beside_base(document, "Running", "running"))
    for _ in range(5):
        turn(world)
        world.clock.now += 1
    assert only_row(world).state == FAILED
    [kept] = world.pods()
    assert DONE_LABEL not in kept["metadata"]["labels"]
    assert "deletionTimestamp" not in kept["metadata"]
    if sidecar == "ends after a while":
        world.store.update(
            "pods", "airflow", name, lambda document: beside_base(document, "Failed", "terminated")
        )
    for _ in range(4):
        world.clock.now += 10
        turn(world)
    [kept] = world.pods()
    deleted = "deletionTimestamp" in kept["metadata"]
    assert deleted == (sidecar == "never ends")
    assert (kept["metadata"]["labels"].get(DONE_LABEL) == "True") == (not deleted)


def beside_base(document, phase, state):
    """A container beside the base one is in this state, and the pod in this phase."""
    base = document["status"]["containerStatuses"][0]
    document["status"].update(
        phase=phase, containerStatuses=[base, {"name": "sidecar", "state": {state: {}}}]
    )


def test_stop_drops_what_has_not_begun(make_world):
    world = make_world("succeeds")
    scheduler = world.schedulers[0]
    turn(world)
    turn(world, work=False)
    scheduler.controller.stop()
    assert scheduler.work == []
    turn(world)
    assert world.pods() == []


# The database ---------------------------------------------------------------------------------------


def test_tick_without_database_changes_nothing_and_forgets_nothing(make_world):
    world = make_world("succeeds")
    pod = until_pod(world)
    run_to_the_end(world, pod)
    scheduler = world.schedulers[0]
    world.database.broken = 50
    for _ in range(3):
        scheduler.watch()
        scheduler.heartbeat()
        scheduler.do_all_work()
    assert scheduler.executor.event_buffer == {}
    world.database.broken = 0
    for _ in range(3):
        turn(world)
    assert only_row(world).state == SUCCESS


def test_next_attempt_is_recorded_before_the_pod_is_deleted(make_world):
    world = make_world("never_starts")
    scheduler = world.schedulers[0]
    world.reject(until_pod(world))
    scheduler.watch()
    turn(world, work=False)
    for _ in range(3):
        if not scheduler.work:
            turn(world, work=False)
        record = only_row(world).data.get("kubernetes_pod", {})
        if scheduler.work and record.get("attempt") == 2:
            break
    assert only_row(world).data["kubernetes_pod"]["attempt"] == 2
    assert [pod["metadata"]["name"][-1] for pod in world.pods()] == ["1"]


def test_pod_is_kept_while_its_next_attempt_cannot_be_recorded(make_world):
    world = make_world("never_starts")
    scheduler = world.schedulers[0]
    world.reject(until_pod(world))
    scheduler.watch()
    for _ in range(10):
        scheduler.heartbeat()
        world.database.broken = 0
        scheduler.heartbeat()
        world.database.broken = 2
        scheduler.do_all_work()
    world.database.broken = 0
    rest(world)
    world.check_end()


# Comparisons ----------------------------------------------------------------------------------------


def test_pod_that_nobody_owns_here_is_named_once(make_world, caplog):
    world = make_world("succeeds")
    pod = until_pod(world)
    only_row(world).deleted = True
    world.schedulers[0].crash()
    world.schedulers[0].forget()
    second = world.add_scheduler()
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            world.clock.now += SETTINGS.reconcile_interval + 1
            turn(world, second)
    assert [pod["metadata"]["name"]] == [left["metadata"]["name"] for left in world.pods()]
    assert sum("left alone" in record.message for record in caplog.records) == 1


def test_comparison_is_made_once_per_interval(make_world):
    world = make_world()
    scheduler = world.schedulers[0]
    turn(world)
    for _ in range(5):
        turn(world, work=False)
    assert scheduler.work == []
    world.clock.now += SETTINGS.reconcile_interval
    turn(world, work=False)
    assert len(scheduler.work) == 1


def test_comparison_that_is_under_way_is_not_begun_again(make_world):
    world = make_world()
    scheduler = world.schedulers[0]
    for _ in range(5):
        world.clock.now += SETTINGS.reconcile_interval + 1
        scheduler.controller.resync()
        turn(world, work=False)
    assert len(scheduler.work) == 1


def test_list_that_fails_says_nothing_about_absence(make_world):
    world = make_world("succeeds")
    pod = until_pod(world)
    world.progress(pod)
    world.progress(world.store.get("pods", "airflow", pod["metadata"]["name"]))
    scheduler = world.schedulers[0]
    for _ in range(3):
        world.clock.now += SETTINGS.reconcile_interval + 1
        turn(world, work=False)
        scheduler.do_work(0, ["500"])
    turn(world)
    assert only_row(world).state == RUNNING


def run(world):
    """Have the pod of the only callback run, and forget what the watch has told; return the pod."""
    pod = until_pod(world)
    for _ in range(2):
        world.progress(world.store.get("pods", "airflow", pod["metadata"]["name"]))
    turn(world)
    assert only_row(world).state == RUNNING
    return pod


def compare_unwatched(world, turns=3):
    """Have everything compared, and nothing told by the watch."""
    world.clock.now += SETTINGS.reconcile_interval + 1
    for _ in range(turns):
        world.schedulers[0].watch(lose=True)
        turn(world)


@pytest.mark.parametrize("key", ["airflow-workload-type", "callback-id", "callback-attempt", "callback_id"])
@pytest.mark.parametrize("api_owns_running", [False, True])
def test_running_pod_that_loses_what_lists_find_it_by_is_followed_to_its_end(
    make_world, key, api_owns_running
):
    """B2, B8: it is read by its name at every comparison, and deleted in the end."""
    world = make_world("succeeds", api_owns_running=api_owns_running)
    pod = run(world)
    name, row = pod["metadata"]["name"], only_row(world)
    keys = "annotations" if key == "callback_id" else "labels"
    world.store.update("pods", "airflow", name, lambda found: found["metadata"][keys].pop(key))
    for _ in range(3):
        compare_unwatched(world)
        assert (row.state, len(world.schedulers[0].executor.running)) == (RUNNING, 1)
    world.progress(world.store.get("pods", "airflow", name))
    compare_unwatched(world)
    assert row.state == SUCCESS
    compare_unwatched(world)
    assert [left for left in world.pods() if not left["metadata"].get("deletionTimestamp")] == []
    assert world.schedulers[0].executor.running == set()


def test_pod_that_vanished_unseen_is_settled_within_two_heartbeats_of_the_list(make_world):
    world = make_world("succeeds")
    world.delete_from_outside(run(world), force=True)
    compare_unwatched(world, turns=1)
    for _ in range(2):
        assert only_row(world).state == RUNNING
        turn(world)
    assert only_row(world).state == FAILED
    assert "disappeared while running" in only_row(world).output


@pytest.mark.parametrize("answer", ["404", "500", "429", "lost before"])
def test_pod_that_may_be_there_is_not_taken_for_gone(make_world, answer):
    """Nor by a 404 that is a proxy's; the question is put again."""
    world = make_world("succeeds")
    run(world)
    world.delete_from_outside(world.pods()[0], force=True)
    compare_unwatched(world, turns=1)
    turn(world, work=False)
    world.schedulers[0].do_work(0, [answer])
    for _ in range(3):
        turn(world, work=False)
    assert only_row(world).state == RUNNING
    assert world.schedulers[0].work == []
    world.clock.now += 2
    for _ in range(2):
        turn(world)
    assert only_row(world).state == FAILED


def test_pods_that_a_sibling_has_deleted_cost_no_requests(make_world):
    world = make_world("succeeds", "raises", "succeeds", schedulers=2)
    first, second = world.schedulers
    for _ in range(2):
        turn(world, first)
    second.controller.resync()
    for _ in range(2):
        turn(world, second)
    assert len(second.controller.cache) == 3
    for _ in range(8):
        for pod in world.pods(done=False):
            world.progress(world.store.get("pods", "airflow", pod["metadata"]["name"]))
        turn(world, first)
    world.clock.now += SETTINGS.reconcile_interval + 1
    turn(world, second)
    turn(world, second, work=False)
    assert second.work == []
    assert len(second.controller.cache) == 0


# Pods that lists do not have, and of which nothing is known ------------------------------------------

LISTS_FIND_IT_BY = ("airflow-worker", "airflow-workload-type", "callback-id", "callback-attempt")


def take_off(world, pod, *keys):
    """Somebody takes these labels off a pod; without any: all labels and annotations."""

    def change(found):
        for key in keys or LISTS_FIND_IT_BY:
            found["metadata"]["labels"].pop(key, None)
        if not keys:
            del found["metadata"]["annotations"]

    world.store.update("pods", "airflow", pod["metadata"]["name"], change)


def after_a_crash(world):
    """Return the scheduler that comes after the one that crashed, and what it reads by name."""
    first = world.schedulers[-1]
    first.crash()
    first.forget()
    scheduler, reads = world.add_scheduler(), []
    read = scheduler.api.read_namespaced_pod

    def counted(name, namespace, **kwargs):
        reads.append(name)
        return read(name, namespace, **kwargs)

    scheduler.api.read_namespaced_pod = counted
    return scheduler, reads


def creations(world):
    return [c for c in world.store._history if c.kind == "ADDED" and c.plural == "pods"]


@pytest.mark.parametrize("kind", ["succeeds", "raises"])
@pytest.mark.parametrize("stage", ["running", "ended"])
@pytest.mark.parametrize(
    ("keys", "api_owns_running"),
    [
        pytest.param(("airflow-workload-type",), False, id="one-label"),
        pytest.param(("airflow-workload-type",), True, id="one-label-and-no-record"),
        pytest.param(LISTS_FIND_IT_BY, False, id="every-label"),
        pytest.param(LISTS_FIND_IT_BY, True, id="every-label-and-no-record"),
        pytest.param((), False, id="labels-and-annotations"),
    ],
)
def test_pod_that_lost_its_labels_is_found_by_its_name_after_a_restart(
    make_world, keys, stage, kind, api_owns_running
):
    world = make_world(kind, api_owns_running=api_owns_running)
    pod = run(world)
    scheduler, reads = after_a_crash(world)
    take_off(world, pod, *keys)
    if stage == "ended":
        run_to_the_end(world, pod)
    for _ in range(4):
        turn(world, scheduler)
    assert reads[0] == pod["metadata"]["name"]
    if stage == "running":
        assert slots_of(world, only_row(world)) == [scheduler.me]
        for _ in range(3):
            world.clock.now += SETTINGS.reconcile_interval + 1
            turn(world, scheduler)
            turn(world, scheduler)
        assert only_row(world).state == RUNNING
    rest(world)
    world.check_end()
    assert only_row(world).state == (SUCCESS if kind == "succeeds" else FAILED)
    assert len(only_row(world).runs) == len(creations(world)) == 1


def test_pod_that_lost_its_labels_before_it_began_is_found_by_its_name_after_a_restart(make_world):
    """The row has the record that it was created; on Airflow 3.4 its name is taken, which tells as much."""
    world = make_world("succeeds")
    pod = until_pod(world)
    turn(world)
    assert "pod" in only_row(world).data[RECORD_KEY]
    _, reads = after_a_crash(world)
    take_off(world, pod)
    rest(world)
    world.check_end()
    assert reads
    assert only_row(world).state == SUCCESS
    assert len(only_row(world).runs) == len(creations(world)) == 1


@pytest.mark.parametrize("api_owns_running", [False, True])
@pytest.mark.parametrize("stage", ["waits", "running", "ended"])
def test_pod_that_was_to_make_way_for_the_next_is_found_by_its_name_before_that_one_is_launched(
    make_world, stage, api_owns_running
):
    """Its deletion was recorded in the row and not made; it lost its labels, and began after all."""
    world = make_world("succeeds", api_owns_running=api_owns_running)
    pod = until_pod(world)
    turn(world)
    world.clock.now += SETTINGS.pending_timeout + 1
    turn(world)
    turn(world, work=False)
    assert only_row(world).data[RECORD_KEY] == {"attempt": 2}
    _, reads = after_a_crash(world)
    take_off(world, pod, *LISTS_FIND_IT_BY)
    for _ in range({"waits": 0, "running": 2, "ended": 3}[stage]):
        world.progress(world.store.get("pods", "airflow", pod["metadata"]["name"]))
    rest(world)
    world.check_end()
    assert pod["metadata"]["name"] in reads
    assert only_row(world).state == SUCCESS
    assert len(only_row(world).runs) == 1


@pytest.mark.parametrize("api_owns_running", [False, True])
def test_nobodys_pod_that_has_a_name_of_ours_is_not_taken_for_the_one_that_was_to_make_way(
    make_world, api_owns_running
):
    """The launch went on to the next name, and the scheduler died before it made that one."""
    world = make_world("succeeds", api_owns_running=api_owns_running)
    name = f"callback-{only_row(world).callback_id}-1"
    foreign = {"metadata": {"name": name, "namespace": "airflow"}, "spec": {"containers": [{"name": "base"}]}}
    world.store.create("pods", "airflow", foreign)
    only_row(world).state, only_row(world).data = QUEUED, {RECORD_KEY: {"attempt": 2}}
    _, reads = after_a_crash(world)
    for _ in range(4):
        turn(world, world.schedulers[-1])
    assert name in reads
    assert [pod["metadata"]["name"][-1] for pod in world.pods()] == ["1", "2"]


def until_it_is_looked_for(world, scheduler):
    """Turn the loop until nothing but the look at the pod by its name is to be done."""
    turn(world, scheduler)
    turn(world, scheduler, work=False)
    assert len(scheduler.work) == 1


@pytest.mark.parametrize("api_owns_running", [False, True])
def test_pod_that_is_not_there_by_its_name_either_is_lost_and_asked_for_once(make_world, api_owns_running):
    world = make_world("succeeds", api_owns_running=api_owns_running)
    world.delete_from_outside(run(world), force=True)
    scheduler, reads = after_a_crash(world)
    for _ in range(4):
        turn(world, scheduler)
    assert only_row(world).state == FAILED
    assert "disappeared while running" in only_row(world).output
    assert len(reads) == len(creations(world)) == 1


@pytest.mark.parametrize("answer", ["404", "500", "429", "lost before"])
def test_nothing_is_concluded_from_a_look_by_name_that_fails_for_now(make_world, answer):
    """A 404 without a Status is a proxy's."""
    world = make_world("succeeds")
    pod = run(world)
    scheduler, _ = after_a_crash(world)
    take_off(world, pod)
    until_it_is_looked_for(world, scheduler)
    scheduler.do_work(0, [answer])
    for _ in range(3):
        turn(world, scheduler, work=False)
    assert (scheduler.work, only_row(world).state) == ([], RUNNING)
    rest(world)
    world.check_end()
    assert only_row(world).state == SUCCESS
    assert len(creations(world)) == 1


def test_pod_that_may_not_be_read_by_its_name_is_lost(make_world):
    world = make_world("succeeds")
    pod = run(world)
    only_row(world).disturbed = True
    scheduler, _ = after_a_crash(world)
    take_off(world, pod)
    until_it_is_looked_for(world, scheduler)
    scheduler.do_work(0, ["403"])
    turn(world, scheduler, work=False)
    assert only_row(world).state == FAILED
    assert "disappeared while running" in only_row(world).output


def test_pods_that_are_listed_are_not_read_by_their_names_after_a_restart(make_world):
    world = make_world("succeeds", "raises", "succeeds", parallelism=5)
    until_pod(world)
    for _ in range(2):
        turn(world)
    run_to_the_end(world, world.pods()[0])
    scheduler, _ = after_a_crash(world)
    scheduler.requests.find = lambda *place: pytest.fail(f"looks for {place}")
    world.add_callback("succeeds")
    rest(world)
    world.check_end()


# Reports --------------------------------------------------------------------------------------------


def test_f1_report_that_is_lost_is_made_again_but_not_at_every_heartbeat(make_world):
    """After growing pauses, and with every comparison."""
    world = make_world("succeeds")
    run_to_the_end(world, until_pod(world))
    scheduler = world.schedulers[0]
    begin, moments = world.clock.now, []
    for _ in range(120):
        scheduler.watch()
        scheduler.heartbeat()
        if scheduler.drain():
            moments.append(world.clock.now - begin)
        scheduler.do_all_work()
        world.clock.now += 1
    pauses = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert 10 <= len(moments) <= 35
    assert max(pauses) <= SETTINGS.reconcile_interval + 1
    assert world.pods()


def test_row_that_is_terminal_gets_no_further_event(make_world):
    world = make_world("succeeds")
    run_to_the_end(world, until_pod(world))
    scheduler = world.schedulers[0]
    for _ in range(3):
        turn(world, work=False)
    assert only_row(world).state == SUCCESS
    for _ in range(5):
        scheduler.heartbeat()
        assert scheduler.executor.event_buffer == {}


# What is wrong with one callback --------------------------------------------------------------------


def test_callback_of_another_scheduler_that_ends_unseen_is_forgotten(make_world):
    """It was looked at while its pod was not known here; nothing else would ever look at it again."""
    world = make_world(schedulers=2)
    first, second = world.schedulers
    for _ in range(3):
        world.add_callback("succeeds")
        first.hand_out()
        first.commit_hand_out()
        second.controller.resync()
        second.heartbeat()
        for _ in range(8):
            turn(world, first)
            for pod in world.pods():
                world.progress(pod)
        second.do_all_work()
        world.clock.now += SETTINGS.reconcile_interval + 1
    for _ in range(3):
        world.clock.now += SETTINGS.reconcile_interval + 1
        turn(world, second)
    assert second.controller.cache._tracks == {}


@pytest.mark.parametrize(
    ("part", "method"),
    [(lambda c: c, "_decide"), (lambda c: c._actor, "act")],
    ids=["while it is decided", "while that is carried out"],
)
def test_error_about_one_callback_does_not_reach_the_others(make_world, monkeypatch, part, method):
    world = make_world("succeeds", "succeeds", "succeeds")
    faulty = part(world.schedulers[0].controller)
    unlucky = next(iter(world.database.rows))
    real = getattr(faulty, method)

    def failing(callback_id, *args):
        if callback_id == unlucky and world.clock.now < 1_800_000_005.0:
            raise KeyError("nobody expected this")
        return real(callback_id, *args)

    monkeypatch.setattr(faulty, method, failing)
    for _ in range(3):
        turn(world)
    assert len(world.pods()) == 2
    world.clock.now += 20
    for _ in range(3):
        turn(world)
    assert len(world.pods()) == 3


def test_request_that_fails_is_not_made_at_every_heartbeat(make_world):
    world = make_world("succeeds")
    scheduler = world.schedulers[0]
    pod = until_pod(world)
    run_to_the_end(world, pod)
    tries = 0
    for _ in range(60):
        turn(world, work=False)
        while scheduler.work:
            deletes = only_row(world).state == SUCCESS and scheduler.work[0][0] is scheduler.requests._pool
            tries += deletes
            scheduler.do_work(0, ["403"] if deletes else [])
        world.clock.now += 1
    assert 4 <= tries <= 9
    world.clock.now += 61
    rest(world)
    world.check_end()


# What may not be done, and clocks -------------------------------------------------------------------


def all_take_turns(world, rounds=1, *, nodes=True):
    for _ in range(rounds):
        for scheduler in world.schedulers:
            if scheduler.alive:
                turn(world, scheduler)
        for pod in world.pods():
            if nodes and not world.runs(pod):
                world.progress(pod)
        world.clock.now += SETTINGS.reconcile_interval + 1


def slots_of(world, row):
    return [
        s.me for s in world.schedulers if s.alive and row.callback_id in {k.id for k in s.executor.running}
    ]


@pytest.mark.parametrize("api_owns_running", [False, True])
@pytest.mark.parametrize("stage", ["pending", "running", "ended"])
@pytest.mark.parametrize("kind", ["succeeds", "raises"])
def test_pod_that_nobody_may_adopt_takes_one_slot_and_its_result_is_recorded(
    make_world, kind, stage, api_owns_running
):
    world = make_world(kind, schedulers=3, api_owns_running=api_owns_running)
    first = world.schedulers[0]
    pod = until_pod(world, first)
    for _ in range({"pending": 0, "running": 2, "ended": 3}[stage]):
        world.progress(world.store.get("pods", "airflow", pod["metadata"]["name"]))
    first.crash()
    first.forget()
    world.forbidden.add("patch")
    all_take_turns(world, 6)
    if stage != "ended":
        assert slots_of(world, only_row(world)) == ["2"]
        assert only_row(world).state == RUNNING
        # the eldest goes too
        world.schedulers[1].crash()
        world.schedulers[1].forget()
        all_take_turns(world, 3)
        assert slots_of(world, only_row(world)) == ["3"]
    rest(world)
    world.check_end()
    assert only_row(world).state == (SUCCESS if kind == "succeeds" else FAILED)
    assert len(only_row(world).runs) == 1


@pytest.mark.parametrize("finalizer", [False, True])
def test_pod_that_does_not_start_and_may_not_be_deleted_fails_its_callback(make_world, finalizer, caplog):
    world = make_world("never_starts", finalizer=finalizer)
    world.forbidden.add("delete")
    logging.getLogger("airflow_kubernetes_callbacks").setLevel(logging.INFO)
    with caplog.at_level(logging.INFO):
        all_take_turns(world, 12)
    row = only_row(world)
    assert row.state == FAILED
    assert "ErrImagePull" in row.output
    assert 'cannot delete resource "pods"' in row.output
    assert "still there and may start" in row.output
    assert slots_of(world, row) == []
    assert len(world.pods()) == 1
    assert len([r for r in caplog.records if r.getMessage().startswith("Deleting pod")]) <= 2
    rest(world)  # which grants it
    world.check_end()
    assert world.pods() == []


def test_permission_to_delete_that_is_missed_once_ends_no_callback(make_world):
    """kubernetes/kubernetes#121635: an API server that has just started."""
    world = make_world("never_starts")
    world.forbidden.add("delete")
    until_pod(world)
    track = world.schedulers[0].controller.cache.track(only_row(world).callback_id)
    while not track.refused_since:
        turn(world)
        world.clock.now += 1
    assert (only_row(world).state, track.denied) == ("queued", {})
    world.forbidden.clear()
    rest(world)
    world.check_end()
    assert "launched" in only_row(world).output
    assert "cannot delete" not in only_row(world).output


@pytest.mark.parametrize("skew", [360.0, -360.0])
def test_pod_waits_as_long_as_it_may_whatever_the_api_servers_clock_says(make_world, skew):
    world = make_world("never_starts", skew=skew)
    until_pod(world)
    begin = world.clock.now
    while world.pods():
        world.clock.now += 1
        turn(world)
    assert SETTINGS.pending_timeout - 1 <= world.clock.now - begin <= SETTINGS.pending_timeout + 3


def test_error_has_its_grace_from_when_it_is_first_seen(make_world):
    world = make_world("never_starts")
    pod = until_pod(world)
    world.clock.now += SETTINGS.start_error_grace + 10
    world.progress(world.store.get("pods", "airflow", pod["metadata"]["name"]))
    turn(world)
    world.progress(world.store.get("pods", "airflow", pod["metadata"]["name"]))
    begin = world.clock.now
    while not world.store.get("pods", "airflow", pod["metadata"]["name"])["metadata"].get(
        "deletionTimestamp"
    ):
        turn(world)
        world.clock.now += 1
    assert world.clock.now - begin == pytest.approx(SETTINGS.start_error_grace, abs=3)


def test_error_that_passes_in_between_has_a_new_grace(make_world):
    world = make_world("never_starts")
    pod = until_pod(world)
    track = world.schedulers[0].controller.cache.track(only_row(world).callback_id)
    world.node.wait(pod, "ErrImagePull", "reset by peer")
    turn(world)
    [first] = track.stalled_since.values()
    world.node.wait(pod, "ContainerCreating")
    turn(world)
    assert track.stalled_since == {}
    world.clock.now += 5
    world.node.wait(pod, "RunContainerError", "busy")
    turn(world)
    assert list(track.stalled_since.values()) == [first + 5]


def test_pod_that_waits_again_after_it_ran_is_not_deleted_as_one_that_did_not_start(make_world):
    world = make_world("succeeds")
    pod = until_pod(world)
    for _ in range(2):
        world.progress(world.store.get("pods", "airflow", pod["metadata"]["name"]))
    turn(world)
    turn(world)
    assert only_row(world).state == RUNNING
    world.clock.now += SETTINGS.pending_timeout + 1
    world.node.wait(pod, "ContainerCreating")
    world.store.update(
        "pods", "airflow", pod["metadata"]["name"], lambda it: it["status"].update(phase="Pending")
    )
    for _ in range(4):
        turn(world)
    assert only_row(world).state == RUNNING
    assert len(world.pods()) == 1
    world.clock.now += SETTINGS.pending_timeout + 1
    for _ in range(3):
        turn(world)
    assert only_row(world).state == FAILED
    assert "may have begun" in only_row(world).output


def test_pod_that_somebody_annotates_after_its_wait_was_explained_is_deleted_all_the_same(make_world):
    world = make_world("succeeds")
    pod = until_pod(world)
    world.clock.now += SETTINGS.pending_timeout + 1
    turn(world)  # asks for the reason of the wait
    world.store.update(
        "pods",
        "airflow",
        pod["metadata"]["name"],
        lambda found: found["metadata"]["annotations"].update(a="b"),
    )
    for _ in range(4):
        turn(world)
    assert world.pods() == []
    rest(world)
    world.check_end()
    assert only_row(world).state == SUCCESS


# Walks that once failed -----------------------------------------------------------------------------


@pytest.mark.parametrize("api_owns_running", [False, True])
def test_scheduler_that_hung_while_another_launched_again_does_not_end_the_second_run(
    make_world, api_owns_running
):
    """It took RUNNING, which was said of the second pod, for the first one's, which it had made itself."""
    world = make_world("starts_at_second", schedulers=2, api_owns_running=api_owns_running)
    first, second = world.schedulers
    until_pod(world, first)
    while pods := world.pods():
        world.progress(pods[0])
        world.clock.now += 5
        turn(world, first)
    turn(world, first)
    while not any(world.runs(pod) for pod in world.pods()):
        turn(world, second)
        for pod in world.pods():
            world.progress(pod)
        world.clock.now += 5
    turn(world, second)
    for _ in range(2):
        turn(world, first)
    assert only_row(world).state == RUNNING
    rest(world)
    world.check_end()
    assert only_row(world).state == SUCCESS


def test_rejected_pod_of_a_crashed_scheduler_is_launched_again(make_world):
    """Its end had no time, so its delay began anew at every look and never ended."""
    world = make_world("succeeds", schedulers=2)
    first, second = world.schedulers
    for scheduler in (first, second):
        scheduler.hand_out()
    for scheduler in (first, second):
        scheduler.commit_hand_out()
    turn(world, first)
    world.reject(world.pods()[0])
    first.crash()
    rest(world)
    world.check_end()
    assert only_row(world).state == SUCCESS


@pytest.mark.parametrize("schedulers", [1, 3])
@pytest.mark.parametrize("finalizer", [False, True])
def test_callback_that_never_starts_is_launched_as_often_as_allowed(make_world, schedulers, finalizer):
    """The next attempt was recorded before the last pod went, and the limit was not looked at again."""
    world = make_world("never_starts", schedulers=schedulers, finalizer=finalizer)
    rest(world)
    world.check_end()
    created = [c for c in world.store._history if c.kind == "ADDED" and c.plural == "pods"]
    assert len(created) == SETTINGS.launch_retries + 1
    assert f"launched {len(created)} times" in only_row(world).output


@pytest.mark.parametrize("crashes", range(8))
def test_callback_that_never_starts_is_launched_no_more_often_over_crashes(make_world, crashes):
    world = make_world("never_starts")
    for _ in range(crashes):
        for _ in range(9):
            for scheduler in [s for s in world.schedulers if s.alive]:
                turn(world, scheduler)
            for pod in world.pods():
                if current := world.store.find("pods", "airflow", pod["metadata"]["name"]):
                    world.progress(current)
            world.clock.now += 5
        world.schedulers[-1].crash()
        world.schedulers[-1].forget()
        world.add_scheduler()
    rest(world)
    world.check_end()
    created = [c for c in world.store._history if c.kind == "ADDED" and c.plural == "pods"]
    assert len(created) <= SETTINGS.launch_retries + 1
    assert only_row(world).state == FAILED


def test_pod_without_its_secret_gets_it_though_the_watch_shows_the_pod_first(make_world):
    """The creation was not answered, the pod was seen, and nobody made its Secret."""
    world = make_world("succeeds")
    scheduler = world.schedulers[0]
    turn(world)
    turn(world, work=False)
    scheduler.do_work(0, ["lost after"])
    assert world.pods()
    begin = world.clock.now
    rest(world)
    world.check_end()
    assert only_row(world).state == SUCCESS
    assert world.clock.now - begin < 600


def test_row_that_was_queued_anew_over_its_success_is_not_run_again(make_world):
    """Core commits late and writes over what happened since (Airflow 3.3)."""
    world = make_world("succeeds", schedulers=2)
    first, second = world.schedulers
    second.hand_out()
    pod = until_pod(world, first)
    run_to_the_end(world, pod)
    for _ in range(4):
        turn(world, first)
    assert (only_row(world).state, world.pods()) == (SUCCESS, [])
    second.commit_hand_out()
    assert only_row(world).state == QUEUED
    rest(world)
    assert at_rest(world)
    assert len(only_row(world).runs) == 1


def test_launch_that_another_scheduler_has_overtaken_is_not_made(make_world):
    """Its pod of this attempt had been refused by the node and deleted, so the name was free again."""
    world = make_world("succeeds", schedulers=2)
    first, second = world.schedulers
    for scheduler in (first, second):
        scheduler.hand_out()
    for scheduler in (first, second):
        scheduler.commit_hand_out()
    first.heartbeat()
    first.do_all_work()
    world.reject(world.pods()[0])
    second.heartbeat()  # decides to launch, and its request waits
    first.watch()
    first.heartbeat()
    first.do_all_work()  # records the next attempt and deletes the pod
    assert world.pods() == []
    second.do_all_work()
    assert world.pods() == []
    rest(world)
    world.check_end()
    assert len(only_row(world).runs) == 1


def test_slot_is_free_again_when_another_ended_the_callback_while_it_waited_for_a_list(make_world):
    """It had been handed over late, was in no comparison any more, and nothing else led to a look at it."""
    world = make_world(schedulers=2)
    for scheduler in world.schedulers * 2:
        turn(world, scheduler)
    row = world.add_callback("refused")
    for scheduler in world.schedulers:
        scheduler.hand_out()
    for scheduler in world.schedulers:
        scheduler.commit_hand_out()
    first, late = world.schedulers
    first.heartbeat()
    world.clock.now += SETTINGS.reconcile_interval + 1
    turn(world, late, work=False)
    assert late.executor.running
    first.do_all_work()
    turn(world, first)
    assert row.state == FAILED
    rest(world)
    world.check_end()


@pytest.mark.parametrize("api", [False, True], ids=["scheduler-owns-running", "api-owns-running"])
def test_pod_that_another_scheduler_made_again_is_not_doubled(make_world, api):
    """A person removed the pod; its launch by another scheduler waited meanwhile, and found the name free."""
    world = make_world("succeeds", schedulers=2, api_owns_running=api)
    first, second = world.schedulers
    for scheduler in (first, second):
        scheduler.hand_out()
    for scheduler in (first, second):
        scheduler.commit_hand_out()
    second.heartbeat()  # decides to launch, and its request waits
    turn(world, first)
    turn(world, first)
    world.delete_from_outside(world.pods()[0], force=True)
    second.do_all_work()
    for _ in range(4):
        turn(world, first)
        world.clock.now += 6
        assert [pod["metadata"]["name"][-1] for pod in world.pods()] == ["1"]
    rest(world)
    world.check_end()
    assert (only_row(world).state, len(only_row(world).runs)) == (SUCCESS, 1)


def test_callback_that_was_handed_over_late_is_not_launched_beside_the_pod_that_is_given_up(make_world):
    """Another scheduler had launched it, and recorded the next attempt to delete the pod that did not start."""
    world = make_world("starts_at_second", schedulers=2)
    late, other = world.schedulers
    late.hand_out()
    late.commit_hand_out()
    for _ in range(40):
        turn(world, other, work=False)
        if only_row(world).data.get(RECORD_KEY) == {"attempt": 2}:
            break
        other.do_all_work()
        world.clock.now += 5
        for pod in world.pods():
            world.progress(pod)
    turn(world, late)
    assert [pod["metadata"]["name"][-1] for pod in world.pods()] == ["1"]
    rest(world)
    world.check_end()
    assert only_row(world).state == SUCCESS


def test_states_of_the_world_are_those_that_the_reconciler_knows():
    assert {RowState(state) for state in (QUEUED, RUNNING)} == {state for state in RowState if state.active}


@pytest.mark.parametrize("api_owns_running", [False, True])
def test_scheduler_that_saw_only_the_first_pod_does_not_take_the_second_ones_run_for_its(
    make_world, api_owns_running
):
    world = make_world("succeeds", schedulers=3, api_owns_running=api_owns_running)
    first, second, onlooker = world.schedulers
    pod = until_pod(world, first)
    world.progress(pod)  # it has a node, and waits there
    onlooker.controller.resync()
    turn(world, onlooker)
    world.clock.now += SETTINGS.pending_timeout + 1
    for _ in range(4):
        turn(world, first)
        for waiting in world.pods():
            if "deletionTimestamp" in waiting["metadata"]:
                world.progress(waiting)
    assert world.pods() == []
    first.crash()
    first.forget()
    onlooker.controller.resync()
    turn(world, onlooker, work=False)
    onlooker.do_all_work()  # lists before there is a second pod, and looks when it runs
    for _ in range(20):
        if world.pods():
            break
        world.clock.now += SETTINGS.reconcile_interval + 1
        turn(world, second)
    [again] = world.pods()
    assert again["metadata"]["name"].endswith("-2")
    for _ in range(2):
        world.progress(world.store.get("pods", "airflow", again["metadata"]["name"]))
    turn(world, second)
    assert only_row(world).state == RUNNING
    for _ in range(2):
        turn(world, onlooker)
    assert only_row(world).state == RUNNING
    rest(world)
    world.check_end()
    assert only_row(world).state == SUCCESS


# Schedulers that hang, and what may not be done ------------------------------------------------------


def tell_and_hang(world, scheduler):
    """It is told what its watch has, looks at nothing, and is taken for dead."""
    scheduler.watch()
    while not scheduler.watcher.watcher_queue.empty():
        event = scheduler.watcher.watcher_queue.get_nowait()
        scheduler.controller.observe(view_from_plain(event.failure_details))
    scheduler.heartbeat_is_fresh = False


@pytest.mark.parametrize("api", [False, True], ids=["scheduler-owns-running", "api-owns-running"])
def test_scheduler_that_hung_does_not_take_running_for_its_own_pods(make_world, api):
    world = make_world("starts_at_second", schedulers=2, api_owns_running=api)
    hung, other = world.schedulers
    world.reject(until_pod(world, hung))
    tell_and_hang(world, hung)
    for _ in range(12):
        turn(world, other)
        world.clock.now += 6
        for pod in world.pods():
            if not world.runs(pod):
                world.progress(pod)
        if only_row(world).state == RUNNING:
            break
    hung.heartbeat_is_fresh = True
    hung.watch(lose=True)
    for _ in range(2):
        turn(world, hung, work=False)
    assert only_row(world).state == RUNNING


@pytest.mark.parametrize("api", [False, True], ids=["scheduler-owns-running", "api-owns-running"])
def test_scheduler_that_hung_leaves_the_record_of_later_launches(make_world, api):
    world = make_world("succeeds", schedulers=2, api_owns_running=api)
    hung, other = world.schedulers
    world.reject(until_pod(world, hung))
    tell_and_hang(world, hung)
    for _ in range(60):
        turn(world, other)
        world.clock.now += 3
        attempts = [pod["metadata"]["name"][-1] for pod in world.pods()]
        if attempts == ["2"]:
            world.reject(world.pods()[0])
        if attempts == ["3"]:
            break
    turn(world, other)
    hung.heartbeat_is_fresh = True
    for _ in range(12):
        hung.watch(lose=True)
        turn(world, hung)
        world.clock.now += 2
        assert only_row(world).data[RECORD_KEY]["attempt"] == 3
        world.check()


@pytest.mark.parametrize(("verb", "kind"), [("patch", "raises"), ("delete", "succeeds")])
def test_pod_about_which_nothing_may_be_done_is_forgotten_when_it_is_gone(make_world, verb, kind):
    """A refusal (403) comes before a 404."""
    world = make_world(kind)
    pod = until_pod(world)
    run_to_the_end(world, pod)
    world.forbidden.add(verb)
    for _ in range(6):
        turn(world)
    assert only_row(world).state in (SUCCESS, FAILED)
    world.store.delete("pods", "airflow", pod["metadata"]["name"], {"gracePeriodSeconds": 0})
    for _ in range(12):
        compare_unwatched(world)
    assert len(world.schedulers[0].controller.cache) == 0


@pytest.mark.parametrize("owner_is_dead", [False, True])
def test_refusal_to_delete_the_pod_of_the_last_run_says_nothing_when_it_is_gone(make_world, owner_is_dead):
    world = make_world("succeeds", schedulers=2)
    first, second = world.schedulers
    pod = until_pod(world, first)
    run_to_the_end(world, pod)
    world.forbidden |= {"patch", "delete"}
    if owner_is_dead:
        first.crash()
        first.forget()
    scheduler = second if owner_is_dead else first
    for _ in range(8):
        turn(world, scheduler)
        world.clock.now += SETTINGS.reconcile_interval + 1
    row = only_row(world)
    assert row.state == SUCCESS
    # a person deletes the pod and has the callback run again, as the command 'retry' does
    world.store.delete("pods", "airflow", pod["metadata"]["name"], {"gracePeriodSeconds": 0})
    row.disturbed = row.may_run_again = True
    row.state, row.output = "pending", None
    row.data = {RECORD_KEY: {"attempt": 2, "history": 1}}
    scheduler.hand_out()
    scheduler.commit_hand_out()
    for _ in range(100):
        scheduler.watch(lose=not owner_is_dead)
        turn(world, scheduler)
        world.clock.now += 2
        for made in world.pods():
            world.progress(made)
    assert (row.state, len(row.runs)) == (SUCCESS, 2)


def test_row_that_another_transaction_holds_keeps_only_its_own_callback_waiting(make_world):
    world = make_world("never_starts", "succeeds")
    held, other = world.database.rows
    until_pod(world)
    for _ in range(3):
        turn(world)
    store = world.schedulers[0].controller._store
    write = store.record_launches

    def skip_the_one_that_is_held(records):
        write([record for record in records if record.callback_id != held])
        return {record.callback_id for record in records if record.callback_id == held}

    store.record_launches = skip_the_one_that_is_held
    pods = {pod["metadata"]["name"]: pod for pod in world.pods()}
    for name, pod in pods.items():
        if held in name:
            world.reject(pod)
        else:
            run_to_the_end(world, pod)
    for _ in range(30):
        world.clock.now += 5
        turn(world)
    assert (world.database.rows[other].state, world.database.rows[held].state) == (SUCCESS, "queued")
    store.record_launches = write
    for _ in range(60):
        world.clock.now += 5
        turn(world)
    assert world.database.rows[held].state == FAILED


@pytest.mark.parametrize("api", [False, True], ids=["scheduler-owns-running", "api-owns-running"])
def test_name_that_comes_free_again_is_not_taken_beside_the_next_one(make_world, api):
    world = make_world("succeeds", schedulers=2, api_owns_running=api)
    name = f"callback-{only_row(world).callback_id}-1"
    foreign = {"metadata": {"name": name, "namespace": "airflow"}, "spec": {"containers": [{"name": "base"}]}}
    world.store.create("pods", "airflow", foreign)
    for scheduler in world.schedulers:
        scheduler.hand_out()
    for scheduler in world.schedulers:
        scheduler.commit_hand_out()
    first, second = world.schedulers
    for scheduler, rounds in ((first, 4), (second, 1)):
        for _ in range(rounds):
            scheduler.watch()
            scheduler.heartbeat()
            scheduler.record(scheduler.drain())
            scheduler.do_all_work()
        with contextlib.suppress(ApiStatusError):
            world.store.delete("pods", "airflow", name, {"gracePeriodSeconds": 0})
    assert [pod["metadata"]["name"][-1] for pod in world.pods()] == ["2"]


def test_conflict_over_a_pod_that_may_not_be_read_is_no_refusal_to_delete_it(make_world):
    world = make_world("never_starts")
    scheduler = world.schedulers[0]
    name = until_pod(world)["metadata"]["name"]
    turn(world)

    def refuse(*args, **kwargs):
        def answer():
            raise ApiStatusError(403, "Forbidden", 'User "scheduler" cannot get resource "pods"')

        return scheduler.api._answer(answer)

    scheduler.api.read_namespaced_pod = refuse
    world.clock.now += SETTINGS.pending_timeout + 1
    for number in range(6):
        turn(world, work=False)
        # the pod changes just before the request arrives
        world.store.update(
            "pods", "airflow", name, lambda pod, n=number: pod["metadata"]["annotations"].update(n=str(n))
        )
        scheduler.do_all_work()
        world.clock.now += 2
    assert only_row(world).state == "queued"
