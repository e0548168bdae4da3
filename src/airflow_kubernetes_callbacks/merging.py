"""A full comparison is taken in a part per heartbeat, however many pods there are.

No effects but on the cache. Only the scheduler's thread uses it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_kubernetes_callbacks.cache import CallbackCache
    from airflow_kubernetes_callbacks.comparison import Comparison
    from airflow_kubernetes_callbacks.outcome import PodView
    from airflow_kubernetes_callbacks.situation import RowState

#: Pods between two looks at the clock.
_AT_ONCE = 500
#: Pods that may be missed per heartbeat: each may cost a request.
_MISSED_AT_ONCE = 200


class Merge:
    """Takes one comparison into the cache.

    :param wants_a_look: tells of a pod, and the state of its row if that is active, whether its callback
        has to be looked at though nothing has changed.
    """

    def __init__(
        self,
        cache: CallbackCache,
        found: Comparison,
        wants_a_look: Callable[[PodView, RowState | None], bool],
    ) -> None:
        self.found = found
        self._cache = cache
        self._wants_a_look = wants_a_look
        self._steps = self._run()

    def advance(self, until: float) -> bool:
        """Go on until that time (monotonic seconds), a little at least; True when nothing is left."""
        return all(may_go_on and time.monotonic() < until for may_go_on in self._steps)

    def _run(self) -> Iterator[bool]:
        """Yield now and then whether this heartbeat may go on if it has the time."""
        found, cache = self.found, self._cache
        for number, view in enumerate(found.pods, 1):
            cache.observe(view, found.listed_at)
            if number % _AT_ONCE == 0:
                yield True
        if found.pods_read:
            listed = {view.uid for view in found.pods}
            missed = 0
            for view in cache.mark_absent(listed, found.listed_at, found.unlisted):
                missed += view.callback_id in found.active  # of the others nothing is asked
                if missed == _MISSED_AT_ONCE:
                    missed = 0
                    yield False
            yield True
        for number, view in enumerate(list(cache.all_pods()), 1):
            if self._wants_a_look(view, found.active.get(view.callback_id)):
                cache.mark_dirty(view.callback_id)
            if number % (4 * _AT_ONCE) == 0:
                yield True
