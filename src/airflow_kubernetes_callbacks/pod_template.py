"""Reading of pod template files: the one effect beside the pure modules about the callback's pod.

The client's models take what they know and drop the rest without a word, a misspelt key or one that is
newer than the client. Such keys are logged, once for each version of the file.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator

from airflow_kubernetes_callbacks.errors import LaunchDelayedError, LaunchError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubernetes.client import models as k8s

log = logging.getLogger(__name__)

#: Where a template's file may be named: by this package's option or one of its rules, or by the stock one.
OWN_OPTION = "[kubernetes_callbacks] pod_template_file, or in the rule"
STOCK_OPTION = "[kubernetes_executor] pod_template_file"
#: What keeps a file from being read until a person mends it. All else passes: too many open files, a
#: volume that does not answer.
FILE_ERRORS_FOR_GOOD = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)


def load_template(path: str, *, named_in: str = OWN_OPTION) -> k8s.V1Pod:
    """Return the pod in the file at *path*; the file is parsed again only when it has changed.

    What is returned is shared by all who ask, so not to be changed.

    :param named_in: the option that *path* comes from, for the person who has to correct it.
    :raises LaunchError: if there is no file, or no pod in it; names the file, what is wrong, and the option.
    :raises LaunchDelayedError: if it cannot be read just now.
    """
    remedy = f"Correct the file, or name another one in {named_in}."
    try:
        stamp = Path(path).stat()
        return _parsed(path, stamp.st_mtime_ns, stamp.st_size)
    except OSError as error:
        told = f"pod template {path!r} cannot be read: {error.strerror or error}."
        if isinstance(error, FILE_ERRORS_FOR_GOOD):
            raise LaunchError(f"{told} {remedy}") from error
        raise LaunchDelayedError(told) from error
    except LaunchError as error:
        raise LaunchError(f"{error} {remedy}") from error


@lru_cache(maxsize=32)
def _parsed(path: str, _changed: int, _size: int) -> k8s.V1Pod:
    return parse_template(Path(path).read_bytes(), path)


def parse_template(text: bytes | str, name: str) -> k8s.V1Pod:
    """Return the pod in a YAML (or JSON) text.

    :raises LaunchError: if it holds no pod.
    """
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        where = getattr(error, "problem_mark", None)
        line = f", line {where.line + 1}" if where else ""
        problem = getattr(error, "problem", None) or error
        raise LaunchError(f"pod template {name!r}{line} is not YAML: {problem}.") from error
    if not isinstance(document, dict) or document.get("kind", "Pod") != "Pod":
        raise LaunchError(f"pod template {name!r} holds no object of kind Pod.")
    spec = document.get("spec")
    if spec is not None and not isinstance(spec, dict):
        raise LaunchError(f"pod template {name!r}: spec must be a mapping.")
    if isinstance(spec, dict) and not spec.get("containers"):
        document = {**document, "spec": {**spec, "containers": [{"name": "base"}]}}
    try:
        pod: k8s.V1Pod = PodGenerator.deserialize_model_dict(document)
    except Exception as error:
        raise LaunchError(f"pod template {name!r} is not a pod: {type(error).__name__}: {error}.") from error
    if unknown := sorted(_unknown_keys(document, PodGenerator.serialize_pod(pod))):
        log.warning(
            "Pod template %s: %s is left out of the pod, the installed Kubernetes client does not know it. "
            "Look for a misspelling, or install a newer client.",
            name,
            ", ".join(unknown),
        )
    return pod


def _unknown_keys(given: object, understood: object, path: str = "") -> Iterator[str]:
    """Yield the paths of keys in *given* that did not come through the client's model."""
    if isinstance(given, dict) and isinstance(understood, dict):
        for key, value in given.items():
            if key in understood:
                yield from _unknown_keys(value, understood[key], f"{path}.{key}")
            elif value is not None:
                yield f"{path}.{key}".removeprefix(".")
    elif isinstance(given, list) and isinstance(understood, list):
        for index, (value, known) in enumerate(zip(given, understood, strict=False)):
            yield from _unknown_keys(value, known, f"{path}[{index}]")
