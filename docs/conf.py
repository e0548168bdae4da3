"""The documentation site. ``make docs`` builds it; a warning is an error, and no network is needed.

What has one source elsewhere is made from it here, into ``_generated/``: the configuration reference
from the list of options, the changes since the last release from the newsfragments.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT / "src"))

from airflow_kubernetes_callbacks import __version__  # noqa: E402
from airflow_kubernetes_callbacks.settings import OPTIONS, SECTION  # noqa: E402

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "airflow-provider-kubernetes-callbacks"
version = release = __version__
copyright = "the authors, Apache License 2.0"  # noqa: A001

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
exclude_patterns = ["_build", "_generated", "README.md"]
nitpicky = True

html_theme = "furo"
html_title = f"Kubernetes callbacks {__version__}"
html_static_path = ["_static"]
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False

#: Options by what they are about, in the order of the reference. An option in no group fails the build.
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
    """Return the options as Markdown: one section each, named as in airflow.cfg."""
    options = {option.name: option for option in OPTIONS}
    grouped = [name for names in GROUPS.values() for name in names]
    if sorted(grouped) != sorted(options):
        raise ValueError(f"GROUPS in docs/conf.py and OPTIONS differ: {sorted(set(grouped) ^ set(options))}")
    parts = []
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


#: Kinds of newsfragments, in the order of the changelog; ``[[tool.towncrier.type]]`` has them too.
KINDS = {
    "significant": "Changes that need attention",
    "feature": "Features",
    "bugfix": "Bug fixes",
    "doc": "Documentation",
}


def unreleased_page() -> str:
    """Return the newsfragments as a release would collect them."""
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for path in sorted((ROOT / "newsfragments").glob("*.*.md")):
        kind = path.name.split(".")[1]
        if kind in found:
            found[kind].append(re.sub(r"\s+", " ", path.read_text(encoding="utf-8")).strip())
    parts = [
        f"### {KINDS[kind]}\n\n" + "\n".join(f"- {text}" for text in texts)
        for kind, texts in found.items()
        if texts
    ]
    return "\n\n".join(["## Not released yet", *(parts or ["Nothing yet."])]) + "\n"


def generate(_app: Sphinx) -> None:
    """Write the generated pages, which others include."""
    folder = DOCS / "_generated"
    folder.mkdir(exist_ok=True)
    for name, text in (("options.md", options_page()), ("unreleased.md", unreleased_page())):
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", generate)
    return {"parallel_read_safe": True}
