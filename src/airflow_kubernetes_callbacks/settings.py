"""The options of ``[kubernetes_callbacks]``: described, parsed and validated once.

``OPTIONS`` is the one list of options; the provider's metadata, the configuration reference in the
documentation and the parser are made from it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
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
        "pod_finalizer",
        _boolean,
        "False",
        "Put a finalizer on callback pods, so that the result of a finished pod outlives kubectl delete, "
        "pod garbage collection and node clean-up until it is recorded in the database. Remove it by hand "
        "with 'kubectl patch pod NAME --type=json -p "
        '\'[{"op": "remove", "path": "/metadata/finalizers"}]\'\' when this executor is gone for good.',
        type="boolean",
    ),
)


@dataclass(frozen=True, slots=True)
class CallbackSettings:
    """The values of ``[kubernetes_callbacks]``, valid when they exist. One field per option."""

    reconcile_interval: float = 30.0
    launch_concurrency: int = 16
    launch_retries: int = 3
    launch_retry_delay: float = 10.0
    launch_retry_max_delay: float = 300.0
    pending_timeout: float = 300.0
    start_error_grace: float = 60.0
    pod_finalizer: bool = False


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
