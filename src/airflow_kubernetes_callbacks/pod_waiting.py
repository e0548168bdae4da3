"""Why a pod waits, from its JSON. Pure and total."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_kubernetes_callbacks.identity import BASE_CONTAINER
from airflow_kubernetes_callbacks.pod_status import base_container, condition, mapping, mappings, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Normal steps on the way to a running container, not reasons to wait for anything.
_ORDINARY_WAITS = frozenset({"ContainerCreating", "PodInitializing", "Pulling"})
#: Words in a pull error that say "later", not "never": of kubelet, container runtimes and registries.
_TRANSIENT_PULL = re.compile(
    # A limit on pulls: the node's own, a registry's, an account's.
    r"qps exceeded|too ?many ?requests|rate ?limit|rate exceeded|quota exceeded|account limit"
    # No answer, or one that broke off.
    r"|time-?out|timed out|deadline exceeded|connection (?:reset|refused)|unexpected eof|(?-i:\sEOF\b)"
    r"|network is unreachable|no route to host|server sent goaway"
    # A registry, or what it asks about a login, that is down; a name server that is.
    r"|internal server error|bad gateway|service (?:temporarily )?unavailable|temporarily unavailable"
    r"|registry is unavailable|temporary failure|server misbehaving"
    # What a content delivery network answers for a registry that it does not reach, in a number of its own.
    r"|unexpected status(?: code| from \w+ request(?: to)?)?[:\s]+52\d\b",
    re.IGNORECASE,
)
#: An image, an address, a path: their words say nothing about the error.
_NAMES = re.compile(r"\S*/\S*")
_PULL_ERRORS = frozenset({"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"})
#: Errors that are about an image and do not say so in their word.
_ABOUT_IMAGES = frozenset({"RegistryUnavailable", "SignatureValidationFailed"})


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a pod waits: Kubernetes' word if it is an error, and a text for people."""

    word: str | None
    text: str | None


def waiting(pod: Mapping[str, Any]) -> Waiting:
    """Return why the pod waits: an error of a container first, then the scheduler's word."""
    found = _container_wait(pod) or _pod_wait(pod)
    if found is None:
        return Waiting(None, None)
    word, message = found
    text = f"{word}: {message}" if message else word
    transient = word in _PULL_ERRORS and _TRANSIENT_PULL.search(_NAMES.sub(" ", message or ""))
    return Waiting(None if transient else word, text)


def _container_wait(pod: Mapping[str, Any]) -> tuple[str, str | None] | None:
    """Return the first error that the base container, or one that starts before it, waits with."""
    status = mapping(pod, "status")
    images = {
        item.get("name"): text_of(item, "image")
        for kind in ("initContainers", "containers")
        for item in mappings(mapping(pod, "spec"), kind)
        if isinstance(item.get("name"), str)
    }
    base_name = base_container(pod).get("name", BASE_CONTAINER)
    ordinary = [item for item in mappings(status, "containerStatuses") if item.get("name") == base_name]
    for item in [*mappings(status, "initContainerStatuses"), *ordinary]:
        waits = mapping(mapping(item, "state"), "waiting")
        word = text_of(waits, "reason")
        if word is None or word in _ORDINARY_WAITS:
            continue
        name = text_of(item, "name") or "?"
        message = text_of(waits, "message")
        image = images.get(name) or text_of(item, "image")
        with_image = image and ("Image" in word or word in _ABOUT_IMAGES)
        about = f"container {name}" + (f", image {image}" if with_image else "")
        return word, f"{about}: {message}" if message else about
    return None


def _pod_wait(pod: Mapping[str, Any]) -> tuple[str, str | None] | None:
    status = mapping(pod, "status")
    scheduled = condition(pod, "PodScheduled", "False")
    if scheduled and not text_of(mapping(pod, "spec"), "nodeName"):
        named = text_of(scheduled, "reason") or "Unschedulable"
        return ("Unschedulable" if named == "SchedulerError" else named), text_of(scheduled, "message")
    if word := text_of(status, "reason"):
        return word, text_of(status, "message")
    return None


def unfinished_init(pod: Mapping[str, Any]) -> str | None:
    """Return which init container runs that the base container waits for: no error, and all that there is to say.

    Of a pod whose base container has not begun.
    """
    sidecars = {
        text_of(item, "name")
        for item in mappings(mapping(pod, "spec"), "initContainers")
        if item.get("restartPolicy") == "Always"
    }
    for item in mappings(mapping(pod, "status"), "initContainerStatuses"):
        name = text_of(item, "name") or "?"
        if not isinstance(mapping(item, "state").get("running"), dict):
            continue
        if name not in sidecars:
            return f"init container {name} is still running"
        if item.get("started") is False:
            return f"sidecar {name} runs and has not started up (its startupProbe or postStart hook)"
    return None
