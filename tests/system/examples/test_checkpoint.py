"""Where a producer finds how far it has come."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import shmq
from examples.flights.flights import Flight
from examples.flights.place import Place
from examples.flights.producer import PUT_AGAIN, put_safely
from examples.flights.queues import Queues
from tests.support.writer_process import persisting

FLOWN = [Flight(number, "UA", None, 5, 0, 0) for number in range(10)]


@pytest.fixture
def flights(namespace: str) -> Iterator[shmq.Queue]:
    """The durable queue of flights, with a writer."""
    with Queues(namespace, durable=True) as both, persisting(namespace):
        yield both.flights


def put_again(queue: shmq.Queue) -> list[int]:
    return [message.body[0] for message in queue.peek(100) if PUT_AGAIN in message.headers]


def test_a_new_place_is_at_the_beginning_and_what_was_noted_is_found(tmp_path: Path) -> None:
    with Place(tmp_path, 1) as place:
        assert (place.resumed, place.flights) == (False, 0)
        place.begin()
    with Place(tmp_path, 1) as place:
        assert (place.resumed, place.flights) == (True, 0)
        place.begin()
        place.note(70_000)
    with Place(tmp_path, 1) as place, Place(tmp_path, 0) as other:
        assert (place.resumed, place.flights) == (True, 70_000)
        assert (other.resumed, other.flights) == (False, 0)


def test_each_stride_is_on_disk_when_it_is_noted(
    flights: shmq.Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = []

    def note(self: Place, number: int) -> None:
        assert flights.stats().journal_lag == 0
        noted.append(number)
        self.flights = number

    monkeypatch.setattr(Place, "note", note)
    with Place(tmp_path, 0) as place:
        put_safely(flights, FLOWN, place, 4)
    assert noted == [0, 4, 8, 10]
    assert put_again(flights) == []


@pytest.mark.prove
def test_only_the_first_stride_of_a_later_life_may_have_been_put_before(
    flights: shmq.Queue, tmp_path: Path
) -> None:
    child = os.fork()
    if not child:  # killed after a stride that it could not note
        with Place(tmp_path, 0) as place:
            place.begin()
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    with Place(tmp_path, 0) as place:
        put_safely(flights, FLOWN, place, 4)
        assert place.flights == 10
    assert put_again(flights) == [0, 1, 2, 3]
