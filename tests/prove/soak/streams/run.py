"""The soak: kill, watch, and at the end compare what all processes saw."""

from __future__ import annotations

import functools
import random
import secrets
import shutil
import tempfile
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import shmq
from shmq.extras.stress.workers import WorkerProcesses
from tests.prove.soak.stops import Stops, delete, insist
from tests.prove.soak.streams import workers
from tests.prove.soak.streams.history import Verdict, judge
from tests.prove.soak.streams.notes import read_all

APPENDERS = 3
MEMBERS = 3
PARTITIONS = 4


class Observer:
    """Sees every record in its order, and is not killed: a group of its own keeps them for it."""

    def __init__(self, stream: shmq.Stream) -> None:
        self.seen = [array("Q") for _ in range(stream.partitions)]
        self._member = stream.group("observer", start="earliest").join()

    def look(self, timeout: float) -> int:
        """Take in new records; returns how many."""
        found = 0
        for records in insist(lambda: self._member.poll(1000, timeout=timeout)):
            for record in records:
                expected = len(self.seen[record.partition])
                if record.offset != expected:
                    raise AssertionError(
                        f"partition {record.partition} has {record.offset} behind {expected - 1}"
                    )
                self.seen[record.partition].append(workers.message_of(record))
                found += 1
        insist(self._member.commit)
        return found


def soak(
    seconds: float,
    seed: int,
    namespace: str | None = None,
    *,
    stopped: float = 0.0,
    workers_of: Callable[..., WorkerProcesses] = WorkerProcesses,
    **options: Any,
) -> tuple[Verdict, int]:
    """The verdict, and the number of workers killed.

    The share ``stopped`` of those who are chosen stands still for a while instead. The stream
    has these ``options`` beside its own.
    """
    chance = random.Random(seed)
    directory = Path(tempfile.mkdtemp(prefix="shmq-soak-"))
    broker = shmq.connect(namespace or f"soak-{secrets.token_hex(4)}")
    crew, stops = workers_of(broker.namespace, directory), Stops()
    try:
        options |= {"partitions": PARTITIONS, "ring_bytes": 1 << 20, "overflow": "block"}
        stream = insist(functools.partial(broker.create_stream, workers.STREAM, **options))
        insist(functools.partial(stream.group, workers.GROUP, start="earliest"))
        observer = Observer(stream)
        for work in [workers.append] * APPENDERS + [workers.take_part] * MEMBERS:
            crew.start(work)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            again = time.monotonic() + chance.random() / 10
            while time.monotonic() < again:
                observer.look(timeout=0.01)
            stops.resume()
            worker = chance.choice(crew.alive)
            if chance.random() < stopped:
                stops.stop(crew.pid(worker), chance.random())
            else:
                crew.start(crew.kill(worker))
        stops.resume(everything=True)
        for worker in crew.at(workers.append):
            crew.kill(worker)
        _settle(stream, observer)
        crew.kill_all()
        return judge(observer.seen, read_all(directory)), crew.killed
    finally:
        crew.kill_all()
        delete(functools.partial(broker.delete_stream, workers.STREAM))
        broker.close()
        shutil.rmtree(directory)


def _settle(stream: shmq.Stream, observer: Observer) -> None:
    """Until the members, and the observer, have read all that is there."""
    group = stream.group(workers.GROUP)
    until = time.monotonic() + 60
    while observer.look(timeout=0.05) or any(group.lag().values()):
        if time.monotonic() > until:
            raise AssertionError(f"the group does not get on: {group.lag()} records are left")
