"""Run the demo: ``make demo``, or ``python -m kubernetes_tests.demo`` where everything is installed."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from kubernetes_tests.airflow_env import AirflowEnv, WaitTimeoutError
from kubernetes_tests.cluster.build import build
from kubernetes_tests.cluster.launcher import LocalCluster
from kubernetes_tests.clusters import Cluster, Namespace, write_template
from kubernetes_tests.demo.environment import airflow_script, past_proxies
from kubernetes_tests.demo.folder import DemoFolder, remove_abandoned
from kubernetes_tests.demo.screen import Screen
from kubernetes_tests.demo.watching import Watch
from kubernetes_tests.local import IMAGE, worker_image

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kubernetes_tests.demo.timeline import CallbackSeen

DAGS = Path(__file__).with_name("dags")
DAG_ID = "late_report"
CALLBACK_SECONDS = 180.0
#: How long the timeline goes on after the last result: pods are deleted then.
AFTERMATH_SECONDS = 2.5

#: What the rows have to say for the demo to have worked: state, and a part of the output.
EXPECTED = {
    "page_on_call": ("success", ""),
    "post_to_webhook": ("failed", "answered 503 Service Unavailable"),
}

CONFIG = {
    "core.executor": "KubernetesExecutor:airflow_kubernetes_callbacks.KubernetesExecutor",
    "scheduler.scheduler_idle_sleep_time": 0.2,
    "kubernetes_callbacks.reconcile_interval": 5,
}


def as_expected(callbacks: Sequence[CallbackSeen]) -> bool:
    """Whether the rows of the database are those of a demo that worked."""
    if {callback.function for callback in callbacks} != set(EXPECTED) or len(callbacks) != len(EXPECTED):
        return False
    for callback in callbacks:
        state, output = EXPECTED[callback.function]
        if callback.state != state or output not in (callback.output or ""):
            return False
    return True


class Demo:
    """Everything that runs for the demo. Leaving the ``with`` block ends all of it."""

    def __init__(self, screen: Screen, folder: Path) -> None:
        self.screen = screen
        self.folder = folder
        self._stack = contextlib.ExitStack()
        self.env = self._stack.enter_context(AirflowEnv(folder / "airflow", dags_folder=DAGS, config=CONFIG))
        image = worker_image(folder / "worker", DAGS)
        self.local = LocalCluster(folder / "cluster", images=[image], report=screen.say)
        self._stack.callback(self.local.stop)
        self.namespace: Namespace | None = None

    def __enter__(self) -> Demo:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def start(self) -> Watch:
        """Start the cluster and Airflow, both at once where they do not need each other."""
        with self.screen.step("programs of the cluster"):
            build(self.screen.say)
        with self.screen.step("cluster and Airflow's database"), ThreadPoolExecutor(1) as thread:
            cluster_is_up = thread.submit(self.local.start)
            self.env.migrate()
            self.env.start_api_server(wait=None)
            self.env.start_dag_processor()
            cluster_is_up.result()
            self.namespace = self._make_namespace()
            self.env.start_scheduler()
        with self.screen.step("api-server, dag-processor, scheduler and triggerer"):
            self.env.wait_for_api_server()
            self.env.wait_for_dag(DAG_ID)
            # Last, because nothing here waits for it: it belongs to a complete Airflow.
            self.env.start_triggerer()
        return Watch(self.env.home / "airflow.db", self.namespace)

    def _make_namespace(self) -> Namespace:
        cluster = Cluster(
            name="local",
            kubeconfig=self.local.kubeconfig,
            context=None,
            image=IMAGE,
            image_pull_policy="IfNotPresent",
            host="127.0.0.1",
            host_from_pods="127.0.0.1",
            local=self.local,
        )
        namespace = self._stack.enter_context(cluster.namespace())
        template = cluster.pod_template(
            {
                "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": self.env.execution_api_url("127.0.0.1"),
                # On 3.4 a callback whose first request times out is lost: its token works only once.
                "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
            }
        )
        # Containers of this cluster are processes of whoever runs it; root has to be asked for by name.
        template["spec"]["securityContext"] = {"runAsUser": os.geteuid()}
        self.env.configure(
            {
                **cluster.executor_config,
                "kubernetes_executor.namespace": namespace.name,
                "kubernetes_executor.pod_template_file": write_template(self.folder / "pod.yaml", template),
            }
        )
        return namespace

    def follow(self, watch: Watch) -> None:
        """Show what happens until every callback has ended.

        :raises WaitTimeoutError: when that takes too long, or a process of Airflow ended.
        """
        end = time.monotonic() + CALLBACK_SECONDS
        done_at: float | None = None
        while done_at is None or time.monotonic() < done_at + AFTERMATH_SECONDS:
            for moment in watch.look():
                self.screen.moment(moment)
            if done_at is None and watch.done:
                done_at = time.monotonic()
            for process in self.env.processes.values():
                if not process.running:
                    raise WaitTimeoutError(f"{process.name} ended\n{process.tail()}")
            if time.monotonic() > end:
                raise WaitTimeoutError(
                    f"the callbacks have not ended within {CALLBACK_SECONDS:.0f} s\n"
                    + self.env.processes["scheduler"].tail()
                )
            time.sleep(0.1)

    def keep(self) -> NoReturn:
        """Leave everything running until Ctrl-C."""
        print_ = self.screen.console.print
        print_(f"\nAirflow's UI: [link]{self.env.url}[/link] (no login is asked for: everybody is admin)")
        print_(
            f"The cluster:  [bold]KUBECONFIG={self.local.kubeconfig} kubectl get pods -A[/bold]",
            soft_wrap=True,
        )
        script = self._write_script()
        print_(f"Look inside:  [bold]{script} kubernetes-callbacks list[/bold]", soft_wrap=True)
        print_(f"Once more:    trigger the Dag {DAG_ID} in the UI")
        print_("Ctrl-C ends all of it.")
        while True:
            signal.pause()

    def _write_script(self) -> Path:
        """Write the command that looks at this Airflow; it is for this user alone, for it has secrets."""
        script = self.folder / "airflow.sh"
        airflow = str(Path(sys.executable).with_name("airflow"))
        script.touch(mode=0o700, exist_ok=False)
        script.write_text(airflow_script(airflow, self.env.environment))
        return script


def run(screen: Screen, folder: Path, *, keep: bool) -> int:
    """Run the demo in *folder* and return its exit status."""
    screen.title(importlib.metadata.version("apache-airflow"))
    with Demo(screen, folder) as demo:
        try:
            watch = demo.start()
            with screen.step(
                f"Dag {DAG_ID} triggered: it takes a minute, and its deadlines are after 2 seconds"
            ):
                demo.env.trigger(DAG_ID)
            screen.console.print()
            demo.follow(watch)
        except WaitTimeoutError as error:
            screen.console.print(f"\n{error}", style="red", markup=False)
            return 1
        rows = watch.rows()
        screen.result(rows)
        if not as_expected(rows):
            screen.console.print("The rows are not what they should be.", style="bold red")
            return 1
        screen.console.print(
            "One alert went out. The other could not, and its row says why. The scheduler runs on."
        )
        if keep:
            demo.keep()
    return 0


class Ending:
    """Ends the demo at the first signal that asks for it.

    Later ones are ignored: where a terminal closes several come, and the second must not interrupt the end.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.asked = False
        # Also where it was started with Ctrl-C ignored, as a job in the background is.
        for number in self.SIGNALS:
            signal.signal(number, self._end)

    def _end(self, number: int, _frame: object) -> NoReturn:
        self.asked = True
        for each in self.SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(128 + number)


def run_in_a_folder(screen: Screen, ending: Ending, *, keep: bool) -> int:
    """Run the demo in a folder of its own, which stays only if the demo failed by itself."""
    folder = DemoFolder()
    failed = True
    try:
        for abandoned in remove_abandoned(folder.path.parent):
            screen.say(f"{abandoned} of a demo that was killed: removed")
        status = run(screen, folder.path, keep=keep)
        failed = status != 0
    finally:
        if failed and not ending.asked:
            # Where nobody can be told of the logs any more, they do not stay either.
            with contextlib.ExitStack() as otherwise:
                otherwise.callback(folder.remove)
                screen.say(f"Logs: {folder.path}/airflow/processes, {folder.path}/cluster/logs")
                otherwise.pop_all()
            folder.keep()
        else:
            folder.remove()
    return status


def main() -> int:
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave Airflow's UI and the cluster up")
    arguments = parser.parse_args()
    os.environ.update(past_proxies(os.environ))
    ending = Ending()
    screen = Screen()
    try:
        return run_in_a_folder(screen, ending, keep=arguments.keep)
    except KeyboardInterrupt:
        screen.console.print("\nEnded; nothing is left running.")
        return 0 if arguments.keep else 130


if __name__ == "__main__":
    sys.exit(main())
