"""The memory of the driver and the executors while a stream runs."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil

import shmq
from bench.disk.folder import scratch_folder
from bench.machine import now
from bench.scratch import scratch
from bench.spark import numbered
from bench.spark.contestant import OnSpark
from bench.spark.figures import GROWTH, JVM, MANY, PYTHON, SIZE
from bench.spark.log import AT_ONCE, FRAME, PARTITIONS
from bench.spark.peek import QUEUE
from bench.spark.session import begin
from bench.spark.stream import TRIGGER, archiving
from bench.stage import CONTEXT, PATIENCE, Failed
from shmq.spark.stream.offset import StreamOffset

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

#: Seconds between two samples.
LOOK = 0.5
#: The capacity of the queue: the leased messages, and those that come meanwhile.
ROOM = 4 * TRIGGER
#: The bytes of a partition's ring: of two batches.
RING = 2 * TRIGGER * (SIZE + FRAME) // PARTITIONS
GROUP = "archive"


class Memory(OnSpark):
    """One stream to Parquet from a queue that a producer keeps full, once in a run.

    Growth is the maximum in the last quarter of the time divided by the maximum in the second
    quarter.
    """

    label = "readStream, Parquet"

    def __init__(self, rows: int = MANY) -> None:
        super().__init__(rows)
        self.note = _note(rows)

    def sized(self, rows: int) -> Self:
        """See :class:`bench.spark.contestant.OnSpark`."""
        other = super().sized(rows)
        other.note = _note(rows)
        return other

    def work(self) -> dict[str, float]:
        """See :class:`bench.spark.contestant.OnSpark`."""
        begin()
        with scratch() as broker, scratch_folder() as folder, Watch() as watch:
            self.make(broker)
            query = self.query(broker.namespace, folder)
            producer = CONTEXT.Process(
                target=self.put, args=(broker.namespace, QUEUE, self.rows), daemon=True
            )
            begun = now()
            producer.start()
            try:
                moved, done = time.monotonic(), 0
                while (found := self.done(broker, query)) < self.rows:
                    if query.exception() is not None or producer.exitcode not in {None, 0}:
                        raise Failed(f"the stream or its producer ended: {query.exception()}")
                    if found != done:
                        moved, done = time.monotonic(), found
                    elif time.monotonic() - moved > PATIENCE:
                        raise Failed(f"{done} rows of {self.rows} came, and no more")
                    time.sleep(0.02)
                taken = now() - begun
            finally:
                query.stop()
                producer.kill()
                producer.join()
            watch.look()
            numbered.check(begin().read.parquet(str(folder / "rows")), self.rows)
        return {"rate": self.rows * 1e9 / taken, **watch.figures()}

    put: Callable[[str, str, int], None] = staticmethod(numbered.put)

    def make(self, broker: shmq.Broker) -> None:
        """Make what the producer fills."""
        broker.create_queue(QUEUE, **numbered.queue_options(min(ROOM, self.rows)))

    def query(self, namespace: str, folder: Path) -> StreamingQuery:
        """The query that empties it."""
        return archiving(namespace, folder, available_now=False)

    def done(self, broker: shmq.Broker, query: StreamingQuery) -> int:
        """How many rows Spark has committed."""
        del query
        with broker.queue(QUEUE) as queue:
            return queue.stats().acked


def append(namespace: str, name: str, rows: int) -> None:
    """Append that many values; waits while the ring is full."""
    with shmq.connect(namespace) as broker:
        stream = broker.stream(name)
        for place, first in enumerate(range(0, rows, AT_ONCE)):
            values = [numbered.value(n) for n in range(first, min(rows, first + AT_ONCE))]
            stream.append_many(values, partition=place % PARTITIONS, block=True, timeout=PATIENCE)


class StreamMemory(Memory):
    """As :class:`Memory`, of a stream whose producer waits for the group of the query."""

    label = "readStream of a stream, Parquet"
    put: Callable[[str, str, int], None] = staticmethod(append)

    def make(self, broker: shmq.Broker) -> None:
        """See :class:`Memory`."""
        stream = broker.create_stream(QUEUE, PARTITIONS, ring_bytes=RING, overflow="block")
        stream.group(GROUP).lag()  # from now on it holds records back

    def query(self, namespace: str, folder: Path) -> StreamingQuery:
        """See :class:`Memory`."""
        wanted = {"group": GROUP, "startingOffsets": "earliest", "maxOffsetsPerTrigger": TRIGGER}
        return archiving(namespace, folder, available_now=False, **wanted)

    def done(self, broker: shmq.Broker, query: StreamingQuery) -> int:
        """See :class:`Memory`."""
        del broker
        progress = query.lastProgress
        ends = progress["sources"][0]["endOffset"] if progress else None
        if not ends:
            return 0
        reached = StreamOffset.of_json(json.loads(ends) if isinstance(ends, str) else ends)
        return sum(sum(each.next.values()) for each in reached.streams.values())


def _note(rows: int) -> str:
    return f"{rows:,} rows, once"


class Watch:
    """Samples the memory of the JVM and of Spark's Python processes. A context manager."""

    def __init__(self) -> None:
        self._looks: list[tuple[int, int]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def look(self) -> None:
        """Take one sample."""
        jvm = python = 0
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess, OSError):
                if process.name() == "java":
                    jvm += _own(process.pid)
                elif any("pyspark" in word for word in process.cmdline()):
                    python += _own(process.pid)
        self._looks.append((jvm, python + _own(os.getpid())))

    def figures(self) -> dict[str, float]:
        """The maximum of each, in MB, and the growth of the total."""
        quarter = max(1, len(self._looks) // 4)
        early = max(map(sum, self._looks[quarter : 2 * quarter] or self._looks))
        late = max(map(sum, self._looks[-quarter:]))
        return {
            JVM.key: max(jvm for jvm, _ in self._looks) / 1e6,
            PYTHON.key: max(python for _, python in self._looks) / 1e6,
            GROWTH.key: late / early,
        }

    def _work(self) -> None:
        while not self._over.wait(LOOK):
            self.look()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()


def _own(pid: int) -> int:
    """The private memory of the process in bytes, without files and shared memory."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss_Anon:"):
            return int(line.split()[1]) * 1024
    return 0
