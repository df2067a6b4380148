"""Every operation with so many free pages: run as ``python -m tests.system.processes.pages KIND``.

It needs a small /dev/shm of its own. Each operation is a generator: it makes what it needs,
yields a call, and is sent whether that succeeded. The call is made when but so many pages are
free; before the generator goes on there is room again. Each operation has a process of its own,
so that a signal is told by its status.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import os
import pkgutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Generator
from typing import Any

import shmq
from shmq import Broker, Queue, client
from shmq.client.local.queue import LocalQueue
from shmq.model import routing, schema
from tests.support.processes import SHM, drain

#: How many free pages an operation is tried with, at most.
PAGES = 40

#: What takes the room, and how much of it is given back, in bytes.
BALLAST = SHM / "ballast"
PAGE = 4096
ROOM = 3 << 20

Operation = Callable[[Broker], Generator[Callable[[], object], bool, None]]
Course = Generator[Callable[[], object], bool, None]


def fill(spare: int) -> None:
    """Take all of /dev/shm but so many pages."""
    with BALLAST.open("ab") as file:
        space = os.statvfs(SHM)
        more = (space.f_bavail - spare) * PAGE
        os.posix_fallocate(file.fileno(), file.tell(), more)


def make_room() -> None:
    """Give some of it back."""
    os.truncate(BALLAST, BALLAST.stat().st_size - ROOM)


def _sound(queue: Queue) -> None:
    """Fail unless the queue is whole, and takes and gives a message."""
    assert isinstance(queue, LocalQueue)
    queue.check()
    queue.purge()
    queue.put(b"later")
    assert drain(queue) == [b"later"]
    queue.check()


def _a_queue(broker: Broker, **options: Any) -> Queue:
    return broker.create_queue("q", dead_letter=None, **options)


# ---- queues ----


def _putting(put: Callable[[Queue], object], before: int = 0) -> Operation:
    def course(broker: Broker) -> Course:
        queue = _a_queue(broker, dedupe_window=60.0)
        for _ in range(before):
            queue.put(b"before")
        done = yield functools.partial(put, queue)
        stats = queue.stats()
        there = stats.depth + stats.delayed - before
        assert there == done
        _sound(queue)

    return course


def _loan(queue: Queue) -> None:
    with queue.loan(20_000) as view:
        view[:] = bytes(20_000)


def _put_many(size: int, count: int) -> Operation:
    """What a put_many says that it put is there."""

    def course(broker: Broker) -> Course:
        queue = _a_queue(broker)
        said = 0

        def put() -> None:
            nonlocal said
            said = queue.put_many([bytes(size)] * count)

        done = yield put
        assert queue.qsize() == said
        assert done == (said > 0)
        _sound(queue)

    return course


def _using(use: Callable[[Queue], object], *, refused: bool = False) -> Operation:
    """An operation on a queue of messages: it takes no memory, unless it may be refused."""

    def course(broker: Broker) -> Course:
        queue = _a_queue(broker)
        queue.put_many([b"%d" % number for number in range(40)])
        done = yield functools.partial(use, queue)
        assert done or refused
        _sound(queue)

    return course


def grow(broker: Broker) -> Course:
    queue = _a_queue(broker, capacity=2000)
    for number in range(40):
        queue.put(b"1", group=str(number))
    done = yield functools.partial(broker.alter_queue, "q", capacity=32_000)
    assert queue.options.capacity == (32_000 if done else 2000)
    _sound(queue)


def _consume(queue: Queue) -> None:
    for message in queue.consume(prefetch=4, block=False):
        message.ack()


def _get_in_a_loop(queue: Queue) -> None:
    async def get() -> None:
        (await queue.aget(timeout=1)).ack()

    asyncio.run(get())


def _wait_in_a_loop(queue: Queue) -> None:
    """A wakeup is made for it."""

    async def wait() -> None:
        try:
            await queue.aget(timeout=0.01)
        except shmq.Empty:
            return
        raise AssertionError("there is no message")

    queue.purge()
    asyncio.run(wait())


def _wait(queue: Queue) -> None:
    queue.purge()
    try:
        queue.get(timeout=0.01)
    except shmq.Empty:
        return
    raise AssertionError("there is no message")


def create_queue(broker: Broker) -> Course:
    """A queue with a dead-letter queue: both or none."""
    done = yield lambda: broker.create_queue("q")
    names = [summary.name for summary in broker.list_queues()]
    assert names == (["q", "q.dlq"] if done else []), names
    _sound(broker.ensure_queue("q"))


def attach_and_list(broker: Broker) -> Course:
    """Another handle of a queue; and looking at all queues."""
    queue = _a_queue(broker)

    def attach() -> None:
        assert [summary.name for summary in broker.list_queues()] == ["q"]
        # Attachments get memory by the page.
        handles.extend(broker.queue("q") for _ in range(70))

    handles: list[Queue] = []
    yield attach
    for handle in (queue, *handles[-1:]):
        _sound(handle)


def reject(broker: Broker) -> Course:
    """Dead letters wait where they are until there is room."""
    queue = broker.create_queue("q", dead_letter="dead_letter_queues")
    queue.put_many([bytes(3000)] * 20)
    messages = queue.get_many(20)
    done = yield lambda: [message.reject() for message in messages]
    assert done
    dead_letter_queue = broker.queue("dead_letter_queues")
    until = time.monotonic() + 60
    while queue.stats().dying and time.monotonic() < until:
        time.sleep(0.01)
    assert len(drain(dead_letter_queue)) == 20
    _sound(queue)


def redrive(broker: Broker) -> Course:
    """Dead letters go back as far as there is room."""
    queue = broker.create_queue("q", dead_letter="dead_letter_queues")
    queue.put_many([bytes(3000)] * 20)
    for message in queue.get_many(20):
        message.reject()
    queue.purge()
    dead_letter_queue = broker.queue("dead_letter_queues")
    yield dead_letter_queue.redrive
    assert dead_letter_queue.qsize() + queue.qsize() == 20
    dead_letter_queue.redrive()
    assert len(drain(queue)) == 20
    _sound(queue)


def delete_queue(broker: Broker) -> Course:
    """Deleting gives memory back, and takes none."""
    _a_queue(broker).put(b"1")
    done = yield lambda: broker.delete_queue("q")
    assert done
    assert broker.list_queues() == []


def request(broker: Broker) -> Course:
    """A request makes a reply queue."""
    queue = _a_queue(broker)

    def ask() -> None:
        try:
            broker.request(queue, b"1", timeout=0.01)
        except shmq.NoReply:
            return

    yield ask
    _sound(queue)


# ---- streams ----


def _a_stream(broker: Broker, **options: Any) -> shmq.Stream:
    return broker.create_stream("s", partitions=2, **options)


def _reads(stream: shmq.Stream, count: int) -> None:
    """Fail unless the stream has so many records, and takes another."""
    found = [len(stream.read(partition, 0)) for partition in range(stream.partitions)]
    assert sum(found) == count, (found, count)
    stream.append(b"later", partition=stream.open_partitions[0])
    assert sum(len(stream.read(p, 0)) for p in range(stream.partitions)) == count + 1


def _appending(append: Callable[[shmq.Stream], object], count: int) -> Operation:
    def course(broker: Broker) -> Course:
        stream = _a_stream(broker)
        done = yield functools.partial(append, stream)
        _reads(stream, count if done else 0)

    return course


def _looking(look: Callable[[shmq.Stream], object], records: int) -> Operation:
    """An operation that reads a stream: it takes no memory."""

    def course(broker: Broker) -> Course:
        stream = _a_stream(broker)
        if records:
            stream.append_many([bytes(2000)] * records, partition=0)
        done = yield functools.partial(look, stream)
        assert done
        _reads(stream, records)

    return course


def _read(stream: shmq.Stream) -> None:
    for partition in range(2):
        stream.read(partition, 0)


def _at(stream: shmq.Stream) -> None:
    for partition in range(2):
        stream.at(time.time() - 3600, partition)
        stream.at(time.time() + 3600, partition)
        stream.earliest(partition)
        stream.latest(partition)
    stream.offsets()
    stream.rates()


def _poll(stream: shmq.Stream) -> None:
    with stream.reader(start="earliest") as reader:
        reader.poll()
        reader.poll(timeout=0.01)
    with stream.reader(start="latest") as reader:
        reader.poll()


def _poll_in_a_loop(stream: shmq.Stream) -> None:
    async def read() -> None:
        await stream.aread(1, 0, timeout=0.01)

    asyncio.run(read())


def _subscribe(stream: shmq.Stream) -> None:
    with stream.subscribe(history=2, timeout=0.01) as subscription:
        assert len(list(subscription)) in {0, 2}


def produce(broker: Broker) -> Course:
    """What a producer has appended is known to be."""
    stream = _a_stream(broker)
    append = functools.partial(stream.append, b"1", partition=0, producer=7, sequence=0)
    done = yield append
    assert append().duplicate == done
    _reads(stream, 1)


def create_stream(broker: Broker) -> Course:
    """A stream: whole or not there."""
    done = yield lambda: broker.create_stream("s", partitions=2)
    assert len(broker.list_streams()) == done
    _reads(broker.ensure_stream("s", partitions=2), 0)


def attach_stream(broker: Broker) -> Course:
    """Another handle of a stream; and looking at all streams."""
    _a_stream(broker)
    done = yield lambda: (broker.list_streams(), broker.stream("s"))
    assert done
    _reads(broker.stream("s"), 0)


def repartition(broker: Broker) -> Course:
    """More partitions: all of them or none."""
    stream = _a_stream(broker)
    stream.append(b"1", partition=0)
    done = yield lambda: stream.repartition(3)
    assert stream.partitions == (5 if done else 2)
    _reads(stream, 1)


def delete_stream(broker: Broker) -> Course:
    """Deleting takes no memory."""
    _a_stream(broker).append(b"1")
    done = yield lambda: broker.delete_stream("s")
    assert done
    assert broker.list_streams() == []


def block(broker: Broker) -> Course:
    """A reader that holds back appends has a hold."""
    stream = _a_stream(broker, overflow="block")
    yield lambda: stream.subscribe(policy="block", timeout=0.01)
    _reads(stream, 0)


# ---- groups ----


def join(broker: Broker) -> Course:
    """A group is made with its first member."""
    stream = _a_stream(broker)
    stream.append(b"1", partition=0)
    yield lambda: stream.group("g").join(timeout=0).poll()
    with stream.group("g").join(timeout=0) as member:
        member.poll()
    _reads(stream, 1)


def member(broker: Broker) -> Course:
    """What a member does takes no memory."""
    stream = _a_stream(broker)
    stream.append_many([b"1"] * 9, partition=0)
    one = stream.group("g").join(timeout=0)

    def use() -> None:
        assert sum(len(records) for records in one.poll()) == 9
        one.commit()
        one.heartbeat(), one.lag(), stream.groups()
        one.seek(0, 3)
        one.poll(timeout=0.01)
        one.close()

    done = yield use
    assert done
    _reads(stream, 9)


def share(broker: Broker) -> Course:
    """A share group is made with its first member."""
    stream = _a_stream(broker)
    stream.append(b"1", partition=0)
    yield lambda: stream.share("g").get(block=False).ack()
    stream.share("h").get(block=False).ack()
    _reads(stream, 1)


def _again(one: shmq.Share) -> None:
    """Looking for more moves dead letters."""
    with contextlib.suppress(shmq.Empty):
        one.get_many(9, block=False)


def lend(broker: Broker) -> Course:
    """What the member of a share group does takes no memory; dead letters wait for room."""
    stream = _a_stream(broker)
    stream.append_many([bytes(3000)] * 9, partition=0)
    dead_letter_queue = broker.create_queue("dead_letter_queues", dead_letter=None)
    one = stream.share("g", dead_letter="dead_letter_queues", max_deliveries=1, lease=1.0)

    def use() -> None:
        first, second, third, *_ = one.get_many(9)
        first.ack()
        second.nack()
        third.extend(5)
        third.reject()
        _again(one)

    done = yield use
    assert done
    until = time.monotonic() + 60
    while dead_letter_queue.qsize() < 2 and time.monotonic() < until:
        _again(one)
        time.sleep(0.01)
    assert dead_letter_queue.qsize() >= 2
    _reads(stream, 9)


# ---- exchanges, schemas, transactions ----


def create_exchange(broker: Broker) -> Course:
    """An exchange: there or not."""
    done = yield lambda: broker.create_exchange("e", "topic")
    assert len(broker.list_exchanges()) == done
    broker.ensure_exchange("e", "topic")


def bind(broker: Broker) -> Course:
    """A binding: there or not."""
    queue = _a_queue(broker)
    exchange = broker.create_exchange("e", "topic")
    done = yield lambda: [exchange.bind("q", f"{number}.#") for number in range(300)]
    assert len(exchange.bindings()) == 300 if done else len(exchange.bindings()) < 300
    exchange.bind("q", "a.#")
    assert exchange.publish(b"1", "a.b").delivered == 1
    _sound(queue)


def publish(broker: Broker) -> Course:
    """A copy for a queue and for a stream."""
    queue = _a_queue(broker)
    _a_stream(broker)
    exchange = broker.create_exchange("e", "fanout")
    exchange.bind("q")
    exchange.bind("s", kind="stream")
    done = yield lambda: exchange.publish(bytes(9000), "k")
    assert queue.qsize() == 1 or not done
    _sound(queue)


def delete_exchange(broker: Broker) -> Course:
    """Deleting takes no memory that is not given back."""
    exchange = broker.create_exchange("e", "fanout")
    _a_queue(broker)
    exchange.bind("q")
    done = yield lambda: broker.delete_exchange("e")
    assert len(broker.list_exchanges()) == (not done)


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def set_schema(broker: Broker) -> Course:
    """A schema: there or not."""
    queue = _a_queue(broker)
    done = yield lambda: broker.set_schema("q", SCHEMA)
    assert len(broker.schemas("q")) == done
    broker.set_schema("q", SCHEMA)
    broker.typed("q").put({"a": 1})
    _sound(queue)


def typed(broker: Broker) -> Course:
    """A put that is checked."""
    queue = _a_queue(broker)
    broker.set_schema("q", SCHEMA)
    done = yield lambda: broker.typed("q").put({"a": 1})
    assert queue.qsize() == done
    _sound(queue)


def transaction(broker: Broker) -> Course:
    """All of it or nothing."""
    queue, stream = _a_queue(broker), _a_stream(broker)
    source = broker.create_queue("source", dead_letter=None)
    source.put(b"1")
    message = source.get()

    def use() -> None:
        with broker.transaction() as parts:
            parts.append(stream, bytes(2000), partition=0)
            parts.put(queue, bytes(9000))
            parts.ack(source, message)

    done = yield use
    assert (queue.qsize(), len(stream.read(0, 0)), message.settled) == (done, done, done)
    if not done:
        message.ack()
    _sound(queue)
    _sound(source)
    _reads(stream, int(done))


# ---- which there are, and how they are tried ----

KINDS: dict[str, dict[str, Operation]] = {
    "queues": {
        "create": create_queue,
        "attach": attach_and_list,
        "put": _putting(lambda queue: queue.put(b"1")),
        "large put": _putting(lambda queue: queue.put(bytes(20_000))),
        "the put that takes more slots": _putting(lambda queue: queue.put(b"1"), before=32),
        "put with a group": _putting(lambda queue: queue.put(b"1", group="g")),
        "put with a dedupe id": _putting(lambda queue: queue.put(b"1", dedupe_id="d")),
        "put with a delay": _putting(lambda queue: queue.put(b"1", delay=3600.0, ttl=7200.0)),
        "put with a priority": _putting(lambda queue: queue.put(b"1", priority=2)),
        "put_many": _put_many(1, 50),
        "put_many of large ones": _put_many(5000, 20),
        "put_packed": _putting(lambda queue: queue.put_packed(bytes(50), 1)),
        "loan": _putting(_loan),
        "get": _using(lambda queue: queue.get().ack()),
        "get_many": _using(lambda queue: queue.ack_many(queue.get_many(40))),
        "consume": _using(_consume),
        "nack": _using(lambda queue: queue.get().nack(delay=100)),
        "extend": _using(lambda queue: queue.get().extend(100)),
        "look": _using(lambda queue: (queue.peek(), queue.stats(), queue.attachments())),
        "purge": _using(lambda queue: queue.purge()),
        "wait": _using(_wait),
        "aget": _using(_get_in_a_loop, refused=True),
        "a wait in a loop": _using(_wait_in_a_loop, refused=True),
        "reject": reject,
        "redrive": redrive,
        "request": request,
        "alter": grow,
        "delete": delete_queue,
    },
    "streams": {
        "create": create_stream,
        "attach": attach_stream,
        "append": _appending(lambda stream: stream.append(b"1", partition=0), 1),
        "append of a large one": _appending(
            lambda stream: stream.append(bytes(40_000), partition=0), 1
        ),
        "append_many": _appending(
            lambda stream: stream.append_many([bytes(3000)] * 20, partition=0), 20
        ),
        "append of a producer": produce,
        **{
            f"{name} of {what}": _looking(look, records)
            for what, records in {"no records": 0, "records": 20}.items()
            for name, look in {
                "read": _read,
                "at": _at,
                "poll": _poll,
                "aread": _poll_in_a_loop,
                "subscribe": _subscribe,
            }.items()
        },
        "a subscriber that holds back": block,
        "repartition": repartition,
        "delete": delete_stream,
    },
    "groups": {"join": join, "member": member, "share": share, "lend": lend},
    "exchanges": {
        "create": create_exchange,
        "bind": bind,
        "publish": publish,
        "delete": delete_exchange,
    },
    "schemas": {"set": set_schema, "typed": typed},
    "transactions": {"commit": transaction},
}


def _carry_out(operation: Operation, spare: int) -> None:
    with shmq.connect(f"pages-{spare}") as broker:
        course = operation(broker)
        call = next(course)
        fill(spare)
        done = True
        try:
            call()
        except (shmq.NoSpace, shmq.PublishRefused) as error:
            why = error.refused.values() if isinstance(error, shmq.PublishRefused) else [error]
            assert all(isinstance(one, shmq.NoSpace) for one in why), error
            done = False
        make_room()
        with contextlib.suppress(StopIteration):
            course.send(done)


def _in_a_child(operation: Operation, progress: int) -> int:
    """Try it with each count of free pages, told to ``progress``; waitpid(2)'s status."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    signal.alarm(600)
    try:
        for spare in range(PAGES + 1):
            os.pwrite(progress, b"%2d" % spare, 0)
            _carry_out(operation, spare)
            _clear()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _clear() -> None:
    """Remove all files but the ballast."""
    for left in SHM.iterdir():
        if left != BALLAST:
            left.unlink()


def _load() -> None:
    """Import what operations import, once and not in each child."""
    for package in (client, routing, schema):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


def main(kind: str) -> int:
    """Try all operations of the kind; how many failed, and each with what on stderr."""
    _load()
    fill(ROOM // PAGE)
    failed = 0
    for name, operation in KINDS[kind].items():
        with tempfile.TemporaryFile() as course:
            status = _in_a_child(operation, course.fileno())
            if status:
                failed += 1
                course.seek(0)
                pages = course.read().decode()
                print(f"{name} with {pages} free pages: status {status}", file=sys.stderr)
        _clear()
    return failed


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1])))
