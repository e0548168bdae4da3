"""Options and fixtures of the Kubernetes tests.

    pytest kubernetes_tests                           the local cluster
    pytest kubernetes_tests --cluster kind            kind; see kind.py for its variables
    pytest kubernetes_tests --cluster current-context --image NAME:TAG    with HOST_FROM_PODS set

The Airflow that is tested is the one of the interpreter that runs pytest.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kubernetes_tests.clusters import Cluster
from kubernetes_tests.databases import NoPostgresqlError, postgresql_server
from kubernetes_tests.kind import can_listen, kind_cluster
from kubernetes_tests.ledger import Ledger
from kubernetes_tests.scenario import Installation, Scenario, creation_config

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from kubernetes_tests.cluster.launcher import LocalCluster
    from kubernetes_tests.databases import PostgresqlServer

DAGS = Path(__file__).with_name("dags")
AIRFLOW = tuple(int(part) for part in importlib.metadata.version("apache-airflow-core").split(".")[:2])

_outcome = pytest.StashKey[dict[str, pytest.TestReport]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kubernetes")
    group.addoption(
        "--cluster",
        choices=("local", "kind", "current-context"),
        default="local",
        help="where the pods run (default: local)",
    )
    group.addoption(
        "--image",
        help="with --cluster current-context: image with Airflow, this package and kubernetes_tests/dags",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    on_kind = config.getoption("--cluster") == "kind"
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(900))
        if item.get_closest_marker("kind") and not on_kind:
            item.add_marker(pytest.mark.skip(reason="only with --cluster kind"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash.setdefault(_outcome, {})[report.when] = report
    return report


def _failed(request: pytest.FixtureRequest) -> bool:
    return any(report.failed for report in request.node.stash.get(_outcome, {}).values())


# --- one per run ---


@pytest.fixture(scope="session")
def airflow_version() -> tuple[int, ...]:
    """Major and minor version of the Airflow under test."""
    return AIRFLOW


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster of this run."""
    work = tmp_path_factory.mktemp("cluster")
    name = request.config.getoption("--cluster")
    context: contextlib.AbstractContextManager[Cluster]
    if name == "local":
        from kubernetes_tests.local import local_cluster

        context = local_cluster(work)
    elif name == "kind":
        context = kind_cluster(work)
    else:
        context = contextlib.nullcontext(_current_context(request.config.getoption("--image")))
    with context as cluster:
        yield cluster
        cluster.core.api_client.close()


def _current_context(image: str | None) -> Cluster:
    host_from_pods = os.environ.get("HOST_FROM_PODS")
    if not image or not host_from_pods:
        raise pytest.UsageError("--cluster current-context needs --image, and HOST_FROM_PODS to be set")
    kubeconfig = os.environ.get("KUBECONFIG") or "~/.kube/config"
    return Cluster(
        name="current-context",
        kubeconfig=Path(kubeconfig).expanduser(),
        context=None,
        image=image,
        image_pull_policy="IfNotPresent",
        host=host_from_pods if can_listen(host_from_pods) else "0.0.0.0",
        host_from_pods=host_from_pods,
    )


@pytest.fixture(scope="session")
def ledger(cluster: Cluster) -> Iterator[Ledger]:
    with Ledger(cluster.host, cluster.host_from_pods) as ledger:
        yield ledger


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlServer]:
    """A PostgreSQL server; tests that need one are skipped on machines that have none, but not in CI."""
    try:
        context = postgresql_server()
        with context as server:
            yield server
    except NoPostgresqlError as error:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(error))


@pytest.fixture(scope="session")
def installations(
    request: pytest.FixtureRequest,
    cluster: Cluster,
    ledger: Ledger,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str], Installation]]:
    """Return the installation on ``sqlite`` or ``postgresql``; made when it is first asked for."""
    made: dict[str, Installation] = {}

    def installation(database: str) -> Installation:
        if database not in made:
            url = None
            if database == "postgresql":
                url = request.getfixturevalue("postgresql").create_database("airflow")
            home = tmp_path_factory.mktemp(database)
            made[database] = Installation(home, cluster, ledger, DAGS, url)
            made[database].start()
        return made[database]

    yield installation
    for one in made.values():
        one.stop()


# --- one per test ---


@pytest.fixture(scope="module", params=["one_by_one", "batches"])
def running(
    request: pytest.FixtureRequest,
    installations: Callable[[str], Installation],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Scenario]:
    """A scenario whose scheduler runs, for all tests of a module: each looks at its own callbacks only.

    Once per way in which the stock executor creates pods (``async_pod_creation`` off and on).
    """
    folder = tmp_path_factory.mktemp("running")
    with _scenario(request, installations("sqlite"), folder) as scenario:
        scenario.start_scheduler(config=creation_config(request.param))
        yield scenario
        (scheduler,) = scenario.schedulers
        assert scheduler.running, scheduler.tail()


@pytest.fixture
def described(request: pytest.FixtureRequest) -> Iterator[None]:
    """Add what is known of the shared scenario to the report of a test that fails."""
    yield
    if "running" in request.fixturenames and _failed(request):
        scenario = request.getfixturevalue("running")
        request.node.add_report_section("teardown", "scenario", scenario.describe())


@pytest.fixture(scope="module")
def scenarios(
    request: pytest.FixtureRequest,
    installations: Callable[[str], Installation],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str, dict[str, object]], Scenario]]:
    """Return a scenario on the database that is named, with more options, for all tests of a module."""
    with contextlib.ExitStack() as stack:

        def make(database: str, config: dict[str, object]) -> Scenario:
            folder = tmp_path_factory.mktemp(database)
            return stack.enter_context(_scenario(request, installations(database), folder, config))

        yield make


@contextlib.contextmanager
def _scenario(
    request: pytest.FixtureRequest,
    installation: Installation,
    folder: Path,
    config: dict[str, object] | None = None,
) -> Iterator[Scenario]:
    with installation.cluster.namespace() as namespace:
        scenario = Scenario(installation, namespace, folder, config)
        try:
            yield scenario
        finally:
            if _failed(request):
                request.node.add_report_section("teardown", "scenario", scenario.describe())
            scenario.close()


@pytest.fixture
def scenario(
    request: pytest.FixtureRequest, installations: Callable[[str], Installation], tmp_path: Path
) -> Iterator[Scenario]:
    """An empty installation on sqlite, or on the database that an indirect parameter names."""
    with _scenario(request, installations(getattr(request, "param", "sqlite")), tmp_path) as scenario:
        yield scenario


@pytest.fixture
def ha_scenario(
    request: pytest.FixtureRequest, installations: Callable[[str], Installation], tmp_path: Path
) -> Iterator[Scenario]:
    """An empty installation on PostgreSQL, where two schedulers can run at once."""
    with _scenario(request, installations("postgresql"), tmp_path) as scenario:
        yield scenario


@pytest.fixture
def losable(scenario: Scenario) -> Iterator[LocalCluster]:
    """The cluster, whose node can be lost; it is back at the end."""
    local = scenario.cluster.local
    if local is None:
        pytest.skip("only the local cluster can lose its node for as long as a test wants")
    yield local
    local.restore_node()
