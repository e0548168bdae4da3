"""What the tests of the local cluster say about pods: making them, waiting for them, reading their status."""

from __future__ import annotations

import contextlib
import json
import secrets
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kubernetes.client.exceptions import ApiException

from kubernetes_tests.cluster.launcher import Image

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kubernetes import client

    Json = dict[str, Any]

T = TypeVar("T")

IMAGE = "local/machine"
ENTRYPOINT_IMAGE = "local/with-entrypoint:1"
PYTHON = str(Path(sys.executable))
CPUS = 64
WAIT_SECONDS = 30.0

IMAGES = (
    Image(
        ENTRYPOINT_IMAGE,
        entrypoint=("sh", "-c", 'echo "entrypoint: $*"', "sh"),
        command=("default",),
        env={"FROM_IMAGE": "image", "OVERRIDDEN": "image"},
    ),
    Image("local/*", path=(Path(PYTHON).parent,)),
)


def until(what: str, look: Callable[[], T | None], seconds: float = WAIT_SECONDS) -> T:
    """Return the first result that is true; fail with the last one after a time."""
    deadline = time.monotonic() + seconds
    while True:
        result = look()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what}; last: {result!r}")
        time.sleep(0.1)


class Namespace:
    """One namespace, with pods as the API server's JSON."""

    def __init__(self, core: client.CoreV1Api, name: str) -> None:
        self.core = core
        self.name = name

    @classmethod
    @contextlib.contextmanager
    def made(cls, core: client.CoreV1Api) -> Iterator[Namespace]:
        name = f"test-{secrets.token_hex(4)}"
        core.create_namespace({"metadata": {"name": name}})
        namespace = cls(core, name)
        try:
            until(
                "the default service account",
                lambda: _exists(core.read_namespaced_service_account, "default", name),
            )
            yield namespace
        finally:
            core.delete_namespace(name, grace_period_seconds=0)

    def create(self, pod: Json) -> str:
        self.core.create_namespaced_pod(self.name, pod)
        name: str = pod["metadata"]["name"]
        return name

    def pod(self, name: str) -> Json | None:
        """Return the pod, or nothing when there is none."""
        try:
            answer = self.core.read_namespaced_pod(name, self.name, _preload_content=False)
        except ApiException as error:
            if error.status == 404:
                return None
            raise
        found: Json = json.loads(answer.data)
        return found

    def wait(self, name: str, condition: Callable[[Json], Any], seconds: float = WAIT_SECONDS) -> Json:
        """Return the pod as soon as the condition holds; fail with its status after a time."""
        last: list[Json | None] = [None]

        def look() -> Json | None:
            last[0] = self.pod(name)
            return last[0] if last[0] is not None and condition(last[0]) else None

        try:
            return until(f"condition of pod {name}", look, seconds)
        except AssertionError as error:
            error.add_note(json.dumps((last[0] or {}).get("status"), indent=1))
            error.add_note("\n".join(f"{e['reason']}: {e['message']}" for e in self.events(name)))
            raise

    def wait_for_phase(self, name: str, *phases: str, seconds: float = WAIT_SECONDS) -> Json:
        return self.wait(name, lambda pod: pod["status"].get("phase") in phases, seconds)

    def wait_for_end(self, name: str, seconds: float = WAIT_SECONDS) -> Json:
        return self.wait_for_phase(name, "Succeeded", "Failed", seconds=seconds)

    def wait_until_gone(self, name: str, seconds: float = WAIT_SECONDS) -> None:
        until(f"pod {name} is gone", lambda: self.pod(name) is None, seconds)

    def delete(self, name: str, grace: int | None = None) -> None:
        self.core.delete_namespaced_pod(name, self.name, grace_period_seconds=grace)

    def log(self, name: str, container: str = "base", **options: Any) -> str:
        answer = self.core.read_namespaced_pod_log(
            name, self.name, container=container, _preload_content=False, **options
        )
        text: str = answer.data.decode()
        return text

    def wait_for_log(self, name: str, text: str) -> str:
        """Return the log as soon as it holds the text; the kubelet may not know the pod yet."""

        def look() -> str | None:
            try:
                log = self.log(name)
            except ApiException as error:
                if error.status not in {400, 404}:
                    raise
                return None
            return log if text in log else None

        return until(f"{text!r} in the log of pod {name}", look)

    def events(self, name: str) -> list[Json]:
        answer = self.core.list_namespaced_event(
            self.name, field_selector=f"involvedObject.name={name}", _preload_content=False
        )
        items: list[Json] = json.loads(answer.data)["items"]
        return items

    def wait_for_event(self, name: str, reason: str, text: str = "", seconds: float = WAIT_SECONDS) -> Json:
        def look() -> Json | None:
            return next(
                (e for e in self.events(name) if e["reason"] == reason and text in e["message"]), None
            )

        return until(f"event {reason} with {text!r} of pod {name}", look, seconds)


def _exists(read: Callable[..., object], *arguments: object) -> bool:
    try:
        read(*arguments)
    except ApiException as error:
        if error.status != 404:
            raise
        return False
    return True


def container(name: str, script: str = "", **fields: Any) -> Json:
    """Return a container that runs a shell script, unless it has another command."""
    command = {"command": ["sh", "-c", script]} if script else {}
    return {"name": name, "image": IMAGE, "imagePullPolicy": "IfNotPresent", **command, **fields}


def pod(name: str, *containers: Json, **spec: Any) -> Json:
    """Return a pod whose containers are not started again."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 3,
            "containers": list(containers),
            **spec,
        },
    }


def status_of(pod: Json, container: str = "base") -> Json:
    """Return the status of a container of any kind; empty when it has none yet."""
    statuses = pod["status"].get("containerStatuses", []) + pod["status"].get("initContainerStatuses", [])
    return next((status for status in statuses if status["name"] == container), {})


def state_of(pod: Json, container: str = "base") -> Json:
    """Return the state of a container, e.g. ``{"waiting": {"reason": ...}}``; empty when it has none yet."""
    state: Json = status_of(pod, container).get("state", {})
    return state


def terminated(pod: Json, container: str = "base") -> Json:
    found: Json = state_of(pod, container).get("terminated", {})
    return found


def waiting_reason(pod: Json, container: str = "base") -> str | None:
    reason: str | None = state_of(pod, container).get("waiting", {}).get("reason")
    return reason
