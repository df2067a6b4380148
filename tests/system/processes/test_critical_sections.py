"""Critical sections make no Python objects: what the collector runs then may want the very lock."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from shmq import Broker
from shmq.host.namespace import group_files
from shmq.host.namespace.namespace import Namespace
from tests.support.processes import drain
from tests.support.stopped import Lock, locks_of_group, locks_of_queue

#: What lists the contents of a group under its lock.
LISTINGS: dict[str, Callable[[Any], Any]] = {
    "members": lambda group: group.members(),
    "partitions": lambda group: group.seats(),
}


def holders_at_collections(lock: Lock, call: Callable[[], Any]) -> set[int]:
    """Who holds the lock whenever the garbage collector begins during the call."""
    seen: set[int] = set()

    def look(phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            seen.add(lock.holder())

    before = gc.get_threshold()
    gc.callbacks.append(look)
    gc.set_threshold(1)
    try:
        call()
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(look)
    return seen


@pytest.mark.parametrize("listing", LISTINGS)
def test_a_group_is_not_locked_while_its_contents_become_objects(
    broker: Broker, listing: str
) -> None:
    stream: Any = broker.create_stream("s", partitions=4)
    stream.group("g")
    namespace = Namespace.of(broker.namespace)
    group = group_files.look_at(namespace, stream.identity, "g")
    assert group is not None
    group.widen(4)
    for _ in range(3):
        group.join(namespace.processes.own_number(), b"m")
    (lock,) = locks_of_group(broker.namespace, "g")

    assert holders_at_collections(lock, lambda: LISTINGS[listing](group)) <= {0}
    members = [id_ for id_, *_ in group.members()]
    assert group.survey() == (group.epoch, members, [0] * 4)
    assert [row[:3] for row in group.seats()] == [(0, 0, None)] * 4


def test_a_queue_is_not_locked_while_its_copies_become_objects(broker: Broker) -> None:
    queue: Any = broker.create_queue("q")
    for number in range(600):
        queue.put(number)
        queue.get().reject()
    dead: Any = broker.queue("q.dlq")
    lock = locks_of_queue(broker.namespace, "q.dlq")["gets"]
    found: list[tuple[int, int]] = []

    def list_copies() -> None:
        found.extend(dead.transfer.copies_from({queue.segment.hash_key}))

    assert holders_at_collections(lock, list_copies) <= {0}
    assert sorted(found) == [(queue.segment.hash_key, number + 1) for number in range(600)]
    assert drain(dead) == list(range(600))
