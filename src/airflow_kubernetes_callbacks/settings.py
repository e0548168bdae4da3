"""The options of ``[kubernetes_callbacks]``: described, parsed and validated once.

``OPTIONS`` is the one list of options; the provider's metadata, the configuration reference in the
documentation and the parser are made from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from airflow_kubernetes_callbacks.errors import SettingsError
from airflow_kubernetes_callbacks.options import (
    Option,
    boolean,
    count,
    seconds,
)
from airflow_kubernetes_callbacks.pod_options import POD_OPTIONS

SECTION = "kubernetes_callbacks"


class ConfigReader(Protocol):
    """What is needed of Airflow's configuration (global, or that of one team)."""

    def get(self, section: str, key: str, **kwargs: Any) -> str | None: ...


OPTIONS: tuple[Option, ...] = (
    Option(
        "reconcile_interval",
        seconds(1),
        "30",
        "Seconds between two full comparisons of callback pods with the rows of the database. A pod "
        "event brings the look at its own callback forward; the full comparison finds what no event told.",
        type="float",
    ),
    Option(
        "launch_concurrency",
        count(1),
        "16",
        "How many requests that create or delete callback pods are under way at once, per scheduler.",
        type="integer",
    ),
    Option(
        "launch_retries",
        count(0),
        "3",
        "How many times a callback is launched again when its pod could not be created or its base "
        "container never started. A callback that may have begun is never launched again on its own.",
        type="integer",
    ),
    Option(
        "create_retries",
        count(0),
        "12",
        "How many times the request that creates a pod is made again when the API server does not take it "
        "for now: throttling, an exceeded quota, a server error, a connection that breaks. With the default "
        "delays that bridges about 45 minutes; then the callback fails with the API server's words.",
        type="integer",
    ),
    Option(
        "launch_retry_delay",
        seconds(0),
        "10",
        "Seconds before the first new launch; doubled with every further one.",
        type="float",
    ),
    Option(
        "launch_retry_max_delay",
        seconds(0),
        "300",
        "The longest delay between two launches of one callback, in seconds.",
        type="float",
    ),
    Option(
        "pending_timeout",
        seconds(1),
        "300",
        "Seconds that a callback pod may wait for its base container to start before it is deleted and, "
        "within launch_retries, launched again; after that the callback fails with the reason that "
        "Kubernetes gives for the wait.",
        type="float",
    ),
    Option(
        "start_error_grace",
        seconds(0),
        "60",
        "Seconds that an error such as ErrImagePull or CreateContainerConfigError may last, from when the "
        "scheduler first sees it, before the pod counts as one that cannot start (pending_timeout bounds it in "
        "any case). Kubernetes retries these by itself in the meantime.",
        type="float",
    ),
    Option(
        "node_lost_timeout",
        seconds(0),
        "300",
        "Seconds that a callback pod which is being deleted may outlast its grace period: a node that is "
        "alive ends it in time. After that the callback fails, because nobody can tell how it ended.",
        type="float",
    ),
    Option(
        "save_logs",
        boolean,
        "True",
        "Before a finished pod is deleted, write the log of its base container into the base log folder, at "
        "Airflow's own path for the logs of callbacks. Costs one request and one file per callback.",
        type="boolean",
    ),
    Option(
        "log_limit_bytes",
        count(1024),
        "1048576",
        "How much of the end of a log is kept, in bytes.",
        type="integer",
    ),
    Option(
        "pod_finalizer",
        boolean,
        "False",
        "Put a finalizer on callback pods, so that the result of a finished pod outlives kubectl delete, "
        "pod garbage collection and node clean-up until it is recorded in the database. Remove it by hand "
        "with 'kubectl patch pod NAME --type=json -p "
        '\'[{"op": "remove", "path": "/metadata/finalizers"}]\'\' when this executor is gone for good.',
        type="boolean",
    ),
    Option(
        "max_active_callbacks",
        count(0),
        "0",
        "How many callbacks may occupy slots of this executor at once, so that a storm of alerts leaves room "
        "for tasks. 0: only [core] parallelism limits them.",
        type="integer",
    ),
    *POD_OPTIONS,
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
    node_lost_timeout: float = 300.0
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
