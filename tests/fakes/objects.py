"""What an API server keeps: versioned objects, their history for watches, and the rules of changing them."""

from __future__ import annotations

import contextlib
import copy
import json
import threading
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tests.fakes.selectors import matches_fields, matches_labels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Document = dict[str, Any]
Key = tuple[str, str, str]

KINDS = {"pods": "Pod", "secrets": "Secret", "events": "Event", "configmaps": "ConfigMap"}


class ApiStatusError(Exception):
    """A refusal, as a ``Status`` object."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message

    def document(self) -> Document:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": self.code,
            "reason": self.reason,
            "message": self.message,
        }


@dataclass(frozen=True)
class Change:
    """One step in the history: what a watch may have to tell."""

    version: int
    plural: str
    kind: str
    document: Document
    before: Document | None


@dataclass(frozen=True)
class Selection:
    """What a list or a watch asks for."""

    plural: str
    namespace: str | None
    labels: str = ""
    fields: str = ""

    def has(self, document: Document | None) -> bool:
        if document is None:
            return False
        metadata = document["metadata"]
        return (
            (self.namespace is None or metadata.get("namespace") == self.namespace)
            and matches_labels(self.labels, metadata.get("labels") or {})
            and matches_fields(self.fields, document)
        )


def timestamp(moment: datetime | None = None) -> str:
    return (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


def wall_clock() -> datetime:
    return datetime.now(UTC)


class ObjectStore:
    """Objects by (plural, namespace, name). Every method is one transaction."""

    def __init__(self, clock: Callable[[], datetime] = wall_clock) -> None:
        self.clock = clock
        self.changed = threading.Condition(threading.RLock())
        self.version = 100
        #: Versions before this one are no longer known: a watch from them gets 410.
        self.oldest = 0
        #: None: every namespace exists.
        self.namespaces: set[str] | None = None
        self._objects: dict[Key, Document] = {}
        self._history: list[Change] = []

    # Reading ---------------------------------------------------------------------------------------

    def get(self, plural: str, namespace: str, name: str) -> Document:
        with self.changed:
            return copy.deepcopy(self._find(plural, namespace, name))

    def find(self, plural: str, namespace: str, name: str) -> Document | None:
        with self.changed:
            return copy.deepcopy(self._objects.get((plural, namespace, name)))

    def select(self, selection: Selection) -> tuple[list[Document], int]:
        """Return the objects, in the order of their names, and the version of the list."""
        with self.changed:
            found = [
                copy.deepcopy(document)
                for (plural, _, _), document in sorted(self._objects.items())
                if plural == selection.plural and selection.has(document)
            ]
            return found, self.version

    def changes(
        self, selection: Selection, since: int, stopped: Callable[[], bool], patience: float
    ) -> Iterator[tuple[str, Document] | None]:
        """Yield what happened to the selection after version *since*; None when nothing did for a while."""
        while not stopped():
            with self.changed:
                if since < self.oldest:
                    raise ApiStatusError(410, "Expired", f"too old resource version: {since} ({self.oldest})")
                fresh = [change for change in self._history if change.version > since]
                if not fresh:
                    self.changed.wait(patience)
                    fresh = [change for change in self._history if change.version > since]
            for change in fresh:
                since = change.version
                if change.plural == selection.plural and (event := told(change, selection)):
                    yield event
            if not fresh:
                yield None

    # Changing --------------------------------------------------------------------------------------

    def create(self, plural: str, namespace: str, body: Document) -> Document:
        document = copy.deepcopy(body)
        metadata = document.setdefault("metadata", {})
        with self.changed:
            if self.namespaces is not None and namespace not in self.namespaces:
                raise ApiStatusError(404, "NotFound", f'namespaces "{namespace}" not found')
            if not metadata.get("name"):
                metadata["name"] = f"{metadata['generateName']}{uuid.uuid4().hex[:5]}"
            name = metadata["name"]
            if (plural, namespace, name) in self._objects:
                raise ApiStatusError(409, "AlreadyExists", f'{plural} "{name}" already exists')
            metadata.update(
                namespace=namespace,
                uid=str(uuid.uuid4()),
                creationTimestamp=timestamp(self.clock()),
                generation=1,
            )
            document.update(apiVersion="v1", kind=KINDS[plural])
            if plural == "pods":
                document["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
            return self._keep(plural, "ADDED", document, None)

    def patch(self, plural: str, namespace: str, name: str, patch: Document) -> Document:
        """Strategic merge of metadata, as far as it is used here."""
        if "spec" in patch:
            raise ApiStatusError(
                422, "Invalid", "Pod is invalid: spec: Forbidden: pod updates may not change fields"
            )
        with self.changed:
            before = self._find(plural, namespace, name)
            document = copy.deepcopy(before)
            wanted = dict(patch.get("metadata") or {})
            self._check(before, {k: wanted.pop(k) for k in ("uid", "resourceVersion") if k in wanted})
            metadata = document["metadata"]
            for key in wanted.pop("$deleteFromPrimitiveList/finalizers", ()):
                metadata["finalizers"] = [item for item in metadata.get("finalizers", ()) if item != key]
            _merge(metadata, wanted)
            if not metadata.get("finalizers"):
                metadata.pop("finalizers", None)
            if _is_over(document):
                return self._remove((plural, namespace, name), document)
            if document == before:
                return copy.deepcopy(before)
            return self._keep(plural, "MODIFIED", document, before)

    def delete(self, plural: str, namespace: str, name: str, options: Document) -> Document:
        """Delete as the API server does: with grace where a node has the pod, else at once."""
        with self.changed:
            before = self._find(plural, namespace, name)
            self._check(before, options.get("preconditions") or {})
            document = copy.deepcopy(before)
            grace = _grace_seconds(document, options) if plural == "pods" else 0
            metadata = document["metadata"]
            if not grace and not metadata.get("finalizers"):
                return self._remove((plural, namespace, name), before)
            due = timestamp(self.clock() + timedelta(seconds=grace))
            metadata.setdefault("deletionTimestamp", due)
            metadata["deletionGracePeriodSeconds"] = grace
            if document == before:
                return document
            return self._keep(plural, "MODIFIED", document, before)

    def update(self, plural: str, namespace: str, name: str, change: Callable[[Document], None]) -> Document:
        """Change the object in any way: what a node, or a controller, writes."""
        with self.changed:
            before = self._find(plural, namespace, name)
            document = copy.deepcopy(before)
            change(document)
            return self._keep(plural, "MODIFIED", document, before)

    @contextlib.contextmanager
    def unseen(self, *, but_the_last: bool = False) -> Iterator[None]:
        """No watch tells what happens inside; *but_the_last* of it, if so wanted."""
        with self.changed:
            start = len(self._history)
            yield
            hidden = self._history[start:]
            self._history[start:] = hidden[-1:] if but_the_last else []

    def forget_history(self) -> None:
        """Compact: watches from before now are told 410."""
        with self.changed:
            self.version += 1
            self.oldest = self.version
            self._history.clear()
            self.changed.notify_all()

    # One at a time ---------------------------------------------------------------------------------

    def _find(self, plural: str, namespace: str, name: str) -> Document:
        document = self._objects.get((plural, namespace, name))
        if document is None:
            raise ApiStatusError(404, "NotFound", f'{plural} "{name}" not found')
        return document

    def _check(self, document: Document, preconditions: Document) -> None:
        metadata = document["metadata"]
        for field, expected in preconditions.items():
            if expected is not None and expected != metadata[field]:
                raise ApiStatusError(
                    409,
                    "Conflict",
                    f'Operation cannot be fulfilled on pods "{metadata["name"]}": the object has been modified; '
                    f"please apply your changes to the latest version and try again ({field})",
                )

    def _keep(self, plural: str, kind: str, document: Document, before: Document | None) -> Document:
        self.version += 1
        metadata = document["metadata"]
        metadata["resourceVersion"] = str(self.version)
        self._objects[(plural, metadata["namespace"], metadata["name"])] = document
        self._tell(plural, kind, document, before)
        return copy.deepcopy(document)

    def _remove(self, key: Key, document: Document) -> Document:
        del self._objects[key]
        self.version += 1
        last = copy.deepcopy(document)
        last["metadata"]["resourceVersion"] = str(self.version)
        self._tell(key[0], "DELETED", last, document)
        return copy.deepcopy(last)

    def _tell(self, plural: str, kind: str, document: Document, before: Document | None) -> None:
        self._history.append(
            Change(self.version, plural, kind, copy.deepcopy(document), copy.deepcopy(before))
        )
        self.changed.notify_all()


def told(change: Change, selection: Selection) -> tuple[str, Document] | None:
    """Return the event that this selection sees: one that is left comes as DELETED, as it was before."""
    before, after = selection.has(change.before), selection.has(change.document)
    if change.kind == "DELETED":
        return ("DELETED", change.document) if after else None
    if after:
        return ("MODIFIED" if before else "ADDED", change.document)
    if before:
        gone = copy.deepcopy(change.before)
        assert gone is not None
        gone["metadata"]["resourceVersion"] = str(change.version)
        return "DELETED", gone
    return None


def _merge(target: Document, patch: Document) -> None:
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            _merge(target.setdefault(key, {}), value)
        else:
            target[key] = json.loads(json.dumps(value))


def _grace_seconds(pod: Document, options: Document) -> int:
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in ("Succeeded", "Failed"):
        return 0
    asked = options.get("gracePeriodSeconds")
    return int(pod["spec"].get("terminationGracePeriodSeconds") or 30) if asked is None else int(asked)


def _is_over(document: Document) -> bool:
    metadata = document["metadata"]
    return (
        bool(metadata.get("deletionTimestamp"))
        and not metadata.get("deletionGracePeriodSeconds")
        and not metadata.get("finalizers")
    )
