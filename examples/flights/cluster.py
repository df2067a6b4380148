"""The flights once more: forwarded from this host to a cluster whose leader is killed half-way."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import shmq
from examples.flights.errors import DemoError
from examples.flights.flights import Flight, read_flights
from examples.flights.plan import Plan
from examples.flights.queues import PATIENCE
from examples.flights.screen import Screen
from examples.flights.tally import Sums
from shmq.extras.nats.client.names import queue_stream
from shmq.extras.nats.cluster.local import LocalCluster

#: The queue on this host, and the one of the cluster.
DEPARTURES: Final = "departures"
#: Flights of one message.
_PAGE: Final = 32
#: Messages taken at a time.
_AT_ONCE: Final = 64
_IDLE: Final = 0.5
HALF: Final = 1 / 2


@dataclasses.dataclass(frozen=True, slots=True)
class Clustered:
    """The result of the cluster."""

    #: The sums per carrier, of each flight once.
    carriers: dict[str, Sums]
    flights: int
    #: Flights that came again: their consumer had taken them, and its acknowledgement was lost.
    again: int
    #: The server that was killed, and how many flights had been counted then.
    killed: str
    killed_at: int
    seconds: float


def over_cluster(plan: Plan, screen: Screen) -> Clustered:
    """Put every flight on this host, forward it to three servers, and add up what comes there.

    Raises DemoError if there is no more progress, and what the broker and the cluster raise.
    """
    with tempfile.TemporaryDirectory(
        prefix="shmq-demo-", dir=os.environ.get("TMPDIR", "/var/tmp")
    ) as folder:
        cluster = LocalCluster.create(Path(folder, "cluster"), name="demo", sync="2m")
        try:
            cluster.start()
            url = f"{cluster.url}/{plan.namespace}"
            with shmq.connect(plan.namespace) as here, _queue(here) as queue:
                return _Stage(plan, screen, cluster, url, queue).work()
        finally:
            cluster.stop()


@contextlib.contextmanager
def _queue(here: shmq.Broker) -> Iterator[shmq.Queue]:
    """The queue on this host; it is deleted at the end."""
    try:
        yield here.create_queue(
            DEPARTURES, capacity=16_384, arena_bytes=64 << 20, overflow="block", max_deliveries=None
        )
    finally:
        here.delete_queue(DEPARTURES)


class _Stage:
    """The stage: what has come from the cluster so far."""

    def __init__(
        self, plan: Plan, screen: Screen, cluster: LocalCluster, url: str, queue: shmq.Queue
    ) -> None:
        self._plan, self._screen = plan, screen
        self._cluster, self._url, self._queue = cluster, url, queue
        self._seen: set[int] = set()
        self._carriers: dict[str, Sums] = {}
        self._again = 0
        self._killed: tuple[str, int] | None = None

    def work(self) -> Clustered:
        """Put, forward and count all flights."""
        began = time.monotonic()
        table = list(read_flights(self._plan.path, limit=self._plan.flights))
        self._queue.put_many(
            [[*map(list, table[at : at + _PAGE])] for at in range(0, len(table), _PAGE)],
            timeout=PATIENCE,
        )
        with self._bridge() as bridge, shmq.connect(self._url) as there:
            self._count(there, bridge)
            if bridge.wait(PATIENCE):
                raise DemoError(f"the bridge ended with exit code {bridge.returncode}")
        killed, at = self._killed or ("none", 0)
        seconds = time.monotonic() - began
        return Clustered(self._carriers, len(self._seen), self._again, killed, at, seconds)

    @contextlib.contextmanager
    def _bridge(self) -> Iterator[subprocess.Popen[bytes]]:
        command = [
            sys.executable, "-m", "shmq", "-n", self._plan.namespace, "bridge",
            "--to", self._url, "--forward", DEPARTURES, "--drain",
        ]  # fmt: skip
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                yield process
            finally:
                process.kill()

    def _count(self, there: shmq.Broker, bridge: subprocess.Popen[bytes]) -> None:
        queue = self._open_far_queue(there, bridge)
        moved = time.monotonic()
        while len(self._seen) < self._plan.flights:
            messages = queue.get_many(_AT_ONCE, timeout=_IDLE)
            for message in messages:
                for values in message.body:
                    self._add(Flight(*values))
            queue.ack_many(messages)
            now = time.monotonic()
            moved = now if messages else moved
            if now - moved > PATIENCE:
                raise DemoError(f"no flight came from the cluster for {PATIENCE:.0f} s")
            if self._killed is None and len(self._seen) >= HALF * self._plan.flights:
                self._kill_leader()

    def _open_far_queue(self, there: shmq.Broker, bridge: subprocess.Popen[bytes]) -> shmq.Queue:
        """The queue of the cluster, once the bridge has made it."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return there.queue(DEPARTURES)
            except shmq.NoSuchQueue:
                if bridge.poll() is not None or time.monotonic() > until:
                    raise DemoError("the bridge did not make the queue of the cluster") from None
                time.sleep(_IDLE)

    def _add(self, flight: Flight) -> None:
        if flight.number in self._seen:
            self._again += 1
            return
        self._seen.add(flight.number)
        sums = self._carriers.setdefault(flight.carrier, Sums())
        sums.count(flight.late, *flight.delays)

    def _kill_leader(self) -> None:
        node = self._cluster.leader_of(queue_stream(self._plan.namespace, DEPARTURES))
        if node is None:
            return
        node.kill()
        self._killed = node.name, len(self._seen)
        self._screen.event(
            f"{node.name}, which led the queue, killed with SIGKILL when {len(self._seen):,} "
            f"flights had come from the cluster"
        )
        self._cluster.restart(node, wait=False)
