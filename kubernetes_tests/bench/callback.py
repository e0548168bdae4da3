"""A callback that writes down when it ran."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path


def note(key: str, **_: object) -> None:
    """Write both moments into a file named *key*."""
    began = time.time()
    Path(os.environ["BENCH_NOTES"], key).write_text(
        json.dumps({"id": key, "began": began, "ended": time.time()})
    )
