"""The documentation site. ``make docs`` builds it; a warning is an error, and no network is needed.

The changes since the last release are put into the changelog from the newsfragments. The list of options,
``reference/options.md``, is made by ``make options``.
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

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "airflow-provider-kubernetes-callbacks"
version = release = __version__
copyright = "the authors, Apache License 2.0"  # noqa: A001

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
# _generated: what builds of earlier versions left in a checkout.
exclude_patterns = ["_build", "_generated", "README.md"]
nitpicky = True

html_theme = "furo"
html_title = f"Kubernetes callbacks {__version__}"
html_static_path = ["_static"]
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False

#: Where the releases begin; ``[tool.towncrier]`` has it too.
RELEASES = "<!-- towncrier release notes start -->"

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


def fill_changelog(app: Sphinx, page: str, content: list[str]) -> None:
    """Put the newsfragments into the changelog as it is read, before the releases."""
    if page != "changelog":
        return
    content[0] = content[0].replace(RELEASES, f"{unreleased_page()}\n{RELEASES}")
    folder = ROOT / "newsfragments"
    for path in (folder, *folder.glob("*.md")):
        app.env.note_dependency(str(path), docname=page)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", fill_changelog)
    return {"parallel_read_safe": True}
