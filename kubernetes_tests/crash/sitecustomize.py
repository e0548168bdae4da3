"""Kills its own process, as a container is killed, at a step that a file names.

Only schedulers of the crash matrix have this folder on their PYTHONPATH; Python imports a module of this
name by itself. When a module that is named in ``POINTS`` is imported, the functions below are wrapped.
A wrapper looks for the file in CRASH_AT; if it holds the name of its step, the file is removed (so each
order is carried out once) and the whole session gets SIGKILL.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import os
import signal
import sys
from pathlib import Path

ORDER = os.environ.get("CRASH_AT")
TERMINAL_OUTCOMES = {"succeeded", "failed"}
TERMINAL_STATES = {"success", "failed"}


def crash(step):
    """Die if this step is ordered, and was not carried out by another process."""
    order = Path(ORDER)
    try:
        if order.read_text() != step:
            return
        order.rename(order.with_name(f"{order.name}.{step}"))
    except OSError:
        return
    os.killpg(0, signal.SIGKILL)


def text(value):
    return str(getattr(value, "value", value))


# --- one wrapper per kind of place: (original, step, *arguments of the call) ---


def before(step, when=lambda *a, **k: True):
    def wrap(original):
        @functools.wraps(original)
        def call(*args, **kwargs):
            if when(*args, **kwargs):
                crash(step)
            return original(*args, **kwargs)

        return call

    return wrap


def after(step, when=lambda *a, **k: True):
    def wrap(original):
        @functools.wraps(original)
        def call(*args, **kwargs):
            result = original(*args, **kwargs)
            if when(*args, **kwargs):
                crash(step)
            return result

        return call

    return wrap


def around_recording(original):
    """``_process_executor_events``: rows are set when it returns and committed by its caller."""

    @functools.wraps(original)
    def call(self, executor, session):
        ends = any(
            type(key).__name__ == "CallbackKey" and text(state) in TERMINAL_STATES
            for key, (state, _) in executor.event_buffer.items()
        )
        result = original(self, executor, session)
        if ends:
            crash("before_commit")
            session.commit()
            crash("after_commit")
        return result

    return call


def is_callback(self, workload, *rest, **named):
    return type(workload).__name__ == "ExecuteCallback"


def has_callback(self, workloads):
    return any(type(workload).__name__ == "ExecuteCallback" for workload in workloads)


def sees(*outcomes):
    return lambda self, view: text(view.outcome) in outcomes


def ends(self, callback_id, outcome, info):
    return text(outcome) != "running"


def is_retry(self, namespace, body):
    return not body["metadata"]["name"].endswith("-1")


PACKAGE = "airflow_kubernetes_callbacks"

#: module -> class -> method -> wrappers, innermost first
POINTS = {
    f"{PACKAGE}.mixin": {
        "CallbackPodsMixin": {
            "queue_workload": [after("queued_in_memory", is_callback)],
            "_process_workloads": [before("queued_committed", has_callback)],
        }
    },
    f"{PACKAGE}.controller": {
        "CallbackController": {
            "observe": [
                before("pod_pending", sees("pending")),
                before("pod_running", sees("running")),
                before("finished_unseen", sees(*TERMINAL_OUTCOMES)),
            ]
        }
    },
    f"{PACKAGE}.slots": {"ExecutorSlots": {"report": [after("event_buffered", ends)]}},
    f"{PACKAGE}.pod_client": {
        "PodClient": {
            "create_pod": [after("create_unanswered"), before("between_attempts", is_retry)],
            "delete_pod": [before("before_delete"), after("after_delete")],
            "adopt_pod": [before("before_adoption"), after("adoption_unanswered")],
        }
    },
    "airflow.jobs.scheduler_job_runner": {
        "SchedulerJobRunner": {"_process_executor_events": [around_recording]}
    },
}


class Loader(importlib.abc.Loader):
    def __init__(self, loader):
        self._loader = loader

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        for class_name, methods in POINTS[module.__name__].items():
            owner = getattr(module, class_name)
            for name, wrappers in methods.items():
                method = owner.__dict__[name]
                for wrap in wrappers:
                    method = wrap(method)
                setattr(owner, name, method)

    def __getattr__(self, name):
        return getattr(self._loader, name)


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name not in POINTS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = Loader(spec.loader)
        return spec


if ORDER:
    sys.meta_path.insert(0, Finder())
