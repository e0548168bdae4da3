"""What a launch that failed means, and the words that ``callback.output`` gets."""

from __future__ import annotations

import json

import pytest
from kubernetes.client.rest import ApiException

from airflow_kubernetes_callbacks.api_errors import ApiAnswer, mark_arrived
from airflow_kubernetes_callbacks.errors import LaunchError
from airflow_kubernetes_callbacks.launch_failure import launch_failure


def refusal(code, message, reason="Forbidden"):
    error = ApiException(status=code)
    error.body = json.dumps({"kind": "Status", "code": code, "reason": reason, "message": message})
    return error


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        pytest.param(
            'pods is forbidden: User "scheduler" cannot create resource "pods" in API group ""',
            " Grant the scheduler's service account the verb named here.",
            id="permission",
        ),
        pytest.param(
            'pods "x" is forbidden: violates PodSecurity "baseline:latest": hostPath volumes (volume "dags")',
            " Change the pod template or [kubernetes_callbacks] security_context, or the level of the namespace.",
            id="pod-security",
        ),
        pytest.param(
            'pods "x" is forbidden: minimum memory usage per Container is 1Gi, but request is 256Mi',
            "",
            id="limit-range",
        ),
    ],
)
def test_refusal_by_the_server_is_told_with_a_hint_that_fits_it(message, hint):
    failure = launch_failure(refusal(403, message))
    assert failure.answer is ApiAnswer.PERMANENT
    assert failure.message == f"Could not start: the API server refused the pod (403: {message}).{hint}"


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(
            'pods "x" is forbidden: status unknown for quota: alerts, resources: pods', id="quota-is-new"
        ),
        pytest.param('pods "x" is forbidden: not yet ready to handle request', id="admission-starts"),
        pytest.param(
            'pods "x" is forbidden: error looking up service account a/default: serviceaccount "default" '
            "not found",
            id="no-service-account-yet",
        ),
    ],
)
def test_refusal_that_passes_by_itself_is_tried_again(message):
    failure = launch_failure(refusal(403, message))
    assert (failure.retryable, failure.message) == (True, f"403: {message}")


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        pytest.param(ConnectionRefusedError(111, "refused"), True, id="no-connection"),
        pytest.param(refusal(429, "slow down", "TooManyRequests"), True, id="throttled"),
        pytest.param(refusal(409, "already exists", "AlreadyExists"), True, id="name-is-taken"),
        pytest.param(refusal(403, "cannot get resource"), False, id="not-allowed"),
    ],
)
def test_failure_after_the_pod_was_created_may_be_repeated_as_before(error, retryable):
    assert launch_failure(error).may_have_arrived is False
    mark_arrived(error)
    failure = launch_failure(error)
    assert (failure.retryable, failure.may_have_arrived) == (retryable, True)


def test_pod_whose_secret_was_refused_for_good_is_deleted_and_nothing_is_left():
    error = LaunchError("Could not start: the Secret was refused")
    mark_arrived(error)
    failure = launch_failure(error)
    assert (failure.answer, failure.may_have_arrived) == (ApiAnswer.PERMANENT, False)
