"""The memory of the driver and the executors while a stream runs."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Self

import psutil

from bench.disk.folder import scratch_folder
from bench.machine import now
from bench.scratch import scratch
from bench.spark import numbered
from bench.spark.contestant import OnSpark
from bench.spark.figures import GROWTH, JVM, MANY, PYTHON
from bench.spark.peek import QUEUE
from bench.spark.session import begin
from bench.spark.stream import TRIGGER, archiving, settled
from bench.stage import CONTEXT, PATIENCE, Failed

#: Seconds between two samples.
LOOK = 0.5
#: The capacity of the queue: the leased messages, and those that come meanwhile.
ROOM = 4 * TRIGGER


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
            queue = broker.create_queue(QUEUE, **numbered.queue_options(min(ROOM, self.rows)))
            query = archiving(broker.namespace, folder, available_now=False)
            producer = CONTEXT.Process(
                target=numbered.put, args=(broker.namespace, QUEUE, self.rows), daemon=True
            )
            begun = now()
            producer.start()
            try:
                moved, acked = time.monotonic(), 0
                while (stats := queue.stats()).acked < self.rows:
                    if query.exception() is not None or producer.exitcode not in {None, 0}:
                        raise Failed(f"the stream or its producer ended: {query.exception()}")
                    if stats.acked != acked:
                        moved, acked = time.monotonic(), stats.acked
                    elif time.monotonic() - moved > PATIENCE:
                        raise Failed(f"{acked} messages of {self.rows} came, and no more")
                    time.sleep(0.02)
                taken = now() - begun
            finally:
                query.stop()
                producer.kill()
                producer.join()
            settled(queue, self.rows)
            watch.look()
            numbered.check(begin().read.parquet(str(folder / "rows")), self.rows)
        return {"rate": self.rows * 1e9 / taken, **watch.figures()}


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
