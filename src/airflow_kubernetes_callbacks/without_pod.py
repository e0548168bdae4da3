"""What to do about a callback of which no pod is known. Pure; a part of :mod:`.reconcile`.

It was not launched yet, or its pod is gone and nobody saw how it ended, or lists and watches do not find it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_kubernetes_callbacks.actions import (
    Action,
    EmitFailure,
    FailureKind,
    Launch,
    LookAgain,
    LookFor,
    RecordAttempt,
)
from airflow_kubernetes_callbacks.identity import attempt_in, pod_name
from airflow_kubernetes_callbacks.situation import RowState, Situation
from airflow_kubernetes_callbacks.unstarted import given_up

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_kubernetes_callbacks.settings import CallbackSettings

#: The reason of a last pod that was deleted by a scheduler that is gone.
FORGOTTEN = "Could not start: its last pod was deleted because it did not start; why is not known any more."


def without_pod(situation: Situation, settings: CallbackSettings) -> tuple[Action, ...]:
    """No pod of this callback is known."""
    row, memory = situation.row, situation.memory
    if memory.held:
        return ()
    was_created = row.launched_pod is not None and not situation.api_owns_running
    launches = row.next_attempt - 1 - row.history
    exhausted = row.state is RowState.QUEUED and launches > settings.launch_retries
    done_with = was_created or exhausted or row.state is not RowState.QUEUED
    # Another scheduler has made the attempt that was asked for here: its pod may be there still.
    overtaken = row.next_attempt > max(memory.repeat_attempt or 0, row.history + 1)
    if memory.repeat_attempt is not None and not done_with and not overtaken:
        if situation.now < memory.retry_at:
            return (LookAgain(memory.retry_at),)
        attempt = max(memory.repeat_attempt, row.next_attempt)
        # Recorded where another's pod had the name: its name may come free, for a scheduler that does not know.
        record = (RecordAttempt(attempt),) if attempt > row.next_attempt else ()
        return (*record, Launch(attempt))
    if not situation.pods_complete:
        return ()  # an absence that no complete list confirms means nothing
    if (look := _look_by_name(situation)) is not None:
        return (look,)
    if exhausted:
        return (EmitFailure(given_up(FORGOTTEN, launches), FailureKind.UNSTARTED),)
    if row.state is RowState.RUNNING:
        return (
            EmitFailure(
                "The pod disappeared while running: the row says RUNNING and there is no pod. The callback "
                "may have taken effect. Run it again with 'airflow kubernetes-callbacks retry' if it should.",
                FailureKind.LOST,
            ),
        )
    if was_created:
        return (
            EmitFailure(
                f"Pod {row.launched_pod} was created and is gone, and nobody saw how it ended (deleted while "
                "no scheduler was looking). The callback may have taken effect. Run it again with "
                "'airflow kubernetes-callbacks retry' if it should.",
                FailureKind.LOST,
            ),
        )
    return _orphaned_row(situation, settings)


def _look_by_name(situation: Situation) -> LookFor | None:
    """Return the look at a pod that existed and may still, if it was not made yet.

    Lists and watches select by labels, and somebody may have taken them off.
    """
    made = situation.memory.looked_for
    return next((look for look in _looks(situation) if (look.namespace, look.name) not in made), None)


def _looks(situation: Situation) -> Iterator[LookFor]:
    """Yield the looks at the pods that the row says there were: by its record, or else by the attempt."""
    row = situation.row
    if row.launched_pod is not None:
        namespace, _, name = row.launched_pod.partition("/")
        if namespace and attempt_in(name, row.callback_id).isdecimal():  # what a row holds may be anything
            yield LookFor(namespace, name, recorded=True)
    elif situation.namespace is not None:
        if row.state is RowState.RUNNING:  # a launch that is still to be made is told if its name is taken
            yield LookFor(situation.namespace, pod_name(row.callback_id, row.next_attempt))
        # The one that was to make way for this attempt may be there still, and have begun after all.
        if row.next_attempt - 1 > row.history:
            yield LookFor(situation.namespace, pod_name(row.callback_id, row.next_attempt - 1))


def _orphaned_row(situation: Situation, settings: CallbackSettings) -> tuple[Action, ...]:
    """QUEUED, no pod, and not held here: the scheduler that had it died, or still holds it."""
    now, memory = situation.now, situation.memory
    if now < memory.retry_at:
        return (LookAgain(memory.retry_at),)
    if situation.alive_others is None:
        return ()
    if situation.alive_others:
        # A sibling may hold it in its queue. Two launches of one attempt are one pod, but whoever
        # holds it should have its turn first.
        since = memory.orphaned_since if memory.orphaned_since is not None else now
        if now < since + settings.reconcile_interval:
            return (LookAgain(since + settings.reconcile_interval),)
    return (Launch(situation.row.next_attempt),)  # it has no slot yet: it waits for one like any other
