"""``python -m tests.prove.soak --seconds N``: kill workers at random for N seconds, then count."""

from __future__ import annotations

import argparse
import random
import secrets
import shutil
import tempfile
import time
from pathlib import Path

import shmq
from shmq.extras.stress.journal import WRONGS, CheckResult, Journal, judge, read_all
from shmq.extras.stress.workers import WorkerProcesses
from tests.prove.soak import durable, mixed, streams, tcp, transactions, workers
from tests.prove.soak.containers import Contained
from tests.prove.soak.drain import check, drain
from tests.prove.soak.stops import Stops
from tests.prove.soak.streams import history

PRODUCERS = 3
CONSUMERS = 3


def soak(
    seconds: float,
    seed: int,
    workers_of: type[WorkerProcesses] = WorkerProcesses,
    stopped: float = 0.0,
) -> tuple[CheckResult, int]:
    """The verdict, and the number of workers killed.

    The share ``stopped`` of those who are chosen stands still for a while instead.
    """
    chance = random.Random(seed)
    directory = Path(tempfile.mkdtemp(prefix="shmq-soak-"))
    broker = shmq.connect(f"soak-{secrets.token_hex(4)}")
    queue = broker.create_queue(
        "work", capacity=500, visibility_timeout=3600, max_deliveries=60_000
    )
    crew, stops = workers_of(broker.namespace, directory), Stops()
    try:
        for work in [workers.produce] * PRODUCERS + [workers.consume] * CONSUMERS:
            crew.start(work)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(chance.random() / 10)
            stops.resume()
            worker = chance.choice(crew.alive)
            if chance.random() < stopped:
                stops.stop(crew.pid(worker), chance.random())
            else:
                crew.start(crew.kill(worker))
        for worker in (*crew.at(workers.produce), *crew.at(workers.consume)):
            crew.kill(worker)
        drain(queue, Journal(directory, 0))
        check(queue)
        return judge(read_all(directory), crew.killed_at), crew.killed
    finally:
        crew.kill_all()
        for summary in reversed(broker.list_queues()):
            broker.delete_queue(summary.name)
        broker.close()
        shutil.rmtree(directory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--tcp", action="store_true", help="through a server, killed as well")
    way.add_argument("--durable", action="store_true", help="with a journal; the memory is lost")
    way.add_argument("--streams", action="store_true", help="a stream, and a group that reads it")
    way.add_argument("--transactions", action="store_true", help="from a stream to another")
    way.add_argument("--mixed", action="store_true", help="all of it at once, on a bad host")
    parser.add_argument(
        "--stopped",
        type=float,
        default=0.0,
        help="the share of workers that are stopped for a while, not killed (with no way)",
    )
    parser.add_argument(
        "--contained",
        action="store_true",
        help="each worker is PID 1 of a namespace of its own (with no way, or --streams)",
    )
    parser.add_argument(
        "--without",
        action="append",
        choices=mixed.INGREDIENTS,
        default=[],
        help="an ingredient that --mixed leaves out",
    )
    arguments = parser.parse_args()
    workers_of = Contained if arguments.contained else WorkerProcesses
    print(f"seed {arguments.seed}", flush=True)
    if arguments.streams:
        _soak_stream(arguments.seconds, arguments.seed, workers_of)
        return
    if arguments.mixed:
        print(mixed.soak(arguments.seconds, arguments.seed, arguments.without), end="")
        return
    if arguments.transactions:
        _soak_transactions(arguments.seconds, arguments.seed)
        return
    served = 0
    if arguments.tcp:
        verdict, killed, served = tcp.soak(arguments.seconds, arguments.seed)
    elif arguments.durable:
        rounds = max(4, int(arguments.seconds / 10))
        verdict, killed, served = durable.soak(arguments.seconds, arguments.seed, rounds)
        print(f"the memory was lost {rounds} times")
    else:
        verdict, killed = soak(arguments.seconds, arguments.seed, workers_of, arguments.stopped)
    print(
        f"{verdict.put} messages put and confirmed, {killed + served} processes killed "
        f"({served} of a server), {verdict.redelivered} delivered again"
    )
    for kind in WRONGS:
        print(f"{kind}: {len(getattr(verdict, kind))}")
    if verdict.wrong():
        raise SystemExit(1)


def _soak_stream(seconds: float, seed: int, workers_of: type[WorkerProcesses]) -> None:
    verdict, killed = streams.soak(seconds, seed, workers_of=workers_of)
    print(
        f"{verdict.appended} records appended and confirmed, {killed} processes killed, "
        f"{verdict.again} read again"
    )
    for kind in history.WRONGS:
        print(f"{kind}: {len(getattr(verdict, kind))}")
    if verdict.wrong():
        raise SystemExit(1)


def _soak_transactions(seconds: float, seed: int) -> None:
    """In rounds, as one has as many records as its streams hold."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        outcome = transactions.soak(min(left, 10), seed, records=20_000, messages=4_000)
        print(f"{outcome}", flush=True)
        if outcome.wrong():
            raise SystemExit(1)
        seed += 1


if __name__ == "__main__":
    main()
