"""What one scheduler knows of callbacks and pods, and when it takes a look at a pod for newer than another."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kubernetes_callbacks.cache import CallbackCache
from airflow_kubernetes_callbacks.outcome import CallbackOutcome, PodView, pod_view
from tests.pods import STARTED, pod, status, terminated

ID = "018f0000-0000-7000-8000-00000000000a"
OTHER = "018f0000-0000-7000-8000-00000000000b"


def view(uid="uid-1", version="100", callback_id=ID, **changes):
    made = PodView(
        callback_id=callback_id,
        namespace="airflow",
        name=f"callback-{callback_id}-1",
        uid=uid,
        resource_version=version,
        owner="7",
        attempt=1,
        outcome=CallbackOutcome.PENDING,
        reason=None,
        waiting_reason=None,
        created_at=0.0,
        started_at=None,
        ended_at=None,
        deleting=False,
        gone=False,
        finalizer=False,
        node=None,
    )
    return replace(made, **changes)


RUNNING = CallbackOutcome.RUNNING
FAILED = CallbackOutcome.FAILED


@pytest.fixture
def cache():
    return CallbackCache()


def observe(cache, *views):
    """Take the looks in, one second apart; return what the last one was worth."""
    news = [cache.observe(one, float(second)) for second, one in enumerate(views)]
    return news[-1]


@pytest.mark.parametrize(
    ("looks", "kept"),
    [
        pytest.param([view()], view(), id="first-look"),
        pytest.param([view(), view(version="101", outcome=RUNNING)], "last", id="newer-version"),
        pytest.param([view(version="101", outcome=RUNNING), view()], "first", id="older-version"),
        pytest.param([view(version="99"), view(version="100")], "last", id="versions-are-numbers-not-texts"),
        pytest.param([view(), view(deleting=True)], "last", id="same-version-with-an-answer"),
        pytest.param([view(version="a"), view(version="b", outcome=RUNNING)], "last", id="opaque-versions"),
        pytest.param([view(version=""), view(version="5", outcome=RUNNING)], "last", id="no-version"),
        pytest.param([view(version="200"), view(gone=True)], "last", id="gone-is-gone-whatever-the-version"),
        pytest.param(
            [view(gone=True), view(version="200", outcome=RUNNING)], "first", id="gone-does-not-return"
        ),
        pytest.param(
            [view(gone=True, outcome=FAILED), view(gone=True, outcome=FAILED, reason="why", explained=True)],
            "last",
            id="gone-and-explained-since",
        ),
        pytest.param(
            [view(gone=True, outcome=FAILED, reason="why", explained=True), view(gone=True, outcome=FAILED)],
            "first",
            id="explanation-is-kept",
        ),
    ],
)
def test_look_that_is_kept(cache, looks, kept):
    observe(cache, *looks)
    expected = {"first": looks[0], "last": looks[-1]}.get(kept, kept) if isinstance(kept, str) else kept
    assert cache.pods(ID) == (expected,)


def test_explanation_outlives_a_newer_look_of_the_same_outcome(cache):
    told = view(outcome=FAILED, reason="ValueError: why", explained=True)
    observe(cache, told, view(version="101", outcome=FAILED, reason="Error, exit code 1", deleting=True))
    [kept] = cache.pods(ID)
    assert (kept.reason, kept.explained, kept.deleting) == ("ValueError: why", True, True)


def test_explained_pod_of_which_only_the_version_is_new_is_no_news_and_kept_in_that_version(cache):
    """A request that names the version that was explained would be a conflict for ever."""
    told = view(outcome=FAILED, reason="ValueError: why", explained=True)
    assert not observe(cache, told, view(outcome=FAILED, version="101"))
    assert cache.pods(ID) == (replace(told, resource_version="101"),)


def test_explanation_of_a_wait_is_dropped_when_the_wait_is_over(cache):
    observe(cache, view(reason="no node", explained=True), view(version="101", outcome=RUNNING))
    [kept] = cache.pods(ID)
    assert (kept.reason, kept.explained) == (None, False)


def test_pod_that_was_seen_running_is_not_taken_for_one_that_never_began(cache):
    """kubernetes/kubernetes#100467: a kubelet that restarts refuses pods that it ran."""
    began = view(version="1", outcome=RUNNING, started_at=5.0)
    told = "Could not start: NodeAffinity: Pod was rejected"
    observe(cache, began, view(version="2", outcome=CallbackOutcome.NEVER_STARTED, reason=told))
    [known] = cache.pods(ID)
    assert (known.outcome, known.started_at, known.explained) == (FAILED, 5.0, False)
    assert known.reason is not None
    assert known.reason.startswith("Ran and failed: its container was running")
    assert known.reason.endswith(": NodeAffinity: Pod was rejected")


def test_pod_whose_container_could_not_start_stays_one_that_never_began(cache):
    """A dockershim tells a start time of such a container too."""
    looks = [
        pod_view(
            pod(
                "Failed",
                [status(state=terminated(127, "ContainerCannotRun", "no such file", started=STARTED))],
                resourceVersion=version,
            )
        )
        for version in ("1", "2")
    ]
    observe(cache, *looks)
    [known] = cache.pods(looks[0].callback_id)
    assert (known.outcome, known.started_at) == (CallbackOutcome.NEVER_STARTED, None)


def test_pod_that_was_seen_running_and_waits_again_is_known_to_have_begun(cache):
    """kubernetes/kubernetes#77078."""
    observe(cache, view(version="1", outcome=RUNNING, started_at=5.0), view(version="2"))
    [known] = cache.pods(ID)
    assert (known.outcome, known.started_at) == (CallbackOutcome.PENDING, 5.0)


def test_error_that_a_pod_waited_with_outlives_its_deletion_by_somebody(cache):
    wait = {"reason": "ImagePullBackOff: image nowhere:1", "waiting_reason": "ImagePullBackOff"}
    cache.observe(view(version="1", **wait), 1.0)
    for version, gone in (("2", False), ("3", True)):
        never = CallbackOutcome.NEVER_STARTED
        told = view(version=version, outcome=never, reason="Could not start: the pod was deleted", gone=gone)
        cache.observe(told, 2.0)
        [known] = cache.pods(ID)
        assert known.reason == (
            "Could not start: the pod was deleted; it had waited: ImagePullBackOff: image nowhere:1"
        )


def test_news_make_the_callback_dirty_and_what_is_known_does_not(cache):
    assert observe(cache, view()) is True
    assert cache.take_dirty(10) == [ID]
    assert observe(cache, view()) is False
    assert cache.take_dirty(10) == []


def test_name_that_a_newer_pod_has_tells_that_the_older_is_gone(cache):
    observe(cache, view(), view(uid="uid-2", version="150"))
    assert [(pod.uid, pod.gone) for pod in cache.pods(ID)] == [("uid-1", True), ("uid-2", False)]


def test_pod_of_another_attempt_or_namespace_says_nothing_about_this_one(cache):
    observe(cache, view(), view(uid="uid-2", name="another"), view(uid="uid-3", namespace="another"))
    assert [pod.gone for pod in cache.pods(ID)] == [False, False, False]


def test_only_the_latest_pods_of_a_callback_are_remembered(cache):
    observe(cache, *(view(uid=f"uid-{number}", name=f"pod-{number}") for number in range(10)))
    assert [pod.uid for pod in cache.pods(ID)] == ["uid-6", "uid-7", "uid-8", "uid-9"]


def test_live_pod_is_remembered_before_gone_ones(cache):
    observe(
        cache,
        view(uid="live", name="pod-0"),
        *(view(uid=f"uid-{number}", name=f"pod-{number}", gone=True) for number in range(1, 8)),
    )
    assert "live" in {pod.uid for pod in cache.pods(ID)}


# Absence --------------------------------------------------------------------------------------------


def mark_absent(cache, *listed):
    return [pod.uid for pod in cache.mark_absent(set(listed), listed_at=20.0)]


def test_pod_that_a_complete_list_does_not_have_is_missed_and_not_yet_gone(cache):
    cache.observe(view(), 10.0)
    cache.observe(view(callback_id=OTHER, uid="uid-2"), 10.0)
    cache.take_dirty(10)
    assert mark_absent(cache, "uid-2") == ["uid-1"]
    assert cache.missed(ID) == [view()]
    assert cache.missed(OTHER) == []
    assert cache.take_dirty(10) == [ID]


def test_pod_that_was_heard_of_after_the_list_is_not_missed_before_the_next_one(cache):
    cache.observe(view(), 10.0)
    mark_absent(cache)
    cache.observe(view(), 20.0)
    assert cache.missed(ID) == []
    assert list(cache.mark_absent(set(), listed_at=40.0)) == cache.missed(ID) == [view()]


def test_pod_of_which_an_older_answer_comes_late_is_still_missed(cache):
    cache.observe(view(), 10.0)
    mark_absent(cache)
    cache.observe(view(version="101"), 19.0)
    assert [pod.uid for pod in cache.missed(ID)] == ["uid-1"]


def test_word_of_the_list_can_be_taken(cache):
    cache.observe(view(), 10.0)
    mark_absent(cache)
    cache.mark_gone(view())
    assert [pod.gone for pod in cache.pods(ID)] == [True]
    assert (cache.missed(ID), mark_absent(cache)) == ([], [])


def test_callback_that_is_forgotten_while_pods_are_missed_is_passed_over(cache):
    cache.observe(view(), 10.0)
    cache.observe(view(callback_id=OTHER, uid="uid-2"), 10.0)
    missing = cache.mark_absent(set(), listed_at=20.0)
    next(missing)
    cache.forget(OTHER)
    assert list(missing) == []


@pytest.mark.parametrize("seen_at", [20.0, 21.0], ids=["at-the-same-time", "later"])
def test_pod_that_was_seen_after_the_list_began_is_not_gone(cache, seen_at):
    """B2: the list was begun before the pod was made."""
    cache.observe(view(), seen_at)
    assert mark_absent(cache) == []


def test_look_that_is_no_news_still_tells_that_the_pod_is_there(cache):
    cache.observe(view(), 10.0)
    cache.observe(view(), 30.0)
    assert mark_absent(cache) == []


def test_late_answer_does_not_take_the_time_of_a_look_back(cache):
    cache.observe(view(version="101"), 30.0)
    cache.observe(view(version="102"), 10.0)
    assert mark_absent(cache) == []


# Dirty and timers -----------------------------------------------------------------------------------


def test_dirty_callbacks_are_taken_in_the_order_in_which_they_became_dirty(cache):
    for callback_id in ("b", "a", "c", "a"):
        cache.mark_dirty(callback_id)
    assert cache.take_dirty(2) == ["b", "a"]
    assert cache.take_dirty(2) == ["c"]


def test_timer_makes_dirty_when_its_time_has_come(cache):
    cache.look_at("late", 100.0)
    cache.look_at("early", 50.0)
    cache.wake(49.9)
    assert cache.take_dirty(10) == []
    cache.wake(60.0)
    assert cache.take_dirty(10) == ["early"]
    cache.wake(1000.0)
    assert cache.take_dirty(10) == ["late"]


def test_timers_of_one_callback_do_not_pile_up(cache):
    for moment in range(1000):
        cache.look_at(ID, 5000.0 + moment)
    cache.wake(10_000.0)
    assert cache.take_dirty(10) == [ID]


def test_forgotten_callback_leaves_nothing_behind(cache):
    cache.observe(view(), 0.0)
    cache.track(ID).held = True
    cache.forget(ID)
    assert (len(cache), cache.tracked(ID), cache.pods(ID), cache.take_dirty(10)) == (0, None, (), [])


def test_ids_with_live_pod(cache):
    observe(cache, view(), view(uid="uid-2", callback_id=OTHER, gone=True))
    assert cache.ids_with_live_pod() == {ID}
    assert len(list(cache.all_pods())) == 2


@given(
    st.lists(
        st.builds(
            view,
            uid=st.sampled_from(["uid-1", "uid-2"]),
            version=st.integers(1, 30).map(str),
            gone=st.booleans(),
            outcome=st.sampled_from(list(CallbackOutcome)),
        ),
        max_size=20,
    )
)
def test_no_order_of_looks_brings_a_gone_pod_back_or_makes_one_older(views):
    cache = CallbackCache()
    for number, one in enumerate(views):
        before = {pod.uid: pod for pod in cache.pods(ID)}
        cache.observe(one, float(number))
        after = {pod.uid: pod for pod in cache.pods(ID)}
        for uid, known in before.items():
            if uid in after:
                assert after[uid].gone or not known.gone
                if not after[uid].gone:
                    assert int(after[uid].resource_version) >= int(known.resource_version)
    assert len({pod.uid for pod in cache.pods(ID)}) == len(cache.pods(ID))
