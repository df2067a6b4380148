"""The client reads an answer as what its request asks for, however long it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import shmq
from shmq.client.remote.address import Target
from shmq.client.remote.connect import dial
from shmq.native._core import Answer, Wire
from shmq.protocol.opcodes import Status, Type
from tests.support.waiting import PATIENCE


@pytest.fixture
def wire(url: str) -> Iterator[Wire]:
    """A connection to a server, in no queue's name."""
    target = Target.of(url, None, None, PATIENCE, PATIENCE)
    wire, _ = dial(target, "", lambda: None, PATIENCE)
    yield wire
    wire.close()


def answer_to_ping(wire: Wire, said: bytes) -> Answer:
    answer = wire.request(Type.PING, False, said)
    assert wire.wait(answer, PATIENCE)
    assert answer.status == Status.OK
    return answer


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 16, 64])
def test_an_answer_of_any_length_is_given_as_its_bytes(wire: Wire, size: int) -> None:
    said = b"x" * size

    assert answer_to_ping(wire, said).payload == said


def test_a_number_is_read_from_an_answer_of_eight_bytes(wire: Wire) -> None:
    assert answer_to_ping(wire, (1 << 63 | 17).to_bytes(8, "big")).number == 1 << 63 | 17


@pytest.mark.parametrize("said", [b"", b"1234567", b"123456789"])
def test_an_answer_of_another_length_is_no_number(wire: Wire, said: bytes) -> None:
    answer = answer_to_ping(wire, said)

    with pytest.raises(shmq.errors.ServerError, match=f"{len(said)} bytes are no number"):
        _ = answer.number
