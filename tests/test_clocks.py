"""How far the API server's clock is away, from what creations tell."""

from __future__ import annotations

import math

import pytest

from airflow_kubernetes_callbacks.clocks import ApiClock, clock_offset

#: When the request is made, by the scheduler's clock.
ASKED = 1_800_000_000.4


@pytest.mark.parametrize("took", [0.05, 1.0, 25.0])
@pytest.mark.parametrize("moment", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("offset", [-400.0, -3.5, -2.0, -0.7, 0.0, 0.9, 2.0, 3.5, 400.0])
def test_offset_is_never_overstated_and_close_where_the_answer_comes_at_once(offset, moment, took):
    """Whole seconds, a slow answer and small differences make it smaller, never larger."""
    created = math.floor(ASKED + moment * took - offset)
    measured = clock_offset(ASKED, ASKED + took, created)
    assert 0 <= measured <= max(offset, 0.0) or min(offset, 0.0) - 0.001 <= measured <= 0
    if abs(offset) <= 2.0:
        assert measured == 0.0
    elif took < 1.0:
        assert measured == pytest.approx(offset, abs=1.5)


def test_clocks_count_as_equal_before_anything_was_created():
    assert ApiClock().offset == 0.0


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        pytest.param([360.0], 360.0, id="behind"),
        pytest.param([-360.0], -360.0, id="ahead"),
        pytest.param([0.0, 360.0, 0.0], 360.0, id="one-of-several-servers-behind"),
        pytest.param([0.0, -360.0, 0.0], 0.0, id="one-of-several-servers-ahead"),
        pytest.param([360.0, *[0.0] * 10], 0.0, id="mended-some-creations-ago"),
    ],
)
def test_offset_by_which_pods_may_wait_longest_counts(offsets, expected):
    clock = ApiClock()
    for offset in offsets:
        clock.measure(ASKED, ASKED + 0.05, math.floor(ASKED - offset))
    assert clock.offset == pytest.approx(expected, abs=1.5)
