"""What a pod says about its callback. Pure: the pod's JSON in, plain values out.

The input is the object as the API server sends it (a ``dict``), because that is what a watch event
and a list both carry; no client model is built for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from airflow_kubernetes_callbacks.identity import (
    ATTEMPT_LABEL,
    BASE_CONTAINER,
    OWNER_LABEL,
    RESULT_FINALIZER,
    callback_id_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


class CallbackOutcome(str, Enum):
    """How far the callback in a pod has come; the base container alone decides it."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    #: The base container began and did not succeed: it is never run again on its own.
    FAILED = "failed"
    #: The pod ended, or is about to, before its base container began: it may be launched again.
    NEVER_STARTED = "never_started"

    @property
    def terminal(self) -> bool:
        return self in (CallbackOutcome.SUCCEEDED, CallbackOutcome.FAILED, CallbackOutcome.NEVER_STARTED)


@dataclass(frozen=True, slots=True)
class PodView:
    """One callback pod as the reconciler sees it: small, hashable, made of plain values.

    Times are seconds since the epoch, by the cluster's clocks.
    """

    callback_id: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    owner: str
    attempt: int
    outcome: CallbackOutcome
    #: For people: why it failed, never started or still waits.
    reason: str | None
    #: Kubernetes' own word for why it waits (``ImagePullBackOff``, ``Unschedulable``), if it does.
    waiting_reason: str | None
    created_at: float
    started_at: float | None
    ended_at: float | None
    #: A deletion was asked for; the pod may still be running its grace period.
    deleting: bool
    #: The pod object exists no more; the rest is what was last known of it.
    gone: bool
    #: Our finalizer is on it.
    finalizer: bool
    node: str | None
