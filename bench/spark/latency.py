"""The latency of a message from its put, through a stream, to the consumer of another queue."""

from __future__ import annotations

import time
from typing import Self

import shmq
from bench.disk.folder import scratch_folder
from bench.disk.timing import share
from bench.machine import now
from bench.scratch import scratch
from bench.spark import numbered
from bench.spark.contestant import OnSpark
from bench.spark.figures import MEDIAN, SIZE, TAIL
from bench.spark.peek import QUEUE
from bench.spark.stream import streaming
from bench.spark.write import TARGET
from bench.stage import PATIENCE, Failed, Side, Stage, together

#: Messages per second.
PACE = 10_000
#: Messages of one put.
BURST = 50
#: The messages of this many first seconds do not count: Spark compiles its plans then.
SKIPPED = 5
#: Bytes of the time at the front of a body.
STAMP = 8


class Latency(OnSpark):
    """A producer at a steady pace, a stream from queue to queue, and a consumer."""

    label = "queue to queue"
    note = f"{PACE:,} messages/s, put to get; the checkpoint is on disk"

    def __init__(self, seconds: float = 15.0) -> None:
        super().__init__(int(seconds * PACE))
        self.skipped = SKIPPED * PACE

    def tiny(self) -> Self:
        """See :class:`bench.row.Contestant`."""
        other = super().tiny()
        other.skipped = 0
        return other

    def work(self) -> dict[str, float]:
        """See :class:`bench.spark.contestant.OnSpark`."""
        with scratch() as broker, scratch_folder() as folder:
            options = numbered.queue_options(max(self.rows, 10_000))
            broker.create_queue(QUEUE, **options)
            broker.create_queue(TARGET, **options)
            query = (
                streaming(broker.namespace)
                .select("value")
                .writeStream.format("shmq")
                .option("url", broker.namespace)
                .option("topic", TARGET)
                .option("checkpointLocation", str(folder))
                .start()
            )
            try:
                sides = [
                    Side(_put, broker.namespace, self.rows, core=None),
                    Side(_get, broker.namespace, self.rows, core=None),
                ]
                _, taken = together(sides, PATIENCE + 2 * self.rows / PACE)
                error = query.exception()
                if error is not None:
                    raise Failed(f"the stream has ended: {error}")
            finally:
                query.stop()
        late = taken[self.skipped :] or taken
        return {MEDIAN.key: share(late, 0.5) / 1e3, TAIL.key: share(late, 0.99) / 1e3}


# ---- in separate processes ----


def _put(stage: Stage, namespace: str, rows: int) -> None:
    """Put messages that begin with the time at which they were due."""
    filler = bytes(SIZE - STAMP)
    with shmq.connect(namespace) as broker:
        queue = broker.queue(QUEUE)
        stage.meet()
        due = now()
        for first in range(0, rows, BURST):
            due += BURST * 1_000_000_000 // PACE
            left = due - now()
            if left > 0:
                time.sleep(left / 1e9)
            body = due.to_bytes(STAMP, "little") + filler
            queue.put_many([body] * min(BURST, rows - first))


def _get(stage: Stage, namespace: str, rows: int) -> list[int]:
    """The latency of each message, in ns, in the order of the puts."""
    found: list[tuple[int, int]] = []
    with shmq.connect(namespace) as broker:
        queue = broker.queue(TARGET)
        stage.meet()
        while len(found) < rows:
            messages = queue.get_many(BURST, timeout=PATIENCE)
            if not messages:
                raise Failed(f"{len(found)} messages of {rows} came through the stream")
            came = now()
            for message in messages:
                due = int.from_bytes(message.body[:STAMP], "little")
                found.append((due, came - due))
            queue.ack_many(messages)
        if queue.get_many(1, timeout=0.5):
            raise Failed(f"more than {rows} messages came through the stream")
    return [taken for _, taken in sorted(found)]
