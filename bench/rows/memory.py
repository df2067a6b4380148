"""The shared memory that a message takes in addition to its bytes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from bench.row import Contestant, Figure, Role, Row, Turn, at_most
from bench.scratch import scratch

BYTES = Figure("overhead", "B/message", higher_is_better=False)
COUNT = 50_000
BODY = bytes(32)
HOUR = 3600.0


class Memory(Contestant):
    """The pages of a full queue, without the blocks of the bodies."""

    role: Role = "shmq"

    def __init__(self, label: str, count: int, properties: dict[str, Any], **options: Any) -> None:
        self.label = label
        self.count = count
        self.properties = properties
        self.options = options

    def tiny(self) -> Contestant:
        """See :class:`bench.row.Contestant`."""
        return Memory(self.label, 3000, self.properties, **self.options)

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        yield lambda _: {BYTES.key: self._measured()}

    def _measured(self) -> float:
        with scratch() as broker:
            queue = broker.create_queue(
                "q",
                capacity=self.count,
                arena_bytes=self.count * 128,
                dead_letter=None,
                **self.options,
            )
            for number in range(self.count):
                properties: dict[str, Any] = {
                    key: value.format(number) if isinstance(value, str) else value
                    for key, value in self.properties.items()
                }
                queue.put(BODY, **properties)
            pages = os.stat(f"/dev/shm/shmq@{broker.namespace}@q").st_blocks * 512
            blocks = queue.stats().arena_used
        return (pages - blocks) / self.count


def row() -> Row:
    """With each of the indexes."""
    count = COUNT
    counted = [
        Memory("shmq, plain messages", count, {}),
        Memory("shmq, delayed", count, {"delay": HOUR}),
        Memory("shmq, a group each", count, {"group": "{}"}),
        Memory("shmq, a group each, delayed", count, {"group": "{}", "delay": HOUR}),
    ]
    remembered = Memory("shmq, a dedupe id each", count, {"dedupe_id": "{}"}, dedupe_window=HOUR)
    return Row(
        key="memory",
        title="Shared memory in addition to the payload's size class",
        contestants=[*counted, remembered],
        figures=[BYTES],
        bars=[at_most(memory.label, 192, "B", BYTES.key) for memory in counted],
        limit="128 B of slot, 12 B of each heap, 36 B of group; a dedupe id is not of a "
        "message: it is remembered for its window, with or without it",
    )
