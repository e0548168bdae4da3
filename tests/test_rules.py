"""Rules, options and the Dag author's choice: what is read, what is refused and where, who wins."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from airflow_kubernetes_callbacks.author_options import (
    RESERVED_KWARG,
    AuthorOptions,
    permitted,
    split_reserved_kwarg,
)
from airflow_kubernetes_callbacks.errors import LaunchError, SettingsError
from airflow_kubernetes_callbacks.pod_settings import PodSettings, Resources, merged
from airflow_kubernetes_callbacks.pod_spec import construct_callback_pod
from airflow_kubernetes_callbacks.pod_template import load_template, parse_template
from airflow_kubernetes_callbacks.rules import POD_OPTIONS, PodRules, Subject, load_rules, parse_rules
from airflow_kubernetes_callbacks.settings import OPTIONS, CallbackSettings
from tests.callback_pods import HELM, as_json, request

if TYPE_CHECKING:
    from pathlib import Path

SUBJECT = Subject("alerts.slack.notify", "etl_daily", "data", ("k8s", "KubernetesExecutor"))


def rules(text: str, **options: Any) -> PodRules:
    return load_rules(replace(CallbackSettings(), rules=text, **options))


# Matching --------------------------------------------------------------------------------------------

MATCHES: dict[str, tuple[dict[str, Any], Subject, bool]] = {
    "callback": ({"callback": "alerts.slack.notify"}, SUBJECT, True),
    "callback glob": ({"callback": "alerts.*"}, SUBJECT, True),
    "callback, other": ({"callback": "alerts"}, SUBJECT, False),
    "callback in a Dag's own file": (
        {"callback": "my_dag.alert"},
        Subject(f"unusual_prefix_{'a' * 40}_my_dag.alert", "d"),
        True,
    ),
    "callback in a Dag's own file, in full": (
        {"callback": "unusual_prefix_*"},
        Subject(f"unusual_prefix_{'a' * 40}_my_dag.alert", "d"),
        True,
    ),
    "Dag": ({"dag_id": "etl_*"}, SUBJECT, True),
    "Dag, case matters": ({"dag_id": "ETL_*"}, SUBJECT, False),
    "Dag, one of a list": ({"dag_id": ["ml_*", "etl_?aily"]}, SUBJECT, True),
    "Dag, none of a list": ({"dag_id": ["ml_*", "x"]}, SUBJECT, False),
    "team": ({"team": "data"}, SUBJECT, True),
    "team, there is none": ({"team": "*"}, replace(SUBJECT, team=None), False),
    "executor's alias": ({"executor": "k8s"}, SUBJECT, True),
    "executor's class": ({"executor": "KubernetesExecutor"}, SUBJECT, True),
    "executor, another": ({"executor": "celery"}, SUBJECT, False),
    "all kinds fit": ({"callback": "*", "dag_id": "*", "team": "*", "executor": "*"}, SUBJECT, True),
    "one kind does not fit": ({"callback": "*", "dag_id": "x"}, SUBJECT, False),
    "callback, any": ({"callback": "*"}, Subject("a.b", "d"), True),
    "characters": ({"dag_id": "etl_[dw]aily"}, SUBJECT, True),
}


@pytest.mark.parametrize(("match", "subject", "fits"), MATCHES.values(), ids=MATCHES)
def test_match(match: dict[str, Any], subject: Subject, fits: bool) -> None:
    (rule,) = parse_rules(json.dumps([{"match": match, "pod": {}}]), "rules")

    assert rule.match is not None
    assert rule.match.fits(subject) is fits


def test_first_rule_that_fits_is_applied() -> None:
    known = rules(
        "[{match: {dag_id: x}, pod: {image: a}}, {match: {callback: '*'}, pod: {image: b}}, {match: {callback: '*'}, pod: {image: c}}]"
    )

    assert known.settings_for(SUBJECT).image == "b"


def test_rule_without_match_is_used_by_name_only() -> None:
    known = rules("[{name: heavy, pod: {image: a}}]")

    assert known.settings_for(SUBJECT).image is None
    assert known.settings_for(SUBJECT, AuthorOptions(rule="heavy")).image == "a"


def test_rule_that_the_author_names_takes_the_place_of_the_one_that_fits() -> None:
    known = rules(
        "[{match: {callback: '*'}, pod: {image: a, priority_class_name: p}}, {name: heavy, pod: {image: b}}]"
    )

    chosen = known.settings_for(SUBJECT, AuthorOptions(rule="heavy"))

    assert (chosen.image, chosen.priority_class_name) == ("b", None)


def test_unknown_rule_fails_the_launch_and_names_the_known_ones() -> None:
    known = rules("[{name: heavy, pod: {}}, {name: light, pod: {}}]")

    with pytest.raises(LaunchError, match=r"'none'.*\(heavy, light\)"):
        known.settings_for(SUBJECT, AuthorOptions(rule="none"))


# Precedence ------------------------------------------------------------------------------------------

LOW: dict[str, Any] = {
    "pod_template_file": "/low",
    "image": "low",
    "namespace": "low",
    "service_account_name": "low",
    "priority_class_name": "low",
    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1"}},
    "labels": {"low": "low", "both": "low"},
    "annotations": {"low": "low", "both": "low"},
    "node_selector": {"low": "low", "both": "low"},
    "tolerations": [{"key": "low"}],
}
HIGH: dict[str, Any] = {
    "pod_template_file": "/high",
    "image": "high",
    "namespace": "high",
    "service_account_name": "high",
    "priority_class_name": "high",
    "resources": {"requests": {"cpu": "2"}, "limits": {"memory": "2Gi"}},
    "labels": {"high": "high", "both": "high"},
    "annotations": {"high": "high", "both": "high"},
    "node_selector": {"high": "high", "both": "high"},
    "tolerations": [{"key": "high"}],
}
COMBINED = {
    **HIGH,
    "resources": {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}},
    **{
        kind: {"low": "low", "both": "high", "high": "high"}
        for kind in ("labels", "annotations", "node_selector")
    },
}


@pytest.mark.parametrize("name", POD_OPTIONS)
def test_rule_wins_over_option(name: str) -> None:
    known = rules(json.dumps([{"match": {"callback": "*"}, "pod": {name: HIGH[name]}}]), **{name: LOW[name]})

    found = known.settings_for(SUBJECT).model_dump(by_alias=True, exclude_none=True)

    assert found[name] == COMBINED[name]


@pytest.mark.parametrize("name", POD_OPTIONS)
def test_option_holds_where_the_rule_is_silent(name: str) -> None:
    known = rules('[{"match": {"callback": "*"}, "pod": {}}]', **{name: LOW[name]})

    assert known.settings_for(SUBJECT) == PodSettings.model_validate({name: LOW[name]})


def test_author_wins_over_rule_and_option() -> None:
    known = rules(
        json.dumps(
            [{"match": {"callback": "*"}, "pod": {"resources": {"limits": {"memory": "2Gi", "cpu": "2"}}}}]
        ),
        resources={"limits": {"memory": "1Gi", "ephemeral-storage": "1Gi"}},
    )

    settings = known.settings_for(SUBJECT, AuthorOptions(resources=Resources(limits={"memory": "3Gi"})))

    assert settings.resources.limits == {"memory": "3Gi", "cpu": "2", "ephemeral-storage": "1Gi"}


def test_empty_tolerations_of_a_rule_take_those_of_the_options_away() -> None:
    known = rules('[{"match": {"callback": "*"}, "pod": {"tolerations": []}}]', tolerations=[{"key": "x"}])

    assert known.settings_for(SUBJECT).tolerations == []


def _settings(values: dict[str, Any]) -> PodSettings:
    return PodSettings.model_validate(values)


SOME_SETTINGS = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from([LOW[name], HIGH[name]]) for name in POD_OPTIONS}
).map(_settings)


@given(SOME_SETTINGS, SOME_SETTINGS, SOME_SETTINGS)
def test_merging_is_associative_and_has_a_neutral_element(
    a: PodSettings, b: PodSettings, c: PodSettings
) -> None:
    assert merged(merged(a, b), c) == merged(a, merged(b, c))
    assert merged(a, PodSettings()) == merged(PodSettings(), a) == a


def test_each_pod_option_is_an_option_of_the_section_and_a_setting() -> None:
    assert set(POD_OPTIONS) <= {option.name for option in OPTIONS}


def test_namespaces_and_templates_that_are_named_anywhere_are_known() -> None:
    known = rules(
        "[{match: {callback: '*'}, pod: {namespace: b, pod_template_file: /b}}, {name: x, pod: {namespace: c}}]",
        namespace="a",
        pod_template_file="/a",
    )

    assert known.namespaces == {"a", "b", "c"}
    assert known.template_files == {"/a", "/b"}


# What is refused, and where --------------------------------------------------------------------------

REFUSED = {
    "not YAML": ("- name: [", "line 1: this is not YAML"),
    "not YAML further down": ("- name: a\n  pod: {}\n- name: b\n\tpod: {}\n", "line 4: this is not YAML"),
    "a mapping": ("name: a", "line 1: the rules must be a list"),
    "a text": ("heavy", "the rules must be a list"),
    "a rule that is a text": ("- heavy\n", "line 1, at [0]: "),
    "unknown key of a rule": (
        "- name: a\n  pod: {}\n  pods: {}\n",
        "line 3, at [0].pods: there is no such key",
    ),
    "unknown kind of match": (
        "- pod: {}\n  match:\n    dag: x\n",
        "line 3, at [0].match.dag: there is no such key",
    ),
    "unknown setting": (
        "- match: {callback: '*'}\n  pod:\n    imge: x\n",
        "line 3, at [0].pod.imge: there is no such key",
    ),
    "missing pod": ("- name: a\n  pod: {}\n- name: b\n", "line 3, at [1].pod: field required"),
    "empty glob": ("- match: {dag_id: ''}\n  pod: {}\n", "line 1, at [0].match.dag_id"),
    "empty list of globs": ("- match: {dag_id: []}\n  pod: {}\n", "line 1, at [0].match.dag_id"),
    "number for a glob": ("- match: {dag_id: 7}\n  pod: {}\n", "line 1, at [0].match.dag_id"),
    "bad quantity": (
        "- match: {callback: '*'}\n  pod:\n    resources:\n      limits:\n        memory: 1 Gi\n",
        "line 5, at [0].pod.resources.limits.memory: '1 Gi' is not a quantity such as 500m or 1Gi",
    ),
    "bad resource name": (
        "- match: {callback: '*'}\n  pod:\n    resources:\n      limits:\n        'a b': 1\n",
        "line 5, at [0].pod.resources.limits.a b: 'a b' is not a legal label or annotation key",
    ),
    "bad namespace": (
        "- match: {callback: '*'}\n  pod:\n    namespace: Team_A\n",
        "line 3, at [0].pod.namespace: 'Team_A' is not",
    ),
    "bad service account": (
        "- match: {callback: '*'}\n  pod: {service_account_name: A}\n",
        "[0].pod.service_account_name",
    ),
    "bad image": ("- match: {callback: '*'}\n  pod: {image: 'a b'}\n", "'a b' is not the name of an image"),
    "bad label value": (
        "- match: {callback: '*'}\n  pod: {labels: {a: 'b c'}}\n",
        "[0].pod.labels.a: 'b c' is not a legal label",
    ),
    "bad label key": ("- match: {callback: '*'}\n  pod: {labels: {'-a': b}}\n", "'-a' is not a legal label"),
    "label of ours": (
        "- match: {callback: '*'}\n  pod:\n    labels:\n      airflow-worker: x\n",
        "line 3, at [0].pod.labels: airflow-worker: set by the executor, it identifies the pod",
    ),
    "label of the stock executor": (
        "- match: {callback: '*'}\n  pod: {labels: {kubernetes_executor: 'True'}}\n",
        "kubernetes_executor",
    ),
    "annotation of ours": (
        "- match: {callback: '*'}\n  pod: {annotations: {callback_id: x}}\n",
        "callback_id: set by the executor",
    ),
    "toleration that is a text": (
        "- match: {callback: '*'}\n  pod: {tolerations: [x]}\n",
        "[0].pod.tolerations[0]",
    ),
    "toleration with an unknown key": (
        "- match: {callback: '*'}\n  pod:\n    tolerations:\n    - key: a\n      efect: NoSchedule\n",
        "line 5, at [0].pod.tolerations[0].efect: there is no such key",
    ),
    "toleration with a name in another case": (
        "- match: {callback: '*'}\n  pod: {tolerations: [{key: a, effect: NoExecute, toleration_seconds: 5}]}\n",
        "line 2, at [0].pod.tolerations[0].toleration_seconds: there is no such key",
    ),
    "toleration with a bad operator": (
        "- match: {callback: '*'}\n  pod: {tolerations: [{key: a, operator: exists}]}\n",
        "line 2, at [0].pod.tolerations[0].operator: input should be 'Exists', 'Equal'",
    ),
    "toleration with an illegal key": (
        "- match: {callback: '*'}\n  pod: {tolerations: [{key: a b}]}\n",
        "line 2, at [0].pod.tolerations[0].key: 'a b' is not a legal label or annotation key",
    ),
    "toleration that does not fit together": (
        "- match: {callback: '*'}\n  pod:\n    tolerations:\n    - {key: a}\n    - {value: b}\n",
        "line 5, at [0].pod.tolerations[1]: a toleration without key needs the operator Exists",
    ),
    "match without conditions": (
        "- pod: {}\n  name: heavy\n  match: {}\n",
        "line 3, at [0].match: the rule 'heavy' has a match without conditions; write callback: \"*\" if",
    ),
    "match without conditions, in a rule without a name": (
        "- {name: a, pod: {}}\n- match: {}\n  pod: {}\n",
        "line 2, at [1].match: this rule has a match without conditions",
    ),
    "match without a value": (
        "- name: heavy\n  match:\n  #  dag_id: etl_*\n  pod: {}\n",
        "line 2, at [0].match: the rule 'heavy' has a match without conditions",
    ),
    "condition without a value": (
        "- name: heavy\n  match:\n    callback: a.*\n    dag_id:\n  pod: {}\n",
        "line 4, at [0].match.dag_id: the rule 'heavy' has a condition without a value; give it a glob",
    ),
    "condition of null in JSON": (
        '[{"match":\n {"team": null}, "pod": {}}]',
        "line 2, at [0].match.team: this rule has a condition without a value",
    ),
    "two rules of one name": (
        "- {name: a, pod: {}}\n- {name: a, pod: {}}\n",
        "line 2, at [1].name: there is already",
    ),
    "neither match nor name": ("- pod: {}\n", "line 1, at [0]: a rule needs a match, a name or both"),
    "a key twice": (
        "- match: {callback: '*'}\n  pod:\n    image: a\n    image: b\n",
        "line 4: the key 'image' stands here a second",
    ),
    "JSON": ('[\n {"match": {"callback": "*"},\n  "pod": {"image": 3}}\n]', "line 3, at [0].pod.image"),
}


@pytest.mark.parametrize(("text", "words"), REFUSED.values(), ids=REFUSED)
def test_error_names_line_and_key(text: str, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_rules(text, "rules.yaml")

    assert str(caught.value).startswith("rules.yaml, line ")
    assert words in str(caught.value)


@pytest.mark.parametrize("text", ["", "   ", "[]", "# nothing yet\n", "null"])
def test_no_rules(text: str) -> None:
    assert parse_rules(text, "rules") == ()


def test_numbers_are_taken_where_yaml_gives_numbers() -> None:
    (rule,) = parse_rules(
        "[{match: {callback: '*'}, pod: {resources: {requests: {cpu: 0.5, memory: 1Gi}, limits: {cpu: 1}},"
        " labels: {version: 3, enabled: true}, annotations: {inject: false}}}]",
        "rules",
    )

    assert rule.pod.resources.requests == {"cpu": "0.5", "memory": "1Gi"}
    assert rule.pod.resources.limits == {"cpu": "1"}
    assert rule.pod.labels == {"version": "3", "enabled": "true"}
    assert rule.pod.annotations == {"inject": "false"}


@pytest.mark.parametrize("quantity", ["1", "0.5", "500m", "1Gi", "1e3", "1.5G", "100Mi", ".5", "1E2", "0"])
def test_quantities(quantity: str) -> None:
    assert Resources(limits={"memory": quantity}).limits == {"memory": quantity}


@pytest.mark.parametrize("quantity", ["", "1 Gi", "Gi", "1gb", "one", "1Gi ", "-1", "1.2.3", True, None])
def test_bad_quantities(quantity: Any) -> None:
    with pytest.raises(ValueError, match="memory"):
        Resources.model_validate({"limits": {"memory": quantity}})


TOLERATIONS: dict[str, dict[str, Any]] = {
    "everything": {"operator": "Exists"},
    "everything, in full": {"key": "", "operator": "Exists", "value": "", "effect": ""},
    "key of any value": {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"},
    "key and value": {"key": "example.com/pool", "operator": "Equal", "value": "alerts"},
    "no operator is Equal": {"key": "dedicated", "value": "alerts", "effect": "PreferNoSchedule"},
    "empty operator is Equal": {"key": "dedicated", "operator": "", "value": "alerts"},
    "for a time": {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
}


@pytest.mark.parametrize("toleration", TOLERATIONS.values(), ids=TOLERATIONS)
def test_toleration_reaches_the_pod_as_it_is_written(toleration: dict[str, Any]) -> None:
    settings = PodSettings.model_validate({"tolerations": [toleration]})

    pod = as_json(construct_callback_pod(request(HELM, settings=settings)))

    assert pod["spec"]["tolerations"] == [toleration]


@pytest.mark.parametrize(
    ("value", "expected"), [(1, "1"), (True, "true"), (0.5, "0.5")], ids=["number", "boolean", "fraction"]
)
def test_value_of_a_toleration_may_be_what_yaml_makes_of_it(value: object, expected: str) -> None:
    settings = PodSettings.model_validate({"tolerations": [{"key": "a", "value": value}]})

    assert settings.tolerations is not None
    assert settings.tolerations[0].value == expected


BAD_TOLERATIONS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"operator": "Exists", "efect": "NoSchedule"}, "efect"),
    "name of the Python client": ({"operator": "Exists", "toleration_seconds": 1}, "toleration_seconds"),
    "operator in lower case": ({"key": "a", "operator": "exists"}, "operator"),
    "unknown operator": ({"key": "a", "operator": "In", "value": "b"}, "operator"),
    "unknown effect": ({"key": "a", "effect": "NoRun"}, "effect"),
    "effect in lower case": ({"key": "a", "effect": "noSchedule"}, "effect"),
    "illegal key": ({"key": "a b"}, "key"),
    "illegal value": ({"key": "a", "value": "b c"}, "value"),
    "seconds that are a text": (
        {"key": "a", "effect": "NoExecute", "tolerationSeconds": "60"},
        "tolerationSeconds",
    ),
    "seconds that are a fraction": (
        {"key": "a", "effect": "NoExecute", "tolerationSeconds": 1.5},
        "tolerationSeconds",
    ),
    "seconds that are a boolean": (
        {"key": "a", "effect": "NoExecute", "tolerationSeconds": True},
        "tolerationSeconds",
    ),
    "seconds without NoExecute": ({"key": "a", "tolerationSeconds": 60}, "needs the effect NoExecute"),
    "nothing": ({}, "needs the operator Exists"),
    "no key": ({"operator": "Equal", "value": "a"}, "needs the operator Exists"),
    "value that is not looked at": ({"key": "a", "operator": "Exists", "value": "b"}, "has no value"),
}


@pytest.mark.parametrize(("toleration", "words"), BAD_TOLERATIONS.values(), ids=BAD_TOLERATIONS)
def test_toleration_that_kubernetes_would_not_take_is_refused(toleration: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        PodSettings.model_validate({"tolerations": [toleration]})


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused_with_our_error(text: str) -> None:
    try:
        parse_rules(text, "rules")
    except SettingsError as error:
        assert str(error).startswith("rules")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("abc*", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "match", "pod", "image", "labels", "dag_id", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_document_is_read_or_refused_with_our_error(value: Any) -> None:
    try:
        parse_rules(yaml.safe_dump(value), "rules")
    except SettingsError as error:
        assert "line " in str(error)


def test_rules_file(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("- match: {dag_id: étl_*}\n  pod: {image: a}\n", encoding="utf-8")

    known = load_rules(replace(CallbackSettings(), rules_file=str(path)))

    assert known.settings_for(Subject("x", "étl_1")).image == "a"


def test_error_in_a_rules_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("- match: {callback: '*'}\n")

    with pytest.raises(SettingsError, match=rf"^{path}, line 1, at \[0\].pod: "):
        load_rules(replace(CallbackSettings(), rules_file=str(path)))


@pytest.mark.parametrize("content", [None, b"\xff\xfe"], ids=["absent", "not UTF-8"])
def test_rules_file_that_cannot_be_read(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(SettingsError, match=r"rules_file = .*cannot be read"):
        load_rules(replace(CallbackSettings(), rules_file=str(path)))


def test_rules_in_two_places_are_refused() -> None:
    with pytest.raises(SettingsError, match="both rules and rules_file"):
        load_rules(replace(CallbackSettings(), rules="[]", rules_file="x"))


BAD_OPTIONS = {
    "namespace": ({"namespace": "Team_A"}, r"\[kubernetes_callbacks\] namespace: 'Team_A' is not"),
    "resources": (
        {"resources": {"limit": {}}},
        r"\[kubernetes_callbacks\] resources.limit: there is no such key",
    ),
    "labels": ({"labels": {"a": "b c"}}, r"\[kubernetes_callbacks\] labels.a: 'b c' is not a legal label"),
    "annotations": ({"annotations": {"dag_id": "x"}}, r"annotations: dag_id: set by the executor"),
    "tolerations": (
        {"tolerations": [{"operator": "Exists"}, {"key": "a", "efect": "NoSchedule"}]},
        r"\[kubernetes_callbacks\] tolerations.1.efect: there is no such key. Correct or remove it.",
    ),
}


@pytest.mark.parametrize(("options", "words"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_error_names_the_option(options: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        rules("", **options)


# The Dag author's choice -----------------------------------------------------------------------------

CLASS, DATA = "__classname__", "__data__"

CHOICES: dict[str, tuple[Any, AuthorOptions]] = {
    "rule": ({"rule": "heavy"}, AuthorOptions(rule="heavy")),
    "rule in short": ("heavy", AuthorOptions(rule="heavy")),
    "resources": (
        {"resources": {"limits": {"memory": "1Gi", "cpu": 1.5}}},
        AuthorOptions(resources=Resources(limits={"memory": "1Gi", "cpu": "1.5"})),
    ),
    "both": (
        {"rule": "heavy", "resources": {"requests": {"cpu": 1}}},
        AuthorOptions(rule="heavy", resources=Resources(requests={"cpu": "1"})),
    ),
    "nothing": ({}, AuthorOptions()),
    "encoded": (
        {CLASS: "builtins.dict", "__version__": 1, DATA: {"rule": "heavy"}},
        AuthorOptions(rule="heavy"),
    ),
    "encoded in the old way": ({"__type": "dict", "__var": {"rule": "heavy"}}, AuthorOptions(rule="heavy")),
    "encoded inside": (
        {"resources": {CLASS: "builtins.dict", "__version__": 1, DATA: {"limits": {"cpu": 1}}}},
        AuthorOptions(resources=Resources(limits={"cpu": "1"})),
    ),
}


@pytest.mark.parametrize(("value", "options"), CHOICES.values(), ids=CHOICES)
def test_reserved_kwarg_is_taken_out(value: Any, options: AuthorOptions) -> None:
    data = {
        "path": "a.b",
        "kwargs": {"text": "x", RESERVED_KWARG: value, "context": {"dag_run": {}}},
        "dag_id": "d",
    }
    before = json.dumps(data)

    found, cleaned = split_reserved_kwarg(data)

    assert found == options
    assert cleaned == {"path": "a.b", "kwargs": {"text": "x", "context": {"dag_run": {}}}, "dag_id": "d"}
    assert json.dumps(data) == before


@pytest.mark.parametrize("wrapper", [(CLASS, DATA), ("__type", "__var")])
def test_reserved_kwarg_is_found_in_encoded_kwargs(wrapper: tuple[str, str]) -> None:
    kind, content = wrapper
    kwargs = {kind: "dict", content: {RESERVED_KWARG: "heavy", "text": "x"}}

    found, cleaned = split_reserved_kwarg({"kwargs": kwargs})

    assert found == AuthorOptions(rule="heavy")
    assert cleaned == {"kwargs": {kind: "dict", content: {"text": "x"}}}


@pytest.mark.parametrize("kwargs", [None, {}, {"text": "x"}, [], "text", {CLASS: "x", DATA: 3}], ids=repr)
def test_workload_without_the_kwarg_is_left_as_it_is(kwargs: Any) -> None:
    data = {"path": "a.b", "kwargs": kwargs}

    assert split_reserved_kwarg(data) == (None, data)
    assert split_reserved_kwarg({"path": "a.b"}) == (None, {"path": "a.b"})


WRONG_CHOICES = {
    "unknown key": ({"image": "x"}, "kubernetes_callback.image cannot be used: there is no such key"),
    "unknown key inside": (
        {"resources": {"limit": {}}},
        "kubernetes_callback.resources.limit cannot be used",
    ),
    "bad quantity": (
        {"resources": {"limits": {"memory": "much"}}},
        "kubernetes_callback.resources.limits.memory",
    ),
    "number": (3, "kubernetes_callback cannot be used"),
    "nothing": (None, "kubernetes_callback cannot be used"),
    "list": (["heavy"], "kubernetes_callback cannot be used"),
    "empty name": ("", "kubernetes_callback.rule cannot be used"),
}


@pytest.mark.parametrize(("value", "words"), WRONG_CHOICES.values(), ids=WRONG_CHOICES)
def test_wrong_choice_fails_the_launch_and_names_the_key(value: Any, words: str) -> None:
    with pytest.raises(LaunchError) as caught:
        split_reserved_kwarg({"kwargs": {RESERVED_KWARG: value}})

    assert words in str(caught.value)


RULE, RESOURCES = AuthorOptions(rule="a"), AuthorOptions(resources=Resources(limits={"cpu": "1"}))

PERMISSIONS = {
    "all: rule": ("all", RULE, True),
    "all: resources": ("all", RESOURCES, True),
    "rules: rule": ("rules", RULE, True),
    "rules: resources": ("rules", RESOURCES, False),
    "none: rule": ("none", RULE, False),
    "none: nothing asked": ("none", None, True),
}


@pytest.mark.parametrize(("setting", "options", "allowed"), PERMISSIONS.values(), ids=PERMISSIONS)
def test_author_settings_option(setting: str, options: AuthorOptions | None, allowed: bool) -> None:
    if allowed:
        assert permitted(options, setting) == options
    else:
        with pytest.raises(LaunchError, match=f"author_settings = {setting} does not allow"):
            permitted(options, setting)


def test_kwargs_that_airflow_stores_are_read() -> None:
    """The encoding is Airflow's own: plain on 3.3, with some values wrapped from 3.4 on."""
    sdk = pytest.importorskip("airflow.sdk.definitions.callback")
    models = pytest.importorskip("airflow.models.callback")
    if not hasattr(models, "ExecutorCallback"):
        pytest.skip("this Airflow has no executor callbacks")
    wanted = {"resources": {"limits": {"memory": "1Gi", "cpu": 1.5}}}
    definition = sdk.SyncCallback("json.dumps", kwargs={RESERVED_KWARG: wanted, "obj": {"a": (1, 2)}})

    options, cleaned = split_reserved_kwarg(models.Callback.create_from_sdk_def(definition).data)

    assert options == AuthorOptions(resources=Resources(limits={"memory": "1Gi", "cpu": "1.5"}))
    assert set(cleaned["kwargs"]) == {"obj"}


# Template files --------------------------------------------------------------------------------------

BAD_TEMPLATES = {
    "not YAML": ("a: [", "line 1 is not YAML"),
    "empty": ("", "holds no object of kind Pod"),
    "a list": ("[]", "holds no object of kind Pod"),
    "another kind": ("kind: Deployment", "holds no object of kind Pod"),
    "spec is a list": ("kind: Pod\nspec: []", "spec must be a mapping"),
    "containers is a text": ("kind: Pod\nspec: {containers: base}", "is not a pod"),
    "container is a text": ("kind: Pod\nspec: {containers: [base]}", "is not a pod"),
    "container without a name": ("kind: Pod\nspec: {containers: [{image: x}]}", "is not a pod"),
}


@pytest.mark.parametrize(("text", "words"), BAD_TEMPLATES.values(), ids=BAD_TEMPLATES)
def test_bad_template_fails_the_launch_and_names_the_file(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(text)

    with pytest.raises(LaunchError) as caught:
        load_template(str(path))

    assert str(path) in str(caught.value)
    assert words in str(caught.value)


def test_absent_template_fails_the_launch_and_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"No such file or directory.*pod_template_file"):
        load_template(str(tmp_path / "none.yaml"))


def test_template_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text("spec: {containers: [{name: base, image: one}]}")
    first = load_template(str(path))

    assert load_template(str(path)) is first
    path.write_text("spec: {containers: [{name: base, image: second}]}")
    assert load_template(str(path)).spec.containers[0].image == "second"


MISSPELT = """
kind: Pod
metadata: {lables: {a: b}, annotations: {any.key/goes: here}}
spec:
  nodeName:
  containers:
    - {name: first, image: x}
    - {name: base, image: x, resorces: {}, env: [{name: A, valeu: b}]}
"""


def test_misspelt_keys_of_a_template_are_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(MISSPELT)

    for _ in range(3):
        load_template(str(path))

    (record,) = [
        record for record in caplog.records if record.name.startswith("airflow_kubernetes_callbacks")
    ]
    assert record.getMessage().startswith(
        f"Pod template {path}: metadata.lables, spec.containers[1].env[0].valeu, spec.containers[1].resorces is left"
    )


def test_known_keys_of_a_template_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    parse_template(HELM, "t")

    assert not [record for record in caplog.records if record.name.startswith("airflow_kubernetes_callbacks")]


@given(JSON)
def test_any_template_is_read_or_refused_with_our_error(value: Any) -> None:
    try:
        parse_template(yaml.safe_dump({"kind": "Pod", "spec": value}), "t")
    except LaunchError as error:
        assert "'t'" in str(error)
