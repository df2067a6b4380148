"""The offsets of a queue's stream: a query, its batch and what it counts, in the checkpoint."""

from __future__ import annotations

import json
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

import shmq
from shmq.spark.queue.offset import MOST, Offset, QueueOffset

QUEUES = st.dictionaries(
    st.text(min_size=1, max_size=8),
    st.builds(QueueOffset, st.integers(0, (1 << 64) - 1), st.integers(9, MOST), st.integers(1, 9)),
    max_size=3,
)


@hypothesis.given(st.text("0123456789abcdef", min_size=1), st.integers(0, (1 << 32) - 1), QUEUES)
def test_an_offset_comes_back_from_the_checkpoint_as_it_was(
    query: str, epoch: int, queues: dict[str, QueueOffset]
) -> None:
    for turn in (None, *queues):
        offset = Offset(query[:100], epoch, queues, turn)
        found = Offset.of_json(json.loads(json.dumps(offset.as_json())))
        assert (found, found.as_json()) == (offset, offset.as_json())


def test_the_same_offset_is_always_the_same_text() -> None:
    one, other = QueueOffset(7, 2), QueueOffset(8, 1)
    assert json.dumps(Offset("q", 1, {"a": one, "b": other}).as_json()) == json.dumps(
        Offset("q", 1, {"b": other, "a": one}).as_json()
    )


def test_an_offset_has_as_many_messages_as_all_its_queues_together() -> None:
    assert len(Offset("q", 1, {"a": QueueOffset(7, 2), "b": QueueOffset(8, 1)})) == 3


def test_each_new_query_begins_before_all_batches_with_a_name_of_its_own() -> None:
    one, other = Offset.before_all(), Offset.before_all()
    assert one.query != other.query
    assert (one.epoch, len(one)) == (0, 0)


def broken(**changes: Any) -> dict[str, Any]:
    good = Offset("q", 1, {"a": QueueOffset(7, 3)}).as_json()
    queue = {**good["queues"]["a"], **changes.pop("queue", {})}
    return {**good, "queues": {"a": queue}, **changes}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"index": 3},
        broken(version=3),
        broken(epoch="1"),
        broken(epoch=True),
        broken(epoch=-1),
        broken(epoch=1 << 32),
        broken(query=""),
        broken(query=7),
        broken(query="q" * 101),
        broken(queues=[]),
        broken(turn=7),
        broken(queue={"id": "hm"}),
        broken(queue={"count": 0}),
        broken(queue={"count": True}),
        broken(queue={"count": MOST + 1}),
        broken(queue={"tasks": 0}),
        broken(queue={"tasks": 4}),
    ],
)
def test_what_is_no_offset_of_a_queue_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(shmq.ShmqError, match="an offset that is not one of"):
        Offset.of_json(given)
