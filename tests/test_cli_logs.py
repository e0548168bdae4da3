"""Logs as the commands read them: lines from a stream, and a stream that is followed."""

# ruff: noqa: F811 - fixtures of another module

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kubernetes_callbacks.cli import following
from airflow_kubernetes_callbacks.cli.cluster import Cluster
from airflow_kubernetes_callbacks.cli.following import Place
from tests.fakes.scheduler import set_row
from tests.test_cli_commands import airflow, make_pod, missed  # noqa: F401

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
    core = SimpleNamespace(api_client=SimpleNamespace(call_api=lambda *_, **__: Stream(chunks)))
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


# a stream that is followed ----------------------------------------------------------------------------


def stamped(*lines):
    """Return lines of a log with their times: seconds, and a text."""
    return [f"2026-06-01T10:00:{second:012.9f}Z {text}" for second, text in lines]


def test_lines_that_come_again_are_passed_over():
    place = Place()
    first = stamped((1, "before"), (2.1, "a"), (2.5, "b"), (2.5, "c"))
    assert list(place.unread(first)) == ["before", "a", "b", "c"]
    assert place.stamp == first[-1].partition(" ")[0]
    again = [*first[1:], *stamped((2.5, "d"), (3, "e"))]
    assert list(place.unread(again)) == ["d", "e"]
    assert list(place.unread(stamped((3, "e"), (2.9, "clock went back"), (4, "f")))) == ["f"]


def test_lines_whose_beginning_is_gone_are_all_new():
    """A log that is rotated loses its first lines; those that were counted may be among them."""
    place = Place()
    assert list(place.unread(stamped((1, "a"), (1, "b")))) == ["a", "b"]
    assert list(place.unread(stamped((5, "c"), (4, "clock went back")))) == ["c", "clock went back"]


def test_lines_without_a_time_are_printed_as_they_are():
    assert list(Place().unread(["{}", "2026-06-01 words", ""])) == ["{}", "2026-06-01 words", ""]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=30).map(sorted), st.data())
def test_every_line_is_printed_once_wherever_its_stream_breaks(times, data):
    lines = stamped(*((second + tenth / 10, f"line {n}") for n, (second, tenth) in enumerate(times)))
    breaks = sorted(data.draw(st.lists(st.integers(0, len(lines)), max_size=4)))
    place, printed = Place(), []
    for end in [*breaks, len(lines)]:
        since = place.stamp.partition(".")[0] if place.stamp else ""  # Kubernetes cuts it to seconds
        printed += place.unread([line for line in lines[:end] if line[: len(since)] >= since])
    assert printed == [f"line {n}" for n in range(len(lines))]


CUT_OFF = {"Transfer-Encoding": "chunked"}


def cut_off(*lines):
    """Return the body of an answer that breaks in its middle: what follows is no chunk."""
    text = "".join(f"{line}\n" for line in lines).encode()
    return b"%x\r\n%s\r\nno chunk\r\n" % (len(text), text)


def answer(api_server, *lines, broken=False):
    """Have the next request for a log answered like this."""
    body = cut_off(*lines) if broken else "".join(f"{line}\n" for line in lines).encode()
    return api_server.fail("GET", "/log[?]", status=200, body=body, headers=CUT_OFF if broken else {})


@pytest.fixture
def pauses(monkeypatch):
    """The pauses that were made; what stands in ``then`` happens in them, one after the other."""
    made = SimpleNamespace(seconds=[], then=[])

    def sleep(seconds):
        made.seconds.append(seconds)
        assert len(made.seconds) < 20, "it does not come to an end"
        if made.then:
            made.then.pop(0)()

    monkeypatch.setattr(following, "time", SimpleNamespace(sleep=sleep))
    return made


@pytest.fixture
def running(api_server, missed):
    """A callback that runs, and its pod."""
    callback_id = missed(state="running")
    return callback_id, api_server.node.start(make_pod(api_server, callback_id))


@pytest.mark.parametrize("broken", [False, True], ids=["ends", "breaks"])
def test_followed_log_goes_on_where_its_stream_stopped(airflow, api_server, running, pauses, broken):
    callback_id, pod = running
    first, second = stamped((1, "one"), (2.5, "two")), stamped((2.5, "two"), (2.75, "three"))
    answer(api_server, *first, broken=broken)
    answer(api_server, *second)
    pauses.then = [lambda: api_server.node.finish(pod)]
    done = airflow("logs", callback_id, "--follow", "--tail", "5")
    assert (done.status, done.out.splitlines()) == (0, ["one", "two", "three"])
    asked = [request.query for request in api_server.made("GET", "/log$")]
    assert [query.get("sinceTime") for query in asked] == [None, first[-1].partition(" ")[0]]
    assert [query.get("tailLines") for query in asked] == ["5", None]
    assert ("broke off, and is opened again" in done.err) is broken


def test_pauses_between_streams_grow_until_something_comes(airflow, api_server, running, pauses):
    callback_id, pod = running
    for _ in range(4):
        answer(api_server, *stamped((1, "one")))
    answer(api_server, *stamped((1, "one"), (2, "two")), broken=True)
    pauses.then = [*[lambda: None] * 4, lambda: api_server.node.finish(pod)]
    assert airflow("logs", callback_id, "-f").out.splitlines() == ["one", "two"]
    assert pauses.seconds == [1, 2, 4, 8, 1]


def test_api_server_that_is_away_is_waited_for(airflow, api_server, running, pauses):
    callback_id, pod = running
    api_server.fail("GET", "/log[?]", status=503, message="etcd is on holiday")
    api_server.fail("GET", "/log[?]", status=503, message="etcd is on holiday")
    answer(api_server, *stamped((1, "one")))
    pauses.then = [lambda: None, lambda: api_server.node.finish(pod)]
    done = airflow("logs", callback_id, "-f")
    assert (done.status, done.out) == (0, "one\n")
    assert done.err.count("etcd is on holiday") == 1


def test_log_that_is_followed_is_read_once_more_when_the_callback_has_ended(
    airflow,
    api_server,
    running,
    pauses,
):
    """Its pod still says that it runs: the node is lost."""
    callback_id, _ = running
    answer(api_server, *stamped((1, "one")))
    answer(api_server, *stamped((1, "one"), (2, "two")))
    pauses.then = [lambda: set_row(callback_id, state="failed")]
    done = airflow("logs", callback_id, "-f")
    assert (done.status, done.out) == (0, "one\ntwo\n")
    assert [request.query.get("follow") for request in api_server.made("GET", "/log$")] == ["true", None]


def test_end_of_a_log_that_is_missing_is_said(airflow, api_server, running, pauses, tmp_path):
    """What was kept of it is not printed behind what was read: most of it would come twice."""
    callback_id, pod = running
    answer(api_server, *stamped((1, "one")), broken=True)
    pauses.then = [lambda: api_server.node.remove(pod)]
    done = airflow("logs", callback_id, "-f")
    assert (done.status, done.out) == (3, "one\n")
    assert "its end may be missing" in done.err
    assert "There is no log" not in done.err


def test_other_container_is_followed_to_its_own_end(airflow, api_server, running, pauses):
    callback_id, pod = running
    answer(api_server, *stamped((1, "one")))
    answer(api_server, *stamped((1, "one"), (2, "two")))
    ended = [{"name": "proxy", "state": {"terminated": {"exitCode": 0}}}]
    pauses.then = [lambda: api_server.node.mark(pod, initContainerStatuses=ended)]
    done = airflow("logs", callback_id, "-f", "--container", "proxy")
    assert (done.status, done.out) == (0, "one\ntwo\n")
    assert {request.query["container"] for request in api_server.made("GET", "/log$")} == {"proxy"}


def test_interrupt_ends_it_quietly(airflow, api_server, running, pauses):
    def interrupt():
        raise KeyboardInterrupt

    callback_id, _ = running
    answer(api_server, *stamped((1, "one")))
    pauses.then = [interrupt]
    done = airflow("logs", callback_id, "-f")
    assert (done.status, done.out, done.err) == (130, "one\n", "")
