"""The folder of a demo. It goes with the demo, and if that was killed, when the next one begins."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX = "airflow-kubernetes-callbacks-demo-"
#: Locked as long as the demo's process lives; the kernel sees to that, however the process ends.
LOCK = "lock"


class DemoFolder:
    """A new folder, only for this user.

    :param parent: where it is made; the folder for temporary files by default.
    """

    def __init__(self, parent: Path | None = None) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        unlocked = self.path / f"{LOCK}.new"
        self._lock = unlocked.open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # Under this name nobody has ever found it unlocked.
        unlocked.rename(self.path / LOCK)

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        _remove(self.path)
        self._lock.close()

    def keep(self) -> None:
        """Leave the folder to be read; no later demo removes it."""
        (self.path / LOCK).unlink(missing_ok=True)
        self._lock.close()


def remove_abandoned(parent: Path | None = None) -> Iterator[Path]:
    """Remove the folders of demos that were killed, and yield each."""
    for folder in sorted(Path(parent or tempfile.gettempdir()).glob(f"{PREFIX}*")):
        # Others may make folders with such a name, too.
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            with (folder / LOCK).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)
            if not folder.exists():
                yield folder


def _remove(folder: Path) -> None:
    """Remove *folder*, the lock at the end: what cannot be removed yet is for the next demo."""
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.name != LOCK:
            entry.unlink(missing_ok=True)
    if [entry.name for entry in folder.iterdir()] == [LOCK]:
        shutil.rmtree(folder, ignore_errors=True)
