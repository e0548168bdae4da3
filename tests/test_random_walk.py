"""Random walks over schedulers, cluster and database: the invariants of the design hold in every state.

Every step is one thing that happens by itself or to somebody: a round of a scheduler's loop, a crash in the
middle of it, a request that arrives, or is lost before or after it took effect, a watch event that comes
late or never, a step in the life of a pod, a deletion from outside, a failing database, time that passes.
In the end all comes to rest, and every callback has come to its end.

Within one round of its loop a scheduler is not overtaken by others: the round reads rows, decides, and
records within milliseconds, and what would have to happen in between takes seconds. The exception is the
hand-over of pending rows, where core commits late (see ``hand_out_to_several``).
"""

from __future__ import annotations

import logging
import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from airflow_kubernetes_callbacks.settings import CallbackSettings
from tests.fakes.world import FAILED, SUCCESS, World

SETTINGS = CallbackSettings(
    reconcile_interval=10.0,
    launch_retries=2,
    create_retries=3,
    launch_retry_delay=5.0,
    launch_retry_max_delay=20.0,
    pending_timeout=60.0,
    start_error_grace=20.0,
    node_lost_timeout=40.0,
)
#: Seconds after which a scheduler without heartbeat is taken for dead.
THRESHOLD = 30.0
MOST_SCHEDULERS = 3
MOST_CALLBACKS = 4

KINDS = st.sampled_from(["succeeds", "raises", "never_starts", "starts_at_second", "refused"])
INDEX = st.integers(0, 7)
FAULTS = st.lists(
    st.sampled_from([None, "lost before", "lost after", "no connection", "429", "500", "409", "404"]),
    min_size=1,
    max_size=2,
)
POINTS = ["after heartbeat", "after drain", "after events", "in hand-out", None]


class SlowSchedulers(RuleBasedStateMachine):
    """Schedulers that hang, crash and go on, and a callback whose second pod runs: few steps, and likely ones.

    What one of them believes of a callback is old when it goes on: the others have launched it again, or told
    its end. Among all the steps of ``Walk`` such a course hardly ever comes about.
    """

    def __init__(self):
        super().__init__()
        logging.disable(logging.CRITICAL)
        self.world = None

    @initialize(api=st.booleans(), schedulers=st.integers(2, 3))
    def begin(self, api, schedulers):
        self.world = World(SETTINGS, api_owns_running=api)
        for _ in range(schedulers):
            self.world.add_scheduler()
        self.world.add_callback("starts_at_second")

    def teardown(self):
        try:
            if self.world is not None:
                rest(self.world)
                self.world.check_end()
        finally:
            if self.world is not None:
                self.world.close()
            logging.disable(logging.NOTSET)

    # Who and what ----------------------------------------------------------------------------------

    def _alive(self, index):
        alive = [scheduler for scheduler in self.world.schedulers if scheduler.alive]
        return alive[index % len(alive)] if alive else None

    def _pod(self, index):
        pods = self.world.pods(done=False)
        return pods[index % len(pods)] if pods else None

    # The usual -------------------------------------------------------------------------------------

    @rule(index=INDEX, work=st.booleans())
    def turn(self, index, work):
        """A scheduler does what it does every second, and most of its requests are answered."""
        scheduler = self._alive(index)
        if scheduler is not None:
            scheduler.watch()
            self._loop(scheduler)
            if work:
                scheduler.do_all_work()

    @rule(index=INDEX, steps=st.integers(1, 4))
    def progress(self, index, steps):
        """Nodes do the next things that there are to do for a pod."""
        for _ in range(steps):
            if (pod := self._pod(index)) is not None:
                self.world.progress(pod)

    @rule(index=INDEX, rounds=st.integers(1, 20))
    def hang(self, index, rounds):
        """A scheduler does nothing for a while and is not taken for dead; the others and the nodes go on.

        What runs goes on running, so that the states in between last for as long as they do in a cluster.
        """
        slow = self._alive(index)
        for _ in range(rounds):
            for scheduler in self.world.schedulers:
                if scheduler.alive and scheduler is not slow:
                    scheduler.watch()
                    self._loop(scheduler)
                    scheduler.do_all_work()
            for pod in self.world.pods(done=False):
                if not self.world.runs(pod):
                    self.world.progress(pod)
            self.world.clock.now += 5.0

    @rule(seconds=st.sampled_from([1.0, 6.0, 11.0, 61.0]))
    def wait(self, seconds):
        self.world.clock.now += seconds

    @rule(index=INDEX)
    def compare_everything(self, index):
        """A comparison is due, also of one that was silent and shows its heartbeat again."""
        scheduler = self._alive(index)
        if scheduler is not None:
            scheduler.heartbeat_is_fresh = True
            scheduler.controller.resync()

    @rule(index=INDEX, point=st.sampled_from(POINTS))
    def crash(self, index, point):
        """A scheduler dies in the middle of its loop, or between two rounds."""
        scheduler = self._alive(index)
        if scheduler is not None:
            if point is not None:
                self._loop(scheduler, point)
            scheduler.uncommitted.clear()
            scheduler.crash()

    def _loop(self, scheduler, stop=None):
        if scheduler.uncommitted:
            scheduler.commit_hand_out()
            return
        scheduler.heartbeat()
        if stop == "after heartbeat":
            return
        events = scheduler.drain()
        if stop == "after drain":
            return
        scheduler.record(events)
        if stop == "after events":
            return
        scheduler.hand_out()
        if stop != "in hand-out":
            scheduler.commit_hand_out()

    @invariant()
    def holds(self):
        if self.world is not None:
            self.world.check()


class Walk(SlowSchedulers):
    """All that can happen."""

    @initialize(
        api=st.booleans(),
        finalizer=st.booleans(),
        keep_failed=st.booleans(),
        kinds=st.lists(KINDS, min_size=1, max_size=2),
        schedulers=st.integers(1, 2),
        forbidden=st.sampled_from([(), (), (), ("patch",), ("delete",), ("patch", "delete")]),
        skew=st.sampled_from([0.0, 0.0, 120.0, -120.0]),
    )
    def begin(self, api, finalizer, keep_failed, kinds, schedulers, forbidden, skew):
        self.world = World(
            SETTINGS, api_owns_running=api, finalizer=finalizer, keep_failed=keep_failed, skew=skew
        )
        self.world.forbidden.update(forbidden)
        for _ in range(schedulers):
            self.world.add_scheduler()
        for kind in kinds:
            self.world.add_callback(kind)

    @precondition(lambda self: self.world and len(self.world.database.rows) < MOST_CALLBACKS)
    @rule(kind=KINDS)
    def add_callback(self, kind):
        self.world.add_callback(kind)

    @precondition(lambda self: self.world and len(self.world.schedulers) < MOST_SCHEDULERS)
    @rule()
    def add_scheduler(self):
        self.world.add_scheduler()

    # What else can happen --------------------------------------------------------------------------

    @rule(index=INDEX, which=INDEX, faults=st.one_of(st.just([]), FAULTS))
    def do_work(self, index, which, faults):
        """One request of a scheduler is made, also of one that has crashed and is not known to be dead."""
        scheduler = self.world.schedulers[index % len(self.world.schedulers)]
        scheduler.do_work(which, faults)

    @rule(index=INDEX, limit=st.integers(1, 5))
    def lose_watch_events(self, index, limit):
        scheduler = self._alive(index)
        if scheduler is not None:
            scheduler.watch(limit, lose=True)

    @rule(index=INDEX)
    def silence(self, index):
        """A scheduler has shown no heartbeat for so long that the others take it for dead."""
        self.world.clock.now += THRESHOLD + 1
        scheduler = self.world.schedulers[index % len(self.world.schedulers)]
        if not scheduler.uncommitted:
            scheduler.forget()

    @rule(
        index=INDEX,
        how=st.sampled_from(["reject", "delete", "remove by force", "delete its row", "take its labels off"]),
    )
    def disturb(self, index, how):
        """Nodes and people do something to a pod, or to the row of its callback."""
        if (pod := self._pod(index)) is None:
            return
        if how == "reject":
            self.world.reject(pod)
        elif how == "delete its row":
            self.world.row_of(pod).deleted = True
        elif how == "take its labels off":
            if "deletionTimestamp" not in pod["metadata"]:  # the watch takes that for its end (known limit)
                self.world.take_labels_off(pod)
        else:
            self.world.delete_from_outside(pod, force=how != "delete")

    @rule(count=st.integers(1, 3))
    def break_database(self, count):
        self.world.database.broken = count

    @rule(index=INDEX, slowly=st.booleans())
    def hand_out_to_several(self, index, slowly):
        """Schedulers read the same pending rows before any of them commits.

        *slowly*: when core commits at last, it writes over whatever has happened since. Only for Airflow
        3.3: from 3.4 on, a callback that another scheduler brought to its end within this one transaction
        runs again, and nothing that an executor can see tells it from one that never began. Nor where pods
        may not be deleted: a pod that is given up stays then, beside that of the next attempt (known limit).
        """
        alive = [scheduler for scheduler in self.world.schedulers if scheduler.alive]
        handed = [scheduler for scheduler in alive if not scheduler.uncommitted]
        for scheduler in handed:
            scheduler.hand_out()
        slowly = slowly and not self.world.api_owns_running and not self.world.forbidden
        late = handed[index % len(handed)] if handed and slowly else None
        for scheduler in handed:
            if scheduler is not late:
                scheduler.commit_hand_out()


def rest(world, rounds=200):
    """Let everything that is under way come to its end, with nothing in its way any more."""
    world.database.broken = 0
    for scheduler in world.schedulers:
        if scheduler.alive:
            scheduler.heartbeat_is_fresh = True
        else:
            scheduler.forget()
    if not any(scheduler.alive for scheduler in world.schedulers):
        world.add_scheduler()
    for number in range(rounds):
        for scheduler in world.schedulers:
            if not scheduler.alive:
                continue
            scheduler.commit_hand_out()
            scheduler.watch()
            scheduler.heartbeat()
            scheduler.record(scheduler.drain())
            scheduler.hand_out()
            scheduler.commit_hand_out()
            scheduler.do_all_work()
        for pod in world.pods(done=False):
            if world.store.find("pods", "airflow", pod["metadata"]["name"]):
                world.progress(world.store.get("pods", "airflow", pod["metadata"]["name"]))
        world.clock.now += 5.0
        world.check()
        if all(row.deleted or row.state in (SUCCESS, FAILED) for row in world.database.rows.values()):
            world.forbidden.clear()  # rows end without, and pods go with the permission
        if number > 20 and at_rest(world):
            return


def at_rest(world):
    rows = world.database.rows.values()
    return (
        all(row.deleted or row.state in (SUCCESS, FAILED) for row in rows)
        and not [pod for pod in world.pods(done=False) if not world.is_nobodys(pod)]
        and not any(s.alive and (s.executor.running or s.executor.event_buffer) for s in world.schedulers)
    )


@pytest.mark.timeout(600)  # shrinking takes its time, and a walk that is cut off looks like one that failed
@pytest.mark.parametrize(
    ("walk", "steps"),
    [pytest.param(Walk, 40, id="all"), pytest.param(SlowSchedulers, 20, id="slow-schedulers")],
)
def test_invariants_hold_on_every_walk(walk, steps):
    run_state_machine_as_test(
        walk,
        settings=settings(
            max_examples=int(os.environ.get("WALKS", "100")),
            stateful_step_count=int(os.environ.get("STEPS", steps)),
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
