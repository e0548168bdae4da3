"""Names by which a callback pod is known: its name, labels, annotations and the selectors over them.

The annotation ``callback_id`` is the identity that every branch looks at. Labels are made safe and
may be shortened; annotations carry the full values. There is no ``kubernetes_executor`` label: a
stock executor (a rollback, a sibling during a rolling upgrade) selects on it and fails on a pod
that has no task annotations.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OWNER_LABEL = "airflow-worker"
WORKLOAD_TYPE_LABEL = "airflow-workload-type"
CALLBACK_ID_LABEL = "callback-id"
ATTEMPT_LABEL = "callback-attempt"
EXECUTOR_LABEL = "airflow-executor"
TEAM_LABEL = "airflow-team"
DAG_ID_LABEL = "dag_id"
RUN_ID_LABEL = "run_id"
DONE_LABEL = "airflow_executor_done"

CALLBACK_ID_ANNOTATION = "callback_id"
DAG_ID_ANNOTATION = "dag_id"
RUN_ID_ANNOTATION = "run_id"
CALLBACK_PATH_ANNOTATION = "callback_path"
DEADLINE_ID_ANNOTATION = "deadline_id"

#: A connection test's pod has no ``airflow-worker`` label: watchers select on that one, and nothing
#: that they do is of use to a test, which reports its result itself.
CONNECTION_TEST_OWNER_LABEL = "connection-test-owner"
CONNECTION_TEST_ID_ANNOTATION = "connection_test_id"
CONNECTION_ID_ANNOTATION = "connection_id"

#: The stock executor selects on this label; a callback pod never has it.
STOCK_EXECUTOR_LABEL = "kubernetes_executor"

#: Labels and annotations that only the executor sets: no template, rule or hook has a say in them.
RESERVED_KEYS = frozenset(
    {
        OWNER_LABEL,
        WORKLOAD_TYPE_LABEL,
        CALLBACK_ID_LABEL,
        ATTEMPT_LABEL,
        EXECUTOR_LABEL,
        TEAM_LABEL,
        DAG_ID_LABEL,
        RUN_ID_LABEL,
        DONE_LABEL,
        STOCK_EXECUTOR_LABEL,
        CALLBACK_ID_ANNOTATION,
        DAG_ID_ANNOTATION,
        RUN_ID_ANNOTATION,
        CALLBACK_PATH_ANNOTATION,
        DEADLINE_ID_ANNOTATION,
        CONNECTION_TEST_OWNER_LABEL,
        CONNECTION_TEST_ID_ANNOTATION,
        CONNECTION_ID_ANNOTATION,
    }
)

#: Labels by which lists and watches find a pod, or that say which launch it is.
FINDING_LABELS = frozenset(
    {OWNER_LABEL, WORKLOAD_TYPE_LABEL, CALLBACK_ID_LABEL, ATTEMPT_LABEL, CONNECTION_TEST_OWNER_LABEL}
)

CALLBACK_WORKLOAD = "callback"
CONNECTION_TEST_WORKLOAD = "connection-test"
CONNECTION_TEST_POD_PREFIX = "connection-test-"

BASE_CONTAINER = "base"
RESULT_FINALIZER = "airflow-kubernetes-callbacks/result"

MAX_LABEL_LENGTH = 63
_UNSAFE_LABEL_CHARACTERS = re.compile(r"[^A-Za-z0-9_.-]+")
_LABEL_EDGES = re.compile(r"^[^A-Za-z0-9]+|[^A-Za-z0-9]+$")


def pod_name(callback_id: str, attempt: int) -> str:
    """Return the pod's name: the idempotency key of one launch, at most 63 characters.

    It is made of the id and the attempt alone, so every scheduler that launches this attempt asks
    for the same name and the API server lets only one of them through.
    """
    return f"callback-{callback_id}-{attempt}"


def attempt_in(name: str, callback_id: str) -> str:
    """Return the attempt in the name of a callback's pod, as text; empty where the name is not of that kind."""
    head = pod_name(callback_id, 0)[:-1]
    return name.removeprefix(head) if name.startswith(head) else ""


def connection_test_pod_name(test_id: str) -> str:
    """Return the name of the pod, and of the Secret, of a connection test: it is run once."""
    return f"{CONNECTION_TEST_POD_PREFIX}{test_id}"


def label_value(value: str) -> str:
    """Return *value* as a legal label value (at most 63 characters), readable where it can be.

    A value that had to change gets a short hash of the original, so that two values which differ
    only in illegal characters, or beyond the limit, stay apart.
    """
    cleaned = _LABEL_EDGES.sub("", _UNSAFE_LABEL_CHARACTERS.sub("-", value))
    if cleaned == value and len(value) <= MAX_LABEL_LENGTH:
        return value
    digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:9]
    head = _LABEL_EDGES.sub("", cleaned[: MAX_LABEL_LENGTH - len(digest) - 1])
    return f"{head}-{digest}" if head else digest


def callback_id_of(metadata: Mapping[str, object]) -> str | None:
    """Return the callback's id that a pod's ``metadata`` carries, in canonical form, or None.

    Total: whatever the annotations hold, nothing is raised. A text that is no UUID is no callback.
    """
    return _id_of(metadata, CALLBACK_ID_ANNOTATION)


def connection_test_id_of(metadata: Mapping[str, object]) -> str | None:
    """Return the connection test's id that a pod's ``metadata`` carries, in canonical form, or None."""
    return _id_of(metadata, CONNECTION_TEST_ID_ANNOTATION)


def holder_of(metadata: Mapping[str, object]) -> str:
    """Return whose pod this is, by annotation or else by label; empty where neither names a callback."""
    labels = metadata.get("labels")
    labelled = labels.get(CALLBACK_ID_LABEL) if isinstance(labels, dict) else None
    return callback_id_of(metadata) or _canonical(labelled) or ""


def _id_of(metadata: Mapping[str, object], annotation: str) -> str | None:
    annotations = metadata.get("annotations")
    if not isinstance(annotations, dict):
        return None
    return _canonical(annotations.get(annotation))


def _canonical(value: object) -> str | None:
    try:
        return str(UUID(value))  # type: ignore[arg-type]
    except (TypeError, ValueError, AttributeError):
        return None


def callback_selector(*, workload_type: str = CALLBACK_WORKLOAD, callback_ids: Iterable[str] = ()) -> str:
    """Return the label selector for pods of this package that are not done, whoever owns them."""
    parts = [f"{WORKLOAD_TYPE_LABEL}={workload_type}", f"{DONE_LABEL}!=True"]
    if ids := sorted(callback_ids):
        parts.append(f"{CALLBACK_ID_LABEL} in ({','.join(ids)})")
    return ",".join(parts)
