"""A history of puts and takes while servers, bridges and consumers are killed or stopped at random.

On this host a thread puts numbers, each in one of a few groups, and appends them to a stream with
the group as the key. A bridge forwards the queue and mirrors the stream. Consumers of the cluster
note each number before they acknowledge it, and again when the acknowledgement is confirmed.

:class:`Notes` checks what docs/integrate/cluster.md and docs/integrate/bridge.md promise: what was
confirmed to the producer was taken, and nothing else; a message comes again only while its
acknowledgement is not confirmed; groups keep their order. The stream has each record once, in the
order of its key.
"""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

import pytest

import shmq
from shmq.extras.nats.bridge.config import Forward, Mirror
from shmq.extras.nats.client.names import queue_stream
from shmq.extras.nats.cluster.local import LocalCluster
from shmq.host.supervision.signals import end_with_parent
from tests.support.bridge import PATIENCE, Bridged, bridge_process, wait_until

#: How many processes are killed or stopped: SHMQ_KILLS says more, for a long run.
KILLS = int(os.environ.get("SHMQ_KILLS", "6"))
#: Between two puts, in seconds: the bridge keeps up.
PAUSE = 0.002
#: The visibility timeout, and the longest time that a process is stopped, in seconds.
LEASE, LONGEST_STOP = 5.0, 7.0
GROUPS = 5

_SPAWN = multiprocessing.get_context("spawn")


def group_of(number: int) -> str:
    return f"g{number % GROUPS}"


def consume(url: str, notes: str, parent: int) -> None:
    """Note each number that is taken, and each whose acknowledgement is confirmed.

    A line is ``took NUMBER ASKED NOTED`` or ``acked NUMBER NOTED NOTED``; ASKED is the time before
    the call that delivered the message, in ns on the monotonic clock.
    """
    end_with_parent(parent)
    with shmq.connect(url, request_timeout=PATIENCE) as broker, Path(notes).open("ab", 0) as file:
        queue = broker.queue("orders")
        while True:
            asked = time.monotonic_ns()
            for message in queue.get_many(32, timeout=1.0):
                file.write(b"took %d %d %d\n" % (message.body, asked, time.monotonic_ns()))
                try:
                    message.ack()
                except shmq.LeaseExpired:
                    continue  # it comes again
                noted = time.monotonic_ns()
                file.write(b"acked %d %d %d\n" % (message.body, noted, noted))


class Producer(threading.Thread):
    """Puts and appends numbers on this host, and keeps those that were confirmed."""

    def __init__(self, queue: shmq.Queue, stream: shmq.Stream) -> None:
        super().__init__(daemon=True)
        self.put: list[int] = []
        self._queue, self._stream = queue, stream
        self._ending = threading.Event()

    def run(self) -> None:
        while not self._ending.wait(PAUSE):
            number = len(self.put)
            try:
                self._queue.put(number, timeout=PATIENCE, group=group_of(number))
            except shmq.Full:
                continue  # it was not put: the consumers of a long run may be far behind
            self._stream.append(number, key=group_of(number))
            self.put.append(number)

    def end(self) -> None:
        self._ending.set()
        self.join(2 * PATIENCE)
        assert not self.is_alive()


@dataclasses.dataclass(frozen=True, order=True, slots=True)
class Take:
    noted: int
    asked: int
    number: int


class Notes:
    """What all consumers have noted: files in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def new_file(self) -> Path:
        path = self._folder / f"notes-{len(list(self._folder.glob('notes-*')))}"
        path.touch()
        return path

    def _of(self, word: str) -> Iterator[Take]:
        for path in self._folder.glob("notes-*"):
            for line in path.read_text().splitlines():
                kind, number, asked, noted = line.split()
                if kind == word:
                    yield Take(int(noted), int(asked), int(number))

    def taken(self) -> set[int]:
        return {take.number for take in self._of("took")}

    def has_more(self, count: int) -> bool:
        return len(self.taken()) > count

    def check(self, put: list[int]) -> int:
        """Returns how many messages came again.

        Raises AssertionError for one that was lost, came after its acknowledgement was confirmed,
        or before an earlier one of its group.
        """
        takes = sorted(self._of("took"))
        assert {take.number for take in takes} == set(put)
        acked: dict[int, int] = {}
        for ack in self._of("acked"):
            acked[ack.number] = min(ack.noted, acked.get(ack.number, ack.noted))
        late = [take for take in takes if take.asked > acked.get(take.number, take.asked)]
        assert not late, f"came again after their acknowledgement was confirmed: {late}"
        for group in map(group_of, range(GROUPS)):
            first = list(dict.fromkeys(t.number for t in takes if group_of(t.number) == group))
            assert first == sorted(first), f"group {group} came out of order"
        return len(takes) - len(set(put))


class Chaos:
    """Kills or stops a server, the bridge or a consumer."""

    VICTIMS: Final = ("leader", "follower", "bridge", "consumer")

    def __init__(self, bridged: Bridged, cluster: LocalCluster, notes: Notes) -> None:
        self._chance = random.Random(int(os.environ.get("SHMQ_SEED", "1")))
        self._bridged, self._cluster, self._notes = bridged, cluster, notes
        self._consumers = [self._consumer(), self._consumer()]

    def _consumer(self) -> BaseProcess:
        arguments = (self._bridged.url, str(self._notes.new_file()), os.getpid())
        process = _SPAWN.Process(target=consume, args=arguments, daemon=True)
        process.start()
        return process

    def disturb(self, bridge: int) -> str:
        """Do it, and undo it but for a bridge that was killed; returns what was done."""
        victim, kills = self._chance.choice(self.VICTIMS), self._chance.random() < 0.5
        if victim == "bridge":
            self._signal(bridge, kills)
        elif victim == "consumer":
            at = self._chance.randrange(len(self._consumers))
            self._signal(self._consumers[at].pid, kills)
            if kills:
                self._consumers[at].join(PATIENCE)
                self._consumers[at] = self._consumer()
        else:
            self._disturb_server(victim == "leader", kills)
        return f"{victim} {'killed' if kills else 'stopped'}"

    def _signal(self, pid: int | None, kills: bool) -> None:
        assert pid is not None
        if kills:
            os.kill(pid, signal.SIGKILL)
            return
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self._chance.random() * LONGEST_STOP)
        os.kill(pid, signal.SIGCONT)

    def _disturb_server(self, leads: bool, kills: bool) -> None:
        leader = self._cluster.leader_of(queue_stream(self._bridged.namespace, "orders"))
        some = [node for node in self._cluster.nodes if (node is leader) == leads]
        node = self._chance.choice(some or list(self._cluster.nodes))
        if kills:
            node.kill()
            time.sleep(self._chance.random() * 3)  # some deaths are short, some meet an election
            self._cluster.restart(node)
        else:
            node.pause()
            time.sleep(self._chance.random() * LONGEST_STOP)
            node.resume()

    def close(self) -> None:
        for consumer in self._consumers:
            consumer.kill()
            consumer.join(PATIENCE)


@pytest.mark.watchdog(3600)
def test_what_was_confirmed_is_taken_whoever_is_killed_or_stopped(
    bridged: Bridged, cluster: LocalCluster, tmp_path: Path
) -> None:
    queue = bridged.here.create_queue("orders", overflow="block", max_deliveries=None)
    there = bridged.there.create_queue(
        "orders", dedupe_window=7200, max_deliveries=None, visibility_timeout=LEASE
    )
    stream = bridged.here.create_stream("events", 2)
    mirror = bridged.there.create_stream("events", 2)
    routes = ("--to", bridged.url, "--forward", "orders", "--mirror", "events")
    producer, notes = Producer(queue, stream), Notes(tmp_path)
    producer.start()
    with contextlib.closing(Chaos(bridged, cluster, notes)) as chaos:
        for _ in range(KILLS):
            with bridge_process(bridged.namespace, *routes) as bridge:
                before = len(notes.taken())
                wait_until(partial(notes.has_more, before + 50))
                print(chaos.disturb(bridge.pid), flush=True)
        producer.end()
        bridged.drain(Forward(queue="orders"), Mirror(stream="events"))
        while len(taken := notes.taken()) < len(producer.put):  # each next one comes in time
            wait_until(partial(notes.has_more, len(taken)))
        wait_until(there.empty)
    again = notes.check(producer.put)
    print(f"{len(producer.put)} confirmed, {again} taken again before they were acknowledged")
    records = [record.body for record in mirror.reader(timeout=2)]
    assert sorted(records) == producer.put
    for key in map(group_of, range(GROUPS)):
        of_key = [number for number in records if group_of(number) == key]
        assert of_key == sorted(of_key)
