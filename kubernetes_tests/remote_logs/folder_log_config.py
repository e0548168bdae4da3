"""``[logging] logging_config_class`` of the tests: remote storage that is a folder of this machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from airflow.config_templates.airflow_local_settings import DEFAULT_LOGGING_CONFIG


class FolderStorage:
    """Uploads a log to the same path below the folder that ``REMOTE_LOGS`` names."""

    processors: tuple[Any, ...] = ()

    def upload(self, path: os.PathLike[str] | str, ti: object = None) -> None:
        target = Path(os.environ["REMOTE_LOGS"], path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(os.environ["AIRFLOW__LOGGING__BASE_LOG_FOLDER"], path), target)

    def read(self, relative_path: str, ti: object) -> tuple[list[str], list[str]]:
        return [], [Path(os.environ["REMOTE_LOGS"], relative_path).read_text(encoding="utf-8")]


LOGGING_CONFIG = DEFAULT_LOGGING_CONFIG
REMOTE_TASK_LOG = FolderStorage()
