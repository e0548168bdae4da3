"""Fixtures of the tests of the local cluster itself: one cluster per run, and namespaces in it.

This is a pytest plugin: a test module names it in ``pytest_plugins``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kubernetes import client

from kubernetes_tests.cluster.launcher import Capacity, LocalCluster
from kubernetes_tests.cluster.pods import CPUS, IMAGES, Namespace

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def local_cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """The cluster of this run."""
    if request.config.getoption("--cluster", default="local") != "local":
        pytest.skip("tests of the local cluster itself")
    with LocalCluster(images=IMAGES, capacity=Capacity(cpu=CPUS)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def core(local_cluster: LocalCluster) -> Iterator[client.CoreV1Api]:
    with local_cluster.client() as api_client:
        yield client.CoreV1Api(api_client)


@pytest.fixture
def namespace(core: client.CoreV1Api) -> Iterator[Namespace]:
    """A namespace for one test."""
    with Namespace.made(core) as namespace:
        yield namespace


@pytest.fixture(scope="module")
def shared_namespace(core: client.CoreV1Api) -> Iterator[Namespace]:
    """A namespace for the tests of a table, whose pods run at the same time."""
    with Namespace.made(core) as namespace:
        yield namespace


@pytest.fixture(scope="session")
def rbac(core: client.CoreV1Api) -> client.RbacAuthorizationV1Api:
    return client.RbacAuthorizationV1Api(core.api_client)
