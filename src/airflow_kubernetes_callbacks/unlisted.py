"""A pod that no list has and whose name is known all the same, from the row of its callback. Runs in worker threads."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_kubernetes_callbacks.api_errors import classify
from airflow_kubernetes_callbacks.identity import holder_of

if TYPE_CHECKING:
    from airflow_kubernetes_callbacks.outcome import PodView
    from airflow_kubernetes_callbacks.pod_client import PodClient

log = logging.getLogger(__name__)


def find_pod(client: PodClient, callback_id: str, namespace: str, name: str) -> PodView | None:
    """Return this callback's pod of this name; None if there is none, or it may not be read.

    Whose it is, its annotation says, or else its label. Where neither names a callback, the name has to do:
    it holds the callback's id, which is random, so nobody has it by chance; and while the pod that was
    created is there, no other can have it. Metadata is all that can be taken off a pod.

    :raises Exception: whatever the client raises, if that may pass.
    """
    try:
        pod = client.read_pod(namespace, name, id_of=lambda metadata: holder_of(metadata) or callback_id)
    except Exception as error:
        failure = classify(error)
        if failure.retryable:
            raise
        log.warning(
            "Pod %s/%s of callback %s is not in the list of pods, and is taken for gone: it could not be read "
            "(%s). The scheduler's service account needs the verb 'get' on pods.",
            namespace,
            name,
            callback_id,
            failure.message,
        )
        return None
    if pod is None or pod.callback_id != callback_id:
        return None
    log.warning(
        "Pod %s/%s of callback %s is not in the list of pods, and is there: somebody has changed its labels. It "
        "is looked at by its name from now on.",
        namespace,
        name,
        callback_id,
    )
    return pod
