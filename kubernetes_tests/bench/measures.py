"""The measurements, each a function of a :class:`Lab` that returns figures by name.

What is compared is measured in the same round, one after the other, so that a machine that slows down
slows down both. ``measured`` holds the values of the targets, ``figures`` everything else.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kubernetes_tests.bench import pods, processor
from kubernetes_tests.bench.lab import CONCURRENCY, clean_environment
from kubernetes_tests.bench.targets import ratios

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubernetes_tests.bench.lab import Child, Lab


#: Callbacks that are there before memory is measured: they bring in modules, connections and caches.
WARM_UP = 50
#: Callbacks up to which growth counts what Python holds, and not only what the process has resident.
TRACED_AT_MOST = 10_000


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rounds: int
    #: Pods per round where pods are created.
    pods: int
    #: Live callbacks of the idle heartbeat, smaller ones first.
    live: tuple[int, ...]
    burst: int
    adopted: int
    growth: tuple[int, ...]
    latencies: int
    imports: int


SIZES = {
    "ci": Size(2, 60, (0, 500), 200, 60, (), 5, 5),
    "small": Size(3, 200, (0, 1000, 5000), 1000, 300, (100, 1000), 10, 9),
    "full": Size(3, 300, (0, 1000, 5000), 5000, 1000, (100, 1000, 10_000, 50_000), 20, 15),
}


@dataclass
class Results:
    """What was measured so far."""

    measured: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    figures: dict[str, Any] = field(default_factory=dict)

    def add(self, other: Results) -> None:
        """Take over what another holds."""
        self.measured.update(other.measured)
        self.figures.update(other.figures)


def throughput(lab: Lab, size: Size, results: Results) -> None:
    """Tasks and callbacks through the executors, and pods without any executor, round by round."""
    rates: dict[str, list[float]] = defaultdict(list)
    whole: dict[str, list[float]] = defaultdict(list)
    shares: dict[str, dict[str, list[float]]] = defaultdict(dict)
    with contextlib.ExitStack() as stack:
        names = ("stock", "stock-async", "ours", "ours-async", "ours-secret")
        children = {name: stack.enter_context(lab.child(name)) for name in names}
        samples = {name: children[name].do("sample_body") for name in ("ours", "ours-secret")}
        for number in range(size.rounds + 1):
            for name in ("ours", "ours-secret"):
                created = _bare(lab, children[name], samples[name], number, size.pods, shares[f"bare {name}"])
                rates[f"bare {name}"].append(created)
            for name in ("stock", "ours", "stock-async"):
                created, seconds = _tasks(lab, children[name], number, size.pods, shares[f"tasks {name}"])
                rates[f"tasks {name}"].append(created)
                whole[f"tasks {name}"].append(size.pods / seconds)
            for name in ("ours", "ours-async", "ours-secret"):
                created, seconds = _callbacks(lab, children[name], size.pods, shares[f"callbacks {name}"])
                rates[f"callbacks {name}"].append(created)
                whole[f"callbacks {name}"].append(size.pods / seconds)
    every_share = [values for share in shares.values() for values in share.values()]
    for values in (*rates.values(), *whole.values(), *every_share):
        del values[0]  # the first round warms up connections and caches
    results.measured["task_throughput"] = ratios(whole["tasks ours"], whole["tasks stock"])
    results.measured["launch_vs_bare"] = ratios(rates["callbacks ours"], rates["bare ours"])
    secret = ratios(rates["callbacks ours-secret"], rates["bare ours"])
    results.measured["launch_vs_bare_secret"] = secret
    results.measured["launch_vs_stock"] = ratios(rates["callbacks ours"], rates["tasks stock"])
    results.figures["created per second"] = dict(rates)
    results.figures["processor milliseconds per pod created"] = dict(shares)
    results.figures["created, ended, recorded and deleted per second"] = dict(whole)


def _bare(
    lab: Lab, child: Child, sample: dict[str, Any], number: int, count: int, shares: dict[str, list[float]]
) -> float:
    namespace, kubeconfig = child.namespace.name, str(lab.cluster.kubeconfig)
    names = [f"bare-{number}-{index}" for index in range(count)]
    body = sample["pod"]
    body["metadata"]["labels"]["airflow-worker"] = "nobody"
    with processor.used({"client": [os.getpid()], "API server": lab.servers}, count, shares):
        seconds = pods.create(
            kubeconfig, namespace, body, names, concurrency=CONCURRENCY, secret=sample["secret"]
        )
    pods.clear(kubeconfig, namespace)
    return count / seconds


def _processes(lab: Lab, child: Child) -> dict[str, list[int]]:
    return {
        "scheduler": [child.pid],
        "its watch": processor.descendants(child.pid),
        "API server": lab.servers,
    }


def _tasks(
    lab: Lab, child: Child, number: int, count: int, shares: dict[str, list[float]]
) -> tuple[float, float]:
    """Return the tasks created per second, and the seconds from the first to the last of all."""
    with processor.used(_processes(lab, child), count, shares):
        created = child.do("create_tasks", count=count, batch=str(number))["seconds"]
    with child.played():
        finished = child.do("finish_tasks")["seconds"]
    return count / created, created + finished


def _callbacks(lab: Lab, child: Child, count: int, shares: dict[str, list[float]]) -> tuple[float, float]:
    with processor.used(_processes(lab, child), count, shares):
        created = child.do("create_callbacks", count=count)["seconds"]
    with child.played():
        finished = child.do("finish_callbacks", count=count)
    if finished["states"] != {"success": count}:
        raise RuntimeError(f"{count} callbacks should have succeeded: {finished['states']}")
    return count / created, created + finished["seconds"]


def live(lab: Lab, size: Size, results: Results) -> None:
    """The idle heartbeat, and memory, with more and more live callbacks."""
    medians: dict[int, list[float]] = defaultdict(list)
    for _ in range(size.rounds):
        with lab.child("ours") as child:
            there = 0
            for count in size.live:
                if count > there:
                    child.do("populate", count=count - there, state="running")
                    child.do("settle", count=count)
                    there = count
                medians[count].append(child.do("idle", beats=1000)["median"])
    grown = _grown(lab, size.live[-1])
    least, most = size.live[0], size.live[-1]
    results.measured["idle_sync"] = ratios(medians[most], medians[least])
    results.measured["idle_sync_added"] = [
        (more - less) * 1000 for more, less in zip(medians[most], medians[least], strict=True)
    ]
    results.measured["memory_scheduler"] = [grown["held"]]
    results.figures["idle sync(), ms, by live callbacks"] = {
        str(count): [value * 1000 for value in values] for count, values in medians.items()
    }
    results.figures["resident memory per live callback, KiB"] = {
        "scheduler": grown["rss"],
        "watcher": grown["watcher_rss"],
    }


def _grown(lab: Lab, count: int) -> dict[str, float]:
    """Return by how much memory grows per live callback, in KiB; what the first ones load is not theirs."""
    with lab.child("ours") as child:
        child.do("trace_memory")  # in a process of its own: tracing slows everything down
        child.do("populate", count=WARM_UP, state="running")
        child.do("settle", count=WARM_UP)
        before = child.do("memory")
        child.do("populate", count=count, state="running")
        child.do("settle", count=WARM_UP + count)
        after = child.do("memory")
    return {name: (after[name] - before[name]) / count / 1024 for name in after}


def burst(lab: Lab, size: Size, results: Results) -> None:
    """The longest heartbeat while many deadlines are missed at once."""
    found = []
    for _ in range(1 if size.burst > 1000 else size.rounds):
        with lab.child("ours") as child, child.played():
            found.append(child.do("burst", count=size.burst))
    results.measured["burst_longest_beat"] = [each["longest_beat"] for each in found]
    results.figures[f"burst of {size.burst}"] = found


def adoption(lab: Lab, size: Size, results: Results) -> None:
    """Taking over the pods of a scheduler that is gone."""
    seconds: dict[str, list[float]] = defaultdict(list)
    beats = []
    for _ in range(size.rounds):
        with lab.child("stock") as child:
            seconds["stock"].append(child.do("adopt_tasks", count=size.adopted)["seconds"])
        with lab.child("ours") as child:
            child.do("populate", count=size.adopted, state="running", owner=999_999)
            answer = child.do("adopt_callbacks", count=size.adopted)
            seconds["ours"].append(answer["seconds"])
            beats.append(answer["longest_beat"])
    results.measured["adoption"] = ratios(seconds["ours"], seconds["stock"])
    results.figures[f"adoption of {size.adopted}, s"] = dict(seconds)
    results.figures["longest heartbeat during our adoption, s"] = beats


def requests(lab: Lab, size: Size, results: Results) -> None:
    """Requests to the API server per callback, by verb."""
    for name, target in (("ours", "writes_argument"), ("ours-secret", "writes_secret")):
        with lab.child(name) as child:
            child.do("count_requests")
            child.do("create_callbacks", count=size.pods)
            with child.played():
                child.do("finish_callbacks", count=size.pods)
            counted = child.do("requests_counted")
        writes = sum(count for request, count in counted.items() if not request.startswith("GET"))
        results.measured[target] = [writes / size.pods]
        results.figures[f"requests per callback, {name}"] = {
            request: count / size.pods for request, count in sorted(counted.items())
        }


def growth(lab: Lab, size: Size, results: Results) -> None:
    """Do costs stay flat? The same few launches with more and more callbacks beside them."""
    found: dict[str, dict[str, float | None]] = {}
    for count in size.growth:
        # Python's own count needs a process of its own, and as many pods once more.
        held = _grown(lab, count)["held"] if count <= TRACED_AT_MOST else None
        with lab.child("ours") as child:
            before = child.do("memory")["rss"]
            child.do("populate", count=count, state="running")
            settled = child.do("settle", count=count)
            resident = child.do("memory")["rss"] - before
            idle = child.do("idle", beats=300)
            launches = [child.do("create_callbacks", count=100)["seconds"] for _ in range(3)]
        found[str(count)] = {
            "launch_ms": statistics.median(launches) / 100 * 1000,
            "idle_sync_ms": idle["median"] * 1000,
            "pass_longest_beat_ms": settled["longest_beat_of_a_pass"] * 1000,
            "first_pass_s": settled["seconds"],
            "kib_per_callback": held,
            "resident_kib_per_callback": resident / count / 1024,
        }
    if found:
        results.figures["growth"] = found


def imports(_: Lab, size: Size, results: Results) -> None:
    """Time to import the executor's module (of the processor), in processes of their own, in turns."""
    modules = {
        "stock": "airflow.providers.cncf.kubernetes.executors.kubernetes_executor",
        "ours": "airflow_kubernetes_callbacks.executor",
    }
    code = "import time; begin = time.process_time(); import {}; print(time.process_time() - begin)"
    seconds: dict[str, list[float]] = defaultdict(list)
    for number in range(size.imports + 1):
        for name, module in modules.items():
            command = [sys.executable, "-W", "ignore", "-c", code.format(module)]
            answer = subprocess.run(
                command, env=clean_environment(), capture_output=True, text=True, check=True
            )
            if number:  # the first ones fill the page cache
                seconds[name].append(float(answer.stdout.split()[-1]))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    results.measured["import_time"] = [medians["ours"] / medians["stock"]]
    results.figures["import, s"] = medians


MEASURES: dict[str, Callable[[Lab, Size, Results], None]] = {
    "imports": imports,
    "throughput": throughput,
    "requests": requests,
    "adoption": adoption,
    "live": live,
    "burst": burst,
    "growth": growth,
}
