"""Bad input costs one callback: the scheduler lives, and the row says what is wrong."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubernetes_tests.scenario import Scenario

pytestmark = [
    pytest.mark.usefixtures("described"),
    pytest.mark.parametrize(
        "running", ["one_by_one", pytest.param("batches", marks=pytest.mark.extended)], indirect=True
    ),
]


def output_of_failure(scenario: Scenario, function: str = "succeed", **arguments: object) -> str:
    """Miss a deadline, wait until its callback has failed, and return the row's output."""
    (callback,) = scenario.miss(function, **arguments)  # type: ignore[arg-type]
    (row,) = scenario.wait_for_state(callback, "failed")
    assert scenario.events(callback)[-1] == "failed"
    assert all(scheduler.running for scheduler in scenario.schedulers)
    return row.output or ""


def still_works(scenario: Scenario) -> None:
    (callback,) = scenario.miss("succeed")
    scenario.wait_for_state(callback, "success")


def test_callback_in_a_module_that_is_not_in_the_image(running: Scenario) -> None:
    output = output_of_failure(running, path="no_such_package.alerts.send")
    assert "no_such_package" in output
    assert "ModuleNotFoundError" in output
    assert "the image of the callback's pod has to have it" in output


def test_callable_that_is_not_in_its_module(running: Scenario) -> None:
    output = output_of_failure(running, path="ledger_callbacks.no_such_function")
    assert "no_such_function" in output
    assert "correct the callback's path" in output


def test_callback_that_does_not_take_the_kwargs(running: Scenario) -> None:
    output = output_of_failure(running, "fail", no_such_argument=1)
    assert "no_such_argument" in output


@pytest.mark.parametrize(
    ("expression", "argument"),
    [
        pytest.param("{'text': '\\ud800'}", "text", id="half_of_a_surrogate_pair"),
        pytest.param(
            "{'pod': __import__('kubernetes').client.V1Pod(metadata={'name': 'x'})}",
            "pod",
            id="object_without_json",
        ),
    ],
)
def test_kwargs_that_cannot_be_serialised(running: Scenario, expression: str, argument: str) -> None:
    output = output_of_failure(running, "succeed", python=expression)
    assert f"the callback's kwargs cannot be written as JSON: '{argument}'" in output
    assert "Pass plain values" in output
    still_works(running)


@pytest.fixture
def template(running: Scenario) -> Iterator[dict[str, Any]]:
    """A copy of the template to spoil; the good one is back afterwards."""
    yield copy.deepcopy(running.template)
    running.write_template(running.template)


def test_template_that_is_absent(running: Scenario, template: dict[str, Any]) -> None:
    path = running.write_template(template)
    path.unlink()
    output = output_of_failure(running)
    assert str(path) in output
    assert "pod_template_file" in output
    running.write_template(template)
    still_works(running)


@pytest.mark.parametrize("text", ["{", "", "- a list", "kind: Deployment\nspec: {}\n", "spec: 3\n", "\x00"])
def test_template_that_is_not_a_pod(running: Scenario, template: dict[str, Any], text: str) -> None:
    path = running.write_template(template)
    path.write_text(text)
    output = output_of_failure(running)
    assert str(path) in output


def test_template_that_the_api_server_refuses(running: Scenario, template: dict[str, Any]) -> None:
    template["spec"]["volumes"] = [{"name": "twice", "emptyDir": {}}, {"name": "twice", "emptyDir": {}}]
    running.write_template(template)
    output = output_of_failure(running)
    assert "twice" in output
    assert "422" in output or "Invalid" in output or "Duplicate" in output
