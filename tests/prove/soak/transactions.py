"""Kill processes while they commit transactions, and count what came of what went in.

Workers take records of a group and messages of a queue, and for each put what comes of it into
another stream and another queue, all in transactions. They are killed at random, and others take
their place. At the end everything is there once, and each key in its order.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import random
import secrets
import signal
import time
from collections import Counter
from typing import Any

import shmq
from shmq import Broker, Group, Member, Message, Queue, Records
from shmq.client.transaction.recover import settle_all
from shmq.client.transaction.transaction_log import owners
from shmq.host.namespace.namespace import Namespace
from tests.prove.soak.stops import delete, insist
from tests.support.waiting import eventually

STREAMS = ("source", "sink")
QUEUES = ("results", "jobs")
WORKERS = 3
PARTITIONS = 4
KEYS = 50
#: A worker lives for so long at most, in seconds.
LIFE = 0.15
#: Without kills, something more must be done within so many seconds.
PATIENCE = 60.0


@dataclasses.dataclass
class Outcome:
    """What went in, and what is wrong with what came out."""

    records: int
    messages: int
    killed: int
    lost: set[bytes]
    doubled: set[bytes]
    out_of_order: set[bytes]

    def wrong(self) -> bool:
        """Whether a promise was not kept."""
        return bool(self.lost or self.doubled or self.out_of_order)


def soak(
    seconds: float,
    seed: int,
    records: int,
    messages: int,
    namespace: str | None = None,
    *,
    stopped: float = 0.0,
) -> Outcome:
    """Kill for so long, let the rest be done, and judge.

    The share ``stopped`` of those who are killed stands still for a while before.
    """
    chance = random.Random(seed)
    with shmq.connect(namespace or f"soak-{secrets.token_hex(4)}") as broker:
        try:
            _fill(broker, records, messages)
            killed = _kill(broker, time.monotonic() + seconds, chance, stopped)
            return _judge(broker, records, messages, killed)
        finally:
            for stream in STREAMS:
                delete(functools.partial(broker.delete_stream, stream))
            for queue in QUEUES:
                delete(functools.partial(broker.delete_queue, queue))


def _fill(broker: Broker, records: int, messages: int) -> None:
    room: dict[str, Any] = {
        "capacity": records + messages,
        "dead_letter": None,
        "max_deliveries": None,
    }
    source, _ = (insist(functools.partial(broker.create_stream, s, PARTITIONS)) for s in STREAMS)
    for n in range(records):
        source.append(b"%d" % n, key=b"%d" % (n % KEYS))
    _, jobs = (insist(functools.partial(broker.create_queue, q, **room)) for q in QUEUES)
    jobs.put_many([b"job %d" % n for n in range(messages)])


# ---- workers ----


def _start(namespace: str) -> int:
    worker = os.fork()
    if worker == 0:
        try:
            with shmq.connect(namespace) as broker:
                member = insist(lambda: broker.stream("source").group("g").join(limit=50))
                jobs = insist(lambda: broker.queue("jobs"))
                while True:
                    _work(broker, member, jobs)
        finally:
            os._exit(1)
    return worker


def _work(broker: Broker, member: Member, jobs: Queue) -> None:
    for records in insist(lambda: member.poll(50, timeout=0.005)):
        with contextlib.suppress(shmq.MemberFenced):  # another one has the partition
            insist(functools.partial(_pass_on, broker, member, records))
    messages = insist(lambda: jobs.get_many(5, block=False))
    insist(lambda: _do_jobs(broker, jobs, messages))


def _pass_on(broker: Broker, member: Member, records: Records) -> None:
    with broker.transaction(timeout=None) as transaction:
        for record in records:
            transaction.append("sink", record.value, key=record.key)
            transaction.put("results", record.value)
        transaction.commit(member, {records.partition: records.next_offset})


def _do_jobs(broker: Broker, jobs: Queue, messages: list[Message]) -> None:
    with broker.transaction(timeout=None) as transaction:
        for message in messages:
            transaction.put("results", message.body)
            transaction.append("sink", message.body)
            transaction.ack(jobs, message)


def _kill(broker: Broker, until: float, chance: random.Random, stopped: float) -> int:
    """Have the work done, killing until then; how many were killed."""
    workers = [_start(broker.namespace) for _ in range(WORKERS)]
    jobs = insist(lambda: broker.queue("jobs"))
    group = insist(lambda: broker.stream("source").group("g"))
    killed, least, since = 0, math.inf, time.monotonic()
    try:
        while left := insist(lambda: _count_left(jobs, group)):
            if left < least or time.monotonic() < until:
                least, since = left, time.monotonic()
            assert time.monotonic() < since + PATIENCE, f"the work does not go on: {left} left"
            time.sleep(chance.uniform(0.0, LIFE / WORKERS))
            if time.monotonic() < until:
                at = chance.randrange(WORKERS)
                if chance.random() < stopped:
                    os.kill(workers[at], signal.SIGSTOP)
                    time.sleep(chance.random())
                _end(workers[at])
                killed += 1
                workers[at] = _start(broker.namespace)
    finally:
        for worker in workers:
            _end(worker)
    return killed


def _end(worker: int) -> None:
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)


def _count_left(jobs: Queue, group: Group) -> int:
    """The messages and records that were not handled yet."""
    numbers = jobs.stats()
    return numbers.depth + numbers.in_flight + sum(group.lag().values())


# ---- the verdict ----


def _is_settled(namespace: Namespace) -> bool:
    """Whether all that the dead have committed is applied.

    A process of the namespace that is stopped may be applying it: it goes on, or is killed.
    """
    settle_all(namespace)
    return all(map(namespace.processes.is_alive, owners(namespace)))


def _judge(broker: Broker, records: int, messages: int, killed: int) -> Outcome:
    wanted = {b"%d" % n for n in range(records)} | {b"job %d" % n for n in range(messages)}
    eventually(lambda: _is_settled(Namespace.of(broker.namespace)), "the dead's commits are done")
    with insist(lambda: broker.queue("results")) as results:
        insist(results.stats)
        found = insist(lambda: results.get_many(2 * len(wanted), block=False))
    put = Counter(message.body for message in found)
    appended: Counter[bytes] = Counter()
    out_of_order: set[bytes] = set()
    newest: dict[bytes, int] = {}
    for record in insist(lambda: list(broker.stream("sink").reader("earliest", timeout=0))):
        appended[bytes(record.value)] += 1
        if record.key is not None:
            if newest.get(record.key, -1) >= int(record.value):
                out_of_order.add(bytes(record.value))
            newest[record.key] = int(record.value)
    return Outcome(
        records=records,
        messages=messages,
        killed=killed,
        lost=(wanted - put.keys()) | (wanted - appended.keys()),
        doubled={body for count in (put, appended) for body in count if count[body] > 1},
        out_of_order=out_of_order,
    )
