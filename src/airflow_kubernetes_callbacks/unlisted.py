"""A pod that no list has and whose name is known all the same, from the row of its callback. Runs in worker threads."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_kubernetes_callbacks.api_errors import classify
from airflow_kubernetes_callbacks.identity import holder_of

if TYPE_CHECKING:
    from airflow_kubernetes_callbacks.actions import LookFor
    from airflow_kubernetes_callbacks.outcome import PodView
    from airflow_kubernetes_callbacks.pod_client import PodClient

log = logging.getLogger(__name__)


def find_pod(client: PodClient, callback_id: str, look: LookFor) -> PodView | None:
    """Return this callback's pod of this name; None if there is none, or it may not be read.

    Whose it is, its annotation says, or else its label. Where neither names a callback, the name has to do if
    the row records that this pod was created: the id in it is random, so nobody has it by chance, and as long as
    that pod is there no other can have it. Without such a record it may be the pod in whose favour the launch
    went on to the next name (:meth:`.pod_launcher.CallbackKubernetesScheduler._create_or_find`).

    :raises Exception: whatever the client raises, if that may pass.
    """
    unnamed = callback_id if look.recorded else None
    try:
        pod = client.read_pod(
            look.namespace, look.name, id_of=lambda metadata: holder_of(metadata) or unnamed
        )
    except Exception as error:
        failure = classify(error)
        if failure.retryable:
            raise
        log.warning(
            "Pod %s/%s of callback %s is not in the list of pods, and is taken for gone: it could not be read "
            "(%s). The scheduler's service account needs the verb 'get' on pods.",
            look.namespace,
            look.name,
            callback_id,
            failure.message,
        )
        return None
    if pod is None or pod.callback_id != callback_id:
        return None
    if look.again:
        log.info(
            "Pod %s/%s of callback %s was deleted and is there again.", pod.namespace, pod.name, callback_id
        )
        return pod
    log.warning(
        "Pod %s/%s of callback %s is not in the list of pods, and is there: somebody has changed its labels. It "
        "is looked at by its name from now on.",
        look.namespace,
        look.name,
        callback_id,
    )
    return pod
