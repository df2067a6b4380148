"""The offsets of a queue's stream: which batch was taken, in the checkpoint and back."""

from __future__ import annotations

import json
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

import shmq
from shmq.spark.queue.offset import MOST, Offset, QueueOffset


@hypothesis.given(
    st.integers(1, MOST), st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 32) - 1)
)
def test_an_offset_comes_back_from_the_checkpoint_as_it_was(
    count: int, identity: int, epoch: int
) -> None:
    queues = {"b": QueueOffset(identity, count), "a": QueueOffset(7, 1)}
    offset = Offset("a" * 16, epoch, queues)
    assert Offset.of_json(json.loads(json.dumps(offset.as_json()))) == offset


def test_the_same_offset_is_always_the_same_text() -> None:
    one, other = QueueOffset(7, 2), QueueOffset(8, 1)
    assert json.dumps(Offset("q", 1, {"a": one, "b": other}).as_json()) == json.dumps(
        Offset("q", 1, {"b": other, "a": one}).as_json()
    )


def test_an_offset_has_as_many_messages_as_were_taken_of_all_queues() -> None:
    assert len(Offset("q", 1, {"a": QueueOffset(7, 2), "b": QueueOffset(8, 1)})) == 3
    assert len(Offset.before_all()) == 0


def test_each_query_has_a_name_of_its_own() -> None:
    assert Offset.before_all().query != Offset.before_all().query


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
        broken(epoch=-1),
        broken(epoch=1 << 32),
        broken(query=""),
        broken(query=7),
        broken(query="q" * 101),
        broken(queues=[]),
        broken(queue={"id": "hm"}),
        broken(queue={"count": 0}),
        broken(queue={"count": MOST + 1}),
        broken(queue={"count": "3"}),
    ],
)
def test_what_is_no_offset_of_a_queue_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(shmq.ShmqError, match="an offset that is not one of"):
        Offset.of_json(given)


def test_an_offset_of_an_older_version_is_refused_with_what_to_do() -> None:
    with pytest.raises(shmq.ShmqError, match="With the older version run the query once more"):
        Offset.of_json({"version": 1, "batch": 4, "queues": {}})
