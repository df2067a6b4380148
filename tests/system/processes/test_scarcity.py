"""A process whose file descriptors are used up: each operation works, or names their limit.

And one that ends with handles of all kinds open: it says nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

import shmq
from tests.support.namespaces import own_namespace
from tests.support.processes import run_script
from tests.support.tcp_servers import TCP_SERVERS

pytestmark = pytest.mark.prove

#: Handles of all kinds. Of a queue "q" there are six messages, of a stream "s" six records.
OPEN = """
import logging, os, resource, sys
import shmq
logging.disable()
broker = shmq.connect(sys.argv[1])
queue, other, stream = broker.queue("q"), broker.queue("other"), broker.stream("s")
exchange = broker.exchange("ex")
member, share = stream.group("g").join(), stream.share("h")
reader, producer = stream.reader(), stream.producer()
subscription, consumer = stream.subscribe(), queue.consume(timeout=0)
"""

#: What is done with them, twice: without descriptors, and once there are some again.
OPERATIONS = """
OPERATIONS = {
    "put": lambda: queue.put("x", headers={"a": 1}),
    "put_many": lambda: queue.put_many([b"a", b"b"]),
    "get": lambda: queue.get(timeout=30).nack(0),
    "get_many": lambda: queue.ack_many(queue.get_many(1)),
    "get_batch": lambda: queue.get_batch(1).ack(),
    "get_packed": lambda: queue.get_packed(1).ack(),
    "where": lambda: queue.get(where="priority >= 0", timeout=30).nack(0),
    "consume": lambda: next(consumer).nack(0),
    "consume where": lambda: next(queue.consume(timeout=30, where="priority >= 0")).ack(),
    "peek": lambda: queue.peek(1, where="priority >= 0"),
    "stats": queue.stats,
    "qsize": queue.qsize,
    "loan": lambda: queue.loan(10).__enter__().release(),
    "fileno": lambda: broker.queue("q").fileno(),
    "wait": lambda: shmq.wait([queue, other], timeout=0.01),
    "request": lambda: broker.request("answered", b"?", timeout=0.01),
    "list": broker.list_queues,
    "publish": lambda: exchange.publish(b"x", "a"),
    "append": lambda: stream.append(b"y", key=b"k"),
    "read": lambda: stream.read(0, 0, where="offset >= 0"),
    "next": lambda: next(iter(reader)),
    "poll": lambda: member.poll(timeout=0.1),
    "commit": member.commit,
    "share": lambda: share.get(timeout=30).ack(),
    "subscription": lambda: subscription.poll(timeout=0.1),
    "send": lambda: (producer.send(b"z"), producer.flush()),
    "groups": stream.groups,
}
if "://" not in sys.argv[1]:
    OPERATIONS["transaction"] = lambda: broker.transaction().abort()
    OPERATIONS["wait"] = lambda: shmq.wait([queue, other], timeout=30)
    OPERATIONS["wait in vain"] = lambda: shmq.wait([other], timeout=0.01)

def fails(operation):
    try:
        operation()
    except shmq.NoReply:  # as it is to be
        return ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
taken = []
try:
    while True:
        taken.append(os.dup(2))
except OSError:
    pass
without = {name: fails(operation) for name, operation in OPERATIONS.items()}
wrong = {name: why for name, why in without.items()
         if why and ("no file descriptor left of 128" not in why or "ulimit -n" not in why)}
assert not wrong, wrong
assert not any(without[name] for name in ALWAYS), without
for descriptor in taken:
    os.close(descriptor)
again = {name: why for name, operation in OPERATIONS.items() if (why := fails(operation))}
assert not again, again
"""

#: What needs no descriptor that was not there.
ALWAYS = (
    "put",
    "put_many",
    "get",
    "get_many",
    "get_batch",
    "get_packed",
    "consume",
    "stats",
    "qsize",
    "loan",
    "append",
    "poll",
    "commit",
    "send",
)


@contextlib.contextmanager
def served(transport: str) -> Iterator[str]:
    """Where the scripts find what they use: the namespace, or the address of its server."""
    with own_namespace(inhabited=True) as namespace, TCP_SERVERS.serve(namespace) as url:
        with shmq.connect(namespace) as broker:
            make(broker)
        yield namespace if transport == "local" else url


def make(broker: shmq.Broker) -> None:
    for name in ("q", "other", "answered"):
        broker.create_queue(name)
    broker.queue("q").put_many([b"x"] * 6)
    broker.create_stream("s", partitions=2).append_many([b"x"] * 6, partition=0)
    broker.create_exchange("ex", "topic").bind("q", "a")


@pytest.mark.parametrize("transport", ["local", "tcp"])
def test_without_descriptors_each_operation_works_or_names_their_limit(transport: str) -> None:
    with served(transport) as place:
        run_script(OPEN + f"ALWAYS = {ALWAYS!r}\n" + OPERATIONS, place)


@pytest.mark.parametrize("transport", ["local", "tcp"])
@pytest.mark.parametrize("left", ["", "cycle = [list(globals().values())]; cycle.append(cycle)"])
def test_an_interpreter_that_ends_with_handles_of_all_kinds_open_says_nothing(
    transport: str, left: str
) -> None:
    use = """
message, record = queue.get(), share.get(timeout=30)
batch, view, loan = queue.get_batch(1), message.view, queue.loan(10)
ahead = next(consumer); queue.fileno(); member.poll(timeout=30); producer.send(b"z"); reader.poll(1)
"""
    with served(transport) as place:
        run_script(OPEN + use + left, place, options=("-W", "error", "-X", "dev"))
