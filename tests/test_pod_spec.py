"""The callback's pod: golden files for each setting, properties of names and labels, the mutation hook.

``UPDATE_GOLDEN=1 pytest tests/test_pod_spec.py`` writes the golden files anew; review what changed.
"""

from __future__ import annotations

import asyncio
import copy
import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import requests
import yaml
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client import models as k8s

from airflow_kubernetes_callbacks import identity
from airflow_kubernetes_callbacks.errors import LaunchDelayedError, LaunchError
from airflow_kubernetes_callbacks.launch_failure import launch_failure
from airflow_kubernetes_callbacks.mutation_hook import apply_mutation_hook
from airflow_kubernetes_callbacks.payload import SecretPayload
from airflow_kubernetes_callbacks.pod_identity import MAX_ANNOTATION_BYTES, identity_labels
from airflow_kubernetes_callbacks.pod_settings import PodSettings
from airflow_kubernetes_callbacks.pod_spec import base_container_of, construct_callback_pod, pod_namespace
from airflow_kubernetes_callbacks.pod_template import parse_template
from tests.callback_pods import (
    AS_ROOT,
    EVERY_SETTING,
    FOREIGN_IDENTITY,
    GOLDEN,
    GOLDEN_PODS,
    HELM,
    PLAIN,
    as_json,
    request,
)

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize("name", GOLDEN_PODS)
def test_golden_pod(name: str) -> None:
    actual = as_json(construct_callback_pod(GOLDEN_PODS[name]))
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(yaml.safe_dump(actual, sort_keys=False, allow_unicode=True, width=110))

    assert actual == yaml.safe_load(path.read_text())


def test_there_is_no_golden_file_without_a_test() -> None:
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == set(GOLDEN_PODS)


def test_request_and_template_are_left_as_they_were() -> None:
    wanted = request(HELM, settings=EVERY_SETTING, finalizer=True)
    before = copy.deepcopy(wanted)

    construct_callback_pod(wanted)

    assert wanted == before


def test_two_builds_are_equal() -> None:
    assert as_json(construct_callback_pod(request(HELM))) == as_json(construct_callback_pod(request(HELM)))


IMAGES: dict[str, tuple[str | None, str | None, str | None, str | None]] = {
    "template": ("template:1", None, None, "template:1"),
    "stock setting over template": ("template:1", "stock:1", None, "stock:1"),
    "callback setting over stock setting": ("template:1", "stock:1", "callback:1", "callback:1"),
    "callback setting over template": ("template:1", None, "callback:1", "callback:1"),
    "stock setting alone": (None, "stock:1", None, "stock:1"),
    "callback setting alone": (None, None, "callback:1", "callback:1"),
}


@pytest.mark.parametrize(("template", "stock", "callback", "image"), IMAGES.values(), ids=IMAGES)
def test_image_precedence(
    template: str | None, stock: str | None, callback: str | None, image: str | None
) -> None:
    text = yaml.safe_dump({"kind": "Pod", "spec": {"containers": [{"name": "base", "image": template}]}})

    pod = construct_callback_pod(request(text, kube_image=stock, settings=PodSettings(image=callback)))

    assert base_container_of(pod).image == image


@pytest.mark.parametrize(
    "template",
    [
        "kind: Pod",
        "kind: Pod\nspec: {}",
        "kind: Pod\nspec: {containers: []}",
        "spec: {containers: [{name: base}]}",
    ],
)
def test_no_image_anywhere_says_where_to_set_one(template: str) -> None:
    with pytest.raises(
        LaunchError, match=r"no image.*\[kubernetes_callbacks\] image.*worker_container_repository"
    ):
        construct_callback_pod(request(template))


NAMESPACES: dict[str, tuple[str | None, str | None, list[str] | None, str]] = {
    "the executor's": (None, None, ["airflow"], "airflow"),
    "template's, all are watched": (None, "team-b", None, "team-b"),
    "template's, it is watched": (None, "team-b", ["airflow", "team-b"], "team-b"),
    "template's, it is not watched": (None, "team-b", ["airflow"], "airflow"),
    "setting over template": ("alerts", "team-b", None, "alerts"),
}


@pytest.mark.parametrize(("setting", "template", "watched", "namespace"), NAMESPACES.values(), ids=NAMESPACES)
def test_namespace_precedence(
    setting: str | None, template: str | None, watched: list[str] | None, namespace: str
) -> None:
    text = yaml.safe_dump({"kind": "Pod", "metadata": {"namespace": template}})

    assert (
        pod_namespace(PodSettings(namespace=setting), parse_template(text, "t"), "airflow", watched)
        == namespace
    )


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never", None])
def test_callback_never_restarts(policy: str | None) -> None:
    text = yaml.safe_dump(
        {"kind": "Pod", "spec": {"restartPolicy": policy, "containers": [{"name": "base", "image": "x"}]}}
    )

    assert construct_callback_pod(request(text)).spec.restart_policy == "Never"


@pytest.mark.parametrize(
    ("named", "policy"), [(None, "FallbackToLogsOnError"), ("File", "File")], ids=["none", "its-own"]
)
def test_init_container_that_fails_leaves_the_end_of_its_log(named: str | None, policy: str) -> None:
    init = {"name": "fetch", "image": "git:1", "terminationMessagePolicy": named}
    spec = {"initContainers": [init], "containers": [{"name": "base", "image": "template:1"}]}

    pod = construct_callback_pod(request(yaml.safe_dump({"kind": "Pod", "spec": spec})))

    assert pod.spec.init_containers[0].termination_message_policy == policy


def test_volume_that_has_the_name_of_the_workloads_fails_the_launch_that_needs_it() -> None:
    template = parse_template(PLAIN, "t")
    template.spec.volumes = [k8s.V1Volume(name="callback-workload", empty_dir={})]

    with pytest.raises(LaunchError, match=r"a volume named 'callback-workload'.*another name"):
        construct_callback_pod(request(template, payload=SecretPayload("{}")))
    assert construct_callback_pod(request(template)).spec.volumes[0].empty_dir == {}


def test_template_that_cannot_be_combined_fails_the_launch() -> None:
    template = parse_template(PLAIN, "t")
    template.spec.volumes = "none"

    with pytest.raises(LaunchError, match="pod template cannot be combined"):
        construct_callback_pod(request(template, payload=SecretPayload("{}")))


# Names, labels, annotations --------------------------------------------------------------------------

LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
LABEL_KEY = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
POD_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=250)


@given(
    dag_id=NAMES,
    run_id=NAMES,
    team=NAMES | st.none(),
    executor=NAMES | st.none(),
    callback_id=st.uuids(),
    attempt=st.integers(1, 10**6),
)
def test_names_and_labels_are_legal_whatever_the_ids_are(
    dag_id: str, run_id: str, team: str | None, executor: str | None, callback_id: Any, attempt: int
) -> None:
    pod = construct_callback_pod(
        request(
            dag_id=dag_id,
            run_id=run_id,
            team=team,
            executor=executor,
            callback_id=str(callback_id),
            attempt=attempt,
        )
    )

    assert POD_NAME.fullmatch(pod.metadata.name)
    for key, value in pod.metadata.labels.items():
        assert LABEL_KEY.fullmatch(key)
        assert LABEL_VALUE.fullmatch(value), value
    annotations = pod.metadata.annotations
    assert (annotations["dag_id"], annotations["run_id"]) == (dag_id, run_id)
    assert annotations["callback_id"] == str(callback_id)


def test_callback_pod_has_no_label_that_the_stock_executor_selects_on() -> None:
    labels = construct_callback_pod(request(FOREIGN_IDENTITY)).metadata.labels

    assert "kubernetes_executor" not in labels
    assert "airflow_executor_done" not in labels
    assert not {"task_id", "try_number"} & labels.keys()


def test_annotations_over_the_limit_fail_the_launch() -> None:
    settings = PodSettings(annotations={"note": "é" * 131_072})

    with pytest.raises(LaunchError, match=r"annotations have 262,\d{3} bytes.*'note' with 262,148 bytes"):
        construct_callback_pod(request(settings=settings))


def test_annotations_at_the_limit_are_accepted() -> None:
    used = sum(len(k) + len(v) for k, v in construct_callback_pod(request()).metadata.annotations.items())
    settings = PodSettings(annotations={"note": "x" * (MAX_ANNOTATION_BYTES - used - len("note"))})

    construct_callback_pod(request(settings=settings))


# Security ------------------------------------------------------------------------------------------

HARDENED: dict[str, tuple[str, dict[str, Any] | None, dict[str, Any] | None]] = {
    "nothing said": (
        PLAIN,
        None,
        {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    ),
    "user is named by the pod": (
        HELM,
        {"runAsUser": 50000, "fsGroup": 0},
        {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    ),
    "privileged root": (AS_ROOT, {"runAsUser": 0}, {"privileged": True}),
    "own capabilities": (
        "{spec: {containers: [{name: base, image: x, securityContext: {capabilities: {add: [SYS_ADMIN]}}}]}}",
        None,
        {
            "capabilities": {"add": ["SYS_ADMIN"]},
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    ),
    "root in the container alone": (
        "{spec: {containers: [{name: base, image: x, securityContext: {runAsUser: 0}}]}}",
        None,
        {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsUser": 0,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    ),
    "said by the pod": (
        """
        spec:
          securityContext: {runAsNonRoot: false, seccompProfile: {type: Unconfined}}
          containers: [{name: base, image: x}]
        """,
        {"runAsNonRoot": False, "seccompProfile": {"type": "Unconfined"}},
        {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    ),
    "windows": (
        "{spec: {os: {name: windows}, containers: [{name: base, image: x}]}}",
        None,
        None,
    ),
}


@pytest.mark.parametrize(("template", "of_pod", "of_container"), HARDENED.values(), ids=HARDENED)
def test_security_context(
    template: str, of_pod: dict[str, Any] | None, of_container: dict[str, Any] | None
) -> None:
    spec = as_json(construct_callback_pod(request(template)))["spec"]

    assert spec.get("securityContext") == of_pod
    assert spec["containers"][0].get("securityContext") == of_container


TOKENS = {
    "not asked for": (None, False, False),
    "refused by the template": (False, False, False),
    "asked for by the template": (True, False, True),
    "asked for by the option": (None, True, True),
    "asked for by the option, refused by the template": (False, True, True),
}


@pytest.mark.parametrize(("template", "option", "mounted"), TOKENS.values(), ids=TOKENS)
def test_service_account_token(template: bool | None, option: bool, mounted: bool) -> None:
    pod = parse_template(PLAIN, "t")
    pod.spec.automount_service_account_token = template

    built = construct_callback_pod(request(template=pod, service_account_token=option))

    assert built.spec.automount_service_account_token is mounted


# The mutation hook ---------------------------------------------------------------------------------


def hooked(hook: Callable[[k8s.V1Pod], object], watched: list[str] | None = None, **more: Any) -> k8s.V1Pod:
    return apply_mutation_hook(construct_callback_pod(request(**more)), hook, watched_namespaces=watched)


def test_hook_may_change_what_is_not_the_identity() -> None:
    def hook(pod: k8s.V1Pod) -> None:
        pod.metadata.labels["own"] = "x"
        pod.metadata.annotations["own"] = "y"
        pod.metadata.namespace = "team-b"
        pod.spec.containers[0].image = "other:1"

    pod = hooked(hook, ["airflow", "team-b"])

    assert (pod.metadata.labels["own"], pod.metadata.annotations["own"]) == ("x", "y")
    assert (pod.metadata.namespace, pod.spec.containers[0].image) == ("team-b", "other:1")


def _rename(pod: k8s.V1Pod) -> None:
    pod.metadata.name = "mine"


def _generate(pod: k8s.V1Pod) -> None:
    pod.metadata.name, pod.metadata.generate_name = None, "mine-"


def _clear(pod: k8s.V1Pod) -> None:
    pod.metadata.labels = pod.metadata.annotations = pod.metadata.finalizers = None


def _replace(pod: k8s.V1Pod) -> None:
    pod.metadata.labels = {"kubernetes_executor": "True"}
    pod.metadata.annotations = {"callback_id": "other"}
    pod.metadata.finalizers = ["example.com/own"]


def _restart(pod: k8s.V1Pod) -> None:
    pod.spec.restart_policy = "Always"


@pytest.mark.parametrize("hook", [_rename, _generate, _clear, _replace, _restart])
def test_identity_is_put_back_after_the_hook(hook: Callable[[k8s.V1Pod], None]) -> None:
    before = construct_callback_pod(request(finalizer=True))

    pod = hooked(hook, finalizer=True)

    assert pod.metadata.name == before.metadata.name
    assert pod.metadata.generate_name is None
    assert before.metadata.labels.items() <= pod.metadata.labels.items()
    assert before.metadata.annotations.items() <= pod.metadata.annotations.items()
    assert "kubernetes_executor" not in pod.metadata.labels
    assert identity.RESULT_FINALIZER in pod.metadata.finalizers
    assert pod.spec.restart_policy == "Never"


def _raise(error: BaseException) -> Callable[[k8s.V1Pod], None]:
    def hook(pod: k8s.V1Pod) -> None:
        raise error

    return hook


@pytest.mark.parametrize(
    "hook",
    [
        lambda pod: pod.metadata.labels["task_id"],
        _raise(ValueError("no such team")),
        _raise(SystemExit(3)),
        _raise(RecursionError()),
        _raise(asyncio.CancelledError()),
        _raise(type("PanicException", (BaseException,), {})("a Rust library's")),
        lambda pod: pod.metadata.annotations["try_number"],
    ],
    ids=[
        "KeyError-label",
        "ValueError",
        "SystemExit",
        "RecursionError",
        "CancelledError",
        "panic",
        "KeyError-annotation",
    ],
)
def test_hook_that_raises_fails_this_launch_only(hook: Callable[[k8s.V1Pod], object]) -> None:
    with pytest.raises(
        LaunchError, match=r"pod_mutation_hook failed.*airflow-workload-type=callback"
    ) as caught:
        hooked(hook)

    assert caught.value.__cause__ is not None
    assert type(caught.value.__cause__).__name__ in str(caught.value)


@pytest.mark.parametrize(
    "error",
    [TimeoutError("timed out"), ConnectionResetError(104, "reset"), requests.ConnectionError("no such host")],
    ids=lambda error: type(error).__module__ + "." + type(error).__name__,
)
def test_hook_whose_service_does_not_answer_is_called_again(error: Exception) -> None:
    with pytest.raises(LaunchDelayedError, match="pod_mutation_hook failed") as caught:
        hooked(_raise(error))

    assert type(error).__name__ in str(caught.value)
    assert launch_failure(caught.value).retryable


@pytest.mark.parametrize("error", [FileNotFoundError(2, "no such file"), PermissionError(13, "denied")])
def test_hook_whose_file_is_missing_fails_the_launch_at_once(error: Exception) -> None:
    with pytest.raises(LaunchError, match="pod_mutation_hook failed") as caught:
        hooked(_raise(error))

    assert not isinstance(caught.value, LaunchDelayedError)


def test_interrupt_during_the_hook_is_not_swallowed() -> None:
    with pytest.raises(KeyboardInterrupt):
        hooked(_raise(KeyboardInterrupt()))


@pytest.mark.parametrize(
    ("field", "value"), [("metadata", None), ("spec", None)], ids=["no metadata", "no spec"]
)
def test_hook_that_leaves_no_pod_fails_the_launch(field: str, value: object) -> None:
    with pytest.raises(LaunchError, match="without metadata or containers"):
        hooked(lambda pod: setattr(pod, field, value))


@pytest.mark.parametrize("what", ["labels", "annotations"])
def test_hook_that_leaves_no_dictionary_of_labels_or_annotations_fails_the_launch(what: str) -> None:
    with pytest.raises(LaunchError, match=f"pod_mutation_hook left {what} of type list"):
        hooked(lambda pod: setattr(pod.metadata, what, ["a"]))


def test_hook_cannot_have_the_callback_run_again_in_its_pod() -> None:
    def hook(pod: k8s.V1Pod) -> None:
        pod.spec.restart_policy = "Always"
        pod.spec.containers[0].restart_policy = "Always"

    pod = hooked(hook)

    assert (pod.spec.restart_policy, pod.spec.containers[0].restart_policy) == ("Never", None)


def test_hook_that_leaves_for_an_unwatched_namespace_fails_the_launch() -> None:
    with pytest.raises(LaunchError, match=r"'other', which this executor does not watch \(airflow, team-b\)"):
        hooked(lambda pod: setattr(pod.metadata, "namespace", "other"), ["team-b", "airflow"])


def test_hook_that_adds_too_many_annotations_fails_the_launch() -> None:
    with pytest.raises(LaunchError, match="annotations have"):
        hooked(lambda pod: pod.metadata.annotations.update(big="x" * 300_000))


def test_labels_of_the_secret_are_those_of_the_pod() -> None:
    wanted = request(HELM, team="a")

    assert identity_labels(wanted).items() <= construct_callback_pod(wanted).metadata.labels.items()


def test_attempts_differ_in_name_and_label_only() -> None:
    first, second = (as_json(construct_callback_pod(replace(request(), attempt=number))) for number in (1, 2))

    assert first["metadata"]["name"] != second["metadata"]["name"]
    first["metadata"]["name"] = second["metadata"]["name"]
    first["metadata"]["labels"]["callback-attempt"] = "2"
    assert first == second
