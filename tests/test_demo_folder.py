"""The demo leaves nothing behind, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from kubernetes_tests.demo.folder import LOCK, PREFIX, DemoFolder, remove_abandoned


@pytest.fixture
def folder(tmp_path):
    made = DemoFolder(tmp_path)
    (made.path / "cluster").mkdir()
    (made.path / "cluster" / "log").write_text("said")
    (made.path / "airflow.sh").touch()
    yield made
    made.keep()


def run(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def killed(parent):
    """Return the folder of a demo that was killed."""
    done = run(
        """
        import os, pathlib, signal, sys
        from kubernetes_tests.demo.folder import DemoFolder
        folder = DemoFolder(pathlib.Path(sys.argv[1]))
        (folder.path / "cluster").mkdir()
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        parent,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    (left,) = parent.iterdir()
    return left


def test_folder_is_for_this_user_only_and_goes_with_all_that_is_in_it(folder):
    assert folder.path.stat().st_mode & 0o777 == 0o700
    folder.remove()
    assert not folder.path.exists()


def test_folder_of_a_demo_that_was_killed_is_removed_by_the_next(tmp_path):
    left = killed(tmp_path)
    assert list(remove_abandoned(tmp_path)) == [left]
    assert list(tmp_path.iterdir()) == []


def test_folder_of_a_demo_that_lives_is_left_alone(folder, tmp_path):
    assert list(remove_abandoned(tmp_path)) == []
    assert (folder.path / "cluster" / "log").exists()


def test_folder_that_is_kept_is_left_alone(folder, tmp_path):
    folder.keep()
    assert list(remove_abandoned(tmp_path)) == []
    assert (folder.path / "cluster" / "log").exists()


def test_what_a_link_points_to_is_left_alone(tmp_path):
    elsewhere, temporary = tmp_path / "elsewhere", tmp_path / "temporary"
    elsewhere.mkdir()
    (elsewhere / LOCK).touch()
    temporary.mkdir()
    (temporary / f"{PREFIX}link").symlink_to(elsewhere)
    assert list(remove_abandoned(temporary)) == []
    assert (elsewhere / LOCK).exists()


def test_what_cannot_be_removed_yet_is_for_the_next_demo(tmp_path, monkeypatch):
    left = killed(tmp_path)
    with monkeypatch.context() as context:
        context.setattr("shutil.rmtree", lambda *args, **kwargs: None)
        list(remove_abandoned(tmp_path))
    assert (left / LOCK).exists()
    list(remove_abandoned(tmp_path))
    assert not left.exists()


#: A demo whose screen is gone once it was asked to end, as that of a terminal which was closed.
ENDED_WITHOUT_A_SCREEN = """
    import os, signal, sys
    from kubernetes_tests.demo import __main__ as demo

    class Screen:
        def say(self, text):
            raise OSError("the terminal is gone")

    def run(screen, folder, *, keep):
        (folder / "log").touch()
        try:
            {happens}
        finally:
            {at_the_end}

    demo.run = run
    demo.run_in_a_folder(Screen(), demo.Ending(), keep=False)
"""


@pytest.mark.parametrize(
    ("happens", "at_the_end"),
    [
        pytest.param("os.kill(os.getpid(), signal.SIGHUP)", "pass", id="hung-up"),
        pytest.param("os.kill(os.getpid(), signal.SIGHUP)", "screen.say('')", id="hung-up-while-it-prints"),
        pytest.param(
            "os.kill(os.getpid(), signal.SIGINT)", "os.kill(os.getpid(), signal.SIGHUP)", id="asked-twice"
        ),
        pytest.param("screen.say('')", "pass", id="nobody-reads-any-more"),
    ],
)
def test_demo_that_is_ended_leaves_no_folder(happens, at_the_end, tmp_path):
    code = textwrap.dedent(ENDED_WITHOUT_A_SCREEN).format(happens=happens, at_the_end=at_the_end)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        check=False,
    )
    assert done.returncode != 0
    assert list(tmp_path.iterdir()) == []


def test_demo_that_fails_keeps_its_logs_and_says_where(tmp_path):
    code = textwrap.dedent(ENDED_WITHOUT_A_SCREEN).format(happens="return 1", at_the_end="pass")
    code = code.replace('raise OSError("the terminal is gone")', "print(text)")
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    (kept,) = tmp_path.iterdir()
    assert [entry.name for entry in kept.iterdir()] == ["log"]
    assert str(kept) in done.stdout
