"""Print docs/reference/options.md, made from the list of options: ``make options`` writes it.

It is in the repository, so that it can be read where the repository is; a test compares it.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from airflow_kubernetes_callbacks.settings import OPTIONS, SECTION

HEAD = f"""\
<!-- made by 'make options' from the list of options in the package; do not edit -->

# Options of `[{SECTION}]`

What they have to do with each other, and with the options of Airflow: [configuration](configuration.md).
"""

#: Options by what they are about, in the order of the reference. An option in no group is an error.
GROUPS = {
    "Launching": (
        "reconcile_interval",
        "launch_concurrency",
        "launch_retries",
        "create_retries",
        "launch_retry_delay",
        "launch_retry_max_delay",
        "pending_timeout",
        "start_error_grace",
        "node_lost_timeout",
        "max_active_callbacks",
    ),
    "The pod": (
        "pod_template_file",
        "image",
        "namespace",
        "service_account_name",
        "priority_class_name",
        "resources",
        "labels",
        "annotations",
        "node_selector",
        "tolerations",
        "security_context",
        "service_account_token",
        "active_deadline_margin",
        "pod_finalizer",
    ),
    "Rules": ("rules", "rules_file", "author_settings"),
    "Workload and token": ("payload_delivery", "connections_and_variables"),
    "Logs": ("save_logs", "log_limit_bytes"),
}


def options_page() -> str:
    """Return the options as Markdown: one section each, named as in airflow.cfg.

    :raises ValueError: when an option is in no group, or a group has one that does not exist.
    """
    options = {option.name: option for option in OPTIONS}
    grouped = [name for names in GROUPS.values() for name in names]
    if sorted(grouped) != sorted(options):
        raise ValueError(
            f"GROUPS in dev/options_page.py and OPTIONS differ: {sorted(set(grouped) ^ set(options))}"
        )
    parts = [HEAD]
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n")
        for name in names:
            option = options[name]
            default = f"`{option.default}`" if option.default else "empty"
            parts.append(f"### {name}\n\n{option.description}\n")
            facts = [f"- Type: {option.type}", f"- Default: {default}", f"- Since: {option.version_added}"]
            facts.append(f"- Environment variable: `AIRFLOW__{SECTION.upper()}__{name.upper()}`")
            parts.append("\n".join(facts) + "\n")
            if option.example:
                parts.append(f"```ini\n[{SECTION}]\n{name} = {option.example}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(options_page())
