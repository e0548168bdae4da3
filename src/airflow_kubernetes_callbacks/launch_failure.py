"""What the failure of a launch means, in words for the callback's row. Pure."""

from __future__ import annotations

import dataclasses

from airflow_kubernetes_callbacks.api_errors import ApiAnswer, ApiFailure, classify, remedy
from airflow_kubernetes_callbacks.errors import LaunchError


def launch_failure(error: BaseException) -> ApiFailure:
    """Return what the failure of a launch means, worded for ``callback.output``."""
    if isinstance(error, LaunchError):
        # There is no pod of this callback, or it was deleted again before it could begin.
        return ApiFailure(ApiAnswer.PERMANENT, None, str(error))
    failure = classify(error)
    if failure.retryable:
        return failure
    if failure.status is None:
        return dataclasses.replace(
            failure,
            message=f"Could not start: an unexpected error, which is likely a mistake in a program: {failure.message}. "
            "The scheduler's log has the traceback.",
        )
    if failure.answer is ApiAnswer.ALREADY_EXISTS:
        # The pod that had the name is on its way out (or is no callback's): its name comes free.
        return dataclasses.replace(failure, answer=ApiAnswer.TRANSIENT)
    refused = f"Could not start: the API server refused the pod ({failure.message})."
    return dataclasses.replace(
        failure, answer=ApiAnswer.PERMANENT, message=f"{refused} {remedy(failure)}".rstrip()
    )
