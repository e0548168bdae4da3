"""What an answer, or the lack of one, from the Kubernetes API means for a request. Pure.

Works on the exceptions of both clients (``kubernetes`` and ``kubernetes_asyncio``) by their common
attributes, because a creation may go through either of them.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from ssl import SSLCertVerificationError
from typing import TYPE_CHECKING, Any

from urllib3.exceptions import ConnectTimeoutError, NewConnectionError
from urllib3.util import Retry

from airflow_kubernetes_callbacks.errors import LaunchDelayedError
from airflow_kubernetes_callbacks.redact import presentable

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Answers that say "not now": throttling, a request that came too early. So do all from 500 on: a server that
#: restarts or is behind a broken gateway, which may have numbers of its own (520 to 530), an admission webhook
#: that is down (kyverno/kyverno#2869).
_TRANSIENT_STATUSES = frozenset({408, 425, 429})
#: But these, of what stores an object or brings it there, come as a 500 too and never pass
#: (argoproj/argo-workflows#2936).
_TOO_LARGE = ("request is too large", "trying to send message larger than max")
#: The kind of an answer that is no JSON object, or has no words at all.
_PAGE = "page"
#: What a gateway or a firewall may answer too, on a page of its own, and for a while.
_GATEWAY_STATUSES = frozenset({400, 403, 404})
#: Kubernetes' own words, however they are wrapped.
_KUBERNETES_OWN = re.compile(
    r'is forbidden:|denied the request|cannot \w+ resource|^[\w.]+ "[^"]+" not found'
)
#: Refusals by admission (403) that pass without anybody's doing.
_PASSING_REFUSALS = (
    "exceeded quota",
    "status unknown for quota",  # the quota is new, and what it limits is not counted yet
    "not yet ready to handle request",  # an admission plugin of an API server that has just started
    "error looking up service account",  # that of a new namespace is made a moment later
)
#: RBAC misses roles that are bound: an API server that has just started may not have read them yet
#: (kubernetes/kubernetes#121635). Of a role that was deleted it says the same, for good.
_ROLES_NOT_READ = re.compile(r'RBAC: .*role\.rbac\.\S+ "[^"]*" not found')
#: The request came without credentials, as a 401 with anonymous access (kubernetes-client/python#2592).
_ANONYMOUS = 'User "system:anonymous" cannot'
_NO_CREDENTIALS = " (the request carried no credentials: see to the scheduler's token or kubeconfig)"
_MAY_NOT_CREATE = re.compile(r'cannot create resource "pods".* in the namespace "([^"]*)"')
#: How Kubernetes begins a webhook's denial; the webhook chooses the code, most often one of these.
_DENIED = "denied the request"
_DENIALS = frozenset({400, 403})
#: What a webhook denies a pod with for as long as it does not reach what it asks itself: a registry, a name
#: server (CrowdStrike/falcon-helm#98, kyverno/kyverno#7224). Where a policy might use such words for what it
#: demands, they count only as programs write them.
_PASSING_CAUSE = re.compile(
    r"context deadline exceeded|i/o timeout|TLS handshake timeout|connection (?:refused|reset)"
    r"|too ?many ?requests|no such host|server misbehaving"
    r"|context canceled|request canceled (?:while|\()|(?:: |unexpected )EOF\b"
    r"|bad gateway|service unavailable|504\W{1,3}gateway time-?out",
    re.IGNORECASE,
)
#: The account ``default`` is made by Kubernetes itself, any other by a person.
_NO_ACCOUNT = re.compile(r'serviceaccount "(?!default")[^"]*" not found')
#: The namespace is what is missing, and nothing that a webhook looked for.
_NO_NAMESPACE = re.compile(r'\bnamespaces "')
#: What is to be done about a refusal, by a pattern in the API server's words.
_REMEDIES = (
    (re.compile(r"cannot \w+ resource"), "Grant the scheduler's service account the verb named here."),
    (
        re.compile("violates PodSecurity"),
        "Change the pod template or [kubernetes_callbacks] security_context, or the level of the namespace.",
    ),
    (
        # OpenShift, which may set itself what [kubernetes_callbacks] security_context = restricted sets.
        re.compile("unable to validate against any security context constraint"),
        "Set [kubernetes_callbacks] security_context = none, or let the pod's account use another constraint.",
    ),
    (
        re.compile("failed quota: .*must specify"),
        "Set [kubernetes_callbacks] resources, or resources in the pod template.",
    ),
    (
        _NO_ACCOUNT,
        "Create the service account, or correct its name in [kubernetes_callbacks] or the pod template.",
    ),
)
_MAX_MESSAGE = 1000
#: Errors of a program, here or in a mutation hook's or a driver's code, that no waiting mends.
_MISTAKES = (
    TypeError,
    AttributeError,
    NameError,
    LookupError,
    AssertionError,
    NotImplementedError,
    RecursionError,
)
#: No connection came about (refused, no such host, no answer to it, an unknown certificate): nothing was sent.
_NOT_CONNECTED = (ConnectionRefusedError, ConnectTimeoutError, NewConnectionError, SSLCertVerificationError)
#: How Python's http.client words it that a proxy refused to connect to the server.
_NO_TUNNEL = "Tunnel connection failed"
#: Attribute of an error: see :func:`mark_arrived`.
_ARRIVED = "_callback_request_arrived"


class ApiAnswer(str, Enum):
    """The class of a failed request."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"
    ALREADY_EXISTS = "already_exists"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    FORBIDDEN = "forbidden"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class ApiFailure:
    """A failed request in plain values: strings only, so that it may cross a process border."""

    answer: ApiAnswer
    status: int | None
    message: str
    #: Seconds that the server asked to wait (``Retry-After``), if it did.
    retry_after: float | None = None
    #: The request may have been carried out all the same: there was no answer, or a gateway's.
    may_have_arrived: bool = False

    @property
    def retryable(self) -> bool:
        return self.answer in (ApiAnswer.TRANSIENT, ApiAnswer.CONFLICT)


def _body(error: Any) -> tuple[str, str, str]:
    """Return (kind, reason, message) of an API error; a body of any kind is tolerated.

    Text that is no JSON object is of the kind ``_PAGE``, and so is an empty one: it is of somebody who stands
    before the API server, whose own refusals always have words. An error without a body at all is another
    thing: a client made it of something else, a watch's last event for one.
    """
    body = getattr(error, "body", None)
    if isinstance(body, bytes):
        body = body.decode("utf-8", "replace")
    if isinstance(body, str) and not body.strip():
        return _PAGE, "", _told(str(getattr(error, "reason", "") or "no message"))
    try:
        status = json.loads(body) if body else {}
    except (TypeError, ValueError, RecursionError):
        status = body
    if not isinstance(status, dict):
        status = {"kind": _PAGE, "message": str(status)}
    message = str(status.get("message") or getattr(error, "reason", "") or "no message")
    return str(status.get("kind") or ""), str(status.get("reason") or ""), _told(message)


def _told(text: str) -> str:
    """Return a foreign text in one bounded line: a server or a webhook may quote the request, token included."""
    return presentable(" ".join(text.split()), _MAX_MESSAGE)


def _retry_after(error: Any) -> float | None:
    headers = getattr(error, "headers", None) or {}
    try:
        seconds = float(str(headers.get("Retry-After")))
    except (TypeError, ValueError, AttributeError):
        return None
    return max(0.0, min(seconds, 3600.0))


def _answer(status: int, kind: str, reason: str, message: str) -> ApiAnswer:
    if any(words in message for words in _TOO_LARGE):
        return ApiAnswer.PERMANENT
    if status == 409:
        already_exists = reason == "AlreadyExists" or "already exists" in message
        return ApiAnswer.ALREADY_EXISTS if already_exists else ApiAnswer.CONFLICT
    if status in _GATEWAY_STATUSES and kind == _PAGE and not _KUBERNETES_OWN.search(message):
        # It comes from what stands before the API server, and says nothing about the object.
        return ApiAnswer.TRANSIENT
    if status in _DENIALS and _DENIED in message and _PASSING_CAUSE.search(message):
        return ApiAnswer.TRANSIENT
    if status == 403 and (_ANONYMOUS in message or _ROLES_NOT_READ.search(message)):
        return ApiAnswer.TRANSIENT
    if status == 403 and any(words in message for words in _PASSING_REFUSALS):
        return ApiAnswer.FORBIDDEN if _NO_ACCOUNT.search(message) else ApiAnswer.TRANSIENT
    if status == 403 and "being terminated" in message:
        return ApiAnswer.PERMANENT
    if status == 404:
        told = (kind == "Status" and reason == "NotFound") or _KUBERNETES_OWN.search(message)
        return ApiAnswer.NOT_FOUND if told else ApiAnswer.TRANSIENT
    if status in _TRANSIENT_STATUSES or status >= 500:
        return ApiAnswer.TRANSIENT
    return {
        401: ApiAnswer.TRANSIENT,  # a rotated service account token is read again for the next request
        403: ApiAnswer.FORBIDDEN,
        410: ApiAnswer.GONE,
    }.get(status, ApiAnswer.PERMANENT)


def _wrapped_in(error: BaseException) -> BaseException | None:
    """Return the error that another was made of; urllib3 keeps it in one of these places."""
    places = (getattr(error, "reason", None), getattr(error, "original_error", None), *error.args)
    return next((place for place in places if isinstance(place, BaseException)), None)


def _was_sent(error: BaseException) -> bool:
    """Tell whether the request may have left this host; urllib3 wraps the error that says so, up to thrice."""
    seen: BaseException | None = error
    for _ in range(4):
        if seen is None:
            break
        if isinstance(seen, _NOT_CONNECTED):
            return False
        if isinstance(seen, OSError) and str(seen).startswith(_NO_TUNNEL):
            return False
        seen = _wrapped_in(seen)
    return True


def sends_once(retries: Any) -> bool:
    """Tell whether urllib3, with these ``retries``, makes no POST again that may have been sent.

    A connection that did not come about is always made again safely. Where other tries are repeated, the
    error, which is that of the last one, says nothing of those before.
    """
    retry = Retry.from_int(retries)
    if _none_left(retry.total):
        return True
    may_repeat_answered = not retry.allowed_methods or "POST" in retry.allowed_methods
    return _none_left(retry.other) and not may_repeat_answered


def _none_left(tries: int | bool | None) -> bool:
    return tries is not None and not tries


def mark_arrived(error: BaseException) -> None:
    """Note in the error that what was asked for may be there, whatever the error itself tells."""
    setattr(error, _ARRIVED, True)


@contextmanager
def arrived() -> Iterator[None]:
    """Mark every error in here: the request that they follow has been answered."""
    try:
        yield
    except Exception as error:
        mark_arrived(error)
        raise


def classify(error: BaseException) -> ApiFailure:
    """Return what *error*, raised by a request to the API server, means.

    An error without an HTTP status (reset, timeout, DNS) is transient: unless no connection came about,
    the request may or may not have arrived, which is why every request of this package may be repeated.
    One that only a mistake in a program raises (TypeError, KeyError) is permanent.
    """
    marked = bool(getattr(error, _ARRIVED, False))
    if isinstance(error, LaunchDelayedError):
        return ApiFailure(ApiAnswer.TRANSIENT, None, _told(str(error)), may_have_arrived=marked)
    status = getattr(error, "status", None)
    if not isinstance(status, int) or isinstance(status, bool) or status == 0:
        text = _told(f"{type(error).__name__}: {error}")
        answer = ApiAnswer.PERMANENT if isinstance(error, _MISTAKES) else ApiAnswer.TRANSIENT
        return ApiFailure(answer, None, text, may_have_arrived=marked or _was_sent(error))
    kind, reason, message = _body(error)
    hint = _NO_CREDENTIALS if status == 403 and _ANONYMOUS in message else ""
    return ApiFailure(
        _answer(status, kind, reason, message),
        status,
        f"{status}: {message}{hint}",
        _retry_after(error),
        may_have_arrived=marked or status >= 500 or status == 408,
    )


def denied_by_admission(failure: ApiFailure) -> bool:
    """Tell whether a webhook or a policy denied the request, for a cause that may pass or not."""
    return failure.status in _DENIALS and _DENIED in failure.message


def roles_not_read(failure: ApiFailure) -> bool:
    """Tell whether roles are missing that are bound: not read yet, or deleted, which cannot be told apart."""
    return failure.status == 403 and _ROLES_NOT_READ.search(failure.message) is not None


def not_permitted(failure: ApiFailure) -> bool:
    """Tell whether the account may not do this: for good, or for as long as roles are missing."""
    return failure.answer is ApiAnswer.FORBIDDEN or roles_not_read(failure)


def namespace_without_creation(failure: ApiFailure) -> str | None:
    """Return the namespace in which, as the API server says, pods may not be created; None if it does not."""
    found = _MAY_NOT_CREATE.search(failure.message) if failure.status == 403 else None
    return found[1] if found else None


def remedy(failure: ApiFailure) -> str:
    """Return what is to be done about a request that was refused for good; empty where nothing is plain."""
    if failure.answer is ApiAnswer.NOT_FOUND and _NO_NAMESPACE.search(failure.message):
        return "Create the namespace, or correct the one in the configuration."
    if failure.answer is not ApiAnswer.FORBIDDEN:
        return ""
    return next((told for words, told in _REMEDIES if words.search(failure.message)), "")
