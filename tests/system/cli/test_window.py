"""What is written and not yet settled, held against a pipe of the test's own."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

import shmq
from shmq.cli import unacked_window
from shmq.cli.shared import render
from shmq.cli.unacked_window import Pipe, Window

FOR_EVER = 3600.0


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ours, theirs = os.pipe()
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def test_the_first_message_after_a_silence_waits_for_its_reader(
    queue: shmq.Queue, pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = pipe
    monkeypatch.setattr(unacked_window, "PATIENCE", FOR_EVER)
    carried = Window(queue, Pipe(theirs), lambda: False, ahead=64)
    carried._progress -= 2 * FOR_EVER
    queue.put("x")
    reader = threading.Timer(0.1, os.read, (ours, 100))
    reader.start()

    carried.write(queue.get_many(1), render.raw)

    assert carried.count == 1
    assert queue.stats().acked == 1
    reader.join()


def test_a_message_whose_lease_is_gone_is_not_written(
    queue: shmq.Queue, pipe: tuple[int, int]
) -> None:
    _, theirs = pipe
    outlet = Pipe(theirs)
    queue.put(b"x" * 10_000)
    messages = queue.get_many(1)
    messages[0].extend(0)
    taken = queue.get()

    with Window(queue, outlet, lambda: False, ahead=64) as carried:
        carried.write(messages, render.raw)
        assert carried.count == 0

    assert (outlet.written, carried.late, queue.stats().acked) == (0, 0, 0)
    taken.ack()


def test_bytes_of_others_in_the_pipe_are_not_taken_for_a_readers_progress(
    queue: shmq.Queue, pipe: tuple[int, int]
) -> None:
    ours, theirs = pipe
    os.write(theirs, b"other\n")
    outlet = Pipe(theirs)

    outlet.write(b"mine\n", lambda: None)
    assert outlet.taken() < len(b"mine\n")
    os.read(ours, 6)
    assert outlet.taken() == 0
    os.read(ours, 5)
    assert outlet.taken() == 5
