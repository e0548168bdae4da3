"""What one scheduler knows of callbacks and their pods: a cache, to be lost at any time.

No effects and no clock of its own. Only the scheduler's thread uses it.
"""

from __future__ import annotations

import dataclasses
import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_kubernetes_callbacks.outcome import remembering_the_run, remembering_the_wait
from airflow_kubernetes_callbacks.situation import Memory

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from airflow_kubernetes_callbacks.outcome import PodView
    from airflow_kubernetes_callbacks.situation import PodRequest, Refusal

#: Pods of one callback that are remembered, gone ones included; live ones and late attempts before others.
_PODS_PER_CALLBACK = 4


@dataclass(slots=True)
class Track:
    """What is remembered of one callback besides its pods."""

    #: Its workload waits in the executor's queue, or its pod is being created.
    held: bool = False
    #: Since when it waits there (monotonic seconds).
    held_since: float = 0.0
    #: This process saw its row, or was handed its workload.
    known: bool = False
    #: The workload, while it may be needed for a launch.
    workload: Any = None
    #: Requests under way; the callback is not looked at before they are answered.
    busy: int = 0
    #: Requests to create the pod that were refused for now, in a row.
    create_failures: int = 0
    #: One of them may have created it all the same.
    may_be_created: bool = False
    #: The attempt whose creation is to be repeated.
    repeat_attempt: int | None = None
    #: The launch that failed for good, and when that was (monotonic seconds).
    refusal: Refusal | None = None
    refused_at: float = 0.0
    retry_at: float = 0.0
    orphaned_since: float | None = None
    condemned: dict[str, str] = field(default_factory=dict)
    #: Requests about its pods that were refused for good, by uid, and in which words.
    denied: dict[tuple[PodRequest, str], str] = field(default_factory=dict)
    #: Since when (monotonic seconds) such requests are refused for a lack of permission, which may be no more
    #: than an API server that has just started.
    refused_since: dict[tuple[PodRequest, str], float] = field(default_factory=dict)
    #: When it was last looked at, its row was not active: what is refused now says nothing about a later run.
    over: bool = False
    #: Since when (epoch seconds) pods are seen to wait for what is not waited for long, by uid.
    stalled_since: dict[str, float] = field(default_factory=dict)
    #: Namespace and name of pods that were asked for by their name.
    looked_for: set[tuple[str, str]] = field(default_factory=set)
    #: Requests about its pods that failed, in a row; what the last one said; when the next may be made.
    failed_requests: int = 0
    failure_told: str = ""
    ask_again_at: float = 0.0
    #: In which words the last request for the Secret that its pod waits for failed.
    supply_refusal: str = ""
    #: When it is looked at again because the last look failed unexpectedly (epoch seconds).
    look_after_error: float = 0.0
    #: How often its end was reported, and the row was still not terminal.
    reports: int = 0

    def memory(self) -> Memory:
        """Return what of this a decision depends on."""
        return Memory(
            held=self.held,
            known=self.known,
            condemned=tuple(self.condemned.items()),
            orphaned_since=self.orphaned_since,
            retry_at=self.retry_at,
            repeat_attempt=self.repeat_attempt,
            refusal=self.refusal,
            supply_refusal=self.supply_refusal,
            denials=tuple((request, uid, words) for (request, uid), words in self.denied.items()),
            stalled=tuple(self.stalled_since.items()),
            looked_for=frozenset(self.looked_for),
        )


def _newer(view: PodView, known: PodView) -> bool:
    """Tell whether *view* is not older than *known*, two looks at one pod."""
    if known.gone or view.gone:
        return view.gone and (not known.gone or (view.explained and not known.explained))
    if view.resource_version.isdecimal() and known.resource_version.isdecimal():
        return int(view.resource_version) >= int(known.resource_version)
    return True


class CallbackCache:
    """Pods by callback, what is remembered of each callback, and which ones need a look."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[PodView, ...]] = {}
        self._tracks: dict[str, Track] = {}
        self._seen_at: dict[str, float] = {}
        self._missed_at: dict[str, float] = {}
        self._dirty: dict[str, None] = {}
        self._timers: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._pods)

    def pods(self, callback_id: str) -> tuple[PodView, ...]:
        return self._pods.get(callback_id, ())

    def all_pods(self) -> Iterable[PodView]:
        for views in self._pods.values():
            yield from views

    def ids_with_live_pod(self) -> frozenset[str]:
        return frozenset(
            callback_id for callback_id, views in self._pods.items() if any(not v.gone for v in views)
        )

    def track(self, callback_id: str) -> Track:
        """Return what is remembered of the callback; to be changed in place."""
        return self._tracks.setdefault(callback_id, Track())

    def idle_tracks(self) -> Iterable[str]:
        """Yield callbacks without pod of which no answer is to come: what became of them may have gone unseen.

        Also one that is to be launched: it may wait for a list, and another scheduler may have ended it.
        """
        for callback_id, track in self._tracks.items():
            if not (track.held or track.busy) and callback_id not in self._pods:
                yield callback_id

    def tracked(self, callback_id: str) -> Track | None:
        return self._tracks.get(callback_id)

    def observe(self, view: PodView, seen_at: float) -> bool:
        """Take in a look at a pod, made at *seen_at* (monotonic seconds); tell whether it is news."""
        views = self._pods.get(view.callback_id, ())
        known = next((v for v in views if v.uid == view.uid), None)
        if known is not None:
            self._seen_at[view.uid] = max(seen_at, self._seen_at.get(view.uid, seen_at))
            if view == known or not _newer(view, known):
                return False
            view = remembering_the_wait(remembering_the_run(view, known), known)
            if known.explained and not view.explained and view.outcome is known.outcome:
                view = dataclasses.replace(view, explained=True, reason=known.reason)
                if dataclasses.replace(known, resource_version=view.resource_version) == view:
                    # No news, but a request that names the version has to name this one.
                    self._pods[view.callback_id] = tuple(view if one is known else one for one in views)
                    return False
        others = []
        for other in views:
            if other.uid == view.uid:
                continue
            # Names are unique: where a newer pod has it, the old one of that name is gone.
            replaced = other.name == view.name and other.namespace == view.namespace and not other.gone
            others.append(dataclasses.replace(other, gone=True) if replaced else other)
        if len(others) >= _PODS_PER_CALLBACK:
            least = min(others, key=lambda other: (not other.gone, other.attempt))
            others.remove(least)
            self._forget_pod(least)
        self._pods[view.callback_id] = (*others, view)
        self._seen_at[view.uid] = max(seen_at, self._seen_at.get(view.uid, seen_at))
        self.mark_dirty(view.callback_id)
        return True

    def mark_absent(
        self, listed_uids: Collection[str], listed_at: float, unlisted: Collection[str] = ()
    ) -> Iterator[PodView]:
        """A complete list, begun at *listed_at*, has only *listed_uids*: note, and yield, what it misses.

        That those pods are gone is likely and not certain: a list selects by labels, and admission or a
        person may have taken them off (kubernetes/kubernetes#55559 and SPARK-33711 met other causes).

        :param unlisted: namespaces that the list does not cover.
        """
        for view in list(self.all_pods()):
            if view.namespace in unlisted or view.uid in listed_uids or view.uid not in self._seen_at:
                continue
            if view.gone or self._seen_at[view.uid] >= listed_at:
                continue
            self._missed_at[view.uid] = listed_at
            self.mark_dirty(view.callback_id)
            yield view

    def missed(self, callback_id: str) -> list[PodView]:
        """Return its pods that a complete list did not have, and of which nothing was heard since."""
        return [
            view
            for view in self.pods(callback_id)
            if not view.gone
            and self._seen_at[view.uid] < self._missed_at.get(view.uid, self._seen_at[view.uid])
        ]

    def mark_gone(self, pod: PodView) -> None:
        """Take the word of the list that did not have this pod."""
        self.observe(dataclasses.replace(pod, gone=True), self._missed_at.get(pod.uid, 0.0))

    def mark_dirty(self, callback_id: str) -> None:
        self._dirty[callback_id] = None

    def take_dirty(self, limit: int) -> list[str]:
        """Return up to *limit* callbacks that need a look, those first that have waited longest."""
        taken = [callback_id for callback_id, _ in zip(self._dirty, range(limit), strict=False)]
        for callback_id in taken:
            del self._dirty[callback_id]
        return taken

    def look_at(self, callback_id: str, at: float) -> None:
        """Make the callback dirty at *at* (epoch seconds)."""
        heapq.heappush(self._timers, (at, callback_id))

    def wake(self, now: float) -> None:
        """Make dirty all callbacks whose time has come."""
        while self._timers and self._timers[0][0] <= now:
            self.mark_dirty(heapq.heappop(self._timers)[1])

    def forget(self, callback_id: str) -> None:
        for view in self._pods.pop(callback_id, ()):
            self._forget_pod(view)
        self._tracks.pop(callback_id, None)
        self._dirty.pop(callback_id, None)

    def _forget_pod(self, pod: PodView) -> None:
        self._seen_at.pop(pod.uid, None)
        self._missed_at.pop(pod.uid, None)
