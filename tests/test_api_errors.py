"""What an answer of the API server means. Cases C, as a table over both clients' errors."""

from __future__ import annotations

import dataclasses
import json
import socket
from ssl import SSLCertVerificationError

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client.rest import ApiException as SyncApiError
from kubernetes_asyncio.client.exceptions import ApiException as AsyncApiError
from urllib3 import ProxyManager, Retry
from urllib3.connectionpool import HTTPSConnectionPool
from urllib3.exceptions import (
    ConnectTimeoutError,
    MaxRetryError,
    NewConnectionError,
    ProtocolError,
    ProxyError,
    ReadTimeoutError,
    SSLError,
)

from airflow_kubernetes_callbacks.api_errors import (
    ApiAnswer,
    arrived,
    classify,
    mark_arrived,
    namespace_without_creation,
    remedy,
    roles_not_read,
    sends_once,
)
from airflow_kubernetes_callbacks.errors import LaunchDelayedError

TRANSIENT, PERMANENT = ApiAnswer.TRANSIENT, ApiAnswer.PERMANENT
CONFLICT, EXISTS = ApiAnswer.CONFLICT, ApiAnswer.ALREADY_EXISTS
FORBIDDEN, NOT_FOUND, GONE = ApiAnswer.FORBIDDEN, ApiAnswer.NOT_FOUND, ApiAnswer.GONE

QUOTA = (
    'pods "callback-1" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=5, limited: pods=5'
)
QUOTA_IS_NEW = 'pods "callback-1" is forbidden: status unknown for quota: alerts, resources: limits.cpu,pods,requests.memory'
ADMISSION_STARTS = 'pods "callback-1" is forbidden: not yet ready to handle request'
NO_ACCOUNT_YET = (
    'pods "callback-1" is forbidden: error looking up service account alerts/default: '
    'serviceaccount "default" not found'
)
NO_SUCH_ACCOUNT = NO_ACCOUNT_YET.replace("default", "typo")
ACCOUNT_NOT_READ = 'pods "callback-1" is forbidden: error looking up service account alerts/typo: etcdserver: request timed out'
POD_SECURITY = (
    'pods "callback-1" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != '
    'false (container "base" must set securityContext.allowPrivilegeEscalation=false)'
)
MUST_SPECIFY = 'pods "callback-1" is forbidden: failed quota: alerts: must specify limits.cpu for: base; limits.memory for: base'
LIMIT_RANGE = 'pods "callback-1" is forbidden: maximum cpu usage per Container is 1, but limit is 2'
NO_PRIORITY_CLASS = 'pods "callback-1" is forbidden: no PriorityClass with name alerts was found'
NOT_ALLOWED = (
    'pods is forbidden: User "system:serviceaccount:airflow:scheduler" cannot create resource "pods" in API '
    'group "" in the namespace "alerts"'
)
#: An API server that has just started (kubernetes/kubernetes#121635): one role, and several.
ROLE_NOT_READ = f'{NOT_ALLOWED}: RBAC: role.rbac.authorization.k8s.io "airflow-scheduler" not found'
ROLES_NOT_READ = (
    'pods is forbidden: User "system:serviceaccount:airflow:scheduler" cannot list resource "pods" in API group "" '
    'at the cluster scope: RBAC: [clusterrole.rbac.authorization.k8s.io "system:basic-user" not found, '
    'clusterrole.rbac.authorization.k8s.io "airflow" not found]'
)
ANONYMOUS = 'pods is forbidden: User "system:anonymous" cannot create resource "pods" in API group "" in the namespace "a"'
NO_CONSTRAINT = (
    'pods "callback-1" is forbidden: unable to validate against any security context constraint: [provider '
    '"anyuid": Forbidden: not usable by user or serviceaccount, pod.metadata.annotations[container.seccomp.'
    "security.alpha.kubernetes.io/base]: Forbidden: seccomp may not be set]"
)
MODIFIED = (
    'Operation cannot be fulfilled on resourcequotas "pods": the object has been modified; please apply'
)
WEBHOOK_DOWN = (
    'Internal error occurred: failed calling webhook "validate.kyverno.svc": context deadline exceeded'
)
TOO_LARGE_TO_SEND = (
    "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2097279 vs. 2097152)"
)
DENIED = 'admission webhook "validate.kyverno.svc" denied the request: no latest tags'
NO_QUEUE = 'admission webhook "mpod.kb.io" denied the request: localqueues.kueue.x-k8s.io "alerts" not found'

#: What ends a denial by a webhook that looks an image up, or asks another service.
PASSING_CAUSES = {
    "deadline": 'Failed to get the image config/digest for "airflow:1" on "docker.io": context deadline exceeded',
    "connect-timeout": 'Get "https://ghcr.io/v2/": dial tcp: i/o timeout',
    "tls-timeout": 'Get "https://ghcr.io/v2/": net/http: TLS handshake timeout',
    "refused": "dial tcp 10.0.0.1:443: connect: connection refused",
    "reset": "read tcp 10.0.0.2:4711->10.0.0.1:443: read: connection reset by peer",
    "throttled": "unexpected status code 429 Too Many Requests",
    "throttled-in-one-word": "TOOMANYREQUESTS: pull rate limit",
    "no-such-host": "dial tcp: lookup ghcr.io on 10.96.0.10:53: no such host",
    "name-server": "dial tcp: lookup ghcr.io on 10.96.0.10:53: server misbehaving",
    "context-canceled": 'failed to fetch signatures: Get "https://ghcr.io/v2/": context canceled',
    "canceled-for-lateness": 'Get "https://ghcr.io/v2/": net/http: request canceled (Client.Timeout exceeded)',
    "canceled-while-it-waits": "net/http: request canceled while waiting for connection",
    "end-of-file": 'Get "https://ghcr.io/v2/": EOF',
    "unexpected-end-of-file": "reading the manifest: unexpected EOF",
    "bad-gateway": "GET https://ghcr.io/token: unexpected status code 502 Bad Gateway: <html>",
    "unavailable": "GET https://ghcr.io/token: unexpected status code 503 Service Unavailable",
    "gateway-timeout": "GET https://ghcr.io/token: unexpected status code 504 Gateway Timeout",
    "gateway-timeout-as-nginx-has-it": "<h1>504 Gateway Time-out</h1>",
}
#: What a policy may demand in such words.
POLICIES = {
    "gateway": "the annotation example.com/gateway-timeout is missing: set a gateway timeout",
    "heredoc": "the script must end with EOF",
    "canceled": "this request canceled a budget that is still open",
}


def status(code, message="it is so", reason=""):
    return code, json.dumps({"kind": "Status", "code": code, "reason": reason, "message": message})


ANSWERS = [
    pytest.param(*status(403, QUOTA, "Forbidden"), TRANSIENT, id="C1-quota"),
    pytest.param(*status(403, QUOTA_IS_NEW, "Forbidden"), TRANSIENT, id="quota-is-new"),
    pytest.param(403, QUOTA_IS_NEW, TRANSIENT, id="quota-is-new-as-plain-text"),
    pytest.param(*status(403, ADMISSION_STARTS, "Forbidden"), TRANSIENT, id="admission-plugin-starts"),
    pytest.param(*status(403, NO_ACCOUNT_YET, "Forbidden"), TRANSIENT, id="no-service-account-yet"),
    pytest.param(*status(403, NO_SUCH_ACCOUNT, "Forbidden"), FORBIDDEN, id="no-such-service-account"),
    pytest.param(*status(403, ACCOUNT_NOT_READ, "Forbidden"), TRANSIENT, id="service-account-is-not-read"),
    pytest.param(*status(403, NOT_ALLOWED, "Forbidden"), FORBIDDEN, id="C2-forbidden"),
    pytest.param(*status(403, ROLE_NOT_READ, "Forbidden"), TRANSIENT, id="role-is-not-read-yet"),
    pytest.param(*status(403, ROLES_NOT_READ, "Forbidden"), TRANSIENT, id="roles-are-not-read-yet"),
    pytest.param(403, ROLE_NOT_READ, TRANSIENT, id="role-is-not-read-yet-as-plain-text"),
    pytest.param(
        *status(403, f"{NOT_ALLOWED}: RBAC: team not found", "Forbidden"), FORBIDDEN, id="rbac-says-no"
    ),
    pytest.param(*status(403, ANONYMOUS, "Forbidden"), TRANSIENT, id="no-credentials"),
    pytest.param(403, "<html>Forbidden</html>", TRANSIENT, id="403-of-a-gateway"),
    pytest.param(403, NOT_ALLOWED, FORBIDDEN, id="403-in-plain-text"),
    pytest.param(403, None, FORBIDDEN, id="403-without-a-body"),
    pytest.param(403, "", TRANSIENT, id="403-empty"),
    pytest.param(403, "\r\n", TRANSIENT, id="403-blank"),
    pytest.param(400, "", TRANSIENT, id="400-empty"),
    pytest.param(400, None, PERMANENT, id="400-without-a-body"),
    pytest.param(422, "", PERMANENT, id="422-empty"),
    pytest.param(400, "[" * 100_000, TRANSIENT, id="400-nested-too-deep"),
    pytest.param(400, "<html>400 Bad Request</html>", TRANSIENT, id="400-of-a-gateway"),
    pytest.param(*status(403, POD_SECURITY, "Forbidden"), FORBIDDEN, id="pod-security"),
    pytest.param(*status(403, MUST_SPECIFY, "Forbidden"), FORBIDDEN, id="quota-wants-resources"),
    pytest.param(*status(403, LIMIT_RANGE, "Forbidden"), FORBIDDEN, id="limit-range"),
    pytest.param(
        *status(
            403, 'unable to create new content in namespace "x" because it is being terminated', "Forbidden"
        ),
        PERMANENT,
        id="C2-namespace-terminating",
    ),
    pytest.param(*status(404, 'namespaces "x" not found', "NotFound"), NOT_FOUND, id="C2-no-namespace"),
    pytest.param(*status(404, 'pods "x" not found', "NotFound"), NOT_FOUND, id="no-pod"),
    pytest.param(404, "404 page not found\n", TRANSIENT, id="404-path-is-not-served"),
    pytest.param(404, "<html><body>404 Not Found</body></html>", TRANSIENT, id="404-of-a-proxy"),
    pytest.param(404, "", TRANSIENT, id="404-empty"),
    pytest.param(404, None, TRANSIENT, id="404-none"),
    pytest.param(404, '{"reason": "NotFound"}', TRANSIENT, id="404-in-the-json-of-another-program"),
    pytest.param(
        404, '{"type": "error", "status": "404", "code": "NotFound"}', TRANSIENT, id="404-of-another-api"
    ),
    pytest.param(404, '["Status", "NotFound"]', TRANSIENT, id="404-with-a-list"),
    pytest.param(
        *status(400, "Pod in version v1 cannot be handled", "BadRequest"), PERMANENT, id="C2-bad-request"
    ),
    pytest.param(*status(400, DENIED), PERMANENT, id="C15-denied-by-a-webhook"),
    pytest.param(*status(403, DENIED, "Forbidden"), FORBIDDEN, id="denied-by-a-webhook-as-forbidden"),
    *(
        pytest.param(
            *status(code, f"{DENIED.partition('no latest')[0]}{cause}"),
            TRANSIENT,
            id=f"{code}-denied-for-{name}",
        )
        for code in (400, 403)
        for name, cause in PASSING_CAUSES.items()
    ),
    *(
        pytest.param(
            *status(400, f"{DENIED.partition('no latest')[0]}{words}"), PERMANENT, id=f"policy-about-{name}"
        )
        for name, words in POLICIES.items()
    ),
    pytest.param(*status(400, PASSING_CAUSES["deadline"]), PERMANENT, id="such-words-and-no-denial"),
    pytest.param(
        *status(422, "spec.volumes[1].name: Duplicate value", "Invalid"), PERMANENT, id="C17-invalid"
    ),
    pytest.param(*status(413, "Request entity too large"), PERMANENT, id="D2-413"),
    pytest.param(
        *status(500, "etcdserver: request is too large"), PERMANENT, id="D2-etcd-limit-comes-as-500"
    ),
    pytest.param(*status(500, TOO_LARGE_TO_SEND), PERMANENT, id="D2-limit-on-the-way-to-etcd-comes-as-500"),
    *(
        pytest.param(code, "<html>", TRANSIENT, id=f"{code}-of-a-gateway")
        for code in (507, 520, 521, 522, 523, 524, 529, 530, 598)
    ),
    pytest.param(413, "<html>413 Request Entity Too Large</html>", PERMANENT, id="413-of-a-gateway"),
    pytest.param(*status(409, MODIFIED, "Conflict"), CONFLICT, id="C3-modified"),
    pytest.param(409, MODIFIED, CONFLICT, id="C3-modified-as-plain-text"),
    pytest.param(*status(409, 'pods "callback-1" already exists', "AlreadyExists"), EXISTS, id="C4-exists"),
    pytest.param(*status(409, "whatever", "AlreadyExists"), EXISTS, id="C4-exists-by-reason"),
    pytest.param(409, 'pods "callback-1" already exists', EXISTS, id="C4-exists-as-plain-text"),
    pytest.param(*status(429, "Too many requests", "TooManyRequests"), TRANSIENT, id="A20-throttled"),
    pytest.param(
        429, "Too many requests, please try again later.\n", TRANSIENT, id="A20-throttled-as-plain-text"
    ),
    pytest.param(*status(500, WEBHOOK_DOWN, "InternalError"), TRANSIENT, id="C15-webhook-is-down"),
    pytest.param(*status(500, "server timed out", "ServerTimeout"), TRANSIENT, id="C5-server-timeout"),
    pytest.param(502, "<html><body>502 Bad Gateway</body></html>", TRANSIENT, id="C7-html"),
    pytest.param(503, "", TRANSIENT, id="C7-empty"),
    pytest.param(504, None, TRANSIENT, id="C7-none"),
    pytest.param(408, "", TRANSIENT, id="408"),
    pytest.param(401, "Unauthorized", TRANSIENT, id="401-token-was-rotated"),
    pytest.param(410, "Expired", GONE, id="B1-expired"),
    pytest.param(418, "I'm a teapot", PERMANENT, id="unknown"),
]


@pytest.mark.parametrize("kind", [SyncApiError, AsyncApiError], ids=["kubernetes", "kubernetes_asyncio"])
@pytest.mark.parametrize("as_bytes", [False, True], ids=["text", "bytes"])
@pytest.mark.parametrize(("code", "body", "answer"), ANSWERS)
def test_answer_means(kind, as_bytes, code, body, answer):
    error = kind(status=code, reason="Reason")
    error.body = body.encode() if as_bytes and body is not None else body
    failure = classify(error)
    assert (failure.answer, failure.status) == (answer, code)
    assert failure.retryable == (answer in (TRANSIENT, CONFLICT))
    assert failure.message.startswith(f"{code}: ")


@pytest.mark.parametrize(
    "error",
    [
        ProtocolError("Connection aborted.", ConnectionResetError(104, "reset")),
        ReadTimeoutError(None, None, "read timed out"),
        MaxRetryError(None, "/api", NewConnectionError(None, "refused")),
        ConnectionRefusedError(111, "refused"),
        socket.gaierror(-2, "Name or service not known"),
        TimeoutError(),
        aiohttp.ServerDisconnectedError(),
        SyncApiError(status=0, reason="SSLError"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_answer_is_tried_again(error):
    failure = classify(error)
    assert (failure.answer, failure.status, failure.retryable) == (TRANSIENT, None, True)
    assert type(error).__name__ in failure.message


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("5", 5.0),
        ("0", 0.0),
        ("-3", 0.0),
        ("1e9", 3600.0),
        ("nan", 0.0),
        ("inf", 3600.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_read_as_seconds_within_bounds(header, seconds):
    error = SyncApiError(status=429)
    error.headers = {"Retry-After": header} if header is not None else None
    assert classify(error).retry_after == seconds


def test_message_is_the_servers_words_on_one_line_within_bounds():
    error = SyncApiError(status=422)
    error.body = json.dumps({"message": "Pod is\n  invalid: " + "x" * 5000})
    message = classify(error).message
    assert message.startswith("422: Pod is invalid: xxx")
    assert len(message) < 1100


@given(
    st.one_of(st.none(), st.text(), st.binary(), st.integers(), st.lists(st.integers())),
    st.one_of(st.none(), st.integers(), st.text(), st.booleans()),
    st.one_of(st.none(), st.text(), st.dictionaries(st.text(), st.text())),
)
def test_any_error_is_classified(body, code, headers):
    error = SyncApiError(status=code)
    error.body, error.headers = body, headers
    assert classify(error).answer in ApiAnswer


def not_connected(kind: type[Exception]) -> Exception:
    """Return the error as urllib3 raises it when its own tries are used up."""
    pool = HTTPSConnectionPool("127.0.0.1", 6443)
    reason = kind(pool, "/api", "too late") if kind is ReadTimeoutError else kind(pool, "failed")
    return MaxRetryError(pool, "/api", reason)


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_proxy_that_is_not_there_was_sent_nothing(scheme):
    """The error is urllib3's own: where it keeps the cause has changed before."""
    with socket.socket() as bound:
        url = f"http://127.0.0.1:{closed_port(bound)}"
        with ProxyManager(url) as proxy, pytest.raises(MaxRetryError) as raised:
            proxy.request("POST", f"{scheme}://127.0.0.1/api", retries=Retry(1))
    assert classify(raised.value).may_have_arrived is False


def closed_port(bound: socket.socket) -> int:
    """Return a port that refuses connections for as long as the socket is open."""
    bound.bind(("127.0.0.1", 0))
    return bound.getsockname()[1]


def unknown_certificate() -> Exception:
    pool = HTTPSConnectionPool("127.0.0.1", 6443)
    return MaxRetryError(pool, "/api", SSLError(SSLCertVerificationError("unable to get local issuer")))


def behind_proxy(reason: Exception) -> Exception:
    """Return the error as urllib3 raises it where the API server is behind an HTTP proxy."""
    pool = HTTPSConnectionPool("127.0.0.1", 6443)
    return MaxRetryError(pool, "/api", ProxyError("Unable to connect to proxy", reason))


@pytest.mark.parametrize(
    ("error", "answer", "may_have_arrived"),
    [
        pytest.param(ProtocolError("reset"), TRANSIENT, True, id="no-answer"),
        pytest.param(not_connected(NewConnectionError), TRANSIENT, False, id="connection-refused"),
        pytest.param(not_connected(ConnectTimeoutError), TRANSIENT, False, id="connect-timeout"),
        pytest.param(not_connected(ReadTimeoutError), TRANSIENT, True, id="no-answer-in-time"),
        pytest.param(unknown_certificate(), TRANSIENT, False, id="unknown-certificate"),
        pytest.param(
            behind_proxy(NewConnectionError(None, "refused")), TRANSIENT, False, id="proxy-refuses-connection"
        ),
        pytest.param(
            behind_proxy(ConnectTimeoutError("too late")), TRANSIENT, False, id="proxy-is-not-reached"
        ),
        pytest.param(
            behind_proxy(OSError("Tunnel connection failed: 503 Service Unavailable")),
            TRANSIENT,
            False,
            id="proxy-does-not-reach-the-server",
        ),
        pytest.param(
            ProtocolError("Connection aborted.", OSError("Tunnel connection failed: 407 Authenticate")),
            TRANSIENT,
            False,
            id="proxy-does-not-let-pass",
        ),
        pytest.param(
            behind_proxy(ConnectionResetError(104, "reset")), TRANSIENT, True, id="proxy-breaks-off"
        ),
        pytest.param(
            behind_proxy(SSLError(SSLCertVerificationError("self-signed"))),
            TRANSIENT,
            False,
            id="unknown-certificate-of-a-proxy",
        ),
        pytest.param(
            ProtocolError("Connection aborted.", ConnectionResetError(104, "reset")),
            TRANSIENT,
            True,
            id="reset-in-a-request",
        ),
        pytest.param(ConnectionRefusedError(111, "refused"), TRANSIENT, False, id="bare-refusal"),
        pytest.param(ConnectionResetError(104, "reset"), TRANSIENT, True, id="bare-reset"),
        pytest.param(SyncApiError(status=504), TRANSIENT, True, id="gateway"),
        pytest.param(SyncApiError(status=429), TRANSIENT, False, id="throttled"),
        pytest.param(AsyncApiError(status=422), PERMANENT, False, id="refused"),
        pytest.param(SyncApiError(status=403), FORBIDDEN, False, id="403-without-words"),
        pytest.param(SyncApiError(status=404), TRANSIENT, False, id="404-that-is-not-the-servers"),
        pytest.param(TypeError("'NoneType' object is not iterable"), PERMANENT, True, id="mistake"),
        pytest.param(KeyError("metadata"), PERMANENT, True, id="mistake-in-a-lookup"),
        pytest.param(json.JSONDecodeError("x", "<html>", 0), TRANSIENT, True, id="answer-that-is-no-json"),
    ],
)
def test_only_an_answer_of_the_server_itself_says_that_nothing_was_created(error, answer, may_have_arrived):
    failure = classify(error)
    assert (failure.answer, failure.may_have_arrived) == (answer, may_have_arrived)


@pytest.mark.parametrize(
    ("code", "body", "begins"),
    [
        pytest.param(*status(403, NOT_ALLOWED), "Grant the scheduler's service account", id="permission"),
        pytest.param(*status(403, POD_SECURITY), "Change the pod template", id="pod-security"),
        pytest.param(
            *status(403, NO_CONSTRAINT),
            "Set [kubernetes_callbacks] security_context = none",
            id="security-context-constraint",
        ),
        pytest.param(*status(403, ANONYMOUS), "", id="no-credentials"),
        pytest.param(*status(403, MUST_SPECIFY), "Set [kubernetes_callbacks] resources", id="quota"),
        pytest.param(*status(403, NO_SUCH_ACCOUNT), "Create the service account", id="service-account"),
        pytest.param(*status(403, LIMIT_RANGE), "", id="limit-range"),
        pytest.param(*status(403, NO_PRIORITY_CLASS), "", id="priority-class"),
        pytest.param(*status(403, DENIED), "", id="denied-by-a-webhook"),
        pytest.param(403, "<html>Forbidden</html>", "", id="html"),
        pytest.param(
            *status(404, 'namespaces "x" not found', "NotFound"), "Create the namespace", id="namespace"
        ),
        pytest.param(*status(404, NO_QUEUE, "NotFound"), "", id="not-found-by-a-webhook"),
        pytest.param(*status(422, "spec.volumes[1].name: Duplicate value", "Invalid"), "", id="invalid"),
        pytest.param(*status(400, f"a webhook quotes: {NOT_ALLOWED}"), "", id="other-answer-with-such-words"),
    ],
)
def test_remedy_is_named_only_where_it_is_plain(code, body, begins):
    error = SyncApiError(status=code)
    error.body = body
    told = remedy(classify(error))
    assert told.startswith(begins)
    assert bool(told) is bool(begins)


def refused(code, message):
    error = SyncApiError(status=code)
    error.body = status(code, message, "Forbidden")[1]
    return classify(error)


def test_request_without_credentials_says_so():
    assert "carried no credentials" in refused(403, ANONYMOUS).message
    assert "carried no credentials" not in refused(403, NOT_ALLOWED).message


@pytest.mark.parametrize(
    ("code", "message", "missing"),
    [
        pytest.param(403, ROLE_NOT_READ, True, id="one"),
        pytest.param(403, ROLES_NOT_READ, True, id="several"),
        pytest.param(403, NOT_ALLOWED, False, id="permission"),
        pytest.param(500, ROLE_NOT_READ, False, id="other-status"),
    ],
)
def test_roles_that_are_missing_are_known(code, message, missing):
    assert roles_not_read(refused(code, message)) is missing


@pytest.mark.parametrize(
    ("code", "message", "namespace"),
    [
        pytest.param(403, NOT_ALLOWED, "alerts", id="namespace"),
        pytest.param(403, NOT_ALLOWED.replace("create", "list"), None, id="other-verb"),
        pytest.param(403, NOT_ALLOWED.replace("pods", "secrets"), None, id="other-resource"),
        pytest.param(403, QUOTA, None, id="quota"),
        pytest.param(400, NOT_ALLOWED, None, id="other-status"),
    ],
)
def test_namespace_where_no_pod_may_be_created_is_named(code, message, namespace):
    assert namespace_without_creation(refused(code, message)) == namespace


@pytest.mark.parametrize("known", [False, True], ids=["nothing-sent", "an-earlier-try-arrived"])
def test_launch_that_is_delayed_was_not_sent(known):
    error = LaunchDelayedError("pod template '/t' cannot be read: Input/output error.")
    if known:
        mark_arrived(error)
    failure = classify(error)
    assert (failure.answer, failure.status, failure.message) == (TRANSIENT, None, str(error))
    assert failure.may_have_arrived is known


@pytest.mark.parametrize(
    ("retries", "once"),
    [
        pytest.param(False, True, id="off"),
        pytest.param(0, True, id="none"),
        pytest.param(Retry(0), True, id="none-in-total"),
        pytest.param(Retry(2, other=0), True, id="connections-only"),
        pytest.param(Retry(2, other=False), True, id="connections-only-by-false"),
        pytest.param(None, False, id="urllib3s-own"),
        pytest.param(3, False, id="number"),
        pytest.param(Retry(3), False, id="any-error"),
        pytest.param(Retry(total=None, connect=2), False, id="unbounded"),
        pytest.param(Retry(3, other=0, allowed_methods=None), False, id="every-method"),
        pytest.param(Retry(3, other=0, allowed_methods=["GET", "POST"]), False, id="post-too"),
        pytest.param(Retry(3, other=0, allowed_methods=["GET"]), True, id="get-only"),
    ],
)
def test_retries_that_may_send_a_creation_twice_are_known(retries, once):
    assert sends_once(retries) is once


@pytest.mark.parametrize(
    "error",
    [ConnectionRefusedError(111, "refused"), not_connected(NewConnectionError), SyncApiError(status=403)],
    ids=lambda error: type(error).__name__,
)
def test_what_is_known_to_have_arrived_is_not_forgotten_over_a_later_error(error):
    before = classify(error)
    mark_arrived(error)
    assert classify(error) == dataclasses.replace(before, may_have_arrived=True)


def test_error_after_the_answer_keeps_its_class_and_is_raised_as_it_is():
    refused = ConnectionRefusedError(111, "refused")
    with pytest.raises(ConnectionRefusedError) as raised, arrived():
        raise refused
    assert raised.value is refused
    assert (classify(refused).answer, classify(refused).may_have_arrived) == (TRANSIENT, True)
