"""What README and docs tell people to apply is taken by a real API server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from kubernetes.dynamic import DynamicClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubernetes_tests.clusters import Cluster

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^( *)```yaml\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def manifests() -> Iterator[Any]:
    for page in PAGES:
        for match in BLOCK.finditer(page.read_text(encoding="utf-8")):
            if match[2].startswith(("# rules", "# values.yaml")):
                continue
            for document in yaml.safe_load_all(match[2]):
                name = f"{page.name}-{document['kind']}-{document['metadata']['name']}"
                yield pytest.param(document, id=name)


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[str]:
    with cluster.namespace() as namespace:
        yield namespace.name


@pytest.mark.parametrize("document", [*manifests()])
def test_api_server_takes_the_manifest(cluster: Cluster, namespace: str, document: dict[str, Any]) -> None:
    client = cluster.core.api_client
    kind = DynamicClient(client).resources.get(api_version=document["apiVersion"], kind=document["kind"])
    if kind.namespaced:
        document = {**document, "metadata": {**document["metadata"], "namespace": namespace}}
    client.call_api(
        kind.path(namespace=namespace),
        "POST",
        query_params=[("dryRun", "All"), ("fieldValidation", "Strict")],
        header_params={"Content-Type": "application/json", "Accept": "application/json"},
        body=document,
        auth_settings=["BearerToken"],
        _preload_content=False,
        _return_http_data_only=True,
    )
