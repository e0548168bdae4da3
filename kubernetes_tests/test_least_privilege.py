"""The scheduler may do what the documentation's Role says, and nothing else; everything works with that."""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from kubernetes import client

from kubernetes_tests.accounts import create_account, grant, write_kubeconfig
from kubernetes_tests.airflow_env import wait_for
from kubernetes_tests.clusters import Namespace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubernetes_tests.scenario import Scenario

DOCS = Path(__file__).parent.parent / "docs"
ACCOUNT = "airflow-scheduler"
NO_SECRETS = "lacks the verb 'create' on secrets"
#: How the API server, and a client that tells of its answer, say that something is not allowed.
REFUSALS = re.compile(r"forbidden|\(403\)|\b403:", re.IGNORECASE)


def blocks(page: str, language: str) -> list[str]:
    """Return the code blocks of this language on a page of the documentation."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def published_role(title: str) -> dict[str, Any]:
    """Return the Role on the page about security whose first line is ``# least privilege, TITLE``."""
    (text,) = [
        block
        for block in blocks("explanation/security.md", "yaml")
        if block.startswith(f"# least privilege, {title}\n")
    ]
    role: dict[str, Any] = yaml.safe_load(text)
    return role


def refusals(scenario: Scenario) -> list[str]:
    return [line for line in scenario.scheduler_logs().splitlines() if REFUSALS.search(line)]


def be_account(scenario: Scenario) -> None:
    """Have the schedulers of the scenario speak to the cluster as the service account."""
    scenario.config["kubernetes_executor.config_file"] = write_kubeconfig(
        scenario.cluster, scenario.namespace.name, ACCOUNT, scenario.folder / "kubeconfig"
    )


@pytest.mark.parametrize(
    "title", ["with Secrets", pytest.param("without Secrets", marks=pytest.mark.extended)]
)
def test_published_role_is_enough_for_a_whole_life(scenario: Scenario, title: str) -> None:
    """Success, failure, a pod that cannot start, a restart with adoption, clean-up, kept logs, tasks."""
    create_account(scenario.cluster, scenario.namespace.name, ACCOUNT)
    grant(scenario.cluster, scenario.namespace.name, published_role(title), account=ACCOUNT)
    be_account(scenario)
    scenario.config.update(
        {
            "kubernetes_executor.delete_worker_pods_on_failure": True,
            "kubernetes_callbacks.start_error_grace": 1,
            "kubernetes_callbacks.launch_retries": 1,
            "kubernetes_callbacks.rules": '[{"name": "absent", "pod": {"image": "offline.invalid/absent:1"}}]',
        }
    )
    (good,) = scenario.miss("succeed")
    (bad,) = scenario.miss("fail")
    (crashed,) = scenario.miss("exit_hard", status=3)
    (absent,) = scenario.miss("succeed", kubernetes_callback="absent")
    first = scenario.start_scheduler()
    scenario.wait_for_state(good, "success")
    told, counted, missing = scenario.wait_for_state([bad, crashed, absent], "failed")

    (slow,) = scenario.miss("succeed", sleep=20)
    scenario.wait_for_begin(slow)
    pod = scenario.wait_for_pod(slow)
    arguments = pod["spec"]["containers"][0]["args"]
    in_secret = pod["metadata"]["name"] in [one["metadata"]["name"] for one in scenario.namespace.secrets()]
    first.kill()
    scenario.start_scheduler()
    scenario.wait_for_state(slow, "success")
    scenario.wait_for_run(scenario.run_dag("some_tasks"))
    scenario.wait_for_no_pods()
    assert "ValueError: the webhook refused the alert" in (told.output or "")
    assert "exit code 3" in (counted.output or "")
    assert "offline.invalid/absent:1" in (missing.output or "")
    assert "2 times" in (missing.output or "")
    for callback in (good, bad, crashed, slow):
        assert scenario.ledger.runs(callback.key) == 1
        assert list((scenario.env.home / "logs" / "executor_callbacks").rglob(callback.id))

    with_secrets = title == "with Secrets"
    assert in_secret == with_secrets
    assert ("--json-path" in arguments) == with_secrets
    # asked when the first pod is planned: the second scheduler only adopts one
    assert first.log().count(NO_SECRETS) == (0 if with_secrets else 1)
    assert refusals(scenario) == []


@pytest.mark.extended
def test_missing_permission_for_secrets_is_named_where_they_are_demanded(scenario: Scenario) -> None:
    """``payload_delivery = secret`` does not fall back: the callback fails and says what is missing."""
    create_account(scenario.cluster, scenario.namespace.name, ACCOUNT)
    grant(scenario.cluster, scenario.namespace.name, published_role("without Secrets"), account=ACCOUNT)
    be_account(scenario)
    (callback,) = scenario.miss("succeed")
    scenario.start_scheduler(config={"kubernetes_callbacks.payload_delivery": "secret"})
    (row,) = scenario.wait_for_state(callback, "failed")
    output = row.output or ""
    assert output.startswith("Could not start: the Secret with the pod's workload was refused")
    assert f"system:serviceaccount:{scenario.namespace.name}:{ACCOUNT}" in output
    assert 'cannot create resource "secrets"' in output
    assert "payload_delivery = argument" in output
    assert scenario.ledger.runs(callback.key) == 0
    scenario.wait_for_no_pods()


@pytest.fixture
def alerts(scenario: Scenario) -> Iterator[Namespace]:
    """The namespace of the page about a namespace for alerts, with all that the page puts there."""
    (manifest,) = blocks("how-to/own-namespace.md", "yaml")
    name = f"{scenario.namespace.name}-alerts"
    manifest = manifest.replace("airflow-alerts", name)
    documents = {document["kind"]: document for document in yaml.safe_load_all(manifest)}
    documents["RoleBinding"]["subjects"][0]["namespace"] = scenario.namespace.name
    cluster = scenario.cluster
    rbac = client.RbacAuthorizationV1Api(cluster.core.api_client)
    scheduling = client.SchedulingV1Api(cluster.core.api_client)
    cluster.core.create_namespace(documents.pop("Namespace"))
    try:
        Namespace(cluster, name).wait_until_usable()
        cluster.core.create_namespaced_resource_quota(name, documents.pop("ResourceQuota"))
        scheduling.create_priority_class(documents.pop("PriorityClass"))
        rbac.create_namespaced_role(name, documents.pop("Role"))
        rbac.create_namespaced_role_binding(name, documents.pop("RoleBinding"))
        assert not documents, "an object that nobody makes here"
        yield Namespace(cluster, name)
    finally:
        scheduling.delete_priority_class(name)
        cluster.core.delete_namespace(name, grace_period_seconds=0)


@pytest.mark.kind
def test_namespace_of_its_own_works_as_its_page_says(scenario: Scenario, alerts: Namespace) -> None:
    """Quota, priority, the ``restricted`` level enforced, and the scheduler's account from elsewhere."""
    create_account(scenario.cluster, scenario.namespace.name, ACCOUNT)
    grant(scenario.cluster, scenario.namespace.name, published_role("with Secrets"), account=ACCOUNT)
    be_account(scenario)
    options = configparser.RawConfigParser()
    options.read_string(blocks("how-to/own-namespace.md", "ini")[0].replace("airflow-alerts", alerts.name))
    for name, value in options.items("kubernetes_callbacks"):
        scenario.config[f"kubernetes_callbacks.{name}"] = value
    (good,) = scenario.miss("succeed", sleep=10)
    (bad,) = scenario.miss("fail")
    run = scenario.run_dag("some_tasks")
    scenario.start_scheduler()
    pod = wait_for("the pod in its namespace", lambda: alerts.pod_of(good.id), otherwise=scenario.describe)
    assert pod["spec"]["priority"] == 100_000
    assert pod["spec"]["containers"][0]["securityContext"]["runAsNonRoot"] is True
    scenario.wait_for_state(good, "success")
    scenario.wait_for_state(bad, "failed")
    scenario.wait_for_run(run)
    assert refusals(scenario) == []
    assert not scenario.namespace.callback_pods()
