"""How long a PING takes while clients search long queues and a local process holds a lock.

``python -m bench.tcp.stalls`` starts a server of one worker, and prints the quantiles.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
import statistics
import time
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from typing import Final

import shmq
from shmq.protocol.opcodes import Type
from tests.support.peer import Peer
from tests.support.server import serve
from tests.support.stopped import locks_of_queue

__all__ = ["main"]

#: Messages that each search goes through, and the measured seconds.
_COUNT: Final = 100_000
_SECONDS: Final = 20.0


def _fill(broker: shmq.Broker, name: str) -> None:
    with broker.create_queue(name, capacity=_COUNT, arena_bytes=64 << 20) as queue:
        for _ in range(_COUNT // 1000):
            queue.put_many([b"x"] * 1000, headers={"n": 1})


def _search(url: str, stop: Event, number: int) -> None:
    """Search for messages that do not exist, in turn with each call that scans a whole queue."""
    with shmq.connect(url) as broker, broker.queue("long") as queue:
        ways = itertools.cycle(
            (
                lambda: queue.get(block=False, where="header.n = 2"),
                lambda: queue.peek(1, where="header.n = 2"),
                lambda: broker.queue("long.dlq").redrive(where="age > 100d"),
                broker.list_queues,
            )
        )
        for _ in range(number):
            next(ways)
        while not stop.is_set():
            with contextlib.suppress(shmq.Empty, shmq.LockTimeout):
                next(ways)()


def _use(url: str, stop: Event) -> None:
    """Put into the queue whose lock is held."""
    with shmq.connect(url) as broker:
        while not stop.is_set():
            with contextlib.suppress(shmq.LockTimeout), broker.queue("held") as queue:
                queue.put(b"x")


def _ping(peer: Peer, seconds: float) -> list[float]:
    """The round trips, in ms."""
    trips = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.perf_counter()
        peer.ok(Type.PING, b"there?")
        trips.append((time.perf_counter() - began) * 1e3)
        time.sleep(0.002)
    return trips


def _tell(what: str, trips: list[float]) -> None:
    cuts = statistics.quantiles(trips, n=100)
    print(
        f"{what}: {len(trips)} PINGs, p50 {cuts[49]:.2f} ms, p99 {cuts[98]:.2f} ms, "
        f"longest {max(trips):.2f} ms"
    )


def main() -> None:
    """Measure and print."""
    namespace = f"bench-{secrets.token_hex(4)}"
    with serve(namespace, workers=1, persist=False) as server, shmq.connect(namespace) as broker:
        url = f"shmq://127.0.0.1:{server.port}"
        _fill(broker, "long")
        broker.create_queue("held").close()
        spawn = get_context("spawn")
        stop = spawn.Event()
        searchers = [spawn.Process(target=_search, args=(url, stop, n)) for n in range(4)]
        users = [spawn.Process(target=_use, args=(url, stop)) for _ in range(2)]
        with Peer(server) as peer:
            _tell("idle", _ping(peer, 2.0))
            lock = locks_of_queue(namespace, "held")["puts"]
            with lock.held_by_stopped():
                for each in searchers + users:
                    each.start()
                _tell("4 searchers, 1 lock held", _ping(peer, _SECONDS))
                stop.set()
                for each in searchers + users:
                    each.join()
        for name in broker.queue_names():
            broker.delete_queue(name)


if __name__ == "__main__":
    main()
