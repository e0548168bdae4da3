from __future__ import annotations

from dataclasses import asdict, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kubernetes_callbacks.errors import CallbackPodsError, SettingsError
from airflow_kubernetes_callbacks.settings import OPTIONS, SECTION, CallbackSettings, load_settings


class Conf:
    """Airflow's configuration, as far as it is read here."""

    def __init__(self, **values):
        self.values = values

    def get(self, section, key, *, fallback):
        assert section == SECTION
        return self.values.get(key, fallback)


#: What a user gets who configures nothing. A change here is a change for every user.
DEFAULTS = {
    "reconcile_interval": 30.0,
    "launch_concurrency": 16,
    "launch_retries": 3,
    "create_retries": 12,
    "launch_retry_delay": 10.0,
    "launch_retry_max_delay": 300.0,
    "pending_timeout": 300.0,
    "start_error_grace": 60.0,
    "node_lost_timeout": 300.0,
    "pod_finalizer": False,
    "pod_template_file": "",
    "image": "",
    "namespace": "",
    "service_account_name": "",
    "priority_class_name": "",
    "resources": {},
    "labels": {},
    "annotations": {},
    "node_selector": {},
    "tolerations": [],
    "rules": "",
    "rules_file": "",
    "author_settings": "all",
    "security_context": "restricted",
    "service_account_token": False,
    "active_deadline_margin": 60.0,
    "payload_delivery": "auto",
    "connections_and_variables": True,
    "max_active_callbacks": 0,
    "save_logs": True,
    "log_limit_bytes": 1048576,
}


def test_defaults_are_the_documented_ones():
    assert asdict(load_settings(Conf())) == DEFAULTS


def test_defaults_of_options_and_of_dataclass_agree():
    assert load_settings(Conf()) == CallbackSettings()


def test_every_option_has_a_field_and_every_field_an_option():
    assert {option.name for option in OPTIONS} == {field.name for field in fields(CallbackSettings)}


def test_default_is_used_for_an_option_without_a_value():
    assert load_settings(Conf(launch_retries=None)).launch_retries == 3


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        pytest.param("reconcile_interval", "1", 1.0, id="seconds-at-minimum"),
        pytest.param("reconcile_interval", " 2.5 ", 2.5, id="seconds-with-fraction-and-spaces"),
        pytest.param("start_error_grace", "0", 0.0, id="seconds-zero"),
        pytest.param("launch_concurrency", "1", 1, id="count-at-minimum"),
        pytest.param("launch_retries", "0", 0, id="count-zero"),
        pytest.param("pod_finalizer", "true", True, id="boolean-lower-case"),
        pytest.param("pod_finalizer", " YES ", True, id="boolean-word-with-spaces"),
        pytest.param("pod_finalizer", "0", False, id="boolean-digit"),
        pytest.param("pod_finalizer", "off", False, id="boolean-off"),
        pytest.param("image", "  alerts:1  ", "alerts:1", id="text-with-spaces"),
        pytest.param("payload_delivery", "Secret", "secret", id="choice-in-another-case"),
        pytest.param("labels", '{"team": "platform"}', {"team": "platform"}, id="json-object"),
        pytest.param("labels", " ", {}, id="json-object-blank"),
        pytest.param("tolerations", '[{"operator": "Exists"}]', [{"operator": "Exists"}], id="json-list"),
    ],
)
def test_value_is_parsed(option, text, value):
    assert getattr(load_settings(Conf(**{option: text})), option) == value


@pytest.mark.parametrize(
    ("option", "text", "expected"),
    [
        pytest.param("reconcile_interval", "0.5", "at least 1", id="seconds-below-minimum"),
        pytest.param("reconcile_interval", "nan", "at least 1", id="seconds-nan"),
        pytest.param("reconcile_interval", "inf", "at least 1", id="seconds-infinite"),
        pytest.param("pending_timeout", "5m", "5m", id="seconds-with-unit"),
        pytest.param("launch_retry_delay", "-1", "at least 0", id="seconds-negative"),
        pytest.param("launch_concurrency", "0", "at least 1", id="count-below-minimum"),
        pytest.param("launch_retries", "-1", "at least 0", id="count-negative"),
        pytest.param("launch_retries", "1.5", "1.5", id="count-with-fraction"),
        pytest.param("launch_retries", "", "''", id="count-empty"),
        pytest.param("pod_finalizer", "maybe", "True or False", id="boolean-other-word"),
        pytest.param("payload_delivery", "configmap", "auto, secret, argument", id="choice-unknown"),
        pytest.param("labels", "team=platform", "is not JSON", id="json-other-syntax"),
        pytest.param("labels", '["team"]', "an object", id="json-list-for-object"),
        pytest.param("labels", "null", "an object", id="json-null"),
        pytest.param("tolerations", '{"operator": "Exists"}', "a list", id="json-object-for-list"),
        pytest.param("labels", '{"a": NaN}', "is not JSON (NaN", id="json-nan"),
        pytest.param("annotations", '{"a": -Infinity}', "is not JSON (-Infinity", id="json-infinity"),
        pytest.param("resources", '{"limits": {"cpu": 1e999}}', "(1e999", id="json-number-too-large"),
        pytest.param("resources", "[" * 100_000, "is not JSON", id="json-nested-too-deep"),
        pytest.param("labels", '{"a":' * 100_000, "is not JSON", id="json-object-nested-too-deep"),
    ],
)
def test_bad_value_is_refused_with_option_value_and_remedy(option, text, expected):
    with pytest.raises(SettingsError) as caught:
        load_settings(Conf(**{option: text}))
    message = str(caught.value)
    assert f"[kubernetes_callbacks] {option} = {text!r}" in message
    assert expected in message
    assert f"AIRFLOW__KUBERNETES_CALLBACKS__{option.upper()}" in message
    assert isinstance(caught.value.__cause__, ValueError)
    assert isinstance(caught.value, CallbackPodsError)


@given(option=st.sampled_from([option.name for option in OPTIONS]), text=st.text())
def test_any_text_gives_settings_or_a_settings_error(option, text):
    try:
        settings = load_settings(Conf(**{option: text}))
    except SettingsError as error:
        assert option in str(error)
    else:
        assert isinstance(settings, CallbackSettings)


def test_airflow_configuration_gives_the_same_defaults(monkeypatch):
    from airflow.configuration import conf

    monkeypatch.setenv("AIRFLOW__KUBERNETES_CALLBACKS__LAUNCH_RETRIES", "9")
    assert asdict(load_settings(conf)) == {**DEFAULTS, "launch_retries": 9}
