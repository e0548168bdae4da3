"""Ages as people write and read them. Pure."""

from __future__ import annotations

import re

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_AGE = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+")
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def parse_age(text: str) -> float:
    """Return the seconds in a text such as ``90s``, ``15m``, ``2h30m`` or ``7d``.

    :raises ValueError: for any other text; says what would be accepted.
    """
    cleaned = text.strip().lower()
    if not _AGE.fullmatch(cleaned):
        raise ValueError(f"{text!r} is not an age; write for example 90s, 15m, 2h30m or 7d")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(cleaned))


def age_text(seconds: float | None) -> str:
    """Return seconds as a short text: the two largest units that matter."""
    if seconds is None:
        return ""
    sign = "-" if seconds < 0 else ""
    whole = int(abs(seconds))
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    if days:
        return f"{sign}{days}d{hours}h" if hours else f"{sign}{days}d"
    if hours:
        return f"{sign}{hours}h{minutes:02}m"
    if minutes:
        return f"{sign}{minutes}m{left:02}s"
    return f"{sign}{left}s"
