"""The package as Airflow sees it: metadata, commands, options, and what it costs to import."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import airflow
import jsonschema
import pytest

import airflow_kubernetes_callbacks
from airflow_kubernetes_callbacks.get_provider_info import get_provider_info
from airflow_kubernetes_callbacks.settings import OPTIONS, SECTION

DISTRIBUTION = "airflow-provider-kubernetes-callbacks"


def airflow_command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run an ``airflow`` command as a user does: an interpreter of its own."""
    import os

    return subprocess.run(
        [sys.executable, "-m", "airflow", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def modules_after(statement: str) -> set[str]:
    """Return the names of the modules that are loaded once *statement* has run in a new interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}\nimport sys, json; print(json.dumps(list(sys.modules)))"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(json.loads(done.stdout))


def test_entry_point_is_provider_info():
    points = metadata.distribution(DISTRIBUTION).entry_points.select(group="apache_airflow_provider")
    assert [point.load() for point in points] == [get_provider_info]


def test_version_of_distribution_is_version_of_package():
    assert metadata.version(DISTRIBUTION) == airflow_kubernetes_callbacks.__version__


def test_provider_info_fits_the_schema_of_airflow():
    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


def test_provider_info_describes_every_option():
    options = get_provider_info()["config"][SECTION]["options"]
    assert list(options) == [option.name for option in OPTIONS]
    for name, described in options.items():
        assert described["description"].endswith("."), name
        assert isinstance(described["default"], str), name


def test_executor_and_commands_of_provider_info_can_be_imported():
    info = get_provider_info()
    for path in [*info["executors"], *info["cli"]]:
        module, _, name = path.rpartition(".")
        assert callable(getattr(importlib.import_module(module), name)), path


def test_provider_info_loads_neither_airflow_nor_kubernetes():
    loaded = modules_after("from airflow_kubernetes_callbacks.get_provider_info import get_provider_info")
    heavy = {name for name in loaded if name.split(".")[0] in ("airflow", "kubernetes", "sqlalchemy")}
    assert heavy == set()


def test_command_definitions_load_neither_executor_nor_kubernetes():
    loaded = modules_after("import airflow_kubernetes_callbacks.cli.definition")
    assert "airflow_kubernetes_callbacks.executor" not in loaded
    assert not any(name.split(".")[0] == "kubernetes" for name in loaded)


def test_unknown_name_of_package_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Kubernetes'"):
        airflow_kubernetes_callbacks.Kubernetes  # noqa: B018


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(("providers", "list", "-o", "plain"), DISTRIBUTION, id="providers-list"),
        pytest.param(
            ("providers", "executors", "-o", "plain"),
            "airflow_kubernetes_callbacks.KubernetesExecutor",
            id="providers-executors",
        ),
        pytest.param(
            ("config", "list", "--section", SECTION, "--show-values"),
            "reconcile_interval = 30",
            id="config-list",
        ),
        pytest.param(("kubernetes-callbacks", "--help"), "settings", id="help"),
        pytest.param(("kubernetes-callbacks", "settings", "-o", "plain"), "pending_timeout", id="settings"),
    ],
)
def test_airflow_shows_the_provider_without_a_warning(arguments, expected):
    done = airflow_command(*arguments)
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout
    assert "warn" not in (done.stdout + done.stderr).lower()


@pytest.mark.slow
def test_settings_command_shows_values_with_their_source():
    done = airflow_command(
        "kubernetes-callbacks", "settings", "-o", "json",
        AIRFLOW__KUBERNETES_CALLBACKS__LAUNCH_RETRIES="7",
        AIRFLOW__KUBERNETES_CALLBACKS__LAUNCH_RETIRES="8",
    )  # fmt: skip
    rows = {row["option"]: row for row in json.loads(done.stdout)}
    assert done.returncode == 0
    assert rows["launch_retries"] == {
        "option": "launch_retries", "value": "7", "source": "env var", "default": "3",
    }  # fmt: skip
    assert rows["launch_retires"]["source"] == "env var: unknown option, ignored"


@pytest.mark.slow
def test_settings_command_fails_on_a_value_that_the_executor_refuses():
    done = airflow_command(
        "kubernetes-callbacks", "settings", AIRFLOW__KUBERNETES_CALLBACKS__PENDING_TIMEOUT="soon"
    )
    assert done.returncode == 1
    assert "[kubernetes_callbacks] pending_timeout = 'soon' cannot be used" in done.stderr
    assert "AIRFLOW__KUBERNETES_CALLBACKS__PENDING_TIMEOUT" in done.stderr
