from __future__ import annotations

import re
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kubernetes_callbacks.identity import (
    ATTEMPT_LABEL,
    CALLBACK_ID_ANNOTATION,
    CALLBACK_ID_LABEL,
    DAG_ID_LABEL,
    DONE_LABEL,
    EXECUTOR_LABEL,
    MAX_LABEL_LENGTH,
    OWNER_LABEL,
    RESULT_FINALIZER,
    RUN_ID_LABEL,
    TEAM_LABEL,
    WORKLOAD_TYPE_LABEL,
    callback_id_of,
    callback_selector,
    holder_of,
    label_value,
    pod_name,
)

ID = "0192f3a4-5b6c-7d8e-9fa0-b1c2d3e4f506"

# As the API server checks them (apimachinery, util/validation).
LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
LABEL_KEY = re.compile(r"([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")

any_text = st.text(alphabet=st.characters(codec=None, categories=None))


def is_label_value(text: str) -> bool:
    return len(text) <= MAX_LABEL_LENGTH and LABEL_VALUE.fullmatch(text) is not None


class TestLabelValue:
    @pytest.mark.parametrize(
        "value",
        [
            pytest.param("example", id="plain"),
            pytest.param("a", id="one-character"),
            pytest.param("A.b_c-9", id="every-legal-character"),
            pytest.param("x" * 63, id="at-the-limit"),
            pytest.param(ID, id="uuid"),
        ],
    )
    def test_legal_value_is_kept(self, value):
        assert label_value(value) == value

    @pytest.mark.parametrize(
        "value",
        [
            pytest.param("", id="empty"),
            pytest.param("x" * 64, id="one-too-long"),
            pytest.param("d" * 250, id="long-dag-id"),
            pytest.param("manual__2026-06-07T01:50:23.457423+00:00_x/y", id="run-id"),
            pytest.param("x" * 52 + "." + "y" * 40, id="cut-at-a-dot"),
            pytest.param("x" * 52 + "-" * 40, id="cut-at-a-dash"),
            pytest.param("x" * 62 + ".", id="ends-with-a-dot-at-the-limit"),
            pytest.param("a;b=c", id="separators"),
            pytest.param("-edge-", id="illegal-edges"),
            pytest.param("---", id="edges-only"),
            pytest.param("日本語", id="no-ascii"),
            pytest.param("🚀", id="emoji"),
            pytest.param("équipe", id="accent"),
            pytest.param("\ud800", id="lone-surrogate"),
            pytest.param("a\nb", id="newline"),
            pytest.param("a\n", id="trailing-newline"),
        ],
    )
    def test_illegal_value_becomes_legal(self, value):
        assert is_label_value(label_value(value))

    def test_what_is_legal_stays_readable(self):
        assert label_value("my dag/with slashes").startswith("my-dag-with-slashes-")

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            pytest.param("a/b", "a:b", id="differ-in-illegal-characters"),
            pytest.param("x" * 100, "x" * 101, id="differ-beyond-the-limit"),
            pytest.param("日", "本", id="nothing-legal"),
            pytest.param("a/b", "a-b", id="one-is-legal"),
        ],
    )
    def test_different_values_stay_apart(self, one, other):
        assert label_value(one) != label_value(other)

    @given(any_text)
    def test_any_text_becomes_legal(self, value):
        assert is_label_value(label_value(value))

    @given(any_text)
    def test_result_is_a_fixed_point(self, value):
        once = label_value(value)
        assert label_value(once) == once or once == ""

    @given(any_text)
    def test_same_value_gives_same_label(self, value):
        assert label_value(value) == label_value(value)

    @given(any_text, any_text)
    def test_distinct_texts_give_distinct_labels(self, one, other):
        if one != other:
            assert label_value(one) != label_value(other)


class TestNames:
    @given(st.uuids(), st.integers(min_value=0, max_value=10_000_000))
    def test_pod_name_is_a_dns_label_and_tells_id_and_attempt(self, callback_id, attempt):
        name = pod_name(str(callback_id), attempt)
        assert len(name) <= 63
        assert DNS_LABEL.fullmatch(name)
        assert name == f"callback-{callback_id}-{attempt}"

    def test_names_of_two_attempts_differ(self):
        assert pod_name(ID, 1) != pod_name(ID, 2)

    @pytest.mark.parametrize(
        "key",
        [
            OWNER_LABEL, WORKLOAD_TYPE_LABEL, CALLBACK_ID_LABEL, ATTEMPT_LABEL, EXECUTOR_LABEL,
            TEAM_LABEL, DAG_ID_LABEL, RUN_ID_LABEL, DONE_LABEL, CALLBACK_ID_ANNOTATION, RESULT_FINALIZER,
        ],
    )  # fmt: skip
    def test_keys_are_legal(self, key):
        assert LABEL_KEY.fullmatch(key)
        assert len(key.rpartition("/")[2]) <= MAX_LABEL_LENGTH


class TestCallbackId:
    @pytest.mark.parametrize(
        "value",
        [
            pytest.param(ID, id="canonical"),
            pytest.param(ID.upper(), id="upper-case"),
            pytest.param(ID.replace("-", ""), id="without-dashes"),
            pytest.param("{" + ID + "}", id="braces"),
        ],
    )
    def test_id_is_read_in_canonical_form(self, value):
        assert callback_id_of({"annotations": {CALLBACK_ID_ANNOTATION: value}}) == ID

    @pytest.mark.parametrize(
        "metadata",
        [
            pytest.param({}, id="no-annotations"),
            pytest.param({"annotations": None}, id="annotations-null"),
            pytest.param({"annotations": {}}, id="no-callback-id"),
            pytest.param({"annotations": "callback_id"}, id="annotations-text"),
            pytest.param({"annotations": ["callback_id"]}, id="annotations-list"),
            pytest.param({"annotations": {CALLBACK_ID_ANNOTATION: None}}, id="null"),
            pytest.param({"annotations": {CALLBACK_ID_ANNOTATION: 5}}, id="number"),
            pytest.param({"annotations": {CALLBACK_ID_ANNOTATION: ""}}, id="empty"),
            pytest.param({"annotations": {CALLBACK_ID_ANNOTATION: "not a uuid"}}, id="other-text"),
            pytest.param({"annotations": {CALLBACK_ID_ANNOTATION: ID[:-1]}}, id="cut"),
            pytest.param({"labels": {CALLBACK_ID_LABEL: ID}}, id="label-only"),
        ],
    )
    def test_pod_of_something_else_has_no_callback_id(self, metadata):
        assert callback_id_of(metadata) is None

    json_values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    )

    @given(json_values)
    def test_nothing_in_an_annotation_raises(self, value):
        found = callback_id_of({"annotations": {CALLBACK_ID_ANNOTATION: value}})
        assert found is None or UUID(found)


@pytest.mark.parametrize(
    ("metadata", "holder"),
    [
        ({"annotations": {"callback_id": ID}}, ID),
        ({"annotations": {"callback_id": ID}, "labels": {"callback-id": "x"}}, ID),
        ({"labels": {"callback-id": ID}}, ID),
        ({"labels": {"callback-id": "x"}}, ""),
        ({"labels": None, "annotations": None}, ""),
        ({}, ""),
    ],
    ids=["annotation", "both", "label", "label-that-is-no-id", "neither", "nothing"],
)
def test_pod_is_its_callbacks_by_annotation_or_label(metadata, holder):
    assert holder_of(metadata) == holder


class TestSelector:
    def test_pods_that_are_done_are_left_out_by_the_server(self):
        assert callback_selector() == "airflow-workload-type=callback,airflow_executor_done!=True"

    def test_other_workload_type(self):
        assert callback_selector(workload_type="connection-test").startswith(
            "airflow-workload-type=connection-test,"
        )

    def test_ids_are_sorted_so_that_equal_questions_are_equal_texts(self):
        assert callback_selector(callback_ids=["b", "a"]).endswith(",callback-id in (a,b)")
        assert callback_selector(callback_ids={"b", "a"}) == callback_selector(callback_ids=["a", "b"])
