"""The offsets of a queue's stream: what was taken, in the checkpoint and back."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

import shmq
from shmq.spark.queue.offset import NOTHING, Offset, QueueOffset

numbers = st.lists(st.integers(1, (1 << 63) - 1), min_size=1, max_size=50)


def taken(sequences: list[int], identity: int = 7) -> QueueOffset:
    return QueueOffset(identity, struct.pack(f"<{len(sequences)}Q", *sequences))


@hypothesis.given(numbers, st.integers(0, (1 << 64) - 1), st.integers(1, 1 << 40))
def test_an_offset_comes_back_from_the_checkpoint_as_it_was(
    sequences: list[int], identity: int, batch: int
) -> None:
    offset = Offset(batch, {"b": taken(sequences, identity), "a": taken([1])})
    assert Offset.of_json(json.loads(json.dumps(offset.as_json()))) == offset


def test_the_same_offset_is_always_the_same_text() -> None:
    one, other = taken([1, 2]), taken([3])
    assert json.dumps(Offset(1, {"a": one, "b": other}).as_json()) == json.dumps(
        Offset(1, {"b": other, "a": one}).as_json()
    )


def test_half_a_million_numbers_in_a_row_are_a_line() -> None:
    text = json.dumps(Offset(1, {"a": taken(list(range(10**9, 10**9 + 500_000)))}).as_json())
    assert len(text) < 24_000  # the step of 10**9 takes all of them to four bytes each


def test_an_offset_has_as_many_messages_as_were_taken_of_all_queues() -> None:
    assert len(Offset(1, {"a": taken([1, 2]), "b": taken([9])})) == 3
    assert len(NOTHING) == 0


def broken(**changes: Any) -> dict[str, Any]:
    good = Offset(1, {"a": taken([5, 6, 7])}).as_json()
    queue = {**good["queues"]["a"], **changes.pop("queue", {})}
    return {**good, "queues": {"a": queue}, **changes}


def packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"index": 3},
        broken(version=2),
        broken(batch="1"),
        broken(queues=[]),
        broken(queue={"id": "hm"}),
        broken(queue={"count": 0}),
        broken(queue={"count": 2}),
        broken(queue={"count": 4}),
        broken(queue={"count": 1 << 40}),
        broken(queue={"taken": "%"}),
        broken(queue={"taken": "AAAA"}),
        broken(queue={"taken": packed(b"")}),
        broken(queue={"taken": packed(b"\3" + bytes(9))}),
        broken(queue={"taken": packed(bytes(1 << 20))}),
    ],
)
def test_what_is_no_offset_of_a_queue_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(shmq.ShmqError, match="an offset that is not one of"):
        Offset.of_json(given)
