"""A running system moves from the queue of one host to the cluster, in three steps."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator

import shmq
from tests.support.bridge import PATIENCE, Bridged, bridge_process, wait_until


class Producer(threading.Thread):
    """Puts numbers, one after the other, until it is told to end."""

    def __init__(self, place: str, numbers: Iterator[int]) -> None:
        super().__init__(daemon=True)
        self._place, self._numbers = place, numbers
        self._ending = threading.Event()
        #: What was put and confirmed.
        self.put: list[int] = []

    def run(self) -> None:
        with shmq.connect(self._place) as broker:
            queue = broker.queue("orders")
            while not self._ending.is_set():
                number = next(self._numbers)
                queue.put(number, timeout=PATIENCE)
                self.put.append(number)
                self._ending.wait(0.002)  # slower than the bridge

    def end(self) -> None:
        self._ending.set()
        self.join(PATIENCE)
        assert not self.is_alive()


class Consumer(threading.Thread):
    """Takes numbers, until it is told to end, and with ``drains`` none has come for a second."""

    def __init__(self, place: str, *, drains: bool = False) -> None:
        super().__init__(daemon=True)
        self._place = place
        self._drains = drains
        self._ending = threading.Event()
        self.taken: list[int] = []

    def run(self) -> None:
        with shmq.connect(self._place) as broker:
            queue = broker.queue("orders")
            while True:
                messages = queue.get_many(64, timeout=1.0)
                for message in messages:
                    message.ack()
                    self.taken.append(message.body)
                if self._ending.is_set() and not (self._drains and messages):
                    return

    def end(self) -> None:
        self._ending.set()
        self.join(PATIENCE)
        assert not self.is_alive()


@contextlib.contextmanager
def started(*threads: Producer | Consumer) -> Iterator[None]:
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.end()


def test_a_running_system_moves_without_a_lost_or_doubled_message(bridged: Bridged) -> None:
    numbers = itertools.count()
    queue = bridged.here.create_queue("orders", overflow="block")
    here, there = bridged.namespace, bridged.url
    old_producer, old_consumer = Producer(here, numbers), Consumer(here)
    new_consumer = Consumer(there, drains=True)
    with started(old_producer), started(old_consumer):
        wait_until(lambda: len(old_consumer.taken) > 200)
        # 1. A bridge forwards beside the consumers of this host.
        with bridge_process(here, "--to", there, "--forward", "orders") as bridge:
            wait_until(lambda: "orders" in bridged.there.queue_names())
            with started(new_consumer):
                # 2. The consumers move to the URL.
                old_consumer.end()
                wait_until(lambda: len(new_consumer.taken) > 200)
                # 3. The producers move; the bridge drains, and ends.
                old_producer.end()
                bridge.terminate()
                bridge.wait(PATIENCE)
                new_producer = Producer(there, numbers)
                with (
                    started(new_producer),
                    bridge_process(here, "--to", there, "--forward", "orders", "--drain") as last,
                ):
                    assert last.wait(PATIENCE) == 0
                    wait_until(lambda: len(new_producer.put) > 100)
                assert queue.empty()
    put = sorted(old_producer.put + new_producer.put)
    taken = sorted(old_consumer.taken + new_consumer.taken)
    assert taken == put
