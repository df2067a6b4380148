"""A program whose threads use shmq for the first time while it forks.

A thread for each kind of handle uses a broker over and over. The main thread forks children at
random moments of the first second; or that of the forkserver does, which has loaded
`tests.support.first_use_preloaded`. Each child uses the handles of all kinds by the broker that it
inherited. A process that hangs prints the stacks of its threads after `LIMIT` seconds and fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import functools
import itertools
import multiprocessing
import os
import random
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import shmq

#: How long a process may take, in seconds.
LIMIT = 30
#: The variable of the environment that names the target of the forkserver's threads.
TARGET = "FIRST_USE_TARGET"

SMALL: dict[str, Any] = {"capacity": 64, "arena_bytes": 1 << 16, "dead_letter": None}
RING: dict[str, Any] = {"partitions": 1, "ring_bytes": 1 << 16}


def use_queue(broker: shmq.Broker, tag: str) -> None:
    with broker.ensure_queue(tag, **SMALL) as queue:
        queue.put(tag)
        assert queue.get(timeout=LIMIT).ack() is None
        queue.put_many([tag, tag])
        with queue.consume(timeout=LIMIT) as messages:
            for message in itertools.islice(messages, 2):
                message.ack()
    broker.delete_queue(tag)


def use_exclusive_queue(broker: shmq.Broker, tag: str) -> None:
    with broker.create_queue(tag, exclusive=True, **SMALL) as queue:
        queue.put(tag)
        assert queue.get(timeout=LIMIT, where="priority >= 0").body == tag
    with contextlib.suppress(shmq.NoSuchQueue):  # over TCP it ends with its handle's connection
        broker.delete_queue(tag)


def use_stream(broker: shmq.Broker, tag: str) -> None:
    with broker.ensure_stream(tag, **RING) as stream:
        with stream.producer() as producer:
            producer.send(tag)
        stream.append(tag)
        assert [record.body for record in stream.read(0, 0)] == [tag, tag]
    broker.delete_stream(tag)


def use_group(broker: shmq.Broker, tag: str) -> None:
    with broker.ensure_stream(tag, **RING) as stream:
        stream.append(tag)
        with stream.group("g").join() as member:
            assert [record.body for found in member.poll(timeout=LIMIT) for record in found] == [
                tag
            ]
            member.commit()
    broker.delete_stream(tag)


def use_exchange(broker: shmq.Broker, tag: str) -> None:
    exchange = broker.ensure_exchange(tag)
    with broker.ensure_queue(tag, **SMALL) as queue:
        exchange.bind(tag, "key")
        exchange.publish(tag, "key")
        assert queue.get(timeout=LIMIT).body == tag
    broker.delete_exchange(tag)
    broker.delete_queue(tag)


def use_table(broker: shmq.Broker, tag: str) -> None:
    table = broker.ensure_table(tag)
    table.set("key", tag)
    assert table.get("key") == tag
    table.close()
    broker.delete_table(tag)


def use_transaction(broker: shmq.Broker, tag: str) -> None:
    if type(broker).__name__ != "LocalBroker":
        return  # a transaction is of one host
    with broker.ensure_queue(tag, **SMALL) as queue:
        with broker.transaction() as transaction:
            transaction.put(tag, tag)
        assert queue.get(timeout=LIMIT).body == tag
    broker.delete_queue(tag)


def use_request(broker: shmq.Broker, tag: str) -> None:
    broker.ensure_queue(tag, **SMALL).close()
    stop = threading.Event()
    serve = functools.partial(broker.serve, tag, lambda message: message.body, stop=stop)
    server = threading.Thread(target=serve)
    server.start()
    try:
        assert broker.request(tag, tag, LIMIT).body == tag
    finally:
        stop.set()
        server.join()
    broker.delete_queue(tag)


def use_asyncio(broker: shmq.Broker, tag: str) -> None:
    asyncio.run(_await(broker, tag))
    broker.delete_queue(tag)


async def _await(broker: shmq.Broker, tag: str) -> None:
    with broker.ensure_queue(tag, **SMALL) as queue:
        getting = asyncio.create_task(queue.aget(LIMIT))
        await asyncio.sleep(0)
        await queue.aput(tag)
        assert (await getting).body == tag
        asking = asyncio.create_task(broker.arequest(tag, tag, LIMIT))
        request = await queue.aget(LIMIT)
        assert request.reply_to is not None
        reply_to = broker.put_target(request.reply_to)
        await reply_to.aput(tag, correlation=request.correlation)
        assert (await asking).body == tag


KINDS: dict[str, Callable[[shmq.Broker, str], None]] = {
    "queue": use_queue,
    "exclusive": use_exclusive_queue,
    "stream": use_stream,
    "group": use_group,
    "exchange": use_exchange,
    "table": use_table,
    "transaction": use_transaction,
    "request": use_request,
    "asyncio": use_asyncio,
}


class Users:
    """A thread for each kind of handle, which uses it over and over."""

    def __init__(self, target: str) -> None:
        self.broker = shmq.connect(target)
        self._stop = threading.Event()
        self._errors: list[str] = []
        self._threads = [threading.Thread(target=self._use, args=(kind,)) for kind in KINDS]
        for thread in self._threads:
            thread.daemon = True
            thread.start()

    def _use(self, kind: str) -> None:
        try:
            while not self._stop.is_set():
                KINDS[kind](self.broker, f"{kind}.{os.getpid()}")
        except BaseException:
            self._errors.append(traceback.format_exc())

    def stop(self) -> None:
        """End the threads. Fails if one of them has failed."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self.broker.close()
        assert not self._errors, "\n".join(self._errors)


def use_all(seed: int) -> None:
    """Use all kinds of handles in the child, in a random order."""
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    assert users is not None
    kinds = list(KINDS)
    random.Random(seed).shuffle(kinds)
    for kind in kinds:
        KINDS[kind](users.broker, f"{kind}.{os.getpid()}")
    users.broker.close()
    faulthandler.cancel_dump_traceback_later()


def main(target: str, method: str, children: int, seed: int) -> None:
    """Fork the children at random moments of a second, and wait for all of them."""
    global users  # noqa: PLW0603 - the children inherit it
    chance = random.Random(seed)
    moments = sorted(chance.random() for _ in range(children))
    context: Any = multiprocessing.get_context(method)
    if method == "fork":
        users = Users(target)
    else:
        os.environ[TARGET] = target
        multiprocessing.set_forkserver_preload(["tests.support.first_use_preloaded"])
    begin, processes = time.monotonic(), []
    for moment in moments:
        time.sleep(max(0.0, begin + moment - time.monotonic()))
        process = context.Process(target=use_all, args=(chance.randrange(1 << 30),))
        process.start()
        processes.append(process)
    for process in processes:
        process.join()
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    if users is not None:
        users.stop()
    faulthandler.cancel_dump_traceback_later()
    assert not any(process.exitcode for process in processes)


users: Users | None = None
