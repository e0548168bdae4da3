"""This Airflow as a command finds it: its executors, settings, rows and clusters, without a scheduler."""

from __future__ import annotations

import functools
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.configuration import conf
from airflow.exceptions import AirflowConfigException, UnknownExecutorException
from airflow.executors.executor_loader import ExecutorLoader
from kubernetes.config import ConfigException

from airflow_kubernetes_callbacks.api_errors import classify
from airflow_kubernetes_callbacks.assembly import build_planner, callback_namespaces
from airflow_kubernetes_callbacks.callback_store import CallbackStore
from airflow_kubernetes_callbacks.cli.cluster import Cluster
from airflow_kubernetes_callbacks.cli.model import PodFacts, by_callback
from airflow_kubernetes_callbacks.cli.overview import Surroundings
from airflow_kubernetes_callbacks.cli.rows import CallbackRows
from airflow_kubernetes_callbacks.errors import CallbackPodsError
from airflow_kubernetes_callbacks.routing import ExecutorEntry, resolve
from airflow_kubernetes_callbacks.rules import load_rules
from airflow_kubernetes_callbacks.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kubernetes import client

    from airflow_kubernetes_callbacks.cli.model import CallbackRecord
    from airflow_kubernetes_callbacks.launch_plan import LaunchPlanner
    from airflow_kubernetes_callbacks.rules import PodRules
    from airflow_kubernetes_callbacks.settings import CallbackSettings


class NotConfiguredError(CallbackPodsError):
    """Nothing here runs callbacks as pods; the message says what to configure."""


@dataclass
class OwnExecutor:
    """One configured executor of this package; built, never started."""

    entry: ExecutorEntry
    executor: Any

    @functools.cached_property
    def settings(self) -> CallbackSettings:
        """:raises SettingsError: a value in ``[kubernetes_callbacks]`` cannot be used."""
        return load_settings(self.executor.conf)

    @functools.cached_property
    def rules(self) -> PodRules:
        """:raises SettingsError: the rules cannot be used."""
        return load_rules(self.settings)

    @functools.cached_property
    def cluster(self) -> Cluster:
        kube_config = self.executor.kube_config
        return Cluster(
            api_client(self.executor),
            namespaces=callback_namespaces(kube_config, self.rules),
            request_args=kube_config.kube_client_request_args,
        )

    @functools.cached_property
    def planner(self) -> LaunchPlanner:
        return build_planner(self.executor, self.settings, self.rules, self.cluster)

    @property
    def title(self) -> str:
        name = self.entry.alias or self.entry.module_path
        return f"{name} of team {self.entry.team}" if self.entry.team else name


def _load_executors() -> tuple[list[ExecutorEntry], list[OwnExecutor]]:
    """Return every configured executor, and those of them that are of this package."""
    from airflow_kubernetes_callbacks.mixin import CallbackPodsMixin

    names = ExecutorLoader.get_executor_names(validate_teams=False)
    entries = [ExecutorEntry(name.module_path, name.alias, name.team_name) for name in names]
    own = [
        OwnExecutor(entry, ExecutorLoader.load_executor(name))
        for name, entry in zip(names, entries, strict=True)
        if issubclass(ExecutorLoader.import_executor_cls(name)[0], CallbackPodsMixin)
    ]
    return entries, own


def api_client(executor: Any) -> client.CoreV1Api:
    """Return the client that this executor would use, its ``client_factory`` included.

    :raises NotConfiguredError: there is no kubeconfig, or one that cannot be used; names where it was looked for.
    """
    from airflow.providers.cncf.kubernetes.kube_client import _get_executor_kube_client

    try:
        return _get_executor_kube_client(team_name=executor.team_name)
    except ConfigException as error:
        raise NotConfiguredError(f"{str(error).rstrip('.')}. {_client_source()}") from error


def _client_source() -> str:
    """Return where the client's configuration was looked for; the client itself does not always say."""
    section = "kubernetes_executor"
    if factory := conf.get(section, "client_factory", fallback=None):
        return f"The client is made by [{section}] client_factory = {factory}."
    if conf.getboolean(section, "in_cluster"):
        return f"[{section}] in_cluster = True is for processes that run in a pod."
    if path := conf.get(section, "config_file", fallback=None):
        return f"The file is that of [{section}] config_file = {path}."
    path = os.environ.get("KUBECONFIG", "~/.kube/config")
    return f"The file is {path}, because [{section}] config_file is not set."


def api_trouble(error: Exception) -> str:
    """Return why the Kubernetes API could not be asked, or did not answer."""
    return str(error) if isinstance(error, CallbackPodsError) else classify(error).message


class Deployment:
    """What the commands work on.

    :raises NotConfiguredError: this Airflow has no executor of this package, or one that cannot be loaded.
    """

    def __init__(self) -> None:
        try:
            self.entries, self.own = _load_executors()
        except (ImportError, AirflowConfigException, UnknownExecutorException) as error:
            raise NotConfiguredError(
                f"[core] executor = {conf.get('core', 'executor')} cannot be loaded: {error}. Look for a misspelling, "
                "or for a package that is not installed here."
            ) from error
        if not self.own:
            raise NotConfiguredError(
                f"[core] executor = {conf.get('core', 'executor')} runs no callbacks as pods. Write "
                "'KubernetesExecutor:airflow_kubernetes_callbacks.KubernetesExecutor', or run this command with "
                "the configuration of the scheduler."
            )
        multi_team = conf.getboolean("core", "multi_team", fallback=False)
        self.rows = CallbackRows(self.entries, [own.entry for own in self.own], multi_team=multi_team)
        self.store = CallbackStore(self.entries, self.own[0].entry, multi_team=multi_team)

    def executor_of(self, record: CallbackRecord) -> OwnExecutor:
        """Return the executor that the callback goes to.

        :raises NotConfiguredError: it is none of this package.
        """
        entry = resolve(record.executor, record.team, self.entries)
        for own in self.own:
            if own.entry == entry:
                return own
        name = (
            (entry.alias or entry.module_path) if entry else f"{record.executor!r}, which is not configured"
        )
        raise NotConfiguredError(
            f"Callback {record.id} goes to the executor {name}, not to one of this package."
        )

    def surroundings(self, *, pods_known: bool) -> Surroundings:
        """Return what judging a callback needs; the settings are those of the first executor."""
        settings = self.own[0].settings
        return Surroundings(
            now=time.time(),
            schedulers=self.store.alive_schedulers(),
            pods_known=pods_known,
            reconcile_interval=settings.reconcile_interval,
            pending_timeout=settings.pending_timeout,
            node_lost_timeout=settings.node_lost_timeout,
            execution_timeout=conf.getfloat("callbacks", "callback_execution_timeout", fallback=0.0),
        )

    def pods(self, callback_ids: Sequence[str] = ()) -> PodSearch:
        """Look for pods in every cluster; what cannot be asked is said, not raised."""
        found: list[PodFacts] = []
        trouble: list[str] = []
        for own in self.own:
            try:
                found.extend(own.cluster.pods(callback_ids))
            except Exception as error:  # noqa: BLE001 - no kubeconfig, no network, no permission: all are said
                trouble.append(f"{own.title}: pods cannot be listed: {api_trouble(error)}")
        return PodSearch(by_callback(found), tuple(dict.fromkeys(trouble)))


@dataclass(frozen=True, slots=True)
class PodSearch:
    """Pods by callback, and what stood in the way of finding all."""

    pods: Mapping[str, tuple[PodFacts, ...]]
    trouble: tuple[str, ...]

    @property
    def complete(self) -> bool:
        return not self.trouble
