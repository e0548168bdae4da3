"""The cluster as a person asks for it: whole pod objects, events, logs, permissions, a trial creation."""

from __future__ import annotations

import json
import time
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from airflow_kubernetes_callbacks.api_errors import ApiAnswer, classify, not_permitted
from airflow_kubernetes_callbacks.cli.log_lines import lines_in
from airflow_kubernetes_callbacks.cli.model import PodFacts, connection_test_pod_facts, pod_facts
from airflow_kubernetes_callbacks.identity import (
    BASE_CONTAINER,
    CALLBACK_ID_LABEL,
    CALLBACK_WORKLOAD,
    CONNECTION_TEST_POD_PREFIX,
    CONNECTION_TEST_WORKLOAD,
    WORKLOAD_TYPE_LABEL,
)
from airflow_kubernetes_callbacks.pod_client import LIST_PAGE_SIZE, PodClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from airflow_kubernetes_callbacks.outcome import PodView

_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
_CALLBACKS = f"{WORKLOAD_TYPE_LABEL}={CALLBACK_WORKLOAD}"
_CONNECTION_TESTS = f"{WORKLOAD_TYPE_LABEL}={CONNECTION_TEST_WORKLOAD}"
_BOTH = f"{WORKLOAD_TYPE_LABEL} in ({CALLBACK_WORKLOAD},{CONNECTION_TEST_WORKLOAD})"
#: Tries of a list whose pages expire (410) while they are read.
_LIST_TRIES = 3
#: Seconds between two bytes of a log that is followed, before the connection counts as dead.
_FOLLOW_TIMEOUT = 3600


class SecretFacts(NamedTuple):
    """A payload Secret, without what is in it."""

    namespace: str
    name: str
    uid: str
    #: The id of the callback, or of the connection test, whose workload it holds.
    owner_id: str
    created_at: str
    of_connection_test: bool = False


class Clocks(NamedTuple):
    """The API server's clock beside this one: seconds that it is ahead, and by how much that may be off."""

    ahead: float
    uncertainty: float


class Cluster(PodClient):
    """What the commands ask of the API server; every pod of this package counts, done ones too."""

    def pods(self, callback_ids: Sequence[str] = ()) -> list[PodFacts]:
        """Return the callback pods in the executor's namespaces, of these callbacks or of all."""
        selector = _CALLBACKS
        if callback_ids:
            selector += f",{CALLBACK_ID_LABEL} in ({','.join(sorted(callback_ids))})"
        return self._facts(selector, pod_facts)

    def connection_test_pods(self) -> list[PodFacts]:
        """Return the pods of connection tests in the executor's namespaces."""
        return self._facts(_CONNECTION_TESTS, connection_test_pod_facts)

    def _facts(
        self, selector: str, facts_of: Callable[[Mapping[str, Any]], PodFacts | None]
    ) -> list[PodFacts]:
        found: dict[str, PodFacts] = {}
        for namespace in self.namespaces if self.namespaces is not None else (None,):
            for item in self._all_pages(partial(self._pod_page, namespace, selector)):
                if (pod := facts_of(item)) is not None:
                    found[pod.view.uid] = pod
        return list(found.values())

    def _pod_page(self, namespace: str | None, selector: str, token: str | None) -> dict[str, Any]:
        return self._list_page(namespace, token, selector)

    def _all_pages(self, page_at: Callable[[str | None], dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the items of all pages; a list that expired on the way is begun again."""
        for last_try in (*(False,) * (_LIST_TRIES - 1), True):
            items: list[dict[str, Any]] = []
            token: str | None = None
            try:
                while True:
                    page = page_at(token)
                    items.extend(item for item in page.get("items") or () if isinstance(item, dict))
                    token = (page.get("metadata") or {}).get("continue")
                    if not token:
                        return items
            except Exception as error:
                if last_try or classify(error).answer is not ApiAnswer.GONE:
                    raise
        raise AssertionError("unreachable")

    def secrets(self) -> list[SecretFacts]:
        """Return the payload Secrets; only their metadata is asked for."""
        found: list[SecretFacts] = []
        for namespace in self.namespaces if self.namespaces is not None else (None,):
            path = f"/api/v1/namespaces/{namespace}/secrets" if namespace else "/api/v1/secrets"
            secrets = map(_secret_facts, self._all_pages(partial(self._metadata_page, path)))
            found.extend(secret for secret in secrets if secret is not None)
        return found

    def _metadata_page(self, path: str, token: str | None) -> dict[str, Any]:
        query = [
            ("labelSelector", _BOTH),
            ("limit", LIST_PAGE_SIZE),
            *([("continue", token)] if token else []),
        ]
        document, _ = self._get(path, query, accept=_METADATA_ONLY)
        return document

    def delete_secret(self, secret: SecretFacts) -> bool:
        """Delete the Secret, and no other of its name; False where it is gone already."""
        body = {"preconditions": {"uid": secret.uid}}
        try:
            _document(
                self._core.delete_namespaced_secret(secret.name, secret.namespace, body=body, **self._args)
            )
        except Exception as error:
            if classify(error).answer is ApiAnswer.NOT_FOUND:
                return False
            raise
        return True

    def read_facts(self, namespace: str, name: str) -> PodFacts | None:
        """Return the pod as it is now, or None where there is none."""
        try:
            document, _ = self._get(f"/api/v1/namespaces/{namespace}/pods/{name}", [])
        except Exception as error:
            if classify(error).answer is ApiAnswer.NOT_FOUND:
                return None
            raise
        return pod_facts(document)

    def events(self, namespace: str, pod_name: str) -> list[dict[str, Any]]:
        """Return the events about pods of this name; they outlive the pod by about an hour."""
        query = [("fieldSelector", f"involvedObject.kind=Pod,involvedObject.name={pod_name}"), ("limit", 200)]
        document, _ = self._get(f"/api/v1/namespaces/{namespace}/events", query)
        return [event for event in document.get("items") or () if isinstance(event, dict)]

    def log_lines(
        self,
        pod: PodView,
        *,
        container: str = BASE_CONTAINER,
        tail: int | None = None,
        follow: bool = False,
        stamped: bool = False,
        since: str | None = None,
    ) -> Iterator[str]:
        """Yield the lines of a container's log, as they come when they are followed.

        :param stamped: each line begins with the time at which it was logged, by the node's clock.
        :param since: only lines of this second, or later ones; such a time.
        """
        asked = {
            "container": container,
            "tailLines": tail,
            "follow": "true" if follow else None,
            "timestamps": "true" if stamped else None,
            "sinceTime": since,
        }
        response = self._ask(
            f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/log",
            [(name, value) for name, value in asked.items() if value is not None],
            accept="*/*",
            timeout=(10, _FOLLOW_TIMEOUT) if follow else self._args["_request_timeout"],
        )
        try:
            yield from lines_in(response.stream(8192, decode_content=False))
        finally:
            response.release_conn()

    def try_to_create(self, namespace: str, body: Mapping[str, Any]) -> list[str]:
        """Have the API server judge the pod without creating it; return what it warns of."""
        response = self._core.create_namespaced_pod(namespace, body, dry_run="All", **self._args)
        warnings = response.headers.getlist("Warning")
        _document(response)
        # 299 - "would violate PodSecurity ..."
        return [text.partition(" - ")[2].strip('"') or text for text in warnings]

    def clocks(self) -> Clocks | None:
        """Compare the API server's clock with this machine's; None where it does not tell."""
        before = time.time()
        _, headers = self._get("/version", [])
        after = time.time()
        try:
            told = parsedate_to_datetime(headers.get("Date") or "").timestamp()
        except (TypeError, ValueError):
            return None
        # The header has whole seconds: the time was up to one second later than it says.
        return Clocks(told + 0.5 - (before + after) / 2, 0.5 + (after - before) / 2)

    def server_version(self) -> str:
        document, _ = self._get("/version", [])
        return str(document.get("gitVersion") or "unknown")

    def namespace_exists(self, name: str) -> bool | None:
        """Tell whether the namespace is there; None where this account may not ask."""
        try:
            self._get(f"/api/v1/namespaces/{name}", [])
        except Exception as error:
            failure = classify(error)
            if failure.answer is ApiAnswer.NOT_FOUND:
                return False
            if not_permitted(failure):
                return None
            raise
        return True

    def allowed(self, verb: str, resource: str, subresource: str | None, namespace: str | None) -> bool:
        """Ask whether this account may do *verb* on *resource*, in a namespace or in all of them."""
        attributes = {"verb": verb, "resource": resource}
        if subresource:
            attributes["subresource"] = subresource
        if namespace:
            attributes["namespace"] = namespace
        from kubernetes.client import AuthorizationV1Api

        api = AuthorizationV1Api(self._core.api_client)
        response = api.create_self_subject_access_review(
            {"spec": {"resourceAttributes": attributes}}, **self._args
        )
        return bool((_document(response).get("status") or {}).get("allowed"))

    def _get(
        self, path: str, query: list[tuple[str, Any]], *, accept: str = "application/json"
    ) -> tuple[dict[str, Any], Mapping[str, str]]:
        """Return the document at *path* and the headers of the answer."""
        response = self._ask(path, query, accept=accept, timeout=self._args["_request_timeout"])
        return _document(response), response.headers

    def _ask(self, path: str, query: list[tuple[str, Any]], *, accept: str, timeout: Any) -> Any:
        """Return the answer as it comes; whoever asks reads it, and gives its connection back."""
        return self._core.api_client.call_api(
            path,
            "GET",
            query_params=query,
            header_params={"Accept": accept},
            auth_settings=["BearerToken"],
            _preload_content=False,
            _return_http_data_only=True,
            _request_timeout=timeout,
        )


def _document(response: Any) -> dict[str, Any]:
    """Return the answer's JSON object; read to its end, so that the connection can be used again."""
    try:
        document = json.loads(response.data)
    finally:
        response.release_conn()
    return document if isinstance(document, dict) else {}


def _secret_facts(document: Mapping[str, Any]) -> SecretFacts | None:
    """Return the facts of a payload Secret, or None where it does not say whose workload it holds."""
    metadata = document.get("metadata") or {}
    labels, name = metadata.get("labels") or {}, str(metadata.get("name"))
    of_connection_test = labels.get(WORKLOAD_TYPE_LABEL) == CONNECTION_TEST_WORKLOAD
    owner_id = _uuid(
        name.removeprefix(CONNECTION_TEST_POD_PREFIX) if of_connection_test else labels.get(CALLBACK_ID_LABEL)
    )
    if owner_id is None:
        return None
    return SecretFacts(
        str(metadata.get("namespace")),
        name,
        str(metadata.get("uid")),
        owner_id,
        str(metadata.get("creationTimestamp") or ""),
        of_connection_test,
    )


def _uuid(value: Any) -> str | None:
    try:
        return str(UUID(value))
    except (TypeError, ValueError, AttributeError):
        return None
