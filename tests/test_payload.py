"""How a workload travels: sizes in bytes at each limit, and what the Secret looks like."""

from __future__ import annotations

import base64
import re
import subprocess
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kubernetes_callbacks.errors import LaunchError, PayloadTooLargeError
from airflow_kubernetes_callbacks.payload import (
    MAX_ARGUMENT_BYTES,
    MAX_SECRET_BYTES,
    WORKLOAD_PATH,
    ArgumentPayload,
    SecretPayload,
    construct_payload_secret,
    escaped,
    plan_payload,
    size_in_bytes,
    unescaped,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

ARGUMENT, SECRET, TOO_LARGE = ArgumentPayload, SecretPayload, PayloadTooLargeError
Delivery = Literal["auto", "secret", "argument"]

#: What etcd takes in one request, by default.
ETCD_REQUEST_BYTES = 1_572_864

#: D1: texts whose characters and bytes differ.
TWO_BYTES = "é" * 70_000
QUOTES = '"' * 200_000

PLANS: dict[str, tuple[str, Delivery, bool, type]] = {
    "auto, Secrets allowed": ("{}", "auto", True, SECRET),
    "auto, Secrets not allowed": ("{}", "auto", False, ARGUMENT),
    "secret, whatever is allowed": ("{}", "secret", False, SECRET),
    "argument, although Secrets are allowed": ("{}", "argument", True, ARGUMENT),
    "argument, one byte under": ("x" * (MAX_ARGUMENT_BYTES - 1), "argument", True, ARGUMENT),
    "argument, at the limit": ("x" * MAX_ARGUMENT_BYTES, "argument", True, ARGUMENT),
    "argument, one byte over": ("x" * (MAX_ARGUMENT_BYTES + 1), "argument", True, TOO_LARGE),
    "argument, fewer characters than bytes": (TWO_BYTES, "argument", True, TOO_LARGE),
    "auto without Secrets, one byte over": ("x" * (MAX_ARGUMENT_BYTES + 1), "auto", False, TOO_LARGE),
    "auto, over the argument's limit": ("x" * (MAX_ARGUMENT_BYTES + 1), "auto", True, SECRET),
    "auto, fewer characters than bytes": (TWO_BYTES, "auto", True, SECRET),
    "auto, quotes": (QUOTES, "auto", True, SECRET),
    "secret, one byte under": ("x" * (MAX_SECRET_BYTES - 1), "secret", True, SECRET),
    "secret, at the limit": ("x" * MAX_SECRET_BYTES, "secret", True, SECRET),
    "secret, one byte over": ("x" * (MAX_SECRET_BYTES + 1), "secret", True, TOO_LARGE),
    "secret, last character over": ("x" * (MAX_SECRET_BYTES - 1) + "é", "secret", True, TOO_LARGE),
    "auto, over every limit (D2)": ("x" * 2_000_000, "auto", True, TOO_LARGE),
    "argument, at the limit as the process gets it": ("$" * MAX_ARGUMENT_BYTES, "argument", True, ARGUMENT),
    "argument, one dollar over": ("$" * (MAX_ARGUMENT_BYTES + 1), "argument", True, TOO_LARGE),
}


@pytest.mark.parametrize(("text", "delivery", "allowed", "result"), PLANS.values(), ids=PLANS)
def test_plan(text: str, delivery: Delivery, allowed: bool, result: type) -> None:
    if result is PayloadTooLargeError:
        with pytest.raises(PayloadTooLargeError):
            plan_payload(text, delivery, secrets_allowed=allowed)
    else:
        payload = plan_payload(text, delivery, secrets_allowed=allowed)
        assert type(payload) is result
        assert payload.text == text


MESSAGES: dict[str, tuple[int, Delivery, bool, tuple[str, ...]]] = {
    "argument": (
        140_000,
        "argument",
        True,
        ("140,000 bytes", "131,071", "payload_delivery = auto", "1,048,576"),
    ),
    "auto without Secrets": (140_000, "auto", False, ("140,000", "service account", "create Secrets")),
    "secret": (
        2_000_000,
        "secret",
        True,
        ("2,000,000 bytes", "a Secret carries at most 1,048,576", "Pass less"),
    ),
    "argument, and no Secret would do": (2_000_000, "argument", True, ("argument", "Pass less")),
}


@pytest.mark.parametrize(("size", "delivery", "allowed", "words"), MESSAGES.values(), ids=MESSAGES)
def test_message_has_sizes_and_a_remedy(
    size: int, delivery: Delivery, allowed: bool, words: tuple[str, ...]
) -> None:
    with pytest.raises(PayloadTooLargeError) as caught:
        plan_payload("x" * size, delivery, secrets_allowed=allowed)

    for word in words:
        assert word in str(caught.value)
    assert isinstance(caught.value, LaunchError)


def test_kernel_executes_an_argument_at_the_limit_and_refuses_the_next() -> None:
    at_limit = ["true", "x" * MAX_ARGUMENT_BYTES]
    assert subprocess.run(at_limit, check=False).returncode == 0
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run(["true", "x" * (MAX_ARGUMENT_BYTES + 1)], check=False)


def test_commands() -> None:
    module = ["python", "-m", "airflow.sdk.execution_time.execute_workload"]

    assert ArgumentPayload("{}").command == [*module, "--json-string", "{}"]
    assert SecretPayload("{}").command == [*module, "--json-path", WORKLOAD_PATH]


def as_the_kubelet_expands(argument: str, variables: Mapping[str, str]) -> str:
    """Expand an argument by the rules of ``k8s.io/kubernetes/third_party/forked/golang/expansion``."""

    def expand(match: re.Match[str]) -> str:
        name = match["name"]
        return "$" if name is None else variables.get(name, match[0])

    return re.sub(r"\$(?:\$|\((?P<name>[^)]*)\))", expand, argument)


VARIABLES = {"HOME": "/root", "A": "$$(A)"}


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("cost $5", "cost $5"),
        ("cost $$5", "cost $5"),
        ("$(HOME)", "/root"),
        ("$$(HOME)", "$(HOME)"),
        ("$$$(HOME)", "$/root"),
        ("$(ABSENT) $(A) $(HOME", "$(ABSENT) $$(A) $(HOME"),
    ],
    ids=["lone", "doubled", "defined", "escaped", "doubled-then-defined", "undefined-and-open"],
)
def test_expansion_of_these_tests_is_that_of_kubernetes(argument: str, expected: str) -> None:
    assert as_the_kubelet_expands(argument, VARIABLES) == expected


ARGUMENTS = {
    "dollars": "cost $$5, $5, $$$",
    "defined variable": '{"text": "in $(HOME) and $$(HOME) and $$$(HOME)"}',
    "variable that is not defined": "$(ABSENT) ${HOME} $HOME",
    "variable whose value is to be expanded": "$(A)",
    "open and empty": "$( $() $(HOME $",
}


@pytest.mark.parametrize("text", ARGUMENTS.values(), ids=ARGUMENTS)
def test_process_gets_the_text_that_kubernetes_would_rewrite(text: str) -> None:
    argument = ArgumentPayload(text).command[-1]

    assert as_the_kubelet_expands(argument, VARIABLES) == text
    assert unescaped(argument) == text


@given(st.text(st.sampled_from("$()HOMEA ")) | st.text(st.characters(exclude_categories=["Cs"])))
def test_process_gets_any_text_unchanged(text: str) -> None:
    assert as_the_kubelet_expands(escaped(text), VARIABLES) == text
    assert unescaped(escaped(text)) == text


def test_largest_argument_stays_far_below_what_the_api_server_stores() -> None:
    largest = ArgumentPayload("$" * MAX_ARGUMENT_BYTES).command[-1]

    assert size_in_bytes(largest) == 2 * MAX_ARGUMENT_BYTES < ETCD_REQUEST_BYTES // 4


@pytest.mark.parametrize(
    "payload", [ArgumentPayload("secret"), SecretPayload("secret")], ids=lambda p: type(p).__name__
)
def test_text_is_not_in_the_repr(payload: ArgumentPayload | SecretPayload) -> None:
    assert "secret" not in repr(payload).lower().replace("secretpayload", "")
    assert "secret" not in f"{payload}".lower().replace("secretpayload", "")


def secret(text: str) -> dict[str, Any]:
    return construct_payload_secret(
        SecretPayload(text), namespace="airflow", labels={"a": "b"}, pod_name="callback-1", pod_uid="u-1"
    )


def test_secret_belongs_to_its_pod() -> None:
    assert secret("{}") == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "callback-1",
            "namespace": "airflow",
            "labels": {"a": "b"},
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": "callback-1",
                    "uid": "u-1",
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "type": "Opaque",
        "immutable": True,
        "data": {"workload.json": "e30="},
    }


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_secret_carries_the_text_unchanged(text: str) -> None:
    data = base64.b64decode(secret(text)["data"]["workload.json"])

    assert data.decode() == text
    assert len(data) == size_in_bytes(text)
