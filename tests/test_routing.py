"""Which executor a callback goes to: core's rules, and core itself asked for comparison."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
from airflow.executors.executor_utils import ExecutorName
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner

from airflow_kubernetes_callbacks.routing import ExecutorEntry, resolve

LOCAL = ExecutorEntry("airflow.executors.local_executor.LocalExecutor", "LocalExecutor")
OURS = ExecutorEntry("airflow_kubernetes_callbacks.KubernetesExecutor", "KubernetesExecutor")
PLAIN = ExecutorEntry("airflow_kubernetes_callbacks.KubernetesExecutor")
TEAM_A = ExecutorEntry("airflow_kubernetes_callbacks.KubernetesExecutor", "pods", "a")
TEAM_B = ExecutorEntry("celery.CeleryExecutor", "CeleryExecutor", "b")


@pytest.mark.parametrize(
    ("name", "team", "executors", "expected"),
    [
        pytest.param(None, None, [OURS], OURS, id="only-one"),
        pytest.param(None, None, [LOCAL, OURS], LOCAL, id="no-name-goes-to-the-first"),
        pytest.param("KubernetesExecutor", None, [LOCAL, OURS], OURS, id="G4-by-alias"),
        pytest.param(OURS.module_path, None, [LOCAL, OURS], OURS, id="G4-by-module-path"),
        pytest.param("KubernetesExecutor", None, [LOCAL, PLAIN], PLAIN, id="G4-by-class-name"),
        pytest.param("CeleryExecutor", None, [LOCAL, OURS], None, id="A21-somebody-elses"),
        pytest.param("", None, [OURS], None, id="empty-name-is-a-name"),
        pytest.param(None, "a", [LOCAL, TEAM_A, TEAM_B], TEAM_A, id="first-of-the-team"),
        pytest.param(None, "c", [LOCAL, TEAM_A], LOCAL, id="team-without-executor-gets-the-global-one"),
        pytest.param("pods", "a", [LOCAL, TEAM_A], TEAM_A, id="teams-own-by-name"),
        pytest.param("pods", "b", [LOCAL, TEAM_A], None, id="not-that-of-another-team"),
        pytest.param("pods", None, [LOCAL, TEAM_A], None, id="not-that-of-a-team-without-team"),
        pytest.param("LocalExecutor", "a", [TEAM_A, LOCAL], LOCAL, id="global-one-by-name-for-a-team"),
        pytest.param(None, None, [], None, id="none-configured"),
    ],
)
def test_callback_goes_to(name, team, executors, expected):
    assert resolve(name, team, executors) == expected


CONFIGURATIONS = [[OURS], [LOCAL, OURS], [PLAIN, LOCAL], [LOCAL, TEAM_A, TEAM_B], [TEAM_B, LOCAL, PLAIN]]


@pytest.mark.parametrize(
    "executors", CONFIGURATIONS, ids=lambda entries: ",".join(e.alias or "-" for e in entries)
)
def test_core_resolves_the_same(executors):
    """``SchedulerJobRunner._try_to_load_executor`` itself, for every name and team."""
    loaded = [
        SimpleNamespace(
            name=ExecutorName(module_path=entry.module_path, alias=entry.alias, team_name=entry.team),
            team_name=entry.team,
            entry=entry,
        )
        for entry in executors
    ]
    names = [
        None,
        "nobody",
        *{n for e in executors for n in (e.alias, e.module_path, e.module_path.split(".")[-1])},
    ]
    for name, team in itertools.product(names, (None, "a", "b", "c")):
        runner = SimpleNamespace(
            _multi_team=True,
            executors=loaded,
            executor=loaded[0],
            log=SimpleNamespace(debug=lambda *a: None, warning=lambda *a: None),
        )
        callback = SimpleNamespace(get_executor_name=lambda name=name: name)
        found = SchedulerJobRunner._try_to_load_executor(runner, callback, None, team_name=team)
        assert resolve(name, team, executors) == (found.entry if found else None), (name, team)
