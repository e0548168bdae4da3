"""Pods and rows that a scheduler did not make itself: adoption, siblings, crashes. Cases A and F of the list.

Real executors with the real client on a fake API server; core's own functions around them.
"""

from __future__ import annotations

import pytest
from airflow.models.callback import CallbackKey

from airflow_kubernetes_callbacks import answers
from airflow_kubernetes_callbacks.identity import OWNER_LABEL
from airflow_kubernetes_callbacks.situation import PodRequest
from airflow_kubernetes_callbacks.version_compat import EXECUTION_API_OWNS_RUNNING
from tests.fakes.life import bring_to, launched, other_scheduler, pod_of, running
from tests.fakes.scheduler import (
    delete_row,
    output_of,
    pod_tells_api_that_it_runs,
    set_row,
    state_of,
    wait_until,
)

QUEUED, RUNNING, SUCCESS, FAILED = "queued", "running", "success", "failed"
LONG_AGO = 3600.0


@pytest.fixture
def dead(session):
    """The id of a scheduler that is gone."""
    return other_scheduler(age=LONG_AGO)


@pytest.fixture
def sibling(session):
    """The id of another scheduler that is alive."""
    return other_scheduler()


def owner_of(api_server, pod):
    metadata = pod["metadata"]
    return api_server.store.get("pods", metadata["namespace"], metadata["name"])["metadata"]["labels"][
        OWNER_LABEL
    ]


def test_a2_pods_of_a_dead_scheduler_are_adopted_and_their_results_recorded(
    api_server, new_scheduler, new_callback, dead
):
    """All stages alike, without any task instance that is orphaned."""
    ids = {stage: new_callback(state=RUNNING) for stage in ("running", "succeeded", "failed")}
    pods = {stage: pod_of(api_server, callback_id, dead, stage) for stage, callback_id in ids.items()}
    scheduler = new_scheduler()
    scheduler.until(lambda: state_of(ids["succeeded"]) == SUCCESS, "success is recorded")
    scheduler.until(lambda: state_of(ids["failed"]) == FAILED, "failure is recorded")
    scheduler.settle()
    assert "ValueError: no such channel" in output_of(ids["failed"])
    assert state_of(ids["running"]) == RUNNING
    assert owner_of(api_server, pods["running"]) == scheduler.me
    assert scheduler.running == {ids["running"]}
    adoptions = [r for r in api_server.made("PATCH") if OWNER_LABEL in r.body["metadata"].get("labels", {})]
    assert len(adoptions) == 3
    assert api_server.count("POST", "/pods$") == 0


def test_a2_adopted_running_pod_is_followed_to_its_end(api_server, new_scheduler, new_callback, dead):
    callback_id = new_callback(state=RUNNING)
    pod = pod_of(api_server, callback_id, dead, "running")
    scheduler = new_scheduler()
    scheduler.until(lambda: scheduler.running == {callback_id}, "adopted")
    api_server.node.finish(pod)
    scheduler.until(lambda: state_of(callback_id) == SUCCESS, "success is recorded")
    scheduler.until(lambda: not api_server.pods(), "pod is deleted")
    assert scheduler.running == set()


def test_a3_only_the_pod_of_the_dead_scheduler_is_touched(
    api_server, new_scheduler, new_callback, dead, sibling
):
    scheduler = new_scheduler()
    owners = [scheduler.me, sibling, dead]
    pods = {owner: pod_of(api_server, new_callback(state=SUCCESS), owner, "succeeded") for owner in owners}
    scheduler.settle(rounds=3)
    assert [r.path for r in api_server.made("PATCH")] == []
    deleted = {r.path.rpartition("/")[2] for r in api_server.made("DELETE")}
    assert deleted == {pods[owner]["metadata"]["name"] for owner in (scheduler.me, dead)}
    assert owner_of(api_server, pods[sibling]) == sibling


def test_a3_two_live_schedulers_leave_each_others_finished_pods(api_server, new_scheduler, new_callback):
    """apache/airflow#66396: they relabelled each other's pods at every tick."""
    keep = {"KUBERNETES_EXECUTOR__DELETE_WORKER_PODS": "False"}
    first, second = new_scheduler(**keep), new_scheduler(**keep)
    pods = {
        scheduler.me: pod_of(api_server, new_callback(state=RUNNING), scheduler.me, "succeeded")
        for scheduler in (first, second)
    }
    for _ in range(3):
        first.settle(rounds=1)
        second.settle(rounds=1)
    assert {owner: owner_of(api_server, pod) for owner, pod in pods.items()} == {
        first.me: first.me,
        second.me: second.me,
    }
    assert all(OWNER_LABEL not in r.body["metadata"]["labels"] for r in api_server.made("PATCH"))


@pytest.mark.parametrize("first_answer", [None, 500], ids=["at-once", "first-answer-500"])
def test_a4_finished_pod_that_is_kept_is_labelled_once(
    api_server, new_scheduler, new_callback, dead, first_answer
):
    """apache/airflow#68683: patched at every loop, and the loop starved."""
    pod_of(api_server, new_callback(state=SUCCESS), dead, "succeeded")
    if first_answer:
        api_server.fail("PATCH", status=first_answer)
    scheduler = new_scheduler(KUBERNETES_EXECUTOR__DELETE_WORKER_PODS="False")
    scheduler.until(lambda: api_server.pods(labels="airflow_executor_done=True"), "labelled")
    for _ in range(3):
        scheduler.settle(rounds=1)
    for _ in range(20):
        scheduler.heartbeat()
    assert api_server.count("PATCH") == (2 if first_answer else 1)
    assert api_server.count("DELETE") == 0
    assert len(scheduler.callbacks.cache) == 0


def test_a5_events_that_repeat_make_one_deletion(api_server, new_scheduler, new_callback):
    scheduler = new_scheduler()
    callback_id = new_callback()
    pod = running(api_server, scheduler, callback_id)
    api_server.node.finish(pod)
    for number in range(3):
        api_server.node.mark(pod, podIP=f"10.0.0.{number}")
    scheduler.until(lambda: not api_server.pods(), "pod is deleted")
    scheduler.settle(rounds=2)
    [deletion] = api_server.made("DELETE")
    assert deletion.body["preconditions"]["uid"] == pod["metadata"]["uid"]


def test_a5_new_pod_of_the_same_name_is_another_pod(api_server, new_scheduler, new_callback):
    """Whatever is known of a pod is known of its uid, not of its name."""
    scheduler = new_scheduler()
    callback_id = new_callback()
    old = running(api_server, scheduler, callback_id)
    with api_server.store.unseen():
        api_server.store.delete("pods", "airflow", old["metadata"]["name"], {"gracePeriodSeconds": 0})
        new = pod_of(api_server, callback_id, scheduler.me, "running")
    scheduler.settle(rounds=2)
    assert {(view.uid, view.gone) for view in scheduler.callbacks.cache.pods(callback_id)} == {
        (old["metadata"]["uid"], True),
        (new["metadata"]["uid"], False),
    }
    assert state_of(callback_id) == RUNNING
    api_server.node.finish(new)
    scheduler.until(lambda: state_of(callback_id) == SUCCESS, "success is recorded")


def test_a8_pod_that_moved_to_a_sibling_frees_its_slot_without_an_event(
    api_server, new_scheduler, new_callback, sibling
):
    scheduler = new_scheduler()
    callback_id = new_callback()
    pod = running(api_server, scheduler, callback_id)
    scheduler.settle(rounds=1)
    api_server.store.patch(
        "pods", "airflow", pod["metadata"]["name"], {"metadata": {"labels": {OWNER_LABEL: sibling}}}
    )
    scheduler.until(lambda: not scheduler.running, "slot is free")
    scheduler.settle(rounds=2)
    assert scheduler.events == {}
    assert state_of(callback_id) == RUNNING
    assert scheduler.executor.slots_occupied == 0


def test_a9_finished_pods_take_no_slot(api_server, new_scheduler, new_callback, dead):
    """apache/airflow#55797: open slots became negative."""
    ids = [new_callback(state=RUNNING) for _ in range(5)]
    for callback_id in ids:
        pod_of(api_server, callback_id, dead, "succeeded")
    scheduler = new_scheduler(CORE__PARALLELISM="2")
    lowest = 2

    def all_done():
        nonlocal lowest
        lowest = min(lowest, scheduler.executor.slots_available)
        return all(state_of(callback_id) == SUCCESS for callback_id in ids)

    scheduler.until(all_done, "all are recorded")
    assert lowest == 2


def test_a10_adopted_running_pods_count(api_server, new_scheduler, new_callback, dead):
    """apache/airflow#15555: adopted pods were not counted, and there were more than there should be."""
    ids = [new_callback(state=RUNNING) for _ in range(2)]
    pods = [pod_of(api_server, callback_id, dead, "running") for callback_id in ids]
    orphan = new_callback(state=QUEUED)
    scheduler = new_scheduler(CORE__PARALLELISM="2")
    scheduler.until(lambda: scheduler.running >= set(ids), "adopted")
    waiting = new_callback()
    for _ in range(3):
        scheduler.settle(rounds=1)
    assert api_server.count("POST", "/pods$") == 0
    assert scheduler.executor.slots_available == 0
    for pod in pods:
        api_server.node.finish(pod)
    scheduler.until(lambda: api_server.count("POST", "/pods$") == 2, "the others get their turn", resync=True)
    assert scheduler.running == {orphan, waiting}


def test_a11_slow_scheduler_loses_its_pod_and_the_result_is_recorded_once(
    api_server, new_scheduler, new_callback
):
    """A heartbeat of 31 s counts as dead, and its watcher still works."""
    slow, other = new_scheduler(), new_scheduler()
    callback_id = new_callback()
    pod = running(api_server, slow, callback_id)
    slow.set_heartbeat(age=31)
    other.until(lambda: other.running == {callback_id}, "adopted by the other", resync=True)
    assert api_server.count("DELETE") == 0
    slow.set_heartbeat(age=0)
    api_server.node.finish(pod)
    slow.until(lambda: callback_id not in slow.running, "slow one lets go")
    slow.settle(rounds=2)
    assert api_server.count("DELETE") == 0 or state_of(callback_id) == SUCCESS
    other.until(lambda: state_of(callback_id) == SUCCESS, "success is recorded")
    other.until(lambda: not api_server.pods(), "pod is deleted")
    slow.settle(rounds=2)
    assert (state_of(callback_id), slow.running, other.running) == (SUCCESS, set(), set())
    assert api_server.count("POST", "/pods$") == 1


def test_a13_pending_pod_of_a_dead_scheduler_is_adopted_and_not_made_again(
    api_server, new_scheduler, new_callback, dead
):
    callback_id = new_callback(state=QUEUED)
    pod = pod_of(api_server, callback_id, dead)
    scheduler = new_scheduler()
    scheduler.until(lambda: owner_of(api_server, pod) == scheduler.me, "adopted")
    scheduler.settle(rounds=2)
    assert api_server.count("POST", "/pods$") == 0
    assert scheduler.running == {callback_id}


def test_a16_patches_hold_metadata_only(api_server, new_scheduler, new_callback, dead):
    """apache/airflow#23885: a spec in the patch is refused where a webhook has changed the spec."""
    for stage in ("pending", "running", "succeeded", "failed"):
        pod_of(api_server, new_callback(state=RUNNING), dead, stage, finalizer=True)
    scheduler = new_scheduler()
    scheduler.settle()
    patches = api_server.made("PATCH")
    assert patches
    for patch in patches:
        assert set(patch.body) == {"metadata"}
        assert set(patch.body["metadata"]) <= {
            "uid",
            "resourceVersion",
            "labels",
            "$deleteFromPrimitiveList/finalizers",
        }


@pytest.mark.parametrize("headers", [{}, {"Retry-After": "1"}], ids=["plain", "retry-after"])
def test_a20_throttled_adoption_is_tried_again(api_server, new_scheduler, new_callback, dead, headers):
    """apache/airflow#49517: a 429 made running work an orphan."""
    callback_id = new_callback(state=RUNNING)
    pod = pod_of(api_server, callback_id, dead, "running")
    throttled = [
        api_server.fail(verb, status=429, reason="TooManyRequests", headers=headers)
        for verb in ("LIST", "PATCH")
    ]
    scheduler = new_scheduler()
    scheduler.until(lambda: owner_of(api_server, pod) == scheduler.me, "adopted", resync=True)
    scheduler.settle(rounds=2)
    assert [fault.hits for fault in throttled] == [1, 1]
    assert (state_of(callback_id), scheduler.events) == (RUNNING, {})
    assert api_server.count("POST", "/pods$") == 0


@pytest.mark.parametrize(
    ("status", "reason", "message"),
    [
        pytest.param(403, "Forbidden", 'User "scheduler" cannot patch resource "pods"', id="no-permission"),
        pytest.param(422, "Invalid", "pod updates may not change fields", id="invalid"),
    ],
)
def test_a16_pod_whose_adoption_is_refused_for_good_is_followed_to_its_end(
    api_server, new_scheduler, new_callback, dead, monkeypatch, status, reason, message
):
    monkeypatch.setitem(answers._SURE_AFTER, PodRequest.ADOPT, 1.0)
    ids = {stage: new_callback(state=RUNNING) for stage in ("running", "succeeded", "failed")}
    pods = {stage: pod_of(api_server, callback_id, dead, stage) for stage, callback_id in ids.items()}
    api_server.fail("PATCH", "/pods/", times=None, status=status, reason=reason, message=message)
    scheduler = new_scheduler()
    scheduler.until(lambda: state_of(ids["succeeded"]) == SUCCESS, "success is recorded")
    scheduler.until(lambda: state_of(ids["failed"]) == FAILED, "failure is recorded")
    assert "ValueError: no such channel" in output_of(ids["failed"])
    scheduler.until(lambda: scheduler.running == {ids["running"]}, "the running one has a slot")
    api_server.node.finish(pods["running"])

    def over():
        scheduler.resync()  # nothing watches it
        return state_of(ids["running"]) == SUCCESS and len(api_server.pods()) == 1

    scheduler.until(over, "result is recorded, and only the pod that failed, which is kept, is left")
    assert scheduler.running == set()
    adoptions = [r for r in api_server.made("PATCH") if OWNER_LABEL in r.body["metadata"].get("labels", {})]
    # A permission may be missing for a moment only, so that is asked again.
    assert len(adoptions) == (6 if status == 403 else 3)


def test_pod_whose_adoption_is_accepted_and_not_done_is_followed_to_its_end(
    api_server, new_scheduler, new_callback, dead, monkeypatch
):
    """kyverno/kyverno#2359: a policy that mutates every update."""
    callback_id = new_callback(state=RUNNING)
    pod_of(api_server, callback_id, dead, "succeeded")
    patch = api_server.store.patch

    def patch_and_change_back(plural, namespace, name, body):
        body.get("metadata", {}).get("labels", {}).pop(OWNER_LABEL, None)
        return patch(plural, namespace, name, body)

    monkeypatch.setattr(api_server.store, "patch", patch_and_change_back)
    scheduler = new_scheduler()
    scheduler.until(lambda: state_of(callback_id) == SUCCESS, "success is recorded")
    scheduler.until(lambda: not api_server.pods(), "the pod is deleted", resync=True)
    assert api_server.count("PATCH") == 1


def test_a21_row_of_another_executor_is_left_alone(api_server, new_scheduler, new_callback, dead):
    """apache/airflow#42151: recovery reset what belonged to Celery."""
    others = new_callback(state=QUEUED, executor="LocalExecutor")
    ours = new_callback(state=QUEUED, executor="KubernetesExecutor")
    scheduler = new_scheduler(
        start=False,
        CORE__EXECUTOR="LocalExecutor,KubernetesExecutor:airflow_kubernetes_callbacks.KubernetesExecutor",
    )
    scheduler.executors = [scheduler.executor]
    scheduler.start()
    scheduler.until(lambda: api_server.count("POST", "/pods$"), "the orphan of ours is launched", resync=True)
    scheduler.settle(rounds=2)
    [request] = api_server.made("POST", "/pods$")
    assert request.body["metadata"]["annotations"]["callback_id"] == ours
    assert state_of(others) == QUEUED


def test_adoption_in_two_live_schedulers_is_won_by_one(api_server, new_scheduler, new_callback, dead):
    callback_id = new_callback(state=RUNNING)
    pod = pod_of(api_server, callback_id, dead, "running")
    first, second = new_scheduler(), new_scheduler()
    for _ in range(3):
        first.settle(rounds=1)
        second.settle(rounds=1)
    winner = next(s for s in (first, second) if s.me == owner_of(api_server, pod))
    assert {s.me: s.running for s in (first, second)} == {
        s.me: ({callback_id} if s is winner else set()) for s in (first, second)
    }


def test_adoption_of_a_pod_that_changed_meanwhile_is_looked_at_again(
    api_server, new_scheduler, new_callback, dead
):
    callback_id = new_callback(state=RUNNING)
    pod = pod_of(api_server, callback_id, dead, "running")
    conflict = api_server.fail("PATCH", status=409, reason="Conflict", message="the object has been modified")
    scheduler = new_scheduler()
    scheduler.until(lambda: owner_of(api_server, pod) == scheduler.me, "adopted")
    assert conflict.hits == 1
    assert scheduler.events == {}


def test_seed_threads_crash_adopted_completed_callback_pod_is_recorded(
    api_server, new_scheduler, new_callback, dead
):
    """The adoption of a completed callback pod ended in ``int(None)`` and a crash loop; stuck in queued."""
    callback_id = new_callback(state=QUEUED)
    pod_of(api_server, callback_id, dead, "succeeded")
    scheduler = new_scheduler()
    scheduler.until(lambda: state_of(callback_id) == SUCCESS, "success is recorded")
    scheduler.until(lambda: not api_server.pods(), "pod is deleted")
    for watcher in scheduler.executor.kube_scheduler.kube_watchers.values():
        assert watcher.is_alive()


def test_stock_adoption_does_not_see_callback_pods(api_server, new_scheduler, new_callback, dead):
    """It selects ``kubernetes_executor=True``, and reads task annotations of what it gets."""
    pod_of(api_server, new_callback(state=QUEUED), dead, "succeeded")
    scheduler = new_scheduler()
    scheduler.executor._adopt_completed_pods(scheduler.executor.kube_client)
    assert scheduler.executor.completed == {}
    assert api_server.made("LIST", labelSelector="kubernetes_executor=True")


# Crashes at every step ------------------------------------------------------------------------------


def test_crash_before_the_create_is_made_good_by_the_next_scheduler(api_server, new_scheduler, new_callback):
    first = new_scheduler()
    callback_id = new_callback()
    first.enqueue()
    first.crash()
    assert state_of(callback_id) == QUEUED
    second = new_scheduler()
    [pod] = second.until(api_server.pods, "launched")
    assert pod["metadata"]["labels"][OWNER_LABEL] == second.me
    second.settle(rounds=2)
    assert api_server.count("POST", "/pods$") == 1


def test_crash_after_the_create_finds_the_pod_by_its_callback(api_server, new_scheduler, new_callback):
    first = new_scheduler()
    callback_id = new_callback()
    launched(api_server, first, callback_id)
    first.crash()
    second = new_scheduler()
    second.until(lambda: second.running == {callback_id}, "adopted")
    second.settle(rounds=2)
    assert api_server.count("POST", "/pods$") == 1


@pytest.mark.parametrize("exit_code", [0, 1])
def test_f1_crash_between_event_and_commit_repeats_the_event(
    api_server, new_scheduler, new_callback, exit_code
):
    first = new_scheduler()
    callback_id = new_callback()
    pod = running(api_server, first, callback_id)
    api_server.node.finish(pod, exit_code)
    wait_until(lambda: callback_id in first.events, "event is buffered", step=first.heartbeat)
    first.take_events(commit=False)
    first.crash()
    assert state_of(callback_id) == RUNNING
    second = new_scheduler()
    expected = FAILED if exit_code else SUCCESS
    second.until(lambda: state_of(callback_id) == expected, "result is recorded")
    assert api_server.count("POST", "/pods$") == 1


def test_f1_event_is_repeated_until_the_row_is_terminal_and_the_pod_is_kept_so_long(
    api_server, new_scheduler, new_callback
):
    """apache/airflow#69975: two failures to commit in a row."""
    scheduler = new_scheduler()
    callback_id = new_callback()
    pod = running(api_server, scheduler, callback_id)
    api_server.node.finish(pod)
    for _ in range(2):
        wait_until(lambda: callback_id in scheduler.events, "event is buffered", step=scheduler.heartbeat)
        scheduler.take_events(commit=False)
        assert state_of(callback_id) == RUNNING
        assert api_server.count("DELETE") == 0
    scheduler.until(lambda: state_of(callback_id) == SUCCESS, "success is recorded")
    scheduler.until(lambda: not api_server.pods(), "pod is deleted")


def test_f1_pod_is_deleted_only_after_the_commit(api_server, new_scheduler, new_callback):
    scheduler = new_scheduler()
    callback_id = new_callback()
    pod = running(api_server, scheduler, callback_id)
    api_server.node.finish(pod)
    wait_until(lambda: callback_id in scheduler.events, "event is buffered", step=scheduler.heartbeat)
    for _ in range(10):
        scheduler.heartbeat()
    assert api_server.count("DELETE") == 0


@pytest.mark.skipif(not EXECUTION_API_OWNS_RUNNING, reason="the API writes RUNNING from Airflow 3.4 on")
def test_f2_failure_before_the_pod_told_the_api_that_it_runs_is_recorded(
    api_server, new_scheduler, new_callback
):
    scheduler = new_scheduler()
    callback_id = new_callback()
    pod = launched(api_server, scheduler, callback_id)
    bring_to(api_server, pod, "failed")
    scheduler.until(lambda: state_of(callback_id) == FAILED, "failure is recorded")
    assert "no such channel" in output_of(callback_id)


def test_f4_row_that_vanishes_takes_its_pod_with_it(api_server, new_scheduler, new_callback):
    """The Dag run is deleted while the pod runs, and the row goes in the cascade."""
    scheduler = new_scheduler()
    callback_id = new_callback()
    pod = running(api_server, scheduler, callback_id)
    delete_row(callback_id)
    scheduler.until(
        lambda: api_server.store.get("pods", "airflow", pod["metadata"]["name"])["metadata"].get(
            "deletionTimestamp"
        ),
        "pod is deleted",
        resync=True,
    )
    api_server.node.finish(pod, 143)
    api_server.node.remove(pod)
    scheduler.settle(rounds=2)
    assert (scheduler.running, scheduler.events) == (set(), {})


def test_f4_dag_run_deleted_before_the_launch_fails_the_callback(api_server, new_scheduler, new_callback):
    """The workload cannot be made anew, and the row says why."""
    callback_id = new_callback(state=QUEUED, dag_run_id="4711")
    scheduler = new_scheduler()
    scheduler.until(lambda: state_of(callback_id) == FAILED, "failure is recorded")
    assert "Dag run" in output_of(callback_id)
    assert "4711" in output_of(callback_id)
    assert api_server.count("POST", "/pods$") == 0


def test_running_row_without_pod_fails_and_is_not_run_again(api_server, new_scheduler, new_callback):
    callback_id = new_callback(state=RUNNING)
    scheduler = new_scheduler()
    scheduler.until(lambda: state_of(callback_id) == FAILED, "failure is recorded")
    assert "disappeared while running" in output_of(callback_id)
    scheduler.settle(rounds=2)
    assert api_server.count("POST", "/pods$") == 0


@pytest.mark.parametrize("keep", ["callback_id", None], ids=["its-annotation-is-left", "its-name-is-left"])
@pytest.mark.parametrize("stage", ["running", "succeeded"])
def test_pod_that_lost_its_labels_while_no_scheduler_looked_is_found_by_its_name(
    api_server, new_scheduler, new_callback, stage, keep
):
    if keep is None and EXECUTION_API_OWNS_RUNNING:
        pytest.skip("no record names the pod, so that it has to say itself whose it is")
    first = new_scheduler()
    callback_id = new_callback()
    pod = running(api_server, first, callback_id)
    first.crash()

    def strip(found):
        metadata = found["metadata"]
        metadata["labels"] = {}
        metadata["annotations"] = {key: it for key, it in metadata["annotations"].items() if key == keep}

    api_server.store.update("pods", "airflow", pod["metadata"]["name"], strip)
    if stage == "succeeded":
        api_server.node.finish(pod)
    second = new_scheduler()
    if stage == "running":
        second.until(lambda: second.running == {callback_id}, "it takes its slot")
        second.settle(rounds=2)
        assert (state_of(callback_id), second.running) == (RUNNING, {callback_id})
        api_server.node.finish(pod)
    second.until(lambda: state_of(callback_id) == SUCCESS, "success is recorded", resync=True)
    second.until(lambda: not api_server.pods(), "pod is deleted", resync=True)
    second.settle(rounds=2)
    assert (second.running, second.events) == (set(), {})
    assert api_server.count("POST", "/pods$") == 1


@pytest.mark.parametrize(
    ("status", "reads"),
    [pytest.param(None, 1, id="not-there"), pytest.param(503, 2, id="first-answer-503")],
)
def test_running_row_is_lost_once_its_pod_is_not_there_by_its_name(
    api_server, new_scheduler, new_callback, status, reads
):
    callback_id = new_callback(state=RUNNING)
    if status:
        api_server.fail("GET", f"/pods/callback-{callback_id}-1", status=status)
    scheduler = new_scheduler()
    scheduler.until(lambda: state_of(callback_id) == FAILED, "failure is recorded")
    assert "disappeared while running" in output_of(callback_id)
    scheduler.settle(rounds=2)
    assert api_server.count("GET", "/pods/callback-") == reads
    assert api_server.count("POST", "/pods$") == 0


@pytest.mark.parametrize("form", [CallbackKey, str], ids=["by its key", "by its id"])
@pytest.mark.parametrize("stage", ["waits for a slot", "pending", "running"])
def test_a24_revoked_callback_ends_at_the_next_heartbeat(
    api_server, new_scheduler, new_callback, stage, form
):
    scheduler = new_scheduler(
        KUBERNETES_CALLBACKS__RECONCILE_INTERVAL="3600",
        KUBERNETES_CALLBACKS__MAX_ACTIVE_CALLBACKS="1",
    )
    first = new_callback()
    (running if stage == "running" else launched)(api_server, scheduler, first)
    scheduler.settle(2)
    revoked = new_callback() if stage == "waits for a slot" else first
    scheduler.until(lambda: state_of(revoked) != "pending", "it is handed out")
    lists = api_server.count("LIST", "/pods$")
    set_row(revoked, state=FAILED, output="cancelled by a person")
    scheduler.executor.revoke_callback(form(revoked))
    if stage == "waits for a slot":
        scheduler.until(lambda: not scheduler.callbacks.cache.tracked(revoked), "it is forgotten")
        set_row(first, state=FAILED)
        scheduler.executor.revoke_callback(form(first))
    scheduler.until(lambda: api_server.count("DELETE", "/pods/"), "the pod is deleted")
    assert scheduler.executor.running == set()
    assert api_server.count("LIST", "/pods$") == lists
    assert api_server.count("POST", "/pods$") == 1
    assert output_of(revoked) == "cancelled by a person"


def test_revocation_of_what_is_no_callback_stops_nothing(api_server, new_scheduler, new_callback):
    scheduler = new_scheduler()
    scheduler.executor.revoke_callback("no id")
    launched(api_server, scheduler, new_callback())


def test_terminal_row_stays_as_it_is_whatever_its_pod_says(api_server, new_scheduler, new_callback):
    """Cancelled by a person while its pod runs: the pod goes, and its end changes nothing."""
    scheduler = new_scheduler()
    callback_id = new_callback()
    pod = running(api_server, scheduler, callback_id)
    set_row(callback_id, state=FAILED, output="cancelled by a person")
    scheduler.until(lambda: api_server.count("DELETE"), "pod is deleted", resync=True)
    api_server.node.finish(pod)
    api_server.node.remove(pod)
    scheduler.settle(rounds=2)
    assert (state_of(callback_id), output_of(callback_id)) == (FAILED, "cancelled by a person")
    assert scheduler.events == {}


def test_pod_of_another_installation_in_the_namespace_is_left_alone(api_server, new_scheduler, dead):
    stranger = "018f0000-aaaa-7000-8000-000000000001"
    pod_of(api_server, stranger, dead, "succeeded")
    scheduler = new_scheduler()
    scheduler.settle(rounds=3)
    assert api_server.count("PATCH") == api_server.count("DELETE") == 0


@pytest.mark.parametrize("stage", ["pending", "running"])
def test_launch_that_collides_with_a_pod_of_the_same_attempt_is_that_pod(
    api_server, new_scheduler, new_callback, sibling, stage
):
    """C6: two schedulers were handed the same row; the second drops it and fails nothing."""
    scheduler = new_scheduler()
    callback_id = new_callback()
    scheduler.enqueue()
    pod_of(api_server, callback_id, sibling, stage)
    scheduler.until(lambda: api_server.count("POST", "/pods$") == 1, "creation is refused")
    scheduler.settle(rounds=2)
    assert (scheduler.running, scheduler.events) == (set(), {})
    assert len(api_server.pods()) == 1
    assert api_server.count("POST", "/pods$") == 1


def test_two_schedulers_with_the_same_callback_make_one_pod(api_server, new_scheduler, new_callback):
    first, second = new_scheduler(), new_scheduler()
    callback_id = new_callback()
    first.enqueue()
    set_row(callback_id, state="pending")  # the second one read it before the first one's commit
    second.enqueue()
    assert state_of(callback_id) == QUEUED
    for _ in range(3):
        first.settle(rounds=1)
        second.settle(rounds=1)
    [pod] = api_server.pods()
    assert pod_tells_api_that_it_runs(callback_id)
    bring_to(api_server, pod, "succeeded")
    for _ in range(3):
        first.settle(rounds=1)
        second.settle(rounds=1)
    assert state_of(callback_id) == SUCCESS
    assert (first.running, second.running) == (set(), set())
    assert api_server.pods() == []
