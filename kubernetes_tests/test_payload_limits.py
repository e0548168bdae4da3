"""How large a callback may be: what fits arrives whole and unchanged, what does not fails at once and says so.

To the byte that is tested without a cluster; here the size of a workload differs by a few bytes from one
to the next (the times in it).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from airflow_kubernetes_callbacks.payload import MAX_ARGUMENT_BYTES, MAX_SECRET_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kubernetes_tests.scenario import MissedDeadline, Scenario

#: More bytes than two workloads with the same arguments differ by.
MARGIN = 100
LIMITS = {"argument": MAX_ARGUMENT_BYTES, "secret": MAX_SECRET_BYTES}


@pytest.fixture(scope="module", params=list(LIMITS))
def delivering(
    request: pytest.FixtureRequest, scenarios: Callable[[str, dict[str, object]], Scenario]
) -> Iterator[tuple[Scenario, str]]:
    scenario = scenarios("sqlite", {"kubernetes_callbacks.payload_delivery": request.param})
    scenario.start_scheduler()
    yield scenario, request.param
    scenario.stop_schedulers()


def miss(scenario: Scenario, filler: str) -> MissedDeadline:
    (callback,) = scenario.miss("measure", filler=filler)
    return callback


def told_size(scenario: Scenario, callback: MissedDeadline) -> int:
    """Return the size in bytes that the failure of a callback that is too large tells."""
    (row,) = scenario.wait_for_state(callback, "failed")
    output = row.output or ""
    assert output.startswith("Could not start: the workload has "), output
    assert scenario.namespace.pod_of(callback.id) is None
    assert not any(callback.id in name for name in scenario.launched_pods())
    assert scenario.events(callback) == ["failed"]
    (number,) = re.findall(r"the workload has ([\d,]+) bytes", output)
    return int(number.replace(",", ""))


@pytest.mark.parametrize(
    "letter",
    [pytest.param("x", id="one_byte", marks=pytest.mark.extended), pytest.param("é", id="two_bytes")],
)
def test_limit_counts_bytes(delivering: tuple[Scenario, str], letter: str) -> None:
    scenario, delivery = delivering
    limit, width = LIMITS[delivery], len(letter.encode())
    count = limit // width
    surplus = told_size(scenario, miss(scenario, letter * count)) - count * width
    filler = letter * ((limit - surplus - MARGIN) // width)

    fits = miss(scenario, filler)
    beyond = miss(scenario, filler + "x" * 2 * MARGIN)
    scenario.wait_for_state(fits, "success")
    assert limit < told_size(scenario, beyond) <= limit + 2 * MARGIN
    (entry,) = scenario.ledger.entries(fits.key)
    assert entry.details["size"] == len(filler.encode())


def test_what_kubernetes_expands_in_arguments_arrives_unchanged(delivering: tuple[Scenario, str]) -> None:
    """The last of the variables is one that the pod has."""
    scenario, _ = delivering
    texts = [
        "cost $$5 and $(HOME)",
        "$5 $$$ $(",
        "$(AIRFLOW_IS_K8S_EXECUTOR_POD) $$(AIRFLOW_IS_K8S_EXECUTOR_POD)",
    ]
    (callback,) = scenario.miss("echo", texts=texts)
    scenario.wait_for_state(callback, "success")
    (entry,) = scenario.ledger.entries(callback.key)
    assert entry.details["kwargs"] == {"texts": texts}


def test_conf_of_the_run_counts(delivering: tuple[Scenario, str]) -> None:
    """The context that travels with a callback has the whole ``conf`` of its run."""
    scenario, delivery = delivering
    (callback,) = scenario.miss("measure", conf={"table": "x" * 300_000}, filler="")
    if delivery == "argument":
        assert told_size(scenario, callback) > 300_000
    else:
        scenario.wait_for_state(callback, "success")
        (entry,) = scenario.ledger.entries(callback.key)
        assert entry.details["conf"] == 300_000


def test_a_mebibyte_of_kwargs_does_not_fit_and_the_next_callback_runs(
    delivering: tuple[Scenario, str],
) -> None:
    scenario, _ = delivering
    assert told_size(scenario, miss(scenario, "x" * 1024 * 1024)) > 1024 * 1024
    (small,) = scenario.miss("measure", filler="x")
    scenario.wait_for_state(small, "success")
