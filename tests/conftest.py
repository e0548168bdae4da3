"""Every run of the tests has an AIRFLOW_HOME of its own; nothing of the machine's Airflow is seen."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.orm import Session

HOME = Path(tempfile.mkdtemp(prefix="airflow-kubernetes-callbacks-tests-"))
atexit.register(shutil.rmtree, HOME, ignore_errors=True)

# Airflow reads these when it is first imported, so they are set before any test module is.
for _name in [name for name in os.environ if name.startswith("AIRFLOW_")]:
    del os.environ[_name]
os.environ.update(
    {
        "AIRFLOW_HOME": str(HOME),
        "AIRFLOW__API_AUTH__JWT_SECRET": "secret of the unit tests, long enough for every algorithm " * 2,
        "AIRFLOW__CORE__DAGS_FOLDER": str(HOME / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__LOAD_DEFAULT_CONNECTIONS": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME}/airflow.db",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    }
)

# No deadline per example: a busy machine is no failure. CI gets the same examples at every run.
hypothesis.settings.register_profile("default", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("default")

# Airflow's environment is set: fixtures that need Airflow can be offered.
from tests.fakes.fixtures import (  # noqa: E402, F401
    api_server,
    executor_names,
    in_one_process,
    kube_environment,
    new_callback,
    new_scheduler,
)

#: Filled when the tables are made; the scheduler cannot do without them.
STANDING_TABLES = frozenset({"alembic_version", "log_template", "slot_pool"})


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit test that would reach for a real cluster finds none."""
    monkeypatch.setenv("KUBECONFIG", str(HOME / "no-kubeconfig"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


@pytest.fixture(scope="session")
def airflow_db() -> None:
    """Airflow's tables in the sqlite database of this run."""
    from airflow.utils.db import initdb

    initdb()


@pytest.fixture
def session(airflow_db: None) -> Iterator[Session]:
    """A session on the database of this run; what the test left in the tables is deleted after it."""
    from airflow import settings
    from airflow.models.base import Base

    # Not the scoped session: code under test that closes that one does not take the test's away.
    session = settings.Session.session_factory()
    try:
        yield session
        session.rollback()
        for table in reversed(Base.metadata.sorted_tables):
            if table.name not in STANDING_TABLES:
                session.execute(table.delete())
        session.commit()
    finally:
        session.close()
        settings.Session.remove()
