"""Requests for callback pods, for tests: one for each setting, with its golden file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kubernetes.client import ApiClient
from kubernetes.client import models as k8s

from airflow_kubernetes_callbacks.payload import ArgumentPayload, SecretPayload
from airflow_kubernetes_callbacks.pod_settings import PodSettings
from airflow_kubernetes_callbacks.pod_spec import PodRequest
from airflow_kubernetes_callbacks.pod_template import parse_template

GOLDEN = Path(__file__).parent / "golden"
CALLBACK_ID = "0199aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee"

PLAIN = """
kind: Pod
spec:
  containers: [{name: base, image: "apache/airflow:3.3.2"}]
"""

#: What the Helm chart renders, in short.
HELM = """
apiVersion: v1
kind: Pod
metadata:
  name: placeholder-name
  labels: {tier: airflow, component: worker, release: example}
  annotations: {cluster-autoscaler.kubernetes.io/safe-to-evict: "false"}
spec:
  initContainers:
    - name: git-sync-init
      image: registry.k8s.io/git-sync/git-sync:v4.4.2
      volumeMounts: [{name: dags, mountPath: /git}]
  containers:
    - name: base
      image: apache/airflow:3.3.2
      envFrom: []
      env: [{name: AIRFLOW__CORE__EXECUTOR, value: LocalExecutor}]
      resources: {requests: {cpu: 250m, memory: 512Mi}}
      volumeMounts:
        - {name: logs, mountPath: /opt/airflow/logs}
        - {name: dags, mountPath: /opt/airflow/dags, readOnly: true}
  volumes:
    - {name: dags, emptyDir: {}}
    - {name: logs, emptyDir: {}}
  securityContext: {runAsUser: 50000, fsGroup: 0}
  serviceAccountName: example-airflow-worker
  nodeSelector: {pool: workers}
  tolerations: [{key: dedicated, operator: Equal, value: airflow, effect: NoSchedule}]
  terminationGracePeriodSeconds: 600
  restartPolicy: Never
"""

SIDECARS = """
kind: Pod
spec:
  restartPolicy: Always
  initContainers:
    - {name: proxy, image: "proxy:1", restartPolicy: Always}
    - {name: fetch, image: "git:1"}
  containers:
    - {name: first-sidecar, image: "log:1", env: [{name: A, value: b}], resources: {limits: {memory: 64Mi}}}
    - {name: base, image: "apache/airflow:3.3.2", env: [{name: B, value: c}], command: [/wrapper]}
    - {name: last-sidecar, image: "metrics:1"}
"""

AS_ROOT = """
kind: Pod
spec:
  automountServiceAccountToken: true
  securityContext: {runAsUser: 0}
  containers:
    - {name: base, image: "x:1", securityContext: {privileged: true}}
"""

FOREIGN_IDENTITY = """
kind: Pod
metadata:
  generateName: mine-
  labels: {kubernetes_executor: "True", airflow-worker: "99", airflow_executor_done: "True", callback-id: x, own: y}
  annotations: {callback_id: x, own: y}
  finalizers: [example.com/own]
spec:
  activeDeadlineSeconds: 30
  containers: [{name: base, image: "x:1", terminationMessagePolicy: File}]
"""

EVERY_SETTING = PodSettings.model_validate(
    {
        "image": "registry.example.com/alerts:2",
        "namespace": "airflow-alerts",
        "service_account_name": "alerter",
        "priority_class_name": "alerts",
        "resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi", "nvidia.com/gpu": 1}},
        "labels": {"cost-centre": "42", "tier": "alerts"},
        "annotations": {"sidecar.istio.io/inject": "false"},
        "node_selector": {"disk": "ssd"},
        "tolerations": [
            {"key": "alerts", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
        ],
    }
)


def request(template: str | k8s.V1Pod = PLAIN, **more: Any) -> PodRequest:
    values: dict[str, Any] = {
        "callback_id": CALLBACK_ID,
        "attempt": 1,
        "owner": "7",
        "dag_id": "late_reports",
        "run_id": "scheduled__2026-06-01T00:00:00+00:00",
        "callback_path": "alerts.notify",
        "namespace": "airflow",
        "payload": ArgumentPayload('{"token": "…", "callback": {}}'),
        "template": parse_template(template, "template") if isinstance(template, str) else template,
        "deadline_id": "0199bbbb-0000-7000-8000-000000000000",
        "executor": "kubernetes",
    }
    return PodRequest(**{**values, **more})


def as_json(pod: k8s.V1Pod) -> Any:
    return ApiClient().sanitize_for_serialization(pod)


def setting(**values: Any) -> dict[str, Any]:
    return {"settings": PodSettings.model_validate(values)}


GOLDEN_PODS: dict[str, PodRequest] = {
    "plain_template": request(),
    "helm_template": request(HELM),
    "payload_in_secret": request(payload=SecretPayload("{}")),
    "second_attempt_with_finalizer": request(attempt=2, finalizer=True),
    "team": request(team="Data & Söhne"),
    "long_names": request(dag_id="d" * 250, run_id="manual__2026-06-07T01:50:23.457423+00:00_x/y", owner="7"),
    "kube_image": request(kube_image="stock:1"),
    "every_setting_on_helm_template": request(HELM, kube_image="stock:1", settings=EVERY_SETTING),
    "setting_image": request(**setting(image="alerts:2")),
    "setting_namespace": request(**setting(namespace="airflow-alerts")),
    "setting_service_account": request(HELM, **setting(service_account_name="alerter")),
    "setting_priority_class": request(**setting(priority_class_name="alerts")),
    "setting_resources": request(
        HELM, **setting(resources={"requests": {"cpu": 1}, "limits": {"memory": "1Gi"}})
    ),
    "setting_labels_and_annotations": request(HELM, **setting(labels={"tier": "x"}, annotations={"a": "b"})),
    "setting_node_selector_and_tolerations": request(
        HELM, **setting(node_selector={"disk": "ssd"}, tolerations=[{"key": "k", "operator": "Exists"}])
    ),
    "sidecars_and_restart_policy": request(
        SIDECARS, kube_image="stock:1", **setting(resources={"limits": {"cpu": 1}})
    ),
    "template_as_root": request(AS_ROOT),
    "security_context_none": request(security_context="none"),
    "service_account_token": request(service_account_token=True),
    "active_deadline": request(active_deadline_seconds=420),
    "template_with_identity_of_its_own": request(
        FOREIGN_IDENTITY, active_deadline_seconds=420, finalizer=True
    ),
}
