"""What came of a request about one callback, as a plain value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_kubernetes_callbacks.api_errors import ApiFailure
    from airflow_kubernetes_callbacks.outcome import PodView
    from airflow_kubernetes_callbacks.situation import PodRequest


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a request about one callback."""

    callback_id: str
    view: PodView | None = None
    failure: ApiFailure | None = None
    launched_attempt: int | None = None
    #: When the deadline of the launched callback was (epoch seconds), if its workload says so.
    deadline: float | None = None
    #: The launch was not made: the row has moved on.
    skipped: bool = False
    #: The pod has the Secret that it waits for, if it waits for one.
    supplied: bool = False
    #: The request that brings it failed.
    unsupplied: bool = False
    #: This pod, which had not begun, was deleted because of the failure.
    condemned: PodView | None = None
    #: Namespace and name of a pod that was asked for by its name. Without a view it is not there, or another's.
    looked_for: tuple[str, str] | None = None
    #: What was asked for, and for which pod (uid), where a refusal changes what is decided.
    asked: tuple[PodRequest, str] | None = None
