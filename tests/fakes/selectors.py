"""Label and field selectors, as the API server reads them."""

from __future__ import annotations

import re
from typing import Any

_SET = re.compile(r"^\s*([^\s!]+)\s+(in|notin)\s+\(([^)]*)\)\s*$")


def matches_labels(selector: str, labels: dict[str, str]) -> bool:
    return all(_matches(requirement, labels) for requirement in _split(selector))


def matches_fields(selector: str, document: dict[str, Any]) -> bool:
    return all(_matches(requirement, _Fields(document)) for requirement in _split(selector))


def _split(selector: str) -> list[str]:
    """Split at commas that are not inside parentheses."""
    return [part for part in re.split(r",(?![^(]*\))", selector) if part.strip()]


def _matches(requirement: str, values: Any) -> bool:
    if found := _SET.match(requirement):
        key, operator, listed = found.groups()
        inside = values.get(key) in {item.strip() for item in listed.split(",")}
        return inside if operator == "in" else not inside
    requirement = requirement.strip()
    for operator, equal in (("!=", False), ("==", True), ("=", True)):
        if operator in requirement:
            key, value = requirement.split(operator, 1)
            return (values.get(key) == value) is equal
    if requirement.startswith("!"):
        return values.get(requirement[1:]) is None
    return values.get(requirement) is not None


class _Fields:
    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document

    def get(self, path: str) -> Any:
        value: Any = self._document
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value
