"""``python -m bench.local``: one process to another, shmq beside multiprocessing.Queue.

Every way of passing messages is measured in each round, one after the other, so that
what else the machine does meets all of them alike. What arrives is checked: how many
messages, and the sum of the numbers in them. shmq leases and acknowledges each message;
multiprocessing.Queue does neither.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import os
import statistics
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import shmq

BODY = 64
BATCH = 64
FORK = mp.get_context("fork")

NUMBER = struct.Struct("<Q56x")
assert NUMBER.size == BODY


def bodies(count: int) -> Iterator[bytes]:
    return map(NUMBER.pack, range(count))


def total(found: Iterator[bytes]) -> tuple[int, int]:
    """How many bodies, and the sum of their numbers."""
    count = summed = 0
    for body in found:
        count += 1
        summed += int.from_bytes(body[:8], "little")
    return count, summed


class Shmq:
    """What the three ways of using shmq have in common."""

    def __init__(self) -> None:
        self.broker = shmq.connect(f"bench-{os.getpid()}")
        self.queue = self.broker.create_queue("q", dead_letter=None)

    def close(self) -> None:
        self.queue.check()
        self.broker.delete_queue("q")
        self.broker.close()


class OneByOne(Shmq):
    """put → get → ack, one call each."""

    def send(self, count: int) -> None:
        for body in bodies(count):
            self.queue.put(body, True)

    def receive(self, count: int) -> Iterator[bytes]:
        for _ in range(count):
            message = self.queue.get()
            yield message.body
            message.ack()


class Prefetched(OneByOne):
    """put one by one, consume with a prefetch of 64."""

    def receive(self, count: int) -> Iterator[bytes]:
        consumer = self.queue.consume(prefetch=64)
        for _ in range(count):
            message = next(consumer)
            yield message.body
            message.ack()
        consumer.close()


class Batched(Shmq):
    """put_many, get_many and ack_many with 64 messages each."""

    def send(self, count: int) -> None:
        batch: list[bytes] = []
        for body in bodies(count):
            batch.append(body)
            if len(batch) == BATCH:
                self._put(batch)
                batch = []
        self._put(batch)

    def _put(self, batch: list[bytes]) -> None:
        if self.queue.put_many(batch, True) != len(batch):
            raise AssertionError("a batch was cut short")

    def receive(self, count: int) -> Iterator[bytes]:
        while count:
            messages = self.queue.get_many(BATCH)
            for message in messages:
                yield message.body
            if self.queue.ack_many(messages):
                raise AssertionError("a lease was lost")
            count -= len(messages)


class MultiprocessingQueue:
    """multiprocessing.Queue: put and get, no acknowledgement."""

    def __init__(self) -> None:
        self.queue: Any = FORK.Queue(16_384)

    def send(self, count: int) -> None:
        for body in bodies(count):
            self.queue.put(body)
        self.queue.close()
        self.queue.join_thread()

    def receive(self, count: int) -> Iterator[bytes]:
        for _ in range(count):
            yield self.queue.get()

    def close(self) -> None:
        self.queue.close()


WAYS: dict[str, Callable[[], Any]] = {
    "multiprocessing.Queue": MultiprocessingQueue,
    "shmq put, get, ack": OneByOne,
    "shmq consume(64)": Prefetched,
    "shmq batches of 64": Batched,
}


def rate(make: Callable[[], Any], count: int) -> float:
    """Messages per second from one process to another, verified."""
    way = make()
    producer = FORK.Process(target=way.send, args=(count,))
    start = time.perf_counter()
    producer.start()
    found = total(way.receive(count))
    taken = time.perf_counter() - start
    producer.join()
    way.close()
    if found != (count, count * (count - 1) // 2) or producer.exitcode:
        raise AssertionError(f"{found} arrived of {count}, the producer ended {producer.exitcode}")
    return count / taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=300_000)
    arguments = parser.parse_args()
    rates: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(arguments.rounds):
        for name, make in WAYS.items():
            count = arguments.messages // (10 if make is MultiprocessingQueue else 1)
            rates[name].append(rate(make, count))
    base = statistics.median(rates["multiprocessing.Queue"])
    print(f"{BODY} B, two processes, {arguments.rounds} rounds: median (least to most)")
    for name, found in rates.items():
        middle = statistics.median(found)
        print(
            f"{name:24} {middle / 1e6:6.2f} M/s ({min(found) / 1e6:.2f} to "
            f"{max(found) / 1e6:.2f})  {middle / base:5.1f} x"
        )


if __name__ == "__main__":
    main()
