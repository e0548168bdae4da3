"""The options that say what a callback's pod looks like and how its workload reaches it."""

from __future__ import annotations

from airflow_kubernetes_callbacks.options import (
    Option,
    boolean,
    choice,
    json_value,
    plain_text,
    seconds,
)

POD_OPTIONS: tuple[Option, ...] = (
    Option(
        "pod_template_file",
        plain_text,
        "",
        "Path of a pod template for callbacks. Empty: the template of [kubernetes_executor], as for tasks. "
        "The callback runs in the container named base, wherever it stands; other containers and init "
        "containers are kept.",
        example="/opt/airflow/pod_templates/callback.yaml",
    ),
    Option(
        "image",
        plain_text,
        "",
        "Image of the callback's container, over that of the template and of [kubernetes_executor]. It has "
        "to hold the same Airflow version as the scheduler.",
        example="registry.example.com/airflow-alerts:1.4",
    ),
    Option(
        "namespace",
        plain_text,
        "",
        "Namespace of callback pods. Empty: the one that the template names if it is watched, else that of "
        "the executor. With one of their own, alerts do not share quota and fate with the tasks that they "
        "report on; the scheduler's service account needs its Role there.",
        example="airflow-alerts",
    ),
    Option(
        "service_account_name",
        plain_text,
        "",
        "Service account of callback pods.",
        example="airflow-callback",
    ),
    Option(
        "priority_class_name",
        plain_text,
        "",
        "Priority class of callback pods, so that an alert is not held back, or preempted, by what it reports on.",
        example="airflow-alerts",
    ),
    Option(
        "resources",
        json_value(dict, "an object with requests and limits"),
        "",
        "Resources of the callback's container, as JSON. Keys that are set here win over the template's.",
        example='{"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}}',
    ),
    Option(
        "labels",
        json_value(dict, "an object with texts"),
        "",
        "Further labels of callback pods, as JSON.",
        example='{"team": "platform"}',
    ),
    Option(
        "annotations",
        json_value(dict, "an object with texts"),
        "",
        "Further annotations of callback pods, as JSON.",
        example='{"sidecar.istio.io/inject": "false"}',
    ),
    Option(
        "node_selector",
        json_value(dict, "an object with texts"),
        "",
        "Node labels that callback pods ask for, as JSON; added to those of the template.",
        example='{"pool": "system"}',
    ),
    Option(
        "tolerations",
        json_value(list, "a list of tolerations"),
        "",
        "Tolerations of callback pods, as JSON, in place of the template's; their keys are those of Kubernetes.",
        example='[{"key": "dedicated", "operator": "Equal", "value": "alerts", "effect": "NoSchedule"}]',
    ),
    Option(
        "rules",
        plain_text,
        "",
        "Rules, as JSON or YAML: a list of objects with name, match (callback, dag_id, team, executor: globs "
        "or lists of them) and pod (any of the pod options above). The first rule whose match fits a callback "
        "is applied over the options of this section. A rule without match is used only by name, see "
        "author_settings.",
        example='[{"name": "heavy", "match": {"dag_id": "etl_*"}, '
        '"pod": {"resources": {"limits": {"memory": "2Gi"}}}}]',
    ),
    Option(
        "rules_file",
        plain_text,
        "",
        "Path of a YAML file with rules, in place of rules.",
        example="/opt/airflow/callback_rules.yaml",
    ),
    Option(
        "author_settings",
        choice("all", "rules", "none"),
        "all",
        "What the author of a Dag may choose for one callback with the reserved kwarg kubernetes_callback: "
        "resources and a rule by its name (all), only a rule (rules), nothing (none: such a callback fails "
        "with a message that says so). The kwarg never reaches the callback's function.",
    ),
    Option(
        "security_context",
        choice("restricted", "none"),
        "restricted",
        "restricted: where the template says nothing else, the callback's container gets a security context "
        "that passes the PodSecurity level of that name (runAsNonRoot, no privilege escalation, no "
        "capabilities, seccomp RuntimeDefault). none: the template alone decides, for images that run as root.",
    ),
    Option(
        "service_account_token",
        boolean,
        "False",
        "Mount the service account's token into callback pods. A template that says "
        "automountServiceAccountToken: true gets it in any case.",
        type="boolean",
    ),
    Option(
        "active_deadline_margin",
        seconds(0),
        "60",
        "With [callbacks] callback_execution_timeout set, Kubernetes ends a callback pod that outlives that "
        "timeout, pending_timeout and this margin together (activeDeadlineSeconds): a backstop for a pod "
        "whose own supervisor hangs.",
        type="float",
    ),
    Option(
        "payload_delivery",
        choice("auto", "secret", "argument"),
        "auto",
        "How the workload, with its token and kwargs, reaches the pod. secret: in a Secret that belongs to the "
        "pod, up to 1 MiB. argument: on the command line, in the pod's spec, up to 128 KiB. auto: secret where "
        "the scheduler's service account may create Secrets, else argument.",
    ),
    Option(
        "connections_and_variables",
        boolean,
        "True",
        "On Airflow 3.3, let callbacks read Connections and Variables, which a notifier with a stored "
        "connection needs: their token gets the scope that tasks have. It is given out only inside a Secret. "
        "Later versions of Airflow allow it by themselves.",
        type="boolean",
    ),
)
