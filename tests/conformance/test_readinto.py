"""Bodies that are copied into a buffer of the reader's."""

from __future__ import annotations

import array

import pytest

from shmq import InvalidOption, LeaseExpired, Queue

SIZES = [0, 1, 4096, 4097, 100_000]


@pytest.mark.parametrize("size", SIZES)
def test_the_body_is_copied_to_the_beginning_of_the_buffer(queue: Queue, size: int) -> None:
    body = bytes(number % 251 for number in range(size))
    queue.put(body)
    target = bytearray(b"\xff" * (size + 3))

    with queue.get() as message:
        assert message.readinto(target) == size
        assert message.readinto(target) == size

    assert target == body + b"\xff" * 3


def test_any_writable_buffer_takes_a_body(queue: Queue) -> None:
    numbers = array.array("d", [0.0] * 1000)
    queue.put(array.array("d", range(1000)))

    with queue.get() as message:
        message.readinto(numbers)

    assert numbers == array.array("d", range(1000))


def test_text_is_copied_as_its_bytes(queue: Queue) -> None:
    queue.put("größer")
    target = bytearray(8)
    assert queue.get().readinto(target) == 8
    assert target == "größer".encode()


@pytest.mark.parametrize("size", [10, 10_000])
def test_a_buffer_that_is_too_small_is_refused_and_nothing_is_written(
    queue: Queue, size: int
) -> None:
    queue.put(b"x" * size)
    target = bytearray(size - 1)
    with queue.get() as message:
        with pytest.raises(InvalidOption, match=rf"{size - 1} bytes .* {size}"):
            message.readinto(target)
        assert message.body == b"x" * size
    assert target == bytes(size - 1)


@pytest.mark.parametrize("target", [b"read-only", "text", 7])
def test_what_cannot_be_written_is_refused(queue: Queue, target: object) -> None:
    queue.put(b"x")
    with queue.get() as message, pytest.raises((TypeError, BufferError)):
        message.readinto(target)


@pytest.mark.only_local("a remote message has its bytes")
def test_after_the_lease_a_body_that_was_not_read_is_gone(queue: Queue) -> None:
    queue.put(b"x" * 100_000)
    message = queue.get()
    message.extend(0)
    with pytest.raises(LeaseExpired):
        message.readinto(bytearray(100_000))


def test_a_body_that_was_read_before_the_end_of_its_lease_can_be_copied_after_it(
    queue: Queue,
) -> None:
    queue.put(b"y" * 100_000)
    message = queue.get()
    assert len(message.body) == 100_000
    message.ack()
    target = bytearray(100_000)
    message.readinto(target)
    assert target == b"y" * 100_000
