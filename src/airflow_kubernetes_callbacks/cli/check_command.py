"""``airflow kubernetes-callbacks check``: gathers facts, has them judged, prints the findings."""

from __future__ import annotations

import dataclasses
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow import __version__ as airflow_version
from airflow.configuration import conf

from airflow_kubernetes_callbacks import pod_status
from airflow_kubernetes_callbacks.api_errors import ApiAnswer, classify
from airflow_kubernetes_callbacks.assembly import refuse_beside_stock
from airflow_kubernetes_callbacks.cli.deployment import Deployment, NotConfiguredError, api_trouble
from airflow_kubernetes_callbacks.cli.output import (
    DATABASE_ERRORS,
    Status,
    command,
    database_trouble,
    heading,
    print_rows,
    say,
    write,
)
from airflow_kubernetes_callbacks.cli.pod_command import document_of, render
from airflow_kubernetes_callbacks.cli.preflight import (
    NEED_API,
    NEED_SETTINGS,
    Finding,
    Level,
    judge_access,
    judge_clocks,
    judge_execution_api,
    judge_image,
    judge_namespace,
    judge_schedulers,
    judge_token_key,
    judge_token_lifetime,
    needed_access,
    role_yaml,
    skipped,
    worst,
)
from airflow_kubernetes_callbacks.errors import CallbackPodsError
from airflow_kubernetes_callbacks.identity import BASE_CONTAINER
from airflow_kubernetes_callbacks.payload import SecretPayload
from airflow_kubernetes_callbacks.pod_settings import merged
from airflow_kubernetes_callbacks.pod_template import OWN_OPTION, STOCK_OPTION, load_template
from airflow_kubernetes_callbacks.redact import presentable
from airflow_kubernetes_callbacks.rules import PodRules
from airflow_kubernetes_callbacks.version_compat import EXECUTION_API_OWNS_RUNNING

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Generator, Iterable, Iterator, Mapping

    from airflow_kubernetes_callbacks.cli.deployment import OwnExecutor
    from airflow_kubernetes_callbacks.launch_plan import LaunchPlan
    from airflow_kubernetes_callbacks.payload import Payload
    from airflow_kubernetes_callbacks.settings import CallbackSettings

_STYLES = {Level.FAILED: "bold red", Level.WARNING: "yellow", Level.SKIPPED: "dim"}
_EXECUTION_API_URL = "AIRFLOW__CORE__EXECUTION_API_SERVER_URL"


@command
def check(args: Namespace) -> Status:
    """Print every finding; what is wrong makes the exit status 1."""
    findings: list[Finding] = []
    roles: list[str] = []
    try:
        deployment = Deployment()
    except NotConfiguredError as error:
        findings.append(Finding("executor", Level.FAILED, str(error)))
    else:
        findings.extend(_of_airflow(deployment))
        for own in deployment.own:
            findings.extend(_of_executor(own, roles))
    _print(findings, roles, args.output)
    return Status.FAILED if worst(findings) is Level.FAILED else Status.OK


def _of_airflow(deployment: Deployment) -> Iterator[Finding]:
    try:
        refuse_beside_stock(type(deployment.own[0].executor))
        yield Finding("executor", Level.OK, ", ".join(own.title for own in deployment.own))
    except CallbackPodsError as error:
        yield Finding("executor", Level.FAILED, str(error))
    try:
        yield judge_schedulers(deployment.store.alive_schedulers())
    except DATABASE_ERRORS as error:
        yield Finding("database", Level.FAILED, presentable(database_trouble(error)))


def _of_executor(own: OwnExecutor, roles: list[str]) -> Iterator[Finding]:
    check_name = f"settings of {own.title}"
    try:
        settings, rules = own.settings, own.rules
    except CallbackPodsError as error:
        yield Finding(check_name, Level.FAILED, str(error))
        yield from skipped(NEED_SETTINGS, "the settings cannot be used")
        return
    yield Finding(check_name, Level.OK, f"valid, with {len(rules.rules)} rules")
    yield from _of_templates(own, rules)
    yield _of_token_key()
    try:
        version = own.cluster.server_version()
    except Exception as error:  # noqa: BLE001 - no kubeconfig, no network, no certificate
        yield Finding(
            "Kubernetes API",
            Level.FAILED,
            api_trouble(error),
            "See [kubernetes_executor] in_cluster, config_file and cluster_context.",
        )
        yield from skipped(NEED_API, "the Kubernetes API cannot be asked")
        return
    yield Finding("Kubernetes API", Level.OK, f"answers, {version}")
    yield judge_clocks(own.cluster.clocks(), conf.getfloat("api_auth", "jwt_leeway", fallback=10.0))
    asked = needed_access(settings.payload_delivery)
    for namespace in own.cluster.namespaces or (None,):
        if namespace is not None:
            yield judge_namespace(namespace, own.cluster.namespace_exists(namespace))
        missing = [
            access
            for access in asked
            if not own.cluster.allowed(access.verb, access.resource, access.subresource, namespace)
        ]
        yield from judge_access(namespace, asked, missing)
        if missing:
            roles.append(role_yaml(namespace, asked))
    yield from _of_trials(own, rules)


def _of_templates(own: OwnExecutor, rules: PodRules) -> Iterator[Finding]:
    stock = own.executor.kube_config.pod_template_file
    for path in sorted({*rules.template_files, *([stock] if stock else ())}):
        name = f"pod template {path}"
        try:
            named_in = OWN_OPTION if path in rules.template_files else STOCK_OPTION
            template = load_template(path, named_in=named_in)
        except CallbackPodsError as error:
            yield Finding(name, Level.FAILED, str(error))
            continue
        containers = [container.name for container in template.spec.containers] if template.spec else []
        if BASE_CONTAINER in containers:
            yield Finding(name, Level.OK, "readable, with a container named base")
        else:
            yield Finding(
                name,
                Level.WARNING,
                f"has no container named {BASE_CONTAINER}; the callback runs in the first one",
                f"Name the container that has Airflow {BASE_CONTAINER}.",
            )


def _of_token_key() -> Finding:
    section = conf.as_dict(display_source=True, display_sensitive=True).get("api_auth", {})
    found: Any = section.get("jwt_secret") or ("", "default")
    value, source = found
    return judge_token_key(
        secret_source=source if value and source != "default" else None,
        private_key=bool(conf.get("api_auth", "jwt_private_key_path", fallback=None)),
    )


def _of_token_lifetime(settings: CallbackSettings, plans: Iterable[LaunchPlan]) -> Finding:
    """Judge the token that lives shortest among those of these launches."""
    lifetimes = [_token_lifetime(settings, plan.payload) for plan in plans]
    if not lifetimes:
        return skipped(["token lifetime"], "no pod can be built")[0]
    return judge_token_lifetime(min(lifetimes), settings.pending_timeout)


def _token_lifetime(settings: CallbackSettings, payload: Payload) -> float:
    """Return the seconds that a launch's token lives; one with the scope of a task lives longer.

    Only a Secret carries such a one: with ``payload_delivery = auto`` where Secrets may be created.
    """
    wide = settings.connections_and_variables and isinstance(payload, SecretPayload)
    if wide and not EXECUTION_API_OWNS_RUNNING:
        return conf.getfloat("execution_api", "jwt_expiration_time") + settings.pending_timeout
    return conf.getfloat("scheduler", "task_queued_timeout")


def _of_trials(own: OwnExecutor, rules: PodRules) -> Iterator[Finding]:
    """Build the pod of an imaginary callback, for the options and for each rule, and have it judged."""
    plans = [(yield from _trial(own, PodRules(rules.options), "callbacks"))]
    for number, rule in enumerate(rules.rules, 1):
        title = f"rule {rule.name!r}" if rule.name else f"rule number {number}"
        plans.append((yield from _trial(own, PodRules(merged(rules.options, rule.pod)), title)))
    yield _of_token_lifetime(own.settings, [plan for plan in plans if plan is not None])


def _trial(own: OwnExecutor, rules: PodRules, what: str) -> Generator[Finding, None, LaunchPlan | None]:
    """Have one pod judged; return how it would be launched, or None where it cannot be built."""
    trial = dataclasses.replace(own)
    trial.planner = dataclasses.replace(own.planner, rules=rules)
    try:
        plan = render(trial, imaginary_workload(), attempt=1)
    except Exception as error:  # noqa: BLE001 - a pod_mutation_hook may raise anything
        yield Finding(f"pod for {what}", Level.FAILED, presentable(str(error)))
        return None
    pod = document_of(plan)
    base = pod_status.base_container(pod)
    yield from judge_image(base.get("image"), airflow_version, what=what)
    if what == "callbacks":
        yield _of_execution_api(base)
        carrier = "a Secret" if isinstance(plan.payload, SecretPayload) else "an argument, in the pod's spec"
        yield Finding("payload", Level.OK, f"token and kwargs travel in {carrier}")
    yield from _of_admission(own, pod, what)
    return plan


def _of_execution_api(base: Mapping[str, Any]) -> Finding:
    told = [
        item.get("value")
        for item in pod_status.mappings(base, "env")
        if item.get("name") == _EXECUTION_API_URL
    ]
    here = conf.get("core", "execution_api_server_url", fallback=None)
    if not here and (base_url := conf.get("api", "base_url", fallback=None)):
        here = f"{base_url.rstrip('/')}/execution/"
    return judge_execution_api(told[0] if told else None, here)


def _of_admission(own: OwnExecutor, pod: Mapping[str, Any], what: str) -> Iterator[Finding]:
    namespace = pod_status.mapping(pod, "metadata").get("namespace") or "default"
    name = f"admission in {namespace} for {what}"
    try:
        warnings = own.cluster.try_to_create(namespace, pod)
    except Exception as error:  # noqa: BLE001
        failure = classify(error)
        remedy = {
            ApiAnswer.NOT_FOUND: f"kubectl create namespace {namespace}, or correct the configuration.",
            ApiAnswer.FORBIDDEN: "Read the message: a missing permission, a quota or PodSecurity.",
        }.get(
            failure.answer, "Correct what the message names: options, rules, template or pod_mutation_hook."
        )
        yield Finding(name, Level.FAILED, presentable(failure.message), remedy)
        return
    if warnings:
        yield Finding(
            name,
            Level.WARNING,
            presentable("; ".join(warnings)),
            "The pod would be created; [kubernetes_callbacks] security_context and the template decide about PodSecurity.",
        )
    else:
        yield Finding(name, Level.OK, "the API server would take the pod")


def imaginary_workload() -> Any:
    """Return the workload of a callback that does not exist."""
    from airflow.executors.workloads import ExecuteCallback

    callback_id = str(uuid.uuid4())
    data = {"path": "airflow_kubernetes_callbacks.check", "kwargs": {}, "dag_id": "check"}
    return ExecuteCallback.model_validate(
        {
            "callback": {"id": callback_id, "fetch_method": "import_path", "data": data},
            "dag_rel_path": Path(),
            "token": "-",
            "log_path": f"executor_callbacks/check/check/{callback_id}",
            "bundle_info": {"name": "check"},
        }
    )


def _print(findings: list[Finding], roles: list[str], output: str) -> None:
    print_rows(
        [
            {
                "check": finding.check,
                "result": finding.level.value,
                "what": finding.what,
                "remedy": finding.remedy,
            }
            for finding in findings
        ],
        output,
        cells=[
            {
                "check": finding.check,
                "result": finding.level.value,
                "what": " ".join(
                    part for part in (finding.what, f"-> {finding.remedy}" if finding.remedy else "") if part
                ),
            }
            for finding in findings
        ],
        marked=lambda index: _STYLES.get(findings[index].level),
    )
    if not roles:
        return
    if output == "table":
        heading("What grants it (bind it to the scheduler's service account)")
        write("---\n".join(roles))
    else:
        say("---\n".join(roles))
