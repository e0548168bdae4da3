"""Keeps a callback's log when its pod goes, where Airflow looks for the logs of callbacks.

The path under the base log folder is core's (``executor_callbacks/{dag_id}/{run_id}/{callback_id}``,
apache/airflow ``ExecuteCallback.make``), so Airflow 3.4's page finds it where scheduler and api-server
share a log folder. What the pod itself uploaded to remote logging is not touched.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def log_file(base_folder: str, dag_id: str, run_id: str, callback_id: str) -> Path | None:
    """Return where the callback's log belongs, or None if that would lie outside the log folder.

    Dag ids and run ids may hold ``/`` and ``..``; the path is the one that core makes of them, and only
    one that stays inside its own folder is written to.
    """
    if not dag_id or not run_id:
        return None
    root = Path(base_folder).resolve() / "executor_callbacks"
    path = (root / dag_id / run_id / callback_id).resolve()
    return path if root in path.parents else None


def save_log(path: Path, text: bytes) -> None:
    """Write the log so that a reader sees all of it or none; one that is there already is kept.

    :raises OSError: the folder cannot be written to.
    """
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text)
        Path(temporary).chmod(0o664)
        Path(temporary).rename(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
