"""The judgements of ``check``: facts in, findings out. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_kubernetes_callbacks.cli.cluster import Clocks


class Level(str, Enum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found, and what to do about it."""

    check: str
    level: Level
    what: str
    remedy: str | None = None


#: Checks that need the Kubernetes API, and those that need settings which can be used.
NEED_API = ("clock", "namespaces", "access", "pod", "image", "execution API", "admission", "token lifetime")
NEED_SETTINGS = ("pod templates", "token key", "Kubernetes API", *NEED_API)


def skipped(checks: Iterable[str], why: str) -> list[Finding]:
    """Return that these checks were not made."""
    return [Finding(check, Level.SKIPPED, f"not looked at: {why}") for check in checks]


class Access(NamedTuple):
    """One thing that the scheduler's service account has to be allowed."""

    verb: str
    resource: str
    subresource: str | None
    #: Without it callbacks do not run; else something else is lost, which ``purpose`` says.
    needed: bool
    purpose: str

    @property
    def target(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


_POD_ACCESS = (
    Access("create", "pods", None, True, "launching callbacks"),
    Access("get", "pods", None, True, "telling a pod that moved from one that is gone"),
    Access("list", "pods", None, True, "the regular comparison of pods with rows"),
    Access("watch", "pods", None, True, "learning results at once"),
    Access("patch", "pods", None, True, "taking over the pods of a scheduler that died"),
    Access("delete", "pods", None, True, "removing finished pods"),
    Access("get", "pods", "log", False, "logs after the end, and the reason of a failure"),
    Access("list", "events", None, False, "Kubernetes' own words on why a pod does not start"),
)


def needed_access(payload_delivery: str) -> tuple[Access, ...]:
    """Return what the scheduler's service account needs, given how the workload travels."""
    if payload_delivery == "argument":
        return _POD_ACCESS
    needed = payload_delivery == "secret"
    purpose = "keeping token and kwargs out of the pod's spec"
    return (*_POD_ACCESS, Access("create", "secrets", None, needed, purpose))


def judge_access(namespace: str | None, asked: Sequence[Access], missing: Sequence[Access]) -> list[Finding]:
    """Return what the missing permissions in a namespace mean; None is every namespace."""
    where = f"namespace {namespace}" if namespace else "all namespaces"
    if not missing:
        return [Finding(f"access in {where}", Level.OK, f"all {len(asked)} permissions are granted")]
    return [
        Finding(
            f"access in {where}",
            Level.FAILED if access.needed else Level.WARNING,
            f"not allowed: {access.verb} {access.target}, for {access.purpose}",
            "Grant the Role below to the scheduler's service account.",
        )
        for access in missing
    ]


def role_yaml(namespace: str | None, asked: Sequence[Access]) -> str:
    """Return the Role that grants all of *asked*; a ClusterRole where that is every namespace."""
    verbs: dict[str, list[str]] = {}
    for access in asked:
        verbs.setdefault(access.target, []).append(access.verb)
    rules = "".join(
        f'  - apiGroups: [""]\n    resources: ["{target}"]\n    verbs: [{", ".join(of_target)}]\n'
        for target, of_target in verbs.items()
    )
    kind = "Role" if namespace else "ClusterRole"
    where = f"  namespace: {namespace}\n" if namespace else ""
    return (
        f"apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata:\n"
        f"  name: airflow-callback-launcher\n{where}rules:\n{rules}"
    )


def judge_clocks(clocks: Clocks | None, leeway: float) -> Finding:
    """Return what the difference between this clock and the API server's means for tokens."""
    if clocks is None:
        return Finding("clock", Level.SKIPPED, "the API server does not tell its time")
    off = max(0.0, abs(clocks.ahead) - clocks.uncertainty)
    direction = "behind" if clocks.ahead > 0 else "ahead of"
    text = f"this clock is {abs(clocks.ahead):.1f} s {direction} the API server's (measured to {clocks.uncertainty:.1f} s)"
    remedy = (
        f"Tokens are refused when clocks differ by more than [api_auth] jwt_leeway ({leeway:g} s): synchronise the "
        "clocks of the nodes (NTP)."
    )
    if off > leeway:
        return Finding("clock", Level.FAILED, text, remedy)
    if off > leeway / 2:
        return Finding("clock", Level.WARNING, text, remedy)
    return Finding(
        "clock",
        Level.OK,
        f"differs from the API server's by less than {off + clocks.uncertainty + 0.1:.1f} s",
    )


def judge_namespace(name: str, exists: bool | None) -> Finding:
    if exists is None:
        return Finding(
            f"namespace {name}", Level.SKIPPED, "this account may not ask; the trial creation below tells"
        )
    if exists:
        return Finding(f"namespace {name}", Level.OK, "exists")
    return Finding(
        f"namespace {name}",
        Level.FAILED,
        "does not exist",
        f"kubectl create namespace {name}, or correct the configuration.",
    )


_VERSION = re.compile(r"(?:^|[^0-9.])v?(\d+)\.(\d+)(?:\.\d+)?")
_PULLED_EVERY_TIME = ("latest", "")


def judge_image(image: str | None, airflow_version: str, *, what: str) -> list[Finding]:
    """Return whether the image goes with this Airflow, as far as its name tells."""
    check = f"image for {what}"
    if not image:
        return [Finding(check, Level.FAILED, "there is none", "Set [kubernetes_callbacks] image.")]
    tag = image_tag(image)
    running = tuple(int(part) for part in re.findall(r"\d+", airflow_version)[:2])
    remedy = (
        f"Callbacks need a worker image with the scheduler's own Airflow, {running[0]}.{running[1]}: tokens and "
        "kwargs of another minor version do not work."
    )
    match = _VERSION.search(tag)
    found = (int(match[1]), int(match[2])) if match else None
    if found == running:
        return [Finding(check, Level.OK, f"{image} names the scheduler's version")]
    if found is not None and found[0] in (2, 3) and "airflow" in image.rpartition("/")[2]:
        return [Finding(check, Level.FAILED, f"{image} names Airflow {found[0]}.{found[1]}", remedy)]
    findings = [Finding(check, Level.SKIPPED, f"{image}: its name does not tell the Airflow version", remedy)]
    if tag in _PULLED_EVERY_TIME and "@" not in image:
        findings.append(
            Finding(
                check,
                Level.WARNING,
                f"{image} is a moving tag: workers change without the scheduler",
                "Pin the image to a version or a digest.",
            )
        )
    return findings


def image_tag(image: str) -> str:
    """Return the tag of an image's name; empty if it has none."""
    name = image.partition("@")[0].rpartition("/")[2]
    return name.partition(":")[2]


def judge_token_key(*, secret_source: str | None, private_key: bool) -> Finding:
    """Return whether the API server can accept the scheduler's tokens.

    :param secret_source: where ``jwt_secret`` comes from; None for a default that each process makes up.
    """
    if private_key or secret_source:
        what = "a private key" if private_key else f"jwt_secret, from {secret_source}"
        return Finding("token key", Level.OK, what)
    return Finding(
        "token key",
        Level.FAILED,
        "[api_auth] jwt_secret is not set: every process makes up its own, and the API server refuses "
        "the scheduler's tokens",
        "Set [api_auth] jwt_secret (AIRFLOW__API_AUTH__JWT_SECRET) to one value for scheduler and API server.",
    )


def judge_token_lifetime(lifetime: float, pending_timeout: float) -> Finding:
    """Return whether a token outlives the wait for the container.

    :param lifetime: seconds that the token of a launch lives.
    """
    if lifetime <= pending_timeout:
        return Finding(
            "token lifetime",
            Level.WARNING,
            f"tokens live {lifetime:g} s, and a pod may wait {pending_timeout:g} s before it uses one",
            "Let [scheduler] task_queued_timeout be longer than [kubernetes_callbacks] pending_timeout.",
        )
    return Finding(
        "token lifetime", Level.OK, f"{lifetime:g} s, longer than pending_timeout ({pending_timeout:g} s)"
    )


_LOCAL = re.compile(r"//(localhost|127\.|\[?::1)")


def judge_execution_api(url_in_pod: str | None, url_here: str | None) -> Finding:
    """Return whether a pod can know where the execution API is."""
    if url_in_pod:
        level = Level.WARNING if _LOCAL.search(url_in_pod) else Level.OK
        return Finding("execution API", level, f"the pod is told {url_in_pod}", _api_remedy(level))
    if url_here is None or _LOCAL.search(url_here):
        return Finding(
            "execution API",
            Level.WARNING,
            f"the scheduler's own configuration says {url_here or 'nothing'}, which no pod can reach; the pod's image "
            "or mounted configuration must say something else",
            _api_remedy(Level.WARNING),
        )
    return Finding("execution API", Level.OK, f"{url_here}, if the pod has this configuration too")


def _api_remedy(level: Level) -> str | None:
    if level is Level.OK:
        return None
    return "Set [core] execution_api_server_url to the API server's address in the cluster, ending in /execution/."


def judge_schedulers(alive: Iterable[str]) -> Finding:
    jobs = sorted(alive)
    if jobs:
        return Finding("scheduler", Level.OK, f"alive: job {', '.join(jobs)}")
    return Finding("scheduler", Level.WARNING, "none is alive", "Start the scheduler: callbacks wait for it.")


def worst(findings: Iterable[Finding]) -> Level:
    """Return the gravest level among the findings."""
    order = (Level.FAILED, Level.WARNING, Level.OK, Level.SKIPPED)
    levels = {finding.level for finding in findings}
    return next((level for level in order if level in levels), Level.OK)
