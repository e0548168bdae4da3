"""docs/tutorial.md, step by step: its Dag, its commands, what it says will happen."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kubernetes_tests.airflow_env import AirflowEnv, wait_for
from kubernetes_tests.clusters import write_template
from kubernetes_tests.scenario import OURS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubernetes_tests.clusters import Cluster

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parent.parent / "docs/tutorial.md").read_text(encoding="utf-8")
PLACEHOLDER = "0199f2c4"
DAG, RAISING = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
FUNCTION = re.compile(r"^def report_is_late.*?(?=^\S)", re.MULTILINE | re.DOTALL)


class Reader:
    """Somebody who follows the tutorial: runs its commands, and no others."""

    def __init__(self, env: AirflowEnv, dags: Path) -> None:
        self.env = env
        self.file = dags / "late_report.py"

    def run(self, command: str, callback: str = "", *, more: str = "") -> subprocess.CompletedProcess[str]:
        assert f"\n{command}\n" in PAGE, "the tutorial does not tell to run this"
        words = shlex.split(f"{command} {more}".replace(PLACEHOLDER, callback[:13]))
        return subprocess.run(
            [self.env.python, "-m", *words],
            env=self.env.environment,
            cwd=self.env.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def trigger_and_wait(self, state: str, *earlier: str) -> str:
        """Trigger the Dag, wait until its callback has ended, and return the callback's id."""
        done = self.run("airflow dags trigger late_report")
        assert done.returncode == 0, done.stdout + done.stderr
        return self.wait_for(state, *earlier)

    def wait_for(self, state: str, *earlier: str) -> str:
        def ended() -> str | None:
            done = self.run("airflow kubernetes-callbacks list --dag-id late_report", more="--output json")
            assert done.returncode == 0, done.stderr
            rows = [row for row in json.loads(done.stdout) if row["callback_id"] not in earlier]
            assert not rows or rows[0]["state"] != "failed" or state == "failed", rows
            return rows[0]["callback_id"] if rows and rows[0]["state"] == state else None

        return wait_for(f"a callback is {state}", ended, 240, otherwise=self.env.processes["scheduler"].tail)


@pytest.fixture
def reader(cluster: Cluster, tmp_path: Path) -> Iterator[Reader]:
    """Airflow with the KubernetesExecutor, as somebody has it who begins with the second part."""
    if cluster.name != "local":
        pytest.skip("the Dag that is written has to be seen by pods")
    dags = tmp_path / "dags"
    dags.mkdir()
    config = {"core.executor": OURS, "core.dags_are_paused_at_creation": True}
    home = tmp_path / "airflow"
    with AirflowEnv(home, dags_folder=dags, config=config) as env, cluster.namespace() as namespace:
        env.migrate()
        env.start_api_server(wait=None)
        template = cluster.pod_template(
            {
                "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
                "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": env.execution_api_url("127.0.0.1"),
                "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
            }
        )
        env.configure(
            {
                **cluster.executor_config,
                "kubernetes_executor.namespace": namespace.name,
                "kubernetes_executor.pod_template_file": write_template(tmp_path / "pod.yaml", template),
            }
        )
        env.start_scheduler()
        env.wait_for_api_server()
        yield Reader(env, dags)


def test_tutorial_is_true(reader: Reader) -> None:
    checked = reader.run("airflow kubernetes-callbacks check", more="--output json")
    assert checked.returncode == 0, checked.stdout
    assert not [row for row in json.loads(checked.stdout) if row["result"] == "failed"]

    reader.file.write_text(DAG)
    reader.env.start_dag_processor()
    reader.env.wait_for_dag("late_report")
    unpaused = reader.run("airflow dags unpause late_report")
    assert unpaused.returncode == 0, unpaused.stdout + unpaused.stderr

    first = reader.trigger_and_wait("success")
    story = reader.run("airflow kubernetes-callbacks show 0199f2c4", first)
    assert story.returncode == 0, story.stderr
    for step in ("deadline missed", "running", "recorded as success"):
        assert step in story.stdout
    log = reader.run("airflow kubernetes-callbacks logs 0199f2c4", first)
    assert re.search(
        r"^\d{4}-\d\d-\d\d [\d:.]{12} WARNING  platform team: run manual__\S+ of late_report is late",
        log.stdout,
        re.MULTILINE,
    ), log.stdout + log.stderr

    reader.file.write_text(FUNCTION.sub(lambda _: f"{RAISING}\n\n", DAG))
    second = reader.trigger_and_wait("failed", first)
    story = reader.run("airflow kubernetes-callbacks show 0199f2c4", second)
    (told,) = re.findall(r"^```text\n(Ran and failed.*)\n```$", PAGE, re.MULTILINE)
    assert told in re.sub(r"\s+", " ", story.stdout)

    reader.file.write_text(DAG)
    asked = reader.run("airflow kubernetes-callbacks retry 0199f2c4", second)
    assert asked.returncode == 1
    assert "Careful" in asked.stderr
    again = reader.run("airflow kubernetes-callbacks retry 0199f2c4", second, more="--yes")
    assert again.returncode == 0, again.stdout + again.stderr
    wait_for("the second run succeeds", lambda: state_of(reader, second) == "success", 240, interval=1.0)


def state_of(reader: Reader, callback: str) -> str:
    done = reader.run("airflow kubernetes-callbacks list --dag-id late_report", more="--output json")
    return next(str(row["state"]) for row in json.loads(done.stdout) if row["callback_id"] == callback)
