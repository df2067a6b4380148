"""Subscribers that die, and those that a fork has inherited."""

from __future__ import annotations

import gc
import os
import signal
from multiprocessing.connection import Connection

import shmq
from tests.support.processes import Start
from tests.support.waiting import PATIENCE


def test_a_dead_subscriber_holds_back_no_append(broker: shmq.Broker) -> None:
    stream = broker.create_stream("small", 1, ring_bytes=64 << 10, overflow="block")
    ready, told = os.pipe()
    pid = os.fork()
    if not pid:
        with shmq.connect(broker.namespace).subscribe("small", policy="block") as subscription:
            os.write(told, b"!")
            signal.pause()
            subscription.poll()
    assert os.read(ready, 1) == b"!"
    try:
        try:
            while True:
                stream.append(bytes(1000), block=False)
        except shmq.Full:
            pass
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(ready)
        os.close(told)

    for _ in range(200):
        stream.append(bytes(1000), block=True, timeout=PATIENCE)


def fill(stream: shmq.Stream) -> int:
    """Append for as long as there is room, and not for ever; how many that were."""
    for count in range(200):
        try:
            stream.append(bytes(1000), block=False)
        except shmq.Full:
            return count
    return 200


def test_a_child_of_a_fork_lets_go_of_nothing_that_its_parent_holds(
    broker: shmq.Broker, start: Start
) -> None:
    stream = broker.create_stream("small", 1, ring_bytes=64 << 10, overflow="block")
    kept = [stream.subscribe(policy="block") for _ in range(2)]

    def work(pipe: Connection) -> None:
        kept[0].close()
        kept.clear()
        gc.collect()

    start(work).ends()

    filled = fill(stream)
    assert filled < 200
    for subscription in kept:
        assert len(subscription.poll()) == filled
        subscription.close()
    assert fill(stream) == 200


def test_a_child_of_a_fork_goes_on_with_holds_of_its_own(broker: shmq.Broker, start: Start) -> None:
    stream = broker.create_stream("small", 1, ring_bytes=64 << 10, overflow="block")
    subscription = stream.subscribe(policy="block")
    stream.append(b"both")

    def work(pipe: Connection) -> None:
        with subscription:
            found = [bytes(record.value) for record in subscription.poll(PATIENCE)]
            subscription.poll()
            pipe.send(found)
            pipe.recv()

    child = start(work)
    assert child.hear() == [b"both"]
    assert fill(stream) < 200  # the parent has read nothing yet
    while subscription.poll():
        pass
    assert fill(stream) < 200  # nor has the child, of what came since
    child.tell()
    child.ends()
    while subscription.poll():
        pass
    subscription.close()
    assert fill(stream) == 200
