"""Subscribers that die."""

from __future__ import annotations

import os
import signal

import shmq
from tests.conformance.tools import PATIENCE


def test_a_dead_subscriber_holds_back_nobody(broker: shmq.Broker) -> None:
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
