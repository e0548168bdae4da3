"""The reserved kwarg by which a Dag author says what pod one callback needs. Pure.

.. code-block:: python

    SyncCallback(alert, kwargs={"text": "late", "kubernetes_callback": {"rule": "heavy"}})
    SyncCallback(alert, kwargs={"kubernetes_callback": {"resources": {"limits": {"memory": "1Gi"}}}})

The kwarg is taken out of the workload before it is sent: the callback's function never sees it. On any
other executor it would, so give it only to callbacks that are routed to this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from airflow_kubernetes_callbacks.errors import LaunchError
from airflow_kubernetes_callbacks.pod_settings import Resources  # noqa: TC001 (pydantic needs it)

if TYPE_CHECKING:
    from collections.abc import Mapping

RESERVED_KWARG = "kubernetes_callback"

#: How Airflow wraps a value that JSON cannot hold as it is: (name of the type, its value).
_ENCODINGS = (("__classname__", "__data__"), ("__type", "__var"))


class AuthorOptions(BaseModel):
    """What a Dag author may ask for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rule: Annotated[str, Field(min_length=1)] | None = None
    resources: Resources | None = None


def split_reserved_kwarg(data: Mapping[str, Any]) -> tuple[AuthorOptions | None, dict[str, Any]]:
    """Return the author's options, if there are any, and the callback's data without them.

    *data* is that of the workload: kwargs are plain JSON on Airflow 3.3, and plain JSON with some
    values encoded from 3.4 on. It is not changed.

    :raises LaunchError: names the key that cannot be used.
    """
    kwargs = data.get("kwargs")
    inner = _wrapped(kwargs)
    holder = inner if inner is not None else kwargs
    if not isinstance(holder, dict) or RESERVED_KWARG not in holder:
        return None, dict(data)
    rest = {key: value for key, value in holder.items() if key != RESERVED_KWARG}
    cleaned = {**data, "kwargs": rest if inner is None else _rewrapped(kwargs, rest)}
    return _options(_decoded(holder[RESERVED_KWARG])), cleaned


def permitted(options: AuthorOptions | None, author_settings: str) -> AuthorOptions | None:
    """Return *options* if ``[kubernetes_callbacks] author_settings`` lets Dag authors set them.

    :raises LaunchError: if it does not.
    """
    if options is None or author_settings == "all":
        return options
    refused = "rule or resources" if author_settings == "none" else "resources" if options.resources else None
    if refused is None:
        return options
    raise LaunchError(
        f"the callback's kwarg {RESERVED_KWARG} asks for {refused}, which [kubernetes_callbacks] "
        f"author_settings = {author_settings} does not allow. Remove it from the SyncCallback, or change the option."
    )


def _options(value: object) -> AuthorOptions:
    if isinstance(value, str):
        value = {"rule": value}
    try:
        return AuthorOptions.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join([RESERVED_KWARG, *(str(part) for part in first["loc"] if part != "[key]")])
        unknown = first["type"] == "extra_forbidden"
        what = "there is no such key" if unknown else str(first["msg"]).removeprefix("Value error, ")
        raise LaunchError(
            f"the callback's kwarg {where} cannot be used: {what}. It takes the name of a rule, or an object "
            "with rule and resources (requests, limits)."
        ) from error


def _wrapped(value: object) -> object:
    """Return what an encoded value holds, or None if *value* is not an encoded one."""
    if isinstance(value, dict):
        for kind, content in _ENCODINGS:
            if kind in value and content in value:
                inner: object = value[content]
                return inner
    return None


def _rewrapped(value: object, inner: object) -> object:
    if isinstance(value, dict):
        for kind, content in _ENCODINGS:
            if kind in value and content in value:
                return {**value, content: inner}
    return inner


def _decoded(value: object) -> object:
    """Return *value* with the encodings of plain containers undone, at every depth."""
    inner = _wrapped(value)
    if inner is not None:
        return _decoded(inner)
    if isinstance(value, dict):
        return {key: _decoded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    return value
