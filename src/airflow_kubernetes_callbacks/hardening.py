"""Security context of the base container: what PodSecurity level ``restricted`` asks for.

Only the base container is touched, and only where the template says nothing else, so that a sidecar
that must run as root goes on working; for such a pod it is the template that decides about the level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubernetes.client import models as k8s

if TYPE_CHECKING:
    from collections.abc import Iterable


def harden(pod: k8s.V1Pod, container: k8s.V1Container) -> None:
    """Fill the gaps of the container's security context (in place)."""
    if pod.spec.os is not None and pod.spec.os.name == "windows":
        return
    whole = pod.spec.security_context or k8s.V1PodSecurityContext()
    own = container.security_context or k8s.V1SecurityContext()
    if own.run_as_non_root is None and whole.run_as_non_root is None and not _runs_as_root(own, whole):
        own.run_as_non_root = True
    if own.seccomp_profile is None and whole.seccomp_profile is None and not own.privileged:
        own.seccomp_profile = k8s.V1SeccompProfile(type="RuntimeDefault")
    if own.capabilities is None and not own.privileged:
        own.capabilities = k8s.V1Capabilities(drop=["ALL"])
    if own.allow_privilege_escalation is None and not own.privileged and not _adds_admin(own.capabilities):
        own.allow_privilege_escalation = False
    container.security_context = own


def _runs_as_root(own: k8s.V1SecurityContext, whole: k8s.V1PodSecurityContext) -> bool:
    user = own.run_as_user if own.run_as_user is not None else whole.run_as_user
    return bool(user == 0)


def _adds_admin(capabilities: k8s.V1Capabilities | None) -> bool:
    added: Iterable[str] = (capabilities.add if capabilities else None) or ()
    return any(name.removeprefix("CAP_") == "SYS_ADMIN" for name in added)
