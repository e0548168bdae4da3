"""The executor as core drives it, on a fake API server: the life of one callback from end to end."""

from __future__ import annotations

import pytest

from tests.fakes.scheduler import pod_tells_api_that_it_runs, state_of


@pytest.fixture(params=["False", "True"], ids=["sequential", "async"])
def creation(request):
    """Both stock paths of creating pods."""
    return {"KUBERNETES_EXECUTOR__ASYNC_POD_CREATION": request.param}


def test_callback_that_succeeds_ends_in_success(api_server, new_scheduler, new_callback, creation):
    scheduler = new_scheduler(**creation)
    callback_id = new_callback()
    [pod] = scheduler.until(api_server.pods, "pod is created")
    assert pod["metadata"]["annotations"]["callback_id"] == callback_id
    api_server.node.bind(pod)
    assert pod_tells_api_that_it_runs(callback_id)
    api_server.node.start(pod)
    scheduler.until(lambda: state_of(callback_id) == "running", "running")
    api_server.node.finish(pod)
    scheduler.until(lambda: state_of(callback_id) == "success", "success")
    scheduler.until(lambda: not api_server.pods(), "pod is deleted")
    assert scheduler.running == set()
    assert api_server.count("POST", "/pods$") == 1
    assert api_server.count("DELETE") == 1
