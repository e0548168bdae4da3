"""A YAML (or JSON) text that knows the line of everything in it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from airflow_kubernetes_callbacks.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class YamlSource:
    """A parsed YAML text.

    :param text: the text.
    :param name: what it comes from, for messages.
    :raises SettingsError: if it is not YAML, or a key stands twice in one mapping.
    """

    def __init__(self, text: str, name: str) -> None:
        self._name = name
        try:
            self._root = yaml.compose(text, Loader=yaml.SafeLoader)
            self.value: Any = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            mark = getattr(error, "problem_mark", None)
            line = f", line {mark.line + 1}" if mark else ""
            problem = getattr(error, "problem", None) or str(error)
            raise SettingsError(f"{name}{line}: this is not YAML: {problem}. Correct it.") from error
        for node in _mappings(self._root):
            self._refuse_repetition(node)

    def error(self, path: Sequence[str | int], message: str) -> SettingsError:
        """Return an error that names the place at *path* (keys and indices): its line and its key."""
        node, named = self._root, ""
        line = node.start_mark.line if node is not None else 0
        for part in path:
            found = _child(node, part)
            if found is None:
                # pydantic adds words of its own to a path, a missing key is not there either
                named = f"{named}.{part}" if part != "[key]" else named
                continue
            line, node = found
            named += f"[{part}]" if isinstance(part, int) else f".{part}"
        where = f", at {named.removeprefix('.')}" if named else ""
        return SettingsError(f"{self._name}, line {line + 1}{where}: {message}. Correct it.")

    def _refuse_repetition(self, node: yaml.MappingNode) -> None:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise SettingsError(
                        f"{self._name}, line {key.start_mark.line + 1}: the key {key.value!r} stands here a "
                        "second time. Remove one of them."
                    )
                seen.add(key.value)


def _mappings(node: yaml.Node | None) -> Iterator[yaml.MappingNode]:
    waiting, known = [node], set()
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in known:
            continue
        known.add(id(current))  # an alias can stand in many places, and in itself
        if isinstance(current, yaml.MappingNode):
            yield current
            waiting.extend(value for _, value in current.value)
        elif isinstance(current, yaml.SequenceNode):
            waiting.extend(current.value)


def _child(node: yaml.Node | None, part: str | int) -> tuple[int, yaml.Node] | None:
    """Return line and node of a mapping's key or a sequence's item."""
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part].start_mark.line, node.value[part]
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == str(part):
                return key.start_mark.line, value
    return None
