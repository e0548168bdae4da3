"""What a callback pod may be given by configuration: a checked value, and how two of them combine.

Pure. The same settings can come from the options of ``[kubernetes_callbacks]``, from a rule, and (in
part) from the Dag author; later ones win over earlier ones, see :func:`merged`.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict, model_validator

from airflow_kubernetes_callbacks import identity

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DNS_SUBDOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_KEY_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_QUANTITY = re.compile(r"\+?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+|[KMGTPE]i|[numkMGTPE])?")
_IMAGE = re.compile(r"[^\s]{1,1024}")


def _matching(pattern: re.Pattern[str], what: str) -> AfterValidator:
    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(f"{value!r} is not {what}")
        return value

    return AfterValidator(check)


def _quantity(value: object) -> object:
    """Accept ``cpu: 1`` and ``cpu: 0.5`` as YAML gives them: as numbers."""
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _scalar(value: object) -> object:
    """Accept numbers and booleans where Kubernetes wants texts, as people write them in YAML."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float)) else value


def _key(value: str) -> str:
    prefix, slash, name = value.rpartition("/")
    if not _KEY_NAME.fullmatch(name) or (slash and not _DNS_SUBDOMAIN.fullmatch(prefix)):
        raise ValueError(f"{value!r} is not a legal label or annotation key")
    return value


def _key_or_empty(value: str) -> str:
    return _key(value) if value else value


def _not_ours(value: dict[str, str]) -> dict[str, str]:
    if taken := sorted(value.keys() & identity.RESERVED_KEYS):
        raise ValueError(f"{', '.join(taken)}: set by the executor, it identifies the pod")
    return value


Namespace = Annotated[str, _matching(_DNS_LABEL, "a namespace's name (lower case, digits, '-', at most 63)")]
ObjectName = Annotated[str, _matching(_DNS_SUBDOMAIN, "the name of an object (lower case, digits, '-', '.')")]
Image = Annotated[str, _matching(_IMAGE, "the name of an image")]
Quantity = Annotated[str, BeforeValidator(_quantity), _matching(_QUANTITY, "a quantity such as 500m or 1Gi")]
MetadataKey = Annotated[str, AfterValidator(_key)]
LabelValue = Annotated[str, BeforeValidator(_scalar), _matching(_LABEL_VALUE, "a legal label value")]
AnnotationValue = Annotated[str, BeforeValidator(_scalar)]
FilePath = Annotated[str, Field(min_length=1)]


class _Checked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Resources(_Checked):
    """Requests and limits of the base container."""

    requests: dict[MetadataKey, Quantity] = Field(default_factory=dict)
    limits: dict[MetadataKey, Quantity] = Field(default_factory=dict)


class Toleration(_Checked):
    """A toleration with the names of Kubernetes; what its API server would refuse is refused here."""

    key: Annotated[str, AfterValidator(_key_or_empty)] | None = None
    operator: Literal["Exists", "Equal", ""] | None = None
    value: LabelValue | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute", ""] | None = None
    toleration_seconds: Annotated[int, Strict()] | None = Field(default=None, alias="tolerationSeconds")

    @model_validator(mode="after")
    def _fits_together(self) -> Toleration:
        if not self.key and self.operator != "Exists":
            raise ValueError("a toleration without key needs the operator Exists")
        if self.operator == "Exists" and self.value:
            raise ValueError("a toleration with the operator Exists has no value")
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            raise ValueError("tolerationSeconds needs the effect NoExecute")
        return self


class PodSettings(_Checked):
    """Settings of a callback pod; what is None or empty is left as the template has it."""

    pod_template_file: FilePath | None = None
    image: Image | None = None
    namespace: Namespace | None = None
    service_account_name: ObjectName | None = None
    priority_class_name: ObjectName | None = None
    resources: Resources = Field(default_factory=Resources)
    labels: Annotated[dict[MetadataKey, LabelValue], AfterValidator(_not_ours)] = Field(default_factory=dict)
    annotations: Annotated[dict[MetadataKey, AnnotationValue], AfterValidator(_not_ours)] = Field(
        default_factory=dict
    )
    node_selector: dict[MetadataKey, LabelValue] = Field(default_factory=dict)
    tolerations: list[Toleration] | None = None


def merged(under: PodSettings, over: PodSettings) -> PodSettings:
    """Return *under* with everything that *over* sets.

    Single values and tolerations replace; labels, annotations, node selector, requests and limits are
    combined key by key, and where both set a key, *over* has it.
    """
    single = {
        name: getattr(over, name) if getattr(over, name) is not None else getattr(under, name)
        for name in (
            "pod_template_file",
            "image",
            "namespace",
            "service_account_name",
            "priority_class_name",
            "tolerations",
        )
    }
    return PodSettings.model_construct(
        **single,
        labels={**under.labels, **over.labels},
        annotations={**under.annotations, **over.annotations},
        node_selector={**under.node_selector, **over.node_selector},
        resources=Resources.model_construct(
            requests={**under.resources.requests, **over.resources.requests},
            limits={**under.resources.limits, **over.resources.limits},
        ),
    )
