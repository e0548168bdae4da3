"""What a launch that failed means, and the words that ``callback.output`` gets."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client.rest import ApiException
from sqlalchemy.exc import OperationalError

from airflow_kubernetes_callbacks.api_errors import ApiAnswer, mark_arrived
from airflow_kubernetes_callbacks.errors import LaunchDelayedError, LaunchError, NameTakenError
from airflow_kubernetes_callbacks.launch_failure import launch_failure, never_fits, without_workload


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
            'pods "x" is forbidden: unable to validate against any security context constraint: [provider "anyuid"',
            " Set [kubernetes_callbacks] security_context = none, or let the pod's account use another constraint.",
            id="security-context-constraint",
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
        pytest.param(
            'pods is forbidden: User "s" cannot create resource "pods" in API group "" in the namespace "a": '
            'RBAC: role.rbac.authorization.k8s.io "s" not found',
            id="roles-are-not-read-yet",
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


def no_room(requested, limited, used="limits.memory=0"):
    return (
        f'pods "x" is forbidden: exceeded quota: q, requested: {requested}, used: {used}, limited: {limited}'
    )


@pytest.mark.parametrize(
    ("message", "never"),
    [
        pytest.param(no_room("limits.memory=9Gi", "limits.memory=4Gi"), True, id="alone-too-large"),
        pytest.param(no_room("limits.memory=3Gi", "limits.memory=4Gi"), False, id="others-are-in-the-way"),
        pytest.param(no_room("limits.memory=4Gi", "limits.memory=4Gi"), False, id="just-fits"),
        pytest.param(no_room("limits.memory=4096Mi", "limits.memory=4Gi"), False, id="equal-in-other-units"),
        pytest.param(no_room("limits.memory=5G", "limits.memory=4Gi"), True, id="decimal-against-binary"),
        pytest.param(no_room("requests.cpu=1500m", "requests.cpu=1"), True, id="milli"),
        pytest.param(no_room("requests.cpu=500m", "requests.cpu=1"), False, id="milli-that-fits"),
        pytest.param(no_room("requests.memory=5e9", "requests.memory=4e9"), True, id="exponent"),
        pytest.param(no_room("requests.memory=5E", "requests.memory=4P"), True, id="exa"),
        pytest.param(no_room("limits.memory=4294967297", "limits.memory=4Gi"), True, id="bytes"),
        pytest.param(
            no_room("limits.cpu=1,limits.memory=9Gi", "limits.cpu=2,limits.memory=4Gi"), True, id="one-of-two"
        ),
        pytest.param(
            no_room("requests.nvidia.com/gpu=2", "requests.nvidia.com/gpu=1"), True, id="extended-resource"
        ),
        pytest.param(no_room("pods=1", "pods=5", "pods=5"), False, id="number-of-pods"),
        pytest.param(no_room("pods=1", "pods=0"), False, id="namespace-is-closed"),
        pytest.param(no_room("limits.memory=9Gi", "limits.cpu=4"), False, id="other-resource"),
        pytest.param(no_room("limits.memory=9 … Gi", "limits.memory=4Gi"), False, id="cut"),
        pytest.param(no_room("limits.memory=NaN", "limits.memory=4Gi"), False, id="no-quantity"),
        pytest.param(no_room("limits.memory=9Zi", "limits.memory=4Gi"), False, id="unknown-unit"),
        pytest.param(no_room("", ""), False, id="empty"),
        pytest.param("exceeded quota: q", False, id="in-other-words"),
        pytest.param("", False, id="nothing"),
    ],
)
def test_pod_that_asks_for_more_than_a_quota_allows_in_all_never_fits(message, never):
    assert never_fits(message) is never
    failure = launch_failure(refusal(403, message or "exceeded quota"))
    assert failure.retryable is not never
    assert ("more than the quota allows in all" in failure.message) is never


@given(st.text(alphabet="0123456789.eEimkKMG+-=, abcdlrtuqs:", max_size=60))
def test_any_words_about_a_quota_can_be_read(text):
    assert never_fits(f"exceeded quota: q, requested: {text}, used: a=1, limited: {text}") is False


def test_missing_service_account_is_told_at_once():
    message = (
        'pods "x" is forbidden: error looking up service account a/typo: serviceaccount "typo" not found'
    )
    failure = launch_failure(refusal(403, message))
    assert failure.answer is ApiAnswer.PERMANENT
    assert "Create the service account" in failure.message


@pytest.mark.parametrize("perhaps_ours", [True, False])
def test_name_that_does_not_come_free_says_whether_the_pod_may_be_this_callbacks(perhaps_ours):
    failure = launch_failure(NameTakenError("taken", perhaps_ours=perhaps_ours))
    assert (failure.answer, failure.retryable) == (ApiAnswer.ALREADY_EXISTS, False)
    assert failure.may_have_arrived is perhaps_ours


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(AttributeError("'NoneType' object has no attribute 'settimeout'"), id="driver"),
        pytest.param(KeyError("data"), id="lookup"),
        pytest.param(OperationalError("SELECT 1", {}, Exception("gone away")), id="database"),
    ],
)
def test_workload_that_cannot_be_made_is_made_again(error):
    """PyMySQL/PyMySQL#1013."""
    failure = launch_failure(without_workload(error))
    assert (failure.answer, failure.may_have_arrived) == (ApiAnswer.TRANSIENT, False)
    assert type(error).__name__ in failure.message


def test_error_that_quotes_the_workload_shows_no_token():
    token = (
        "eyJhbGciOiJIUzUxMiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIwMTk5ZjJjNCIsInNjb3BlIjoid29ya2xvYWQifQ.c2lnbmF0dXJl"
    )
    assert token not in str(without_workload(ValueError(f"input_value={token}")))


@pytest.mark.parametrize(
    "error",
    [LaunchError("The callback's row was deleted before its pod was created."), SystemExit(3)],
    ids=["row-is-gone", "exit"],
)
def test_workload_that_can_never_be_made_is_told_as_it_is(error):
    assert without_workload(error) is error


def test_launch_that_is_delayed_is_tried_again_in_its_own_words():
    failure = launch_failure(LaunchDelayedError("pod template '/t' cannot be read: Input/output error."))
    assert (failure.retryable, failure.may_have_arrived) == (True, False)
    assert failure.message == "pod template '/t' cannot be read: Input/output error."
