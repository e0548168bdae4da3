"""The options of ``[kubernetes_callbacks]``: described, parsed and validated once.

``OPTIONS`` is the one list of options; the provider's metadata, the configuration reference in the
documentation and the parser are made from it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Protocol

from airflow_kubernetes_callbacks.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable

SECTION = "kubernetes_callbacks"


class ConfigReader(Protocol):
    """What is needed of Airflow's configuration (global, or that of one team)."""

    def get(self, section: str, key: str, **kwargs: Any) -> str | None: ...


@dataclass(frozen=True)
class Option:
    """One option: its name, how its text is read, its default and what it is for."""

    name: str
    parse: Callable[[str], Any]
    default: str
    description: str
    example: str | None = None
    type: str = "string"
    version_added: str = "0.1.0"


def _seconds(minimum: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = float(text)
        if not math.isfinite(value) or value < minimum:
            raise ValueError(f"must be a number of seconds, at least {minimum:g}")
        return value

    return parse


def _count(minimum: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if value < minimum:
            raise ValueError(f"must be a whole number, at least {minimum}")
        return value

    return parse


def _boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in ("true", "t", "1", "yes", "y", "on"):
        return True
    if lowered in ("false", "f", "0", "no", "n", "off"):
        return False
    raise ValueError("must be True or False")


def _choice(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        value = text.strip().lower()
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return value

    return parse


def _text(text: str) -> str:
    return text.strip()


def _json(kind: type, what: str) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            value = json.loads(text) if text.strip() else kind()
        except ValueError as error:
            raise ValueError(f"is not JSON ({error}); must be {what}") from error
        if not isinstance(value, kind):
            raise ValueError(f"must be {what}")
        return value

    return parse


OPTIONS: tuple[Option, ...] = (
    Option(
        "reconcile_interval",
        _seconds(1),
        "30",
        "Seconds between two full comparisons of callback pods with the rows of the database. A pod "
        "event brings the look at its own callback forward; the full comparison finds what no event told.",
        type="float",
    ),
    Option(
        "launch_concurrency",
        _count(1),
        "16",
        "How many requests that create or delete callback pods are under way at once, per scheduler.",
        type="integer",
    ),
    Option(
        "launch_retries",
        _count(0),
        "3",
        "How many times a callback is launched again when its pod could not be created or its base "
        "container never started. A callback that may have begun is never launched again on its own.",
        type="integer",
    ),
    Option(
        "create_retries",
        _count(0),
        "12",
        "How many times the request that creates a pod is made again when the API server does not take it "
        "for now: throttling, an exceeded quota, a server error, a connection that breaks. With the default "
        "delays that bridges about 45 minutes; then the callback fails with the API server's words.",
        type="integer",
    ),
    Option(
        "launch_retry_delay",
        _seconds(0),
        "10",
        "Seconds before the first new launch; doubled with every further one.",
        type="float",
    ),
    Option(
        "launch_retry_max_delay",
        _seconds(0),
        "300",
        "The longest delay between two launches of one callback, in seconds.",
        type="float",
    ),
    Option(
        "pending_timeout",
        _seconds(1),
        "300",
        "Seconds that a callback pod may wait for its base container to start before it is deleted and, "
        "within launch_retries, launched again; after that the callback fails with the reason that "
        "Kubernetes gives for the wait.",
        type="float",
    ),
    Option(
        "start_error_grace",
        _seconds(0),
        "60",
        "Seconds that an error such as ErrImagePull or CreateContainerConfigError may last before the pod "
        "counts as one that cannot start. Kubernetes retries these by itself in the meantime.",
        type="float",
    ),
    Option(
        "save_logs",
        _boolean,
        "True",
        "Before a finished pod is deleted, write the log of its base container into the base log folder, at "
        "Airflow's own path for the logs of callbacks. Costs one request and one file per callback.",
        type="boolean",
    ),
    Option(
        "log_limit_bytes",
        _count(1024),
        "1048576",
        "How much of the end of a log is kept, in bytes.",
        type="integer",
    ),
    Option(
        "pod_finalizer",
        _boolean,
        "False",
        "Put a finalizer on callback pods, so that the result of a finished pod outlives kubectl delete, "
        "pod garbage collection and node clean-up until it is recorded in the database. Remove it by hand "
        "with 'kubectl patch pod NAME --type=json -p "
        '\'[{"op": "remove", "path": "/metadata/finalizers"}]\'\' when this executor is gone for good.',
        type="boolean",
    ),
    Option(
        "pod_template_file",
        _text,
        "",
        "Path of a pod template for callbacks. Empty: the template of [kubernetes_executor], as for tasks. "
        "The callback runs in the container named base, wherever it stands; other containers and init "
        "containers are kept.",
        example="/opt/airflow/pod_templates/callback.yaml",
    ),
    Option(
        "image",
        _text,
        "",
        "Image of the callback's container, over that of the template and of [kubernetes_executor]. It has "
        "to hold the same Airflow version as the scheduler.",
        example="registry.example.com/airflow-alerts:1.4",
    ),
    Option(
        "namespace",
        _text,
        "",
        "Namespace of callback pods. Empty: the one that the template names if it is watched, else that of "
        "the executor. With one of their own, alerts do not share quota and fate with the tasks that they "
        "report on; the scheduler's service account needs its Role there.",
        example="airflow-alerts",
    ),
    Option(
        "service_account_name", _text, "", "Service account of callback pods.", example="airflow-callback"
    ),
    Option(
        "priority_class_name",
        _text,
        "",
        "Priority class of callback pods, so that an alert is not held back, or preempted, by what it reports on.",
        example="airflow-alerts",
    ),
    Option(
        "resources",
        _json(dict, "an object with requests and limits"),
        "",
        "Resources of the callback's container, as JSON. Keys that are set here win over the template's.",
        example='{"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}}',
    ),
    Option(
        "labels",
        _json(dict, "an object with texts"),
        "",
        "Further labels of callback pods, as JSON.",
        example='{"team": "platform"}',
    ),
    Option(
        "annotations",
        _json(dict, "an object with texts"),
        "",
        "Further annotations of callback pods, as JSON.",
        example='{"sidecar.istio.io/inject": "false"}',
    ),
    Option(
        "node_selector",
        _json(dict, "an object with texts"),
        "",
        "Node labels that callback pods ask for, as JSON; added to those of the template.",
        example='{"pool": "system"}',
    ),
    Option(
        "tolerations",
        _json(list, "a list of tolerations"),
        "",
        "Tolerations of callback pods, as JSON, in place of the template's.",
        example='[{"key": "dedicated", "operator": "Equal", "value": "alerts", "effect": "NoSchedule"}]',
    ),
    Option(
        "rules",
        _text,
        "",
        "Rules, as JSON or YAML: a list of objects with name, match (callback, dag_id, team, executor: globs "
        "or lists of them) and pod (any of the pod options above). The first rule whose match fits a callback "
        "is applied over the options of this section. A rule without match is used only by name, see "
        "author_settings.",
        example='[{"name": "heavy", "match": {"dag_id": "etl_*"}, '
        '"pod": {"resources": {"limits": {"memory": "2Gi"}}}}]',
    ),
    Option(
        "rules_file",
        _text,
        "",
        "Path of a YAML file with rules, in place of rules.",
        example="/opt/airflow/callback_rules.yaml",
    ),
    Option(
        "author_settings",
        _choice("all", "rules", "none"),
        "all",
        "What the author of a Dag may choose for one callback with the reserved kwarg kubernetes_callback: "
        "resources and a rule by its name (all), only a rule (rules), nothing (none: such a callback fails "
        "with a message that says so). The kwarg never reaches the callback's function.",
    ),
    Option(
        "security_context",
        _choice("restricted", "none"),
        "restricted",
        "restricted: where the template says nothing else, the callback's container gets a security context "
        "that passes the PodSecurity level of that name (runAsNonRoot, no privilege escalation, no "
        "capabilities, seccomp RuntimeDefault). none: the template alone decides, for images that run as root.",
    ),
    Option(
        "service_account_token",
        _boolean,
        "False",
        "Mount the service account's token into callback pods. A template that says "
        "automountServiceAccountToken: true gets it in any case.",
        type="boolean",
    ),
    Option(
        "active_deadline_margin",
        _seconds(0),
        "60",
        "With [callbacks] callback_execution_timeout set, Kubernetes ends a callback pod that outlives that "
        "timeout, pending_timeout and this margin together (activeDeadlineSeconds): a backstop for a pod "
        "whose own supervisor hangs.",
        type="float",
    ),
    Option(
        "payload_delivery",
        _choice("auto", "secret", "argument"),
        "auto",
        "How the workload, with its token and kwargs, reaches the pod. secret: in a Secret that belongs to the "
        "pod, up to 1 MiB. argument: on the command line, in the pod's spec, up to 128 KiB. auto: secret where "
        "the scheduler's service account may create Secrets, else argument.",
    ),
    Option(
        "connections_and_variables",
        _boolean,
        "True",
        "On Airflow 3.3, let callbacks read Connections and Variables, which a notifier with a stored "
        "connection needs: their token gets the scope that tasks have. It is given out only inside a Secret. "
        "Later versions of Airflow allow it by themselves.",
        type="boolean",
    ),
    Option(
        "max_active_callbacks",
        _count(0),
        "0",
        "How many callbacks may occupy slots of this executor at once, so that a storm of alerts leaves room "
        "for tasks. 0: only [core] parallelism limits them.",
        type="integer",
    ),
)


@dataclass(frozen=True, slots=True)
class CallbackSettings:
    """The values of ``[kubernetes_callbacks]``, valid when they exist. One field per option."""

    reconcile_interval: float = 30.0
    launch_concurrency: int = 16
    launch_retries: int = 3
    create_retries: int = 12
    launch_retry_delay: float = 10.0
    launch_retry_max_delay: float = 300.0
    pending_timeout: float = 300.0
    start_error_grace: float = 60.0
    save_logs: bool = True
    log_limit_bytes: int = 1048576
    pod_finalizer: bool = False
    pod_template_file: str = ""
    image: str = ""
    namespace: str = ""
    service_account_name: str = ""
    priority_class_name: str = ""
    resources: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, Any] = field(default_factory=dict)
    annotations: dict[str, Any] = field(default_factory=dict)
    node_selector: dict[str, Any] = field(default_factory=dict)
    tolerations: list[Any] = field(default_factory=list)
    rules: str = ""
    rules_file: str = ""
    author_settings: str = "all"
    security_context: str = "restricted"
    service_account_token: bool = False
    active_deadline_margin: float = 60.0
    payload_delivery: str = "auto"
    connections_and_variables: bool = True
    max_active_callbacks: int = 0


def load_settings(conf: ConfigReader) -> CallbackSettings:
    """Read and check every option.

    :raises SettingsError: for the first value that cannot be used; names the option, the value and
        what would be accepted.
    """
    known = {field.name for field in fields(CallbackSettings)}
    values: dict[str, Any] = {}
    for option in OPTIONS:
        if option.name not in known:
            raise SettingsError(f"option {option.name} has no field in CallbackSettings")
        text = conf.get(SECTION, option.name, fallback=option.default)
        try:
            values[option.name] = option.parse(option.default if text is None else text)
        except ValueError as error:
            raise SettingsError(
                f"[{SECTION}] {option.name} = {text!r} cannot be used: {error}. "
                f"Correct it in airflow.cfg (or AIRFLOW__{SECTION.upper()}__{option.name.upper()}), "
                f"or remove it to get the default, {option.default!r}."
            ) from error
    return CallbackSettings(**values)
