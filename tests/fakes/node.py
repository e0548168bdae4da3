"""What scheduler, kubelet and controllers write into a pod's status."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.fakes.objects import timestamp

if TYPE_CHECKING:
    from tests.fakes.objects import Document, ObjectStore


class Node:
    """One node; each method is one step in the life of a pod, named by (namespace, name)."""

    def __init__(self, store: ObjectStore, name: str = "node-1") -> None:
        self._store = store
        self.name = name

    def refuse(
        self, pod: Document, message: str = "0/3 nodes are available: 3 Insufficient cpu."
    ) -> Document:
        """The scheduler finds no node."""

        def change(document: Document) -> None:
            _condition(document, "PodScheduled", "False", "Unschedulable", message)

        return self._update(pod, change)

    def bind(self, pod: Document) -> Document:
        """The scheduler assigns the pod, and the kubelet accepts it."""

        def change(document: Document) -> None:
            document["spec"]["nodeName"] = self.name
            _condition(document, "PodScheduled", "True")
            document["status"]["startTime"] = self._now()
            _base(document, {"waiting": {"reason": "ContainerCreating"}})

        return self._update(pod, change)

    def wait(self, pod: Document, reason: str, message: str = "") -> Document:
        """The base container waits with an error."""

        def change(document: Document) -> None:
            document["spec"].setdefault("nodeName", self.name)
            _base(document, {"waiting": {"reason": reason, "message": message}})

        return self._update(pod, change)

    def start(self, pod: Document) -> Document:
        """The base container runs."""

        def change(document: Document) -> None:
            document["spec"]["nodeName"] = self.name
            _condition(document, "PodScheduled", "True")
            document["status"].update(phase="Running")
            document["status"].setdefault("startTime", self._now())
            _base(document, {"running": {"startedAt": self._now()}}, container_id="containerd://1")

        return self._update(pod, change)

    def finish(self, pod: Document, exit_code: int = 0, *, reason: str = "", message: str = "") -> Document:
        """The base container ends by itself."""

        def change(document: Document) -> None:
            document["spec"].setdefault("nodeName", self.name)
            word = reason or ("Completed" if exit_code == 0 else "Error")
            ended = {
                "exitCode": exit_code,
                "reason": word,
                "startedAt": _started(document) or self._now(),
                "finishedAt": self._now(),
            }
            if message:
                ended["message"] = message
            _base(document, {"terminated": ended}, container_id="containerd://1")
            document["status"]["phase"] = "Succeeded" if exit_code == 0 else "Failed"

        return self._update(pod, change)

    def finish_callback(self, pod: Document, error: str) -> Document:
        """The callback raises, and its last words are in the termination message."""
        line = json.dumps({"event": "Callback failed", "error": f"Callback execution failed: {error}"})
        return self.finish(pod, 1, message=line + "\n")

    def fail(self, pod: Document, reason: str, message: str) -> Document:
        """The pod fails as a whole, without a word on its containers (rejected, evicted before start)."""

        def change(document: Document) -> None:
            document["status"].update(phase="Failed", reason=reason, message=message)

        return self._update(pod, change)

    def give_up(self, pod: Document) -> Document:
        """The kubelet ends a pod that is being deleted and whose base container it never created."""

        def change(document: Document) -> None:
            ended = {
                "exitCode": 137,
                "reason": "ContainerStatusUnknown",
                "message": "The container could not be located when the pod was terminated",
                "startedAt": None,
                "finishedAt": None,
            }
            _base(document, {"terminated": ended})
            document["status"]["phase"] = "Failed"

        return self._update(pod, change)

    def mark(self, pod: Document, **status: Any) -> Document:
        """Write anything into the status."""
        return self._update(pod, lambda document: document["status"].update(status))

    def remove(self, pod: Document) -> Document:
        """The kubelet has stopped everything: it confirms the deletion."""
        metadata = pod["metadata"]
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
        return self._store.delete("pods", metadata["namespace"], metadata["name"], options)

    def _now(self) -> str:
        return timestamp(self._store.clock())

    def _update(self, pod: Document, change: Any) -> Document:
        metadata = pod["metadata"]
        return self._store.update("pods", metadata["namespace"], metadata["name"], change)


def _base(document: Document, state: Document, container_id: str = "") -> None:
    names = [container["name"] for container in document["spec"]["containers"]]
    name = "base" if "base" in names else names[0]
    status = {
        "name": name,
        "image": "airflow",
        "imageID": "sha256:0",
        "restartCount": 0,
        "ready": "running" in state,
        "state": state,
    }
    if container_id:
        status["containerID"] = container_id
    document["status"]["containerStatuses"] = [status]


def _started(document: Document) -> str:
    for status in document["status"].get("containerStatuses") or ():
        if "running" in status["state"]:
            return str(status["state"]["running"]["startedAt"])
    return ""


def _condition(document: Document, kind: str, status: str, reason: str = "", message: str = "") -> None:
    conditions = [item for item in document["status"].get("conditions") or () if item["type"] != kind]
    conditions.append({"type": kind, "status": status, "reason": reason, "message": message})
    document["status"]["conditions"] = conditions
