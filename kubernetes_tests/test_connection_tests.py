"""'Test connection' where workers live: enqueued through the public API, run in a pod, told to the API."""

from __future__ import annotations

import json
import re
import secrets
import signal
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from kubernetes_tests.airflow_env import wait_for
from kubernetes_tests.command_line import CommandLine

if TYPE_CHECKING:
    from kubernetes_tests.scenario import Scenario

PATH = "/api/v2/connections/enqueue-test"


class ConnectionTest:
    """One press of the button."""

    def __init__(self, scenario: Scenario, **connection: object) -> None:
        self._scenario = scenario
        self.connection_id = f"files-{secrets.token_hex(4)}"
        body = {"connection_id": self.connection_id, "conn_type": "fs", **connection}
        self.token: str = scenario.env.api("POST", PATH, body)["token"]

    def poll(self) -> dict[str, Any]:
        """Ask as the UI does."""
        env = self._scenario.env
        headers = {
            "Authorization": f"Bearer {env.token()}",
            "Airflow-Connection-Test-Token": self.token,
        }
        request = urllib.request.Request(env.url + PATH, headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            told: dict[str, Any] = json.load(answer)
        return told

    def wait_for(self, *states: str, timeout: float = 120.0) -> dict[str, Any]:
        return wait_for(
            f"the connection test is {' or '.join(states)}",
            lambda: (told := self.poll())["state"] in states and told,
            timeout,
            otherwise=lambda: f"{self.poll()}\n{self._scenario.describe()}",
        )


@pytest.fixture(autouse=True)
def warm(scenario: Scenario) -> None:
    """The execution API has answered before: its first answer takes long on a busy machine, a client
    that loses patience asks again, and core hands out a connection only once (409)."""
    urllib.request.urlopen(f"{scenario.env.url}/execution/health", timeout=120).close()


def pods_of_tests(scenario: Scenario) -> list[dict[str, Any]]:
    return scenario.namespace.pods("airflow-workload-type=connection-test")


def wait_for_no_pods(scenario: Scenario) -> None:
    wait_for(
        "neither pods nor Secrets of connection tests",
        lambda: not pods_of_tests(scenario) and not scenario.namespace.secrets(),
        otherwise=scenario.describe,
    )


def occupied_slots(scenario: Scenario) -> int:
    """Ask the scheduler what its executor counts as running."""
    (scheduler,) = scenario.schedulers
    dumps = len(re.findall(r"executor\.running \(\d+\)", scheduler.log()))
    scheduler.signal(signal.SIGUSR2)
    counts = wait_for(
        "the scheduler's dump",
        lambda: len(found := re.findall(r"executor\.running \((\d+)\)", scheduler.log())) > dumps and found,
        otherwise=scheduler.tail,
    )
    return int(counts[-1])


def test_result_of_the_hook_is_told_slot_is_free_and_pod_is_gone(scenario: Scenario) -> None:
    scheduler = scenario.start_scheduler()
    good = ConnectionTest(scenario, extra=json.dumps({"path": "/"}))
    bad = ConnectionTest(scenario, extra=json.dumps({"path": "/no/such/folder"}))
    (pod, *_) = wait_for("a pod", lambda: pods_of_tests(scenario), otherwise=scenario.describe)
    assert pod["metadata"]["name"].startswith("connection-test-")
    assert "airflow-worker" not in pod["metadata"]["labels"]
    assert pod["spec"]["activeDeadlineSeconds"] > 60

    assert good.wait_for("success", "failed")["result_message"] == "Path / is existing."
    assert good.poll()["state"] == "success"
    assert bad.wait_for("success", "failed")["result_message"] == "Path /no/such/folder does not exist."
    assert bad.poll()["state"] == "failed"

    wait_for_no_pods(scenario)
    wait_for("free slots", lambda: occupied_slots(scenario) == 0, interval=1.0, otherwise=scenario.describe)
    run = scenario.run_dag("some_tasks")
    scenario.wait_for_run(run)
    assert scheduler.running


def test_test_whose_pod_cannot_start_says_why(scenario: Scenario) -> None:
    scenario.base_container["image"] = "registry.invalid/no-such-image:1"
    scenario.base_container["imagePullPolicy"] = "IfNotPresent"
    scenario.write_template(scenario.template)
    own_image = {
        option: "" for option in scenario.config if option.startswith("kubernetes_executor.worker_container_")
    }
    scheduler = scenario.start_scheduler(config=own_image)
    told = ConnectionTest(scenario, extra=json.dumps({"path": "/"})).wait_for("success", "failed")
    assert told["state"] == "failed"
    assert told["result_message"].startswith("Could not start: ")
    assert "no-such-image" in told["result_message"]
    wait_for_no_pods(scenario)
    assert scheduler.running


@pytest.mark.extended
def test_pod_that_is_kept_goes_with_gc(scenario: Scenario) -> None:
    keep = {"kubernetes_executor.delete_worker_pods": False}
    scenario.start_scheduler(config=keep)
    ConnectionTest(scenario, extra=json.dumps({"path": "/"})).wait_for("success")

    def kept() -> list[str]:
        pods = pods_of_tests(scenario)
        done = [pod for pod in pods if pod["metadata"]["labels"].get("airflow_executor_done") == "True"]
        return [pod["metadata"]["name"] for pod in done]

    names = wait_for("the pod is kept", kept, otherwise=scenario.describe)
    gc = CommandLine(scenario, keep)
    young = gc("gc", "--output", "json")
    assert young.status == 0, young.err
    assert young.json == []
    dry = gc("gc", "--older-than", "0s", "--dry-run", "--output", "json")
    assert [row["name"] for row in dry.json] == names
    assert len(pods_of_tests(scenario)) == 1
    done = gc("gc", "--older-than", "0s", "--output", "json")
    assert done.status == 0, done.out + done.err
    wait_for_no_pods(scenario)
