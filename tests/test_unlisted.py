"""Pods that are read by the name that a row tells, because no list has them: whose they are, and what a refusal means."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
from kubernetes.client.rest import ApiException

from airflow_kubernetes_callbacks.actions import LookFor
from airflow_kubernetes_callbacks.outcome import pod_view
from airflow_kubernetes_callbacks.unlisted import find_pod
from tests.fakes.life import pod_document

ID = "018f0000-0000-7000-8000-00000000000a"
OTHER = "018f0000-0000-7000-8000-00000000000b"
NAME = f"callback-{ID}-2"


def client_with(metadata):
    """Return a client whose API server has this pod, or answers with this error."""

    def read_pod(namespace, name, *, id_of):
        assert (namespace, name) == ("airflow", NAME)
        if isinstance(metadata, Exception):
            raise metadata
        return metadata and pod_view({"metadata": {"namespace": namespace, **metadata}}, id_of=id_of)

    return SimpleNamespace(read_pod=read_pod)


def pod(callback_id=ID, without=(), **changes):
    document = pod_document(callback_id, "7", attempt=2)["metadata"]
    kept = {key: value for key, value in document.items() if key not in without}
    return {**kept, "name": NAME, "uid": "uid-2", **changes}


@pytest.mark.parametrize(
    "recorded", [pytest.param(True, id="recorded"), pytest.param(False, id="by-attempt")]
)
@pytest.mark.parametrize(
    ("metadata", "ours"),
    [
        pytest.param(pod(), True, id="nothing-is-missing"),
        pytest.param(pod(without=["labels"]), True, id="annotation-says-so"),
        pytest.param(pod(without=["annotations"]), True, id="label-says-so"),
        pytest.param(pod(without=["labels", "annotations"]), None, id="only-the-name-is-left"),
        pytest.param(pod(labels={"callback-id": OTHER}), True, id="annotation-counts-before-the-label"),
        pytest.param(pod(annotations={"callback_id": OTHER}), False, id="annotation-names-another"),
        pytest.param(
            pod(without=["annotations"], labels={"callback-id": OTHER}), False, id="label-names-another"
        ),
        pytest.param(pod(annotations={"callback_id": "?"}, labels={"callback-id": "?"}), None, id="no-ids"),
        pytest.param(None, False, id="not-there"),
    ],
)
def test_pod_of_that_name_is_this_callbacks_unless_it_names_another(metadata, ours, recorded):
    """One that names nobody is this callback's only if the row records that it was created."""
    found = find_pod(client_with(metadata), ID, LookFor("airflow", NAME, recorded))
    assert (found is not None) is (recorded if ours is None else ours)
    if found is not None:
        assert (found.callback_id, found.uid, found.attempt) == (ID, "uid-2", 2)


def told(status, body=""):
    error = ApiException(status=status)
    error.body = body
    return error


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(told(403, '{"kind": "Status", "reason": "Forbidden"}'), id="forbidden"),
        pytest.param(told(400, '{"kind": "Status", "reason": "BadRequest"}'), id="bad-request"),
    ],
)
def test_pod_that_may_never_be_read_counts_as_gone_and_the_log_says_why(error, caplog):
    with caplog.at_level(logging.WARNING):
        assert find_pod(client_with(error), ID, LookFor("airflow", NAME)) is None
    assert "verb 'get' on pods" in caplog.text


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(told(404, "<html>"), id="404-of-a-proxy"),
        pytest.param(told(429), id="429"),
        pytest.param(told(503), id="503"),
        pytest.param(ConnectionResetError(104, "reset"), id="no-answer"),
    ],
)
def test_error_that_may_pass_says_nothing(error):
    with pytest.raises(type(error)):
        find_pod(client_with(error), ID, LookFor("airflow", NAME))


@pytest.mark.parametrize("again", [False, True])
def test_pod_that_another_scheduler_made_again_is_not_told_as_one_without_labels(again, caplog):
    with caplog.at_level(logging.WARNING):
        assert find_pod(client_with(pod()), ID, LookFor("airflow", NAME, again=again)) is not None
    assert ("changed its labels" in caplog.text) is not again
