"""Both sides of a full comparison, and what a list that is not whole may say."""

from __future__ import annotations

import json

import pytest
from kubernetes.client.rest import ApiException

from airflow_kubernetes_callbacks.cache import CallbackCache
from airflow_kubernetes_callbacks.comparison import Comparison, compare
from airflow_kubernetes_callbacks.comparisons import Comparisons
from airflow_kubernetes_callbacks.merging import Merge
from airflow_kubernetes_callbacks.outcome import CallbackOutcome
from airflow_kubernetes_callbacks.situation import RowState, RowView
from tests.test_cache import view


class Store:
    def __init__(self, rows=()):
        self._rows = {row.callback_id: row for row in rows}

    def alive_schedulers(self):
        return frozenset({"1"})

    def forget_teams(self):
        pass

    def active_states(self):
        return {row.callback_id: row.state for row in self._rows.values()}

    def rows(self, callback_ids):
        return {cid: self._rows[cid] for cid in callback_ids}

    def namespaces(self, callback_ids):
        return {cid: cid.partition("-")[0] for cid in callback_ids}


class Client:
    def __init__(self, namespaces, refused=(), error=None):
        self.namespaces, self._refused = namespaces, refused
        self._error = error or ApiException(status=403, reason="Forbidden")
        self.asked = []

    def list_pods(self, *, namespace):
        self.asked.append(namespace)
        yield view(uid=f"uid-{namespace}", callback_id=f"id-{namespace}", namespace=namespace or "x")
        if namespace in self._refused:
            raise self._error


def role_is_gone():
    error = ApiException(status=403, reason="Forbidden")
    words = 'pods is forbidden: User "x" cannot list resource "pods": RBAC: role.rbac.authorization.k8s.io "y" not found'
    error.body = json.dumps({"kind": "Status", "code": 403, "reason": "Forbidden", "message": words})
    return error


def test_namespace_that_cannot_be_listed_does_not_hide_the_others():
    found = compare(Store(), Client(["a", "b", "c"], refused=["b"]), frozenset())
    assert {pod.namespace for pod in found.pods} >= {"a", "c"}
    assert found.pods_read
    assert found.unlisted == {"b"}
    assert "in namespace b" in found.error
    assert "'list' on pods" in found.error


@pytest.mark.parametrize(
    ("namespaces", "refused"),
    [(["a"], ["a"]), (["a", "b"], ["a", "b"]), (None, [None])],
    ids=["the-only-one", "all", "cluster-wide"],
)
def test_list_of_nothing_says_nothing(namespaces, refused):
    row = RowView("a-1", RowState.QUEUED)
    found = compare(Store([row]), Client(namespaces, refused), frozenset())
    assert not found.pods_read
    assert not found.covers(row)


@pytest.mark.parametrize(
    ("row", "place", "covered"),
    [
        pytest.param(RowView("one", RowState.QUEUED), "a", True, id="its-namespace-was-listed"),
        pytest.param(RowView("one", RowState.QUEUED), "b", False, id="its-namespace-was-not"),
        pytest.param(RowView("one", RowState.QUEUED), None, False, id="nobody-knows-its-namespace"),
        pytest.param(
            RowView("one", RowState.RUNNING, launched_pod="b/x"), "a", False, id="its-pod-was-elsewhere"
        ),
        pytest.param(RowView("one", RowState.RUNNING, launched_pod="a/x"), "a", True, id="its-pod-was-there"),
    ],
)
def test_list_speaks_of_callbacks_whose_pods_it_would_have(row, place, covered):
    found = Comparison(0.0, pods_read=True, unlisted=frozenset({"b"}), places={"one": place})
    assert found.covers(row) is covered


@pytest.mark.parametrize(
    ("error", "concluded", "asked"),
    [
        pytest.param(ApiException(status=403, reason="Forbidden"), True, ["a", "b", "c"], id="forbidden"),
        pytest.param(role_is_gone(), True, ["a", "b", "c"], id="role-is-gone-and-its-binding-is-left"),
        pytest.param(ApiException(status=500, reason="Oops"), False, ["a", "b", "c"], id="broken-for-now"),
        pytest.param(ConnectionResetError(104, "reset"), False, ["a", "b"], id="no-answer-ends-the-asking"),
    ],
)
def test_absence_says_nothing_while_a_namespace_may_be_listed_the_next_time(error, concluded, asked):
    """Its pod may be there from before the configuration changed."""
    row = RowView("a-1", RowState.RUNNING)
    client = Client(["a", "b", "c"], ["b"], error)
    found = compare(Store([row]), client, frozenset())
    assert client.asked == asked
    assert found.unlisted == {"b"} | ({"a", "b", "c"} - set(asked))
    assert found.covers(row) is concluded


def test_pods_of_a_namespace_that_was_not_listed_are_not_missed():
    cache = CallbackCache()
    for namespace in ("a", "b"):
        cache.observe(view(uid=namespace, callback_id=namespace, namespace=namespace), 1.0)
    found = Comparison(5.0, rows_read=True, pods_read=True, unlisted=frozenset({"b"}))
    assert Merge(cache, found, lambda pod, state: False).advance(float("inf"))
    assert (len(cache.missed("a")), len(cache.missed("b"))) == (1, 0)


LIVING, DEAD = "8", "9"
RUNNING, ENDED = {"outcome": CallbackOutcome.RUNNING}, {"outcome": CallbackOutcome.SUCCEEDED}
FAILED, UNSTARTED = {"outcome": CallbackOutcome.FAILED}, {"outcome": CallbackOutcome.NEVER_STARTED}
READ, GONE, KEPT = "is read", "is gone", "is kept for clean-up or report"


@pytest.mark.parametrize(
    ("pod", "state", "known", "becomes"),
    [
        pytest.param(RUNNING, RowState.RUNNING, True, READ, id="running"),
        pytest.param({}, RowState.QUEUED, True, READ, id="waiting"),
        pytest.param(UNSTARTED, RowState.QUEUED, True, READ, id="never-started"),
        pytest.param({**RUNNING, "owner": LIVING}, RowState.RUNNING, True, READ, id="running-for-a-sibling"),
        pytest.param({**RUNNING, "owner": DEAD}, RowState.RUNNING, True, READ, id="running-for-nobody"),
        pytest.param(ENDED, RowState.RUNNING, True, KEPT, id="succeeded-and-unreported"),
        pytest.param(FAILED, RowState.RUNNING, True, KEPT, id="failed-and-unreported"),
        pytest.param(
            {**ENDED, "deleting": True}, RowState.QUEUED, True, READ, id="to-go-before-it-runs-again"
        ),
        pytest.param(ENDED, RowState.TERMINAL, True, KEPT, id="recorded"),
        pytest.param(RUNNING, RowState.TERMINAL, True, KEPT, id="cancelled"),
        pytest.param({**RUNNING, "owner": DEAD}, RowState.TERMINAL, False, KEPT, id="left-behind"),
        pytest.param({**ENDED, "deleting": True}, RowState.TERMINAL, True, GONE, id="recorded-and-deleted"),
        pytest.param(
            {**ENDED, "deleting": True, "finalizer": True}, RowState.TERMINAL, True, KEPT, id="our-finalizer"
        ),
        pytest.param({**ENDED, "owner": LIVING}, RowState.TERMINAL, True, GONE, id="recorded-by-a-sibling"),
        pytest.param(RUNNING, RowState.ABSENT, True, KEPT, id="row-deleted"),
        pytest.param(RUNNING, RowState.ABSENT, False, GONE, id="of-another-installation"),
        pytest.param(RUNNING, RowState.NOT_OURS, False, GONE, id="of-another-executor"),
        pytest.param(ENDED, RowState.NOT_OURS, True, READ, id="row-taken-back-by-core"),
    ],
)
def test_missed_pod_is_read_only_where_something_depends_on_it(pod, state, known, becomes):
    cache = CallbackCache()
    cache.track("one").known = known
    cache.observe(view(callback_id="one", **pod), 1.0)
    assert list(cache.mark_absent(set(), listed_at=2.0))
    comparisons = Comparisons(
        cache=cache,
        store=None,
        client=None,
        in_background=None,
        interval=30.0,
        me="7",
        api_owns_running=False,
    )
    comparisons.alive_others = frozenset({LIVING})
    to_read = comparisons.pod_to_read(RowView("one", state))
    [present] = cache.pods("one")
    assert (READ if to_read else GONE if present.gone else KEPT) == becomes
