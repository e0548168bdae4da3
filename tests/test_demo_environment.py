"""The environment of the demo's processes, and of the command that looks at them."""

from __future__ import annotations

import subprocess

import pytest

from kubernetes_tests.airflow_env import MARKER
from kubernetes_tests.demo.environment import airflow_script, past_proxies


@pytest.mark.parametrize(
    ("said", "hosts"),
    [
        pytest.param({}, "127.0.0.1,localhost", id="nothing"),
        pytest.param({"no_proxy": "a.example"}, "a.example,127.0.0.1,localhost", id="lower-case"),
        pytest.param({"NO_PROXY": "a, b"}, "a,b,127.0.0.1,localhost", id="upper-case"),
        pytest.param({"no_proxy": "a", "NO_PROXY": "b"}, "a,b,127.0.0.1,localhost", id="both"),
        pytest.param({"no_proxy": "localhost,127.0.0.1"}, "localhost,127.0.0.1", id="there-already"),
    ],
)
def test_no_proxy_is_asked_for_the_loopback(said, hosts):
    assert past_proxies(said) == {"no_proxy": hosts, "NO_PROXY": hosts}


def test_script_runs_airflow_with_the_configuration_of_the_demo_only(tmp_path):
    script = tmp_path / "airflow.sh"
    configuration = {"AIRFLOW_HOME": "/a b", "AIRFLOW__CORE__X": "it's $1", "no_proxy": "localhost"}
    script.write_text(
        airflow_script("/usr/bin/env", {**configuration, MARKER: "mark", "HTTP_PROXY": "p", "PATH": "/none"})
    )
    script.chmod(0o700)
    theirs = {"PATH": "/usr/bin:/bin", "HOME": "/theirs", "AIRFLOW__CORE__Y": "theirs"}
    done = subprocess.run([script, "-0"], env=theirs, capture_output=True, text=True, check=True)
    seen = dict(line.split("=", 1) for line in done.stdout.split("\0") if line)
    seen = {name: value for name, value in seen.items() if name not in ("_", "PWD", "SHLVL", "OLDPWD")}
    assert seen == {**configuration, "PATH": "/usr/bin:/bin", "HOME": "/theirs"}
