"""Each payload is unpacked as it was packed, and one that is cut off is refused as a bad form."""

from __future__ import annotations

from typing import Any

import pytest

from shmq import errors
from shmq.protocol.messages.exchange import Route
from shmq.protocol.messages.group import (
    Heartbeat,
    MemberRequest,
    Seats,
    Settlement,
    ShareSettle,
    ShareTake,
)
from shmq.protocol.messages.queue import Create, Hello, List, Select
from shmq.protocol.messages.staging import Publish, Stage, Staged
from shmq.protocol.messages.stream import Append, Fetch, Hold, OffsetAt, Repartition
from shmq.protocol.opcodes import ERRORS, TEXTS, Status
from shmq.protocol.status import Refusal, error_of_status, status_of

_FETCH = Fetch(7, [(0, 5), (3, 1 << 40)], 10, 65_536, 1.5, "key = 'k'")

REQUESTS: list[Any] = [
    Hello("a test"),
    Hello("a test", "t" * 32),
    Create({"capacity": 5}, own=True),
    List(only_names=True),
    Select(5),
    Select(5, "priority = 1"),
    Publish("p", 1, ["a", "b"]),
    Staged("p", "sweep", "a"),
    Route("a.b", "disk", b"\x80", [b"one", b""], {"q": 1}),
    Append(identity=1, partition=2, count=3, block=b"entries"),
    Append(
        identity=1,
        partition=2,
        count=3,
        block=b"entries",
        durable=True,
        compression="zstd",
        raw_bytes=9,
        producer=4,
        sequence=5,
        gaps=True,
    ),
    _FETCH,
    Fetch(7, [(0, 5)], 10, 65_536, None),
    Hold(7, 1, [(0, 5)], _FETCH),
    Hold(7, 1, []),
    OffsetAt(7, 1, 10**18),
    Repartition(7, 9),
    MemberRequest("g", 7, 3, b"rest"),
    Seats(True, bytes(12)),
    Heartbeat(1 << 60),
    ShareTake(10, True),
    ShareSettle(Settlement.NACK, 10**9, [1, 2, (1 << 64) - 1]),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: type(each).__name__)
def test_what_is_packed_is_unpacked_as_it_was(request_: Any) -> None:
    assert type(request_).unpack(request_.pack()) == request_


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: type(each).__name__)
def test_what_is_cut_off_is_refused_or_a_shorter_one(request_: Any) -> None:
    whole = request_.pack()
    for end in range(len(whole)):
        try:
            found = type(request_).unpack(whole[:end])
        except Refusal as refusal:
            assert refusal.status == Status.BAD_REQUEST
        else:
            assert found != request_


def test_staged_rows_are_unpacked_as_they_were_packed() -> None:
    asked = Stage("p", 1, "a", 1 << 20)

    found, rows = Stage.unpack(asked.pack([(b"one", b""), (b"", b"\x80")]))

    assert found == asked
    assert (bytes(rows.data), list(rows.offsets)) == (b"one", [0, 3, 3])
    assert rows.metas is not None
    assert (bytes(rows.metas), list(rows.meta_offsets or ())) == (b"\x80", [0, 0, 1])
    with pytest.raises(Refusal, match="more than the frame can have"):
        Stage.unpack(asked.pack([])[:-4] + (1 << 31).to_bytes(4, "big"))


@pytest.mark.parametrize("status", TEXTS)
def test_a_client_raises_the_first_error_of_a_status(status: Status) -> None:
    error = error_of_status(status, "queue 'q'", "so the server said")

    assert type(error) is ERRORS[status][0]
    assert ("so the server said" in str(error)) != TEXTS[status][1]
    assert "q" in str(error_of_status(status, "queue 'q'"))


def test_a_server_answers_an_error_with_its_status() -> None:
    assert status_of(errors.PartitionSealed("sealed")) == Status.FENCED
    assert status_of(errors.MessageTooLarge("large")) == Status.TOO_LARGE
    assert status_of(errors.Unauthorized("not a request's")) == Status.INTERNAL
    assert status_of(ValueError("a fault")) == Status.INTERNAL
