"""A snapshot of a large queue, and its effect on a producer."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import shmq
from bench.disk import filled
from bench.disk.figures import BANDWIDTH
from bench.disk.limits import Sequential
from bench.disk.timing import share
from bench.disk.writer import QUEUE, Kept, alone, kept
from bench.machine import now
from bench.row import Contestant, Figure, Role, Turn
from bench.stage import Failed, Side, Stage, together

DISK = Figure("disk", "MB/s")
SHARE = Figure("share", "of the disk's")
STALL = Figure("p99", "ms of a put", higher_is_better=False)
WORST = Figure("worst", "ms of a put", higher_is_better=False)

#: Bytes of a body that the queue holds, and of a body that is put during the snapshot.
HELD, PUT = 16384, 1024
#: Seconds from one put to the next, and the most of them.
PAUSE, MOST_PUTS = 0.0005, 40_000
#: Longer than any run: snapshots are made only on request.
NEVER = 1e6


class Snapshot(Contestant):
    """One snapshot, requested while a producer puts at a steady pace, and the disk's own rate.

    The latency of a put counts from when it was due, so a stall affects all puts due in it.
    Before and after, the C loop writes half as many bytes. At the end the memory is lost, and
    the snapshot is recovered and checked.
    """

    role: Role = "shmq"
    label = "shmq, a snapshot"

    def __init__(self, total: int) -> None:
        self.total = total
        self.note = f"bodies of {HELD >> 10} KiB; {round(1 / PAUSE):,} puts/s of {PUT} B meanwhile"
        self.disk = Sequential(total // 2)

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return self.disk.missing()

    def tiny(self) -> Contestant:
        """See :class:`bench.row.Contestant`."""
        return Snapshot(4 << 20)

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        yield lambda _: self._measured()

    def _measured(self) -> dict[str, float]:
        count = self.total // HELD
        room = filled.arena(HELD, count) + filled.arena(PUT, MOST_PUTS)
        with kept(
            durability="snapshot",
            snapshot_interval=NEVER,
            capacity=count + MOST_PUTS,
            arena_bytes=room,
        ) as made:
            alone(filled.fill, made.name, HELD, count)
            before = self.disk.bandwidth()
            bandwidth, late = self._snapshot(made)
            after = self.disk.bandwidth()
            made.lose()
            made.recover()
            alone(filled.look, made.name, HELD, count)
        disk = 2 / (1 / before + 1 / after)
        return {
            BANDWIDTH.key: bandwidth,
            DISK.key: disk,
            SHARE.key: bandwidth / disk,
            STALL.key: share(late, 0.99) / 1e3,
            WORST.key: max(late) / 1e6,
        }

    def _snapshot(self, made: Kept) -> tuple[float, list[int]]:
        """The rate of the snapshot in MB/s, and how late the puts were."""
        made.writer.listens()
        data = made.writer.data
        marker = data.parent / "done"
        asking = Side(_ask, data, marker, core=None)
        putting = Side(_put, made.name, marker, core=None)
        taken, late = together([asking, putting])
        written = (data / f"{QUEUE}.dmsq").stat().st_size
        if written < self.total:
            raise Failed(f"the snapshot has {written} bytes of {self.total}")
        return written * 1e3 / taken, late


def _ask(stage: Stage, data: Path, marker: Path) -> int:
    """The duration of the snapshot, in ns."""
    from shmq.disk.storage.writer_control import ask_for_snapshots

    try:
        stage.meet()
        begun = now()
        for queue, error in ask_for_snapshots(data, [QUEUE]):
            if error is not None:
                raise Failed(f"there is no snapshot of {queue}: {error}")
        return now() - begun
    finally:
        marker.touch()


def _put(stage: Stage, name: str, marker: Path) -> list[int]:
    """Put until the marker exists; returns how long after it was due each put ended, in ns."""
    body = bytes(PUT)
    late: list[int] = []
    with shmq.connect(name) as broker:
        put = broker.queue(QUEUE).put
        put(body)
        stage.meet()
        due = time.monotonic()
        while len(late) < MOST_PUTS - 1 and not (marker.exists() and late):
            due += PAUSE
            left = due - time.monotonic()
            if left > 0:
                time.sleep(left)
            put(body)
            late.append(int((time.monotonic() - due) * 1e9))
    return late
