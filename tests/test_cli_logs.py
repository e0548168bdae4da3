"""Logs as the commands read them: lines from a stream, and a stream that is followed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from airflow_kubernetes_callbacks.cli.cluster import Cluster

# lines of a stream ------------------------------------------------------------------------------------


class Stream:
    """The answer to a request for a log: these chunks."""

    def __init__(self, chunks):
        self.chunks = chunks

    def stream(self, size, decode_content):
        return iter(self.chunks)

    def release_conn(self):
        pass


def lines_of(chunks):
    """Return what the client of the commands makes of an answer in these chunks."""
    from types import SimpleNamespace

    answer = Stream(chunks)
    core = SimpleNamespace(read_namespaced_pod_log=lambda *_, **__: answer)
    pod = SimpleNamespace(name="pod", namespace="airflow")
    return list(Cluster(core, namespaces=["airflow"]).log_lines(pod))


@given(st.lists(st.text(alphabet="a\nä", max_size=5).map(str.encode)), st.data())
def test_lines_are_the_same_wherever_the_stream_is_cut(parts, data):
    whole = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    chunks = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    expected = whole.decode().split("\n")
    if not expected[-1]:
        expected.pop()
    assert lines_of(chunks) == expected


class Counted(bytes):
    """A chunk that counts the bytes that are split or put together with it."""

    handled = 0

    def split(self, *arguments):
        Counted.handled += len(self)
        return [Counted(part) for part in super().split(*arguments)]

    def __add__(self, after):
        Counted.handled += len(self) + len(after)
        return Counted(bytes(self) + bytes(after))

    def __radd__(self, before):
        Counted.handled += len(before) + len(self)
        return Counted(bytes(before) + bytes(self))


def test_work_grows_with_the_length_of_a_line_and_no_faster():
    Counted.handled = 0
    chunks = [Counted(b"x" * 100) for _ in range(500)]
    assert lines_of(chunks) == ["x" * 50_000]
    assert Counted.handled <= 2 * 50_000
