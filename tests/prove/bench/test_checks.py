"""A measurement finds what is lost, doubled, reordered or damaged."""

from __future__ import annotations

import array
import subprocess
import sys

import pytest

from bench import bodies
from bench.compiled import ROOT
from bench.large import STEP, LargeWay
from bench.rows import crowd
from bench.stage import Failed
from bench.way import Receive, Send
from tests.prove.bench.faulty import PLACES


def measure(how: str, fault: str, at: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.prove.bench.faulty", how, fault, str(at)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("how", ["stream", "trip"])
def test_a_sound_pipe_is_measured(how: str) -> None:
    ended = measure(how, "none", 5)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("at", PLACES)
@pytest.mark.parametrize("fault", ["lose", "damage", "shorten", "reorder"])
def test_a_faulty_stream_is_found(fault: str, at: int) -> None:
    ended = measure("stream", fault, at)
    assert ended.returncode == 1
    assert "Wrong" in ended.stderr or "messages were lost" in ended.stderr


@pytest.mark.parametrize("at", PLACES[:-1])
def test_a_doubled_message_is_found(at: int) -> None:
    ended = measure("stream", "double", at)
    assert ended.returncode == 1
    assert "in place of message" in ended.stderr


@pytest.mark.parametrize("fault", ["lose", "double", "damage", "shorten", "reorder"])
def test_a_faulty_round_trip_is_found(fault: str) -> None:
    ended = measure("trip", fault, 5)
    assert ended.returncode == 1
    assert "Wrong" in ended.stderr or "messages were lost" in ended.stderr


# ---- the comparison itself ----


def test_all_bodies_of_a_round_differ() -> None:
    for size in (64, 1024):
        made = bodies.make(size)
        assert len(set(made)) == len(made) == bodies.ROUND
        assert {len(body) for body in made} == {size}
        assert made == bodies.make(size)


@pytest.mark.parametrize(
    ("received", "error"),
    [
        ([b"a", b"b"], "2 messages arrived where 3 were sent"),
        ([b"a", b"c", b"b"], "message 2 of a round arrived in place of message 1"),
        ([b"a", b"a", b"c"], "message 0 of a round arrived in place of message 1"),
        ([b"a", b"x", b"c"], "message 1 of a round arrived with other bytes"),
    ],
)
def test_a_difference_is_named(received: list[bytes], error: str) -> None:
    with pytest.raises(bodies.Wrong, match=error):
        bodies.check(received, [b"a", b"b", b"c"])


class Large(LargeWay):
    label = "large"

    def sender(self, bodies: list[bytes]) -> Send:
        raise NotImplementedError

    def receiver(self, count: int) -> Receive:
        raise NotImplementedError


def test_of_a_large_body_every_byte_or_something_of_each_page_is_seen() -> None:
    pytest.importorskip("numpy")
    way = Large("x", 1 << 20)
    body = bytearray(bodies.make(1 << 20, 1)[0])
    (whole,) = way.expected([bytes(body)])
    way.whole = False
    (sample,) = way.expected([bytes(body)])
    for page in range(256):
        body[page * STEP * 8] ^= 1
        assert way.seen(body) != sample
        body[page * STEP * 8] ^= 1
    body[12_345] ^= 1
    assert way.seen(body) == sample
    way.whole = True
    assert way.seen(body) != whole


# ---- many producers and consumers ----


def taken(*pairs: tuple[int, int]) -> bytes:
    return array.array("I", [number for pair in pairs for number in pair]).tobytes()


def test_of_many_consumers_every_message_must_be_taken_once() -> None:
    crowd.verify([taken((0, 0), (1, 1)), taken((1, 0), (0, 1))], 2, 2)
    with pytest.raises(Failed, match="3 messages were taken, 3 different ones, of 4"):
        crowd.verify([taken((0, 0), (1, 1)), taken((1, 0))], 2, 2)
    with pytest.raises(Failed, match="4 messages were taken, 3 different ones, of 4"):
        crowd.verify([taken((0, 0), (1, 1)), taken((1, 0), (1, 1))], 2, 2)


def test_of_many_consumers_each_must_see_a_producers_order() -> None:
    with pytest.raises(Failed, match="message 0 of producer 1 came after a later one"):
        crowd.verify([taken((0, 0), (1, 1), (1, 0)), taken((0, 1))], 2, 2)
