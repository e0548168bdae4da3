"""What an option is and how its text is read; pure."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Option:
    """One option: its name, how its text is read, its default and what it is for."""

    name: str
    parse: Callable[[str], Any]
    default: str
    description: str
    example: str | None = None
    type: str = "string"
    version_added: str = "0.1.0"


def seconds(minimum: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = float(text)
        if not math.isfinite(value) or value < minimum:
            raise ValueError(f"must be a number of seconds, at least {minimum:g}")
        return value

    return parse


def count(minimum: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if value < minimum:
            raise ValueError(f"must be a whole number, at least {minimum}")
        return value

    return parse


def boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in ("true", "t", "1", "yes", "y", "on"):
        return True
    if lowered in ("false", "f", "0", "no", "n", "off"):
        return False
    raise ValueError("must be True or False")


def choice(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        value = text.strip().lower()
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return value

    return parse


def plain_text(text: str) -> str:
    return text.strip()


def json_value(kind: type, what: str) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            value = json.loads(text, parse_float=_finite, parse_constant=_finite) if text.strip() else kind()
        except (ValueError, RecursionError) as error:
            raise ValueError(f"is not JSON ({error}); must be {what}") from error
        if not isinstance(value, kind):
            raise ValueError(f"must be {what}")
        return value

    return parse


def _finite(text: str) -> float:
    """Return a number in JSON; Python would take NaN and Infinity too, which are no JSON, and 1e999 for infinite."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no number that can be used")
    return value
