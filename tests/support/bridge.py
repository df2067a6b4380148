"""Both sides of a bridge, the bridge in this process, and the bridge as a process to be killed."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import shmq
from shmq.extras.nats.bridge.bridge import RunningBridge
from shmq.extras.nats.bridge.config import Backward, Bridge, Forward, Mirror, check
from shmq.extras.nats.bridge.progress import Numbers
from tests.support.waiting import eventually

#: How long a test waits for what it expects, in seconds.
PATIENCE = 120.0


@dataclasses.dataclass(frozen=True)
class Bridged:
    """Both sides."""

    namespace: str
    url: str
    here: shmq.Broker
    there: shmq.Broker

    def bridge(self, *routes: Forward | Backward | Mirror, drain: bool = True) -> RunningBridge:
        """A bridge with these routes, to be entered."""
        kinds: dict[str, Any] = {
            kind.__name__.lower(): tuple(one for one in routes if isinstance(one, kind))
            for kind in (Forward, Backward, Mirror)
        }
        return RunningBridge(
            check(Bridge(url=self.url, namespace=self.namespace, **kinds)), drain=drain
        )

    def drain(self, *routes: Forward | Backward | Mirror) -> list[Numbers]:
        """Run a bridge until nothing is left; returns its numbers."""
        with self.bridge(*routes) as running:
            assert running.wait(PATIENCE), running.numbers()
            return running.numbers()


def take_all(queue: shmq.Queue, count: int) -> list[shmq.Message]:
    """As many messages as there should be, acknowledged, and no more."""
    taken: list[shmq.Message] = []
    until = time.monotonic() + PATIENCE
    while len(taken) < count and time.monotonic() < until:
        some = queue.get_many(256, timeout=1.0)
        queue.ack_many(some)
        taken += some
    assert queue.get_many(1, block=False) == []
    return taken


def wait_until(happened: Callable[[], bool]) -> None:
    """Return once it did; raise AssertionError if it does not in time."""
    eventually(happened, "what is awaited of a bridge", PATIENCE, pause=0.02)


@contextlib.contextmanager
def bridge_process(namespace: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """``shmq bridge`` as a process, which is killed at the end of the block."""
    command = [sys.executable, "-m", "shmq", "-n", namespace, "bridge", *arguments]
    with subprocess.Popen(command, env=dict(os.environ)) as process:
        try:
            yield process
        finally:
            process.kill()
