"""How a full comparison is taken in: a part at a time, and then as if it had been one."""

from __future__ import annotations

import pytest

from airflow_kubernetes_callbacks.cache import CallbackCache
from airflow_kubernetes_callbacks.comparison import Comparison
from airflow_kubernetes_callbacks.merging import Merge
from airflow_kubernetes_callbacks.situation import RowState
from tests.test_cache import view

LONG_AGO = 0.0


def comparison(count, **changes):
    pods = tuple(view(uid=f"uid-{n}", callback_id=f"id-{n}") for n in range(count))
    return Comparison(**{"listed_at": 5.0, "pods": pods, "rows_read": True, "pods_read": True, **changes})


def never(view, row_state):
    return False


def test_large_comparison_is_taken_in_over_several_heartbeats():
    cache = CallbackCache()
    merge = Merge(cache, comparison(1200), never)
    parts = []
    while not merge.advance(LONG_AGO):
        parts.append(len(cache))
    assert parts == [500, 1000, 1200]


def test_comparison_that_fits_is_taken_in_at_once():
    cache = CallbackCache()
    assert Merge(cache, comparison(1200), never).advance(float("inf"))
    assert len(cache) == 1200


@pytest.mark.parametrize("complete", [True, False], ids=["whole-list", "no-list"])
def test_pod_that_is_not_listed_is_missed_only_if_the_list_is_whole(complete):
    cache = CallbackCache()
    cache.observe(view(uid="other", callback_id="other"), seen_at=1.0)
    Merge(cache, comparison(1, pods_read=complete), never).advance(float("inf"))
    assert len(cache.missed("other")) == complete


@pytest.mark.parametrize(
    ("active", "parts"),
    [pytest.param(True, [200, 400, 450], id="active"), pytest.param(False, [450], id="over")],
)
def test_many_pods_that_are_missed_are_looked_for_over_several_heartbeats(active, parts):
    """Each may cost a request, unless its callback is over."""
    cache = CallbackCache()
    ids = [f"id-{number}" for number in range(450)]
    for callback_id in ids:
        cache.observe(view(uid=callback_id, callback_id=callback_id), seen_at=1.0)
    found = comparison(0, active=dict.fromkeys(ids, RowState.RUNNING) if active else {})
    merge = Merge(cache, found, never)
    seen, done = [], False
    while not done:
        done = merge.advance(float("inf"))
        seen.append(sum(len(cache.missed(callback_id)) for callback_id in ids))
    assert seen == parts


def test_callback_is_looked_at_again_where_its_row_asks_for_it():
    cache = CallbackCache()
    found = comparison(3, active={"id-1": RowState.QUEUED})
    Merge(cache, found, never).advance(float("inf"))
    cache.take_dirty(100)
    merge = Merge(cache, found, lambda view, row_state: row_state is RowState.QUEUED)
    assert merge.advance(float("inf"))
    assert cache.take_dirty(100) == ["id-1"]
