"""A log that is followed to the end of its container, over however many connections it comes.

A stream ends early when an API server restarts, a gateway has had enough or the node's connection breaks,
in an orderly way or not. Each line is asked for with its time, so that the next stream goes on behind it.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_kubernetes_callbacks import pod_status
from airflow_kubernetes_callbacks.api_errors import ApiAnswer, classify
from airflow_kubernetes_callbacks.cli.output import CommandError, Status, fail
from airflow_kubernetes_callbacks.identity import BASE_CONTAINER
from airflow_kubernetes_callbacks.pauses import growing_pause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from airflow_kubernetes_callbacks.api_errors import ApiFailure
    from airflow_kubernetes_callbacks.cli.cluster import Cluster
    from airflow_kubernetes_callbacks.cli.model import PodFacts

#: Seconds before a log is opened again, at first and at most: somebody is looking on.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 15.0
_STAMPED = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) (.*)", re.DOTALL)
_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")


@dataclass
class Place:
    """How far a log has been read."""

    #: The latest time of a line, as it came and to compare, and how many lines had it.
    stamp: str | None = None
    _latest: datetime | None = None
    _times: int = 0
    #: All lines so far.
    lines: int = 0

    def unread(self, stamped_lines: Iterable[str]) -> Iterator[str]:
        """Yield the lines behind this place, without their times, and move the place behind each.

        Kubernetes gives whole seconds again: lines that were read are passed over. What has no time is new.
        """
        stopped, seen = self._latest, self._times
        for line in stamped_lines:
            if (match := _STAMPED.fullmatch(line)) is None:
                self.lines += 1
                yield line
                continue
            moment = datetime.fromisoformat(match[1])
            if stopped is not None:
                if moment < stopped:
                    continue
                if moment == stopped and seen:
                    seen -= 1
                    continue
                stopped = None
            self._note(match[1], moment)
            yield match[2]

    def _note(self, stamp: str, moment: datetime) -> None:
        self.lines += 1
        if self._latest is None or moment > self._latest:
            self.stamp, self._latest, self._times = stamp, moment, 1
        elif moment == self._latest:
            self._times += 1


def followed(
    cluster: Cluster, pod: PodFacts, *, container: str, tail: int | None, active: Callable[[], bool]
) -> Iterator[str]:
    """Yield the lines of a container's log until the container has ended.

    :param active: tells, by the row, whether the callback has yet to end; else the log is read for the last time.
    :raises CommandError: it broke off for good after some lines were read.
    """
    place, follow, fruitless = Place(), True, 0
    told: str | None = None
    while True:
        before, broken = place.lines, None
        try:
            yield from place.unread(_opened(cluster, pod, container, tail, place, follow=follow))
        except Exception as error:
            broken = classify(error)
            if broken.answer is not ApiAnswer.TRANSIENT or not follow or _gone(cluster, pod):
                if not place.lines:
                    raise
                raise _broke_off(pod, broken) from error
        if broken is None and (not follow or _has_ended(cluster, pod, container)):
            return
        if broken is not None and broken.message != told:
            told = broken.message
            fail(f"The log of pod {pod.where} broke off, and is opened again: {told}")
        fruitless = fruitless + 1 if place.lines == before else 1
        time.sleep(growing_pause(fruitless, _FIRST_PAUSE, _LONGEST_PAUSE))
        follow = active()


def _opened(
    cluster: Cluster, pod: PodFacts, container: str, tail: int | None, place: Place, *, follow: bool
) -> Iterator[str]:
    """Ask for the lines from this place on; of a log of which nothing was read, the last ones."""
    return cluster.log_lines(
        pod.view,
        container=container,
        tail=None if place.stamp else tail,
        follow=follow,
        stamped=True,
        since=place.stamp,
    )


def _broke_off(pod: PodFacts, failure: ApiFailure) -> CommandError:
    return CommandError(
        f"The log of pod {pod.where} broke off, and its end may be missing: {failure.message}. Without --follow "
        "all that is there is printed, or the log that was kept.",
        Status.INCOMPLETE,
    )


def _now(cluster: Cluster, pod: PodFacts) -> PodFacts | None:
    """Return the pod as it is now; None where it is gone."""
    now = cluster.read_facts(pod.view.namespace, pod.view.name)
    return now if now is not None and now.view.uid == pod.view.uid else None


def _gone(cluster: Cluster, pod: PodFacts) -> bool:
    try:
        return _now(cluster, pod) is None
    except Exception:  # noqa: BLE001 - it is not known to be gone
        return False


def _has_ended(cluster: Cluster, pod: PodFacts, container: str) -> bool:
    """Tell whether no more lines can come; where the Kubernetes API does not say so, they can."""
    try:
        now = _now(cluster, pod)
    except Exception:  # noqa: BLE001
        return False
    if now is None:
        return True
    if container == BASE_CONTAINER:
        return now.view.outcome.terminal
    status = pod_status.mapping(now.document, "status")
    states = [
        pod_status.mapping(one, "state")
        for key in _STATUSES
        for one in pod_status.mappings(status, key)
        if one.get("name") == container
    ]
    return status.get("phase") in ("Succeeded", "Failed") or any("terminated" in state for state in states)
