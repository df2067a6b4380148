"""``python -m tests.soak --seconds N``: kill workers at random for N seconds, then count."""

from __future__ import annotations

import argparse
import random
import secrets
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import shmq
from shmq.stress.crew import Crew
from shmq.stress.journal import ACKED, GOT, Journal, read_all
from shmq.stress.verdict import WRONGS, Verdict, judge
from tests.soak import workers

PRODUCERS = 3
CONSUMERS = 3


def soak(seconds: float, seed: int) -> tuple[Verdict, int]:
    """The verdict, and the number of workers killed."""
    chance = random.Random(seed)
    directory = Path(tempfile.mkdtemp(prefix="shmq-soak-"))
    broker = shmq.connect(f"soak-{secrets.token_hex(4)}")
    queue = broker.create_queue(
        "work", capacity=500, visibility_timeout=3600, max_deliveries=60_000
    )
    crew = Crew(broker.namespace, directory)
    try:
        for work in [workers.produce] * PRODUCERS + [workers.consume] * CONSUMERS:
            crew.hire(work)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(chance.random() / 10)
            crew.hire(crew.kill(chance.choice(crew.alive)))
        for worker in (*crew.at(workers.produce), *crew.at(workers.consume)):
            crew.kill(worker)
        drain(queue, Journal(directory, 0))
        check(queue)
        return judge(read_all(directory), crew.killed_at), crew.killed
    finally:
        crew.dismiss()
        for summary in broker.list_queues():
            broker.delete_queue(summary.name)
        broker.close()
        shutil.rmtree(directory)


def drain(queue: Any, journal: Journal) -> None:
    """Take what is left, as a survivor would."""
    while True:
        stats = queue.stats()
        try:
            message = queue.get(timeout=0.5 if stats.delayed else 0.0)
        except shmq.Empty:
            if queue.stats().delayed:
                continue
            return
        numbers = workers.numbers_of(message.body)
        workers.write_all(journal, GOT, numbers)
        message.ack()
        workers.write_all(journal, ACKED, numbers)


def check(queue: Any) -> None:
    """The emptied queue is as good as new. Raises AssertionError, DamagedSegment."""
    queue.check()
    stats = queue.stats()
    left = (stats.depth, stats.delayed, stats.in_flight, stats.dying, stats.arena_used)
    assert left == (0, 0, 0, 0, 0), f"left behind in an emptied queue: {left}"
    assert (stats.waiting_get, stats.waiting_put) == (0, 0), "somebody dead is counted as asleep"
    assert len(queue.attachments()) == 1, "a dead process is counted as attached"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    verdict, killed = soak(arguments.seconds, arguments.seed)
    print(
        f"{verdict.put} messages put and confirmed, {killed} processes killed, "
        f"{verdict.redelivered} delivered again"
    )
    for kind in WRONGS:
        print(f"{kind}: {len(getattr(verdict, kind))}")
    if verdict.wrong():
        raise SystemExit(1)


if __name__ == "__main__":
    main()
