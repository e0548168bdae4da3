"""Copies of the Kubernetes client's models, without the copies of its configuration. Pure.

Each model holds a reference to the client's configuration, and ``copy.deepcopy`` copies that with every
single one: some forty times per pod, 100 microseconds each, and each time it resets log levels. That is
nearly all of what it costs to build a pod.
"""

from __future__ import annotations

from typing import TypeVar, cast

T = TypeVar("T")


def copied(value: T) -> T:
    """Return a deep copy of a model, a list or a dictionary of such; other values are taken as they are."""
    if isinstance(value, dict):
        return cast("T", {key: copied(item) for key, item in value.items()})
    if isinstance(value, list):
        return cast("T", [copied(item) for item in value])
    if not hasattr(value, "openapi_types"):
        return value
    model = value.__class__.__new__(value.__class__)
    for name, item in vars(value).items():
        # not by setattr: a model checks what is set, and this was checked when the original was made
        model.__dict__[name] = item if name == "local_vars_configuration" else copied(item)
    return model
