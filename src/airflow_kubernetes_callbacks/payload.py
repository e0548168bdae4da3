"""How a workload reaches its pod: as an argument or in a Secret. Pure.

A Secret keeps the token and the kwargs out of the pod's spec, and carries more: the kernel executes
no program with a single argument of 131,072 bytes or more (the pod is created, its container cannot
start), while a Secret holds 1 MiB. Sizes are bytes of UTF-8, never characters.

The kubelet expands ``$(NAME)`` and ``$$`` in arguments, so in the pod's spec every ``$`` of the text
stands twice. Limits count what the process gets; the spec has at most twice that, far from the 1.5 MiB
that etcd takes.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from airflow_kubernetes_callbacks.errors import PayloadTooLargeError

if TYPE_CHECKING:
    from collections.abc import Mapping

Delivery = Literal["auto", "secret", "argument"]

#: ``MAX_ARG_STRLEN`` of Linux is 131,072 with the closing NUL.
MAX_ARGUMENT_BYTES = 131_071
#: What the API server accepts as the sum of a Secret's values.
MAX_SECRET_BYTES = 1_048_576

WORKLOAD_VOLUME = "callback-workload"
WORKLOAD_DIRECTORY = "/var/run/airflow-callback"
WORKLOAD_KEY = "workload.json"
WORKLOAD_PATH = f"{WORKLOAD_DIRECTORY}/{WORKLOAD_KEY}"
#: The file is read by whatever user the image runs as; nobody else is in the container.
WORKLOAD_FILE_MODE = 0o444

_COMMAND = ("python", "-m", "airflow.sdk.execution_time.execute_workload")
_ADVICE = (
    "Pass less in the callback's kwargs or in the Dag run's conf: a reference to the data, not the data."
)


@dataclass(frozen=True, slots=True)
class ArgumentPayload:
    """The workload's JSON as an argument of the command; visible to whoever may read the pod.

    ``text`` is what the process gets, ``command`` what the pod's spec has.
    """

    text: str

    def __repr__(self) -> str:  # the token stays out of logs
        return f"ArgumentPayload({len(self.text)} characters)"

    @property
    def command(self) -> list[str]:
        return [*_COMMAND, "--json-string", escaped(self.text)]


@dataclass(frozen=True, slots=True)
class SecretPayload:
    """The workload's JSON in a Secret that is mounted into the pod."""

    text: str

    def __repr__(self) -> str:  # the token stays out of logs
        return f"SecretPayload({len(self.text)} characters)"

    @property
    def command(self) -> list[str]:
        return [*_COMMAND, "--json-path", WORKLOAD_PATH]


Payload = ArgumentPayload | SecretPayload


def escaped(text: str) -> str:
    """Return the argument in a pod's spec of which the kubelet makes *text*."""
    return text.replace("$", "$$")


def unescaped(argument: str) -> str:
    """Return the text for which :func:`escaped` gives *argument*."""
    return argument.replace("$$", "$")


def size_in_bytes(text: str) -> int:
    """Return the length of *text* as the kernel and the API server count it."""
    return len(text.encode("utf-8", "surrogatepass"))


def plan_payload(workload_json: str, delivery: Delivery, *, secrets_allowed: bool) -> Payload:
    """Return how this workload travels.

    :param secrets_allowed: this executor may create Secrets in the pod's namespace. Only ``auto``
        looks at it: with ``secret`` the refusal of the API server is the answer.
    :raises PayloadTooLargeError: if no permitted way can carry it.
    """
    size = size_in_bytes(workload_json)
    in_secret = delivery == "secret" or (delivery == "auto" and secrets_allowed)
    limit = MAX_SECRET_BYTES if in_secret else MAX_ARGUMENT_BYTES
    if size <= limit:
        return SecretPayload(workload_json) if in_secret else ArgumentPayload(workload_json)
    raise PayloadTooLargeError(_too_large(size, limit, in_secret=in_secret, delivery=delivery))


def _too_large(size: int, limit: int, *, in_secret: bool, delivery: Delivery) -> str:
    carrier = "a Secret" if in_secret else "a command-line argument"
    text = f"the workload has {size:,} bytes, {carrier} carries at most {limit:,}. "
    if in_secret or size > MAX_SECRET_BYTES:
        return text + _ADVICE
    if delivery == "argument":
        remedy = "Set [kubernetes_callbacks] payload_delivery = auto"
    else:
        remedy = "Let the scheduler's service account create Secrets in the namespace of callback pods"
    return f"{text}{remedy} to send up to {MAX_SECRET_BYTES:,} bytes in a Secret, or: {_ADVICE}"


def construct_payload_secret(
    payload: SecretPayload,
    *,
    namespace: str,
    labels: Mapping[str, str],
    pod_name: str,
    pod_uid: str,
) -> dict[str, Any]:
    """Return the Secret's JSON: it has the pod's name and belongs to the pod, so that it goes with it."""
    encoded = base64.b64encode(payload.text.encode("utf-8", "surrogatepass")).decode("ascii")
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": pod_name,
            "namespace": namespace,
            "labels": dict(labels),
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": pod_name,
                    "uid": pod_uid,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "type": "Opaque",
        "immutable": True,
        "data": {WORKLOAD_KEY: encoded},
    }
