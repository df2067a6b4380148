"""Processes that attach with the namespace's own data directory, or with another one.

Those with its own find what it holds; each of the others gets an error that names both directories.
"""

from __future__ import annotations

import functools
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import shmq
from tests.prove.soak.mixed.rounds import until
from tests.prove.soak.stops import delete, insist
from tests.support.processes import ROOT, environment

NAME, NEW = "landmarks", "intruder"
RECORDS = 3_000
MESSAGES = 50
#: More than the ring of the stream holds: its first records are read from files.
VALUE = 200
PAUSE = 2.0


def visit(namespace: str, number: int) -> dict[str, Any]:
    """Read what is there, and add one record; what was found."""
    found: dict[str, Any] = {}
    with insist(lambda: shmq.connect(namespace)) as broker:
        stream, queue = insist(lambda: broker.stream(NAME)), insist(lambda: broker.queue(NAME))
        found["records"] = insist(lambda: numbers_in(stream))
        found["messages"] = insist(lambda: [each.body for each in queue.peek(MESSAGES)])
        try:
            insist(lambda: stream.append(value_of(number), block=True, confirm="disk"))
            found["confirmed"] = True
        except shmq.NotConfirmed:  # the disk is full
            found["confirmed"] = False
    return found


def intrude(namespace: str) -> dict[str, list[str]]:
    """Try what needs the data directory; the two that each error names, or what was returned."""
    broker, found = insist(lambda: shmq.connect(namespace)), {}
    attempts: dict[str, Callable[[], Any]] = {
        "stream": lambda: broker.stream(NAME),
        "queue": lambda: broker.queue(NAME),
        "streams": broker.list_streams,
        "queues": broker.list_queues,
        "new": lambda: broker.ensure_stream(NEW, partitions=1, durability="journal"),
    }
    for what, attempt in attempts.items():
        try:
            found[what] = ["returned", repr(insist(attempt))]
        except shmq.WrongDirectory as error:
            found[what] = [error.own, error.named]
            assert error.own in str(error) and error.named in str(error), error
    return found


def numbers_in(stream: shmq.Stream) -> list[int]:
    """The numbers of all records."""
    return [int(record.value[:20]) for record in stream.reader("earliest", timeout=0)]


def value_of(number: int) -> bytes:
    """The record of that number."""
    return b"%020d" % number + bytes(VALUE)


class Landmarks:
    """What the visitors must find; the namespace's own directory is this process's."""

    def __init__(self, broker: shmq.Broker, elsewhere: Path) -> None:
        self.broker = broker
        self.elsewhere = elsewhere
        self.counts: Counter[str] = Counter()
        self.appended: set[int] = set()
        create = functools.partial(broker.create_stream, NAME, partitions=1)
        self.stream = insist(
            functools.partial(
                create, durability="journal", ring_bytes=1 << 16, segment_bytes=1 << 16
            )
        )
        queue = insist(
            functools.partial(
                broker.create_queue,
                NAME,
                durability="journal",
                dead_letter=None,
                allow_same_name=True,
            )
        )
        for number in range(RECORDS):
            insist(functools.partial(self.stream.append, value_of(number), block=True))
        for number in range(MESSAGES):
            insist(functools.partial(queue.put, number))

    def send(self, number: int, chance: random.Random) -> None:
        """Let a process attach, and judge what it found."""
        own, other = os.environ["SHMQ_DATA_DIR"], str(self.elsewhere)
        named = chance.choice((own, "", other, other))  # empty: it names none
        found = self._run("intrude" if named == other else "visit", number, SHMQ_DATA_DIR=named)
        if named == other:
            self.counts["refused"] += 1
            name = self.broker.namespace
            both = [os.path.join(own, name), os.path.join(other, name)]  # noqa: PTH118 - texts
            assert all(each == both for each in found.values()), found
            assert not self.elsewhere.exists(), "a directory that is not used was created"
            return
        self.counts["served"] += 1
        self.check(found["records"])
        assert found["messages"] == list(range(MESSAGES)), found["messages"]
        if found["confirmed"]:
            self.appended.add(number)

    def _run(self, what: str, number: int, **variables: str) -> dict[str, Any]:
        program = [sys.executable, "-W", "ignore", "-m", __spec__.name]
        done = subprocess.run(
            [*program, what, self.broker.namespace, str(number)],
            cwd=ROOT, env=environment(**variables), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert not done.returncode, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def check(self, numbers: list[int]) -> None:
        """All is there, and in its order."""
        assert numbers[:RECORDS] == list(range(RECORDS)), f"{len(numbers)} of {RECORDS} records"
        missing = self.appended.difference(numbers)
        assert not missing, f"confirmed by the disk, and not there: {missing}"

    def remove(self) -> None:
        """Leave nothing behind."""
        delete(functools.partial(self.broker.delete_stream, NAME))
        delete(functools.partial(self.broker.delete_queue, NAME))


def soak(seconds: float, seed: int, namespace: str, elsewhere: Path) -> str:
    """How many visitors were served and refused. Raises AssertionError for one that saw less."""
    chance, end = random.Random(seed), time.monotonic() + seconds
    with shmq.connect(namespace) as broker:
        landmarks = Landmarks(broker, elsewhere)
        try:
            for number in until(end):
                landmarks.send(RECORDS + number, chance)
                time.sleep(chance.random() * PAUSE)
            landmarks.check(insist(lambda: numbers_in(landmarks.stream)))
        finally:
            landmarks.remove()
    return ", ".join(f"{count} visitors {how}" for how, count in landmarks.counts.items())


if __name__ == "__main__":
    os.environ["SHMQ_AUTOSTART"] = "1"  # the package `tests` has switched it off
    _, what, namespace, number = sys.argv
    print(json.dumps(intrude(namespace) if what == "intrude" else visit(namespace, int(number))))
