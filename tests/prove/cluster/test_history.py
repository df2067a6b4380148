"""A history of puts and takes while servers, bridges and consumers are killed at random.

Each put has an id of its own: all that was confirmed must have been taken, and nothing else. A
consumer that is killed before its acknowledgement is confirmed leaves a message that comes again,
so the histories are compared as sets; what the bridge itself doubles is test_bridge.py's.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import threading
import time
from functools import partial
from pathlib import Path

import pytest

import shmq
from shmq.bridge.config import Forward
from shmq.client.nats.names import queue_stream
from shmq.cluster.local import LocalCluster
from shmq.supervision.signals import end_with_parent
from tests.support.bridge import PATIENCE, Bridged, bridge_process, wait_until

#: How many processes are killed: SHMQ_KILLS says more, for a long run.
KILLS = int(os.environ.get("SHMQ_KILLS", "6"))
#: Between two puts, in seconds: the bridge keeps up.
PAUSE = 0.002

_SPAWN = multiprocessing.get_context("spawn")


def consume(url: str, notes: str, parent: int) -> None:
    """Note each id that is taken, on its own line, before it is acknowledged."""
    end_with_parent(parent)
    with shmq.connect(url) as broker, Path(notes).open("ab", buffering=0) as file:
        queue = broker.queue("orders")
        while True:
            for message in queue.get_many(32, timeout=1.0):
                file.write(b"%d\n" % message.body)
                try:
                    message.ack()
                except shmq.LeaseExpired:
                    continue  # it comes again


class Producer(threading.Thread):
    """Puts numbers on this host, and keeps those that were confirmed."""

    def __init__(self, queue: shmq.Queue) -> None:
        super().__init__(daemon=True)
        self.put: list[int] = []
        self._queue = queue
        self._ending = threading.Event()

    def run(self) -> None:
        while not self._ending.wait(PAUSE):
            try:
                self._queue.put(len(self.put), timeout=PATIENCE)
            except shmq.Full:
                continue  # it was not put: the consumers of a long run may be far behind
            self.put.append(len(self.put))

    def end(self) -> None:
        self._ending.set()
        self.join(PATIENCE)


def taken(notes: list[Path]) -> list[int]:
    return [int(line) for path in notes for line in path.read_text().splitlines()]


def _has_more(notes: list[Path], count: int) -> bool:
    return len(set(taken(notes))) > count


@pytest.mark.watchdog(3600)
def test_what_was_confirmed_is_taken_whoever_is_killed(
    bridged: Bridged, cluster: LocalCluster, tmp_path: Path
) -> None:
    chance = random.Random(int(os.environ.get("SHMQ_SEED", "1")))
    queue = bridged.here.create_queue("orders", overflow="block", max_deliveries=None)
    bridged.there.create_queue(
        "orders", dedupe_window=7200, max_deliveries=None, visibility_timeout=5.0
    )
    stream = queue_stream(bridged.namespace, "orders")
    arguments = ("--to", bridged.url, "--forward", "orders")
    notes: list[Path] = []
    producer = Producer(queue)
    producer.start()

    def consumer() -> multiprocessing.process.BaseProcess:
        notes.append(tmp_path / f"notes-{len(notes)}")
        notes[-1].touch()
        process = _SPAWN.Process(
            target=consume, args=(bridged.url, str(notes[-1]), os.getpid()), daemon=True
        )
        process.start()
        return process

    worker = consumer()
    try:
        for _ in range(KILLS):
            with bridge_process(bridged.namespace, *arguments) as bridge:
                before = len(set(taken(notes)))
                wait_until(partial(_has_more, notes, before + 50))
                victim = chance.choice(["leader", "follower", "bridge", "consumer"])
                if victim == "bridge":
                    bridge.kill()
                    bridge.wait(PATIENCE)
                elif victim == "consumer":
                    worker.kill()
                    worker.join(PATIENCE)
                    worker = consumer()
                else:
                    leader = cluster.leader_of(stream)
                    nodes = [
                        one for one in cluster.nodes if (one is leader) == (victim == "leader")
                    ]
                    node = chance.choice(nodes or list(cluster.nodes))
                    node.kill()
                    time.sleep(chance.random() * 3)  # some deaths are short, some meet an election
                    cluster.restart(node)
        producer.end()
        bridged.drain(Forward(queue="orders"))
        wait_until(lambda: set(taken(notes)) >= set(producer.put))
        wait_until(bridged.there.queue("orders").empty)
    finally:
        worker.kill()
        worker.join(PATIENCE)
    assert set(taken(notes)) == set(producer.put)
