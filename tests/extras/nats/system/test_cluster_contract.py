"""The contract over a NATS server, item by item.

`tools/cluster.py` makes the table of docs/integrate/cluster.md from the marks, so that nothing is
said there which no test shows.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import pytest

import shmq
from shmq.extras.nats.client.address import ClusterTarget
from shmq.extras.nats.client.broker import NatsBroker
from shmq.extras.nats.client.connection import ApiError, ClusterConnection
from shmq.extras.nats.client.lease import Lease
from shmq.extras.nats.client.loop_thread import Begun, LoopThread
from shmq.extras.nats.client.message import NatsMessage
from shmq.extras.nats.client.names import kv_stream, queue_stream
from shmq.extras.nats.client.queue import NatsQueue
from shmq.extras.nats.client.queue_port import Handoff, NatsQueuePort
from shmq.extras.nats.client.settlement import Settlements
from tests.conformance.tools import getter_asleep
from tests.support.nats_server import NATS_SERVER
from tests.support.waiting import PATIENCE, eventually

Connect = Callable[[], shmq.Broker]


@pytest.fixture
def url(namespace: str) -> Iterator[str]:
    with NATS_SERVER.serve(namespace) as url:
        yield url


@pytest.fixture
def connect(url: str) -> Iterator[Connect]:
    with contextlib.ExitStack() as clients:
        yield lambda: clients.enter_context(shmq.connect(url))


@pytest.fixture
def broker(connect: Connect) -> shmq.Broker:
    return connect()


def got(queue: shmq.Queue) -> shmq.Message:
    return queue.get(timeout=PATIENCE)


# ---- queues ----


def test_the_definitions_are_made_anew_after_another_program_deleted_them(
    broker: shmq.Broker, url: str
) -> None:
    broker.create_queue("before")
    connection = ClusterConnection(ClusterTarget.of(url))
    connection.run(connection.api(f"STREAM.DELETE.{kv_stream(connection.namespace)}"))
    connection.close()
    queue = broker.create_queue("after")
    queue.put("a")
    assert got(queue).body == "a"
    assert broker.queue_names()[0] == "after"


@pytest.mark.cluster(
    "`put`, `sequence`",
    "exact",
    "a publish, confirmed by a quorum; a `get(block=False)` elsewhere has it a moment later",
)
def test_a_put_returns_rising_sequences(broker: shmq.Broker) -> None:
    queue = broker.create_queue("q")
    assert [queue.put(str(n)).sequence for n in range(3)] == [1, 2, 3]
    assert [got(queue).sequence for _ in range(3)] == [1, 2, 3]


@pytest.mark.cluster("`dedupe_id`", "exact", "the server's window; 0.1 s is the shortest")
def test_a_dedupe_id_is_put_once(broker: shmq.Broker) -> None:
    queue = broker.create_queue("q", dedupe_window=60)
    first = queue.put("a", dedupe_id="one two é ")
    again = queue.put("b", dedupe_id="one two é ")
    assert (first.duplicate, again.duplicate) == (False, True)
    assert again.sequence == first.sequence
    assert not queue.put("c", dedupe_id="one two é").duplicate
    with pytest.raises(shmq.Unsupported, match=r"dedupe_window=0\.01"):
        broker.create_queue("short", dedupe_window=0.01)


@pytest.mark.cluster(
    "`put_many`, all or nothing", "exact", "one atomic batch for each 1,000 messages"
)
def test_a_batch_that_does_not_fit_is_put_as_far_as_it_fits(broker: shmq.Broker) -> None:
    queue = broker.create_queue("q", capacity=5)
    assert queue.put_many(["a", "b", "c"]) == 3
    assert queue.put_many(["d", "e", "f"]) == 2
    assert [got(queue).body for _ in range(5)] == ["a", "b", "c", "d", "e"]


@pytest.mark.cluster(
    "a lease of `visibility_timeout`",
    "exact",
    "AckWait, and a key in the bucket unless the message is new: see below",
)
def test_an_expired_lease_redelivers(broker: shmq.Broker) -> None:
    queue = broker.create_queue("q", visibility_timeout=2.0)
    queue.put("a")
    assert got(queue).receipt
    again = got(queue)
    assert (again.body, again.delivery_count) == ("a", 2)
    again.ack()


def test_a_message_whose_lease_ended_before_it_was_handed_out_is_not_handed_out(
    broker: shmq.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = broker.create_queue("q", visibility_timeout=1.5)
    queue.put("a")
    got(queue).nack(delay=0)
    acquire = Settlements.acquire
    counts: list[int] = []

    async def late(settlements: Settlements, lease: Lease) -> None:
        await acquire(settlements, lease)
        counts.append(lease.delivery.deliveries - lease.uncounted)
        if len(counts) == 1:  # as while the definitions have no leader
            await asyncio.sleep(1.6)

    monkeypatch.setattr(Settlements, "acquire", late)
    message = got(queue)
    message.ack()
    assert message.delivery_count == 2
    assert counts == [2, 2]


@pytest.mark.cluster("`extend`", "emulated", "the client renews the lease until the time asked for")
def test_an_extended_lease_holds_longer_and_a_shortened_one_ends(broker: shmq.Broker) -> None:
    queue = broker.create_queue("q", visibility_timeout=2.0)
    queue.put("a")
    message = got(queue)
    message.extend(6.0)
    with pytest.raises(shmq.Empty):
        queue.get(timeout=3.0)
    message.extend(0.1)
    again = got(queue)
    assert again.delivery_count == 2
    again.ack()
    with pytest.raises(shmq.LeaseExpired):
        message.ack()


@pytest.mark.cluster("`nack(delay)`", "exact", "the server delays the redelivery")
def test_a_nack_delays(broker: shmq.Broker) -> None:
    queue = broker.create_queue("q")
    queue.put("a")
    got(queue).nack(1.5)
    with pytest.raises(shmq.Empty):
        queue.get(block=False)
    again = got(queue)
    assert again.delivery_count == 2
    again.ack()


@pytest.mark.cluster(
    "`nack(counted=False)`", "emulated", "noted in the bucket: the server counts each delivery"
)
def test_an_uncounted_nack_is_not_counted(broker: shmq.Broker) -> None:
    queue = broker.create_queue("q", max_deliveries=1)
    queue.put("a")
    for _ in range(3):
        message = got(queue)
        assert message.delivery_count == 1
        message.nack(counted=False)
    got(queue).ack()


@pytest.mark.cluster(
    "`reject`, `max_deliveries`, `redrive`",
    "emulated",
    "the client copies, once, then acknowledges",
)
def test_dead_letters_come_and_go_back(broker: shmq.Broker) -> None:
    queue = broker.create_queue("q", max_deliveries=2, visibility_timeout=2.0)
    letters = broker.queue("q.dlq")
    for body in ("rejected", "returned", "expired"):
        queue.put(body)
    got(queue).reject()
    for _ in range(2):
        message = got(queue)
        while message.body != "returned":
            message.nack(0, counted=False)
            message = got(queue)
        message.nack(0)
    for _ in range(2):
        assert got(queue).receipt  # its lease ends
    with pytest.raises(shmq.Empty):
        queue.get(timeout=4.0)
    told = {got(letters).body: None for _ in range(3)}
    assert told.keys() == {"rejected", "returned", "expired"}
    letters.close()
    assert broker.queue("q").redrive() == 3
    assert got(queue).delivery_count == 1


@pytest.mark.cluster(
    "a receipt that fences",
    "weaker",
    "the client refuses to settle after its own deadline; a server would take a late one "
    "(nats-server 4786, 6937)",
)
def test_a_late_ack_is_refused_by_the_client_alone(broker: shmq.Broker) -> None:
    queue = broker.create_queue("q", visibility_timeout=2.0)
    queue.put("a")
    late = cast(NatsMessage, got(queue))
    holder = got(queue)
    with pytest.raises(shmq.LeaseExpired):
        late.ack()
    assert not holder.settled
    holder.ack()
    queue.put("b")
    late = cast(NatsMessage, got(queue))
    assert got(queue).delivery_count == 2
    assert late.lease is not None
    connection = cast(NatsBroker, broker).connection
    connection.run(late.lease.ack())  # what a client of another kind may do
    assert queue.put("c").sequence == 3
    eventually(lambda: queue.stats().in_flight == 0, "the late acknowledgement removed it")


@pytest.mark.cluster(
    "what a holder that dies has", "weaker", "it is back after `visibility_timeout`, not at once"
)
@pytest.mark.prove
def test_a_dead_holder_keeps_its_messages_until_the_lease_ends(
    broker: shmq.Broker, url: str
) -> None:
    queue = broker.create_queue("q", visibility_timeout=2.0)
    queue.put("a")
    holder = multiprocessing.get_context("spawn").Process(target=_hold, args=(url,))
    holder.start()
    holder.join(PATIENCE)
    assert holder.exitcode == 0
    assert got(queue).delivery_count == 2


def _hold(url: str) -> None:
    shmq.connect(url).queue("q").get(timeout=PATIENCE)
    os._exit(0)


@pytest.mark.cluster(
    "`lock`, `semaphore`",
    "weaker",
    "a lease of 10 s that the client renews: see [locks](../use/locks.md#in-a-nats-cluster)",
)
def test_a_lock_has_one_holder(broker: shmq.Broker, connect: Connect) -> None:
    lock, other = broker.lock("a"), connect().lock("a")
    with lock:
        assert not other.acquire(block=False)
    assert other.acquire(timeout=PATIENCE)


@pytest.mark.cluster(
    "`priority`, up to 16",
    "emulated",
    "a consumer each; strict within one get, of what was put by its process or a moment ago",
)
def test_the_highest_priority_comes_first(broker: shmq.Broker) -> None:
    queue = broker.create_queue("q", priorities=16)
    for priority in (3, 15, 0):
        queue.put(str(priority), priority=priority)
    assert [message.body for message in queue.get_many(3)] == ["15", "3", "0"]


@pytest.mark.cluster(
    "`group`",
    "emulated",
    "one in flight for each of 16 partitions: groups of one wait for another; all come after the "
    "messages without a group, and keep no priorities",
)
def test_a_group_is_handled_in_order_beside_others(broker: shmq.Broker) -> None:
    queue = broker.create_queue("q")
    for body, group in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        queue.put(body, group=group)
    first, other = got(queue), got(queue)
    assert {first.body, other.body} == {"a1", "b1"}
    with pytest.raises(shmq.Empty):
        queue.get(block=False)
    (first if first.body == "a1" else other).ack()
    assert got(queue).body == "a2"


@pytest.mark.cluster(
    "`delay`, `deliver_at`", "exact", "the server's schedules; the message gets a new sequence then"
)
def test_a_delayed_message_comes_later(broker: shmq.Broker) -> None:
    queue = broker.create_queue("q")
    queue.put("late", delay=3.0, headers={"kept": 1})
    assert queue.stats().delayed == 1
    with pytest.raises(shmq.Empty):
        queue.get(block=False)
    message = got(queue)
    assert (message.body, message.headers) == ("late", {"kept": 1})
    message.ack()
    assert queue.stats().delayed == 0


@pytest.mark.cluster(
    "`ttl` with dead letters",
    "emulated",
    "made by the client that meets the message; after twice the time the server drops it",
)
def test_an_expired_message_is_a_dead_letter(broker: shmq.Broker) -> None:
    queue = broker.create_queue("q")
    queue.put("old", ttl=0.1)
    with pytest.raises(shmq.Empty):
        queue.get(block=False, timeout=None) if _passed(0.2) else None
    dead = got(broker.queue("q.dlq")).dead
    assert dead is not None
    assert dead.reason == "expired"


def _passed(seconds: float) -> bool:
    threading.Event().wait(seconds)
    return True


@pytest.mark.cluster('`ttl` with `on_expired="drop"`', "exact", "the server's, in whole seconds")
def test_an_expired_message_is_dropped_by_the_server(broker: shmq.Broker) -> None:
    queue = broker.create_queue("q", on_expired="drop")
    queue.put("old", ttl=1)
    eventually(lambda: queue.qsize() == 0, "the server drops it")


@pytest.mark.cluster("bodies, headers, codecs", "emulated", "a header with msgpack in base64")
def test_headers_are_any_values(broker: shmq.Broker) -> None:
    queue = broker.create_queue("q")
    headers = {"n": [1, {"b": b"\0"}], "traceparent": "00-1-2-01"}
    queue.put({"a": None}, headers=headers, correlation="é")
    message = cast(NatsMessage, got(queue))
    assert (message.body, message.headers, message.correlation) == ({"a": None}, headers, "é")


@pytest.mark.cluster('`overflow="reject"`', "exact", "discard new")
def test_a_full_queue_refuses(broker: shmq.Broker) -> None:
    queue = broker.create_queue("q", capacity=1)
    queue.put("a")
    with pytest.raises(shmq.Full):
        queue.put("b")


@pytest.mark.cluster('`overflow="drop-oldest"`', "weaker", "discard old: it drops leased ones, too")
def test_a_full_queue_drops_its_oldest(broker: shmq.Broker) -> None:
    queue = broker.create_queue("q", capacity=1, overflow="drop-oldest")
    for body in "ab":
        queue.put(body)
    assert got(queue).body == "b"


@pytest.mark.cluster('`overflow="block"`', "emulated", "the client tries again until there is room")
def test_a_put_waits_for_room(broker: shmq.Broker) -> None:
    queue = broker.create_queue("q", capacity=1, overflow="block")
    queue.put("a")
    putter = threading.Thread(target=queue.put, args=("b",), daemon=True)
    putter.start()
    eventually(lambda: queue.stats().waiting_put == 1, "the put waits")
    got(queue).ack()
    putter.join(PATIENCE)
    assert got(queue).body == "b"


@pytest.mark.cluster("`purge`", "emulated", "leased messages stay; while there are any, one by one")
def test_a_purge_leaves_what_is_leased(broker: shmq.Broker) -> None:
    queue = broker.create_queue("q")
    queue.put_many(["a", "b", "c"])
    leased = got(queue)
    assert queue.purge() == 2
    assert queue.qsize() == 0
    leased.ack()


@pytest.mark.cluster(
    "`peek`, `stats`, `qsize`",
    "weaker",
    "of what came back to the queue, `qsize` and `peek` know nothing until it is delivered; "
    "totals other than `put` and `acked` are 0",
)
def test_what_is_there_is_seen(broker: shmq.Broker) -> None:
    queue = broker.create_queue("q")
    queue.put_many(["a", "b"])
    assert [message.body for message in queue.peek()] == ["a", "b"]
    got(queue).ack()
    stats = queue.stats()
    assert (stats.depth, stats.in_flight, stats.put, stats.acked) == (1, 0, 2, 1)


@pytest.mark.cluster("`consume`, `bodies`", "exact", "acknowledgements are confirmed by `flush`")
def test_what_was_prefetched_and_not_handed_out_comes_back(broker: shmq.Broker) -> None:
    queue = broker.create_queue("q", max_deliveries=1)
    queue.put_many(["a", "b", "c"])
    with queue.consume(prefetch=3) as consumer:
        next(consumer).ack()
    with queue.bodies(timeout=PATIENCE) as bodies:
        assert sorted([next(bodies), next(bodies)]) == ["b", "c"]
    assert queue.qsize() == 0


@pytest.mark.parametrize("is_there", [True, False])
def test_a_get_that_is_interrupted_took_nothing(broker: shmq.Broker, is_there: bool) -> None:
    queue = broker.create_queue("q", max_deliveries=1, priorities=1)
    assert isinstance(queue, NatsQueue)
    queue.put("first")
    queue.get(timeout=PATIENCE).ack()  # the next one finds an inbox
    if is_there:
        queue.put("a")
    queue.port.run(_interrupted(queue.port))
    queue.put("b")
    left = ["a", "b"] if is_there else ["b"]
    while left:  # what comes twice is none of them
        message = got(queue)
        left.remove(message.body)
        message.ack()
    assert queue.qsize() == 0


async def _interrupted(port: NatsQueuePort) -> None:
    """Begin a get whose caller is gone before the server answers."""

    class Gone(Begun[list[NatsMessage]]):
        def _on_end(self, result: Any, error: BaseException | None) -> None:
            assert result is None
            assert isinstance(error, asyncio.CancelledError)

    call = Gone()
    call.start(partial(port._begin_take, Handoff(port), 1, time.monotonic(), False))
    call.cancel()
    assert call.is_over


def test_a_header_that_is_no_name_of_nats_is_kept(broker: shmq.Broker) -> None:
    queue = broker.create_queue("q")
    headers = {"ce-two words": "1", "ce-type": "order", "ce-a:b": "c\r\nNats-TTL: 1s"}
    queue.put("a", headers=headers)
    assert got(queue).headers == headers


def test_the_first_messages_of_a_group_in_a_pipeline_keep_their_order(connect: Connect) -> None:
    queue = connect().create_queue("q")
    with queue.pipeline(8) as pipeline:
        for number in range(40):
            pipeline.put(number, group="one" if number % 2 else None)
    assert pipeline.taken == 40
    came: list[int] = []
    while len(came) < 40:
        message = got(queue)
        came.append(message.body)
        message.ack()
    assert [number for number in came if number % 2] == list(range(1, 40, 2))
    assert [number for number in came if number % 2 == 0] == list(range(0, 40, 2))


@pytest.mark.cluster(
    "`aget`, `aput`, `aconsume`",
    "exact",
    "a task that is cancelled took nothing; what another server of the cluster was sending to it "
    "comes back when its lease ends",
)
def test_tasks_put_and_get(broker: shmq.Broker) -> None:
    queue = broker.create_queue("q", max_deliveries=1)

    async def run() -> list[Any]:
        waiting = asyncio.create_task(queue.aget())
        await asyncio.to_thread(getter_asleep, queue)
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        await queue.aput("a")
        message = await queue.aget(PATIENCE)
        message.ack()
        await queue.aput("b")
        async with queue.aconsume(timeout=PATIENCE) as messages:
            return [message.body, (await anext(messages)).body]

    assert asyncio.run(run()) == ["a", "b"]


@pytest.mark.cluster("the child of a fork", "exact", "it reconnects")
def test_a_child_of_a_fork_uses_the_handle(broker: shmq.Broker) -> None:
    queue = broker.create_queue("q")
    child = multiprocessing.get_context("fork").Process(target=queue.put, args=("child",))
    child.start()
    child.join(PATIENCE)
    assert child.exitcode == 0
    assert got(queue).body == "child"


def test_a_child_of_a_fork_waits_for_no_put_of_its_parent(broker: shmq.Broker) -> None:
    queue = broker.create_queue("q")
    pipeline = queue.pipeline()
    forked = threading.Event()
    LoopThread.get().loop.call_soon_threadsafe(forked.wait)
    pipeline.put("parent")

    def put() -> None:
        pipeline.put("child")
        pipeline.flush()

    child = multiprocessing.get_context("fork").Process(target=put)
    child.start()
    forked.set()
    child.join(PATIENCE)
    child.kill()
    assert child.exitcode == 0
    pipeline.flush()
    assert sorted(got(queue).body for _ in range(2)) == ["child", "parent"]


# ---- what is refused ----

_REFUSED: dict[str, Callable[[shmq.Broker, shmq.Queue], object]] = {
    "where": lambda _, queue: queue.get(where="priority = 1", block=False),
    "bulk": lambda _, queue: queue.bulk(),
    "staged_publisher": lambda _, queue: queue.staged_publisher("job"),
    "fileno": lambda _, queue: queue.fileno(),
    "attachments": lambda _, queue: queue.attachments(),
    "leases": lambda _, queue: queue.leases(),
    "transaction": lambda broker, _: broker.transaction(),
    "table": lambda broker, _: broker.ensure_table("t"),
    "holder": lambda broker, _: broker.lock("a").holder(),
    "list_locks": lambda broker, _: broker.list_locks(),
    "exclusive": lambda broker, _: broker.create_queue("x", exclusive=True),
    "auto_delete": lambda broker, _: broker.create_queue("x", auto_delete=True),
    "expires": lambda broker, _: broker.create_queue("x", expires=1),
    "share": lambda broker, _: broker.create_stream("s", 1).share("g"),
    "repartition": lambda broker, _: broker.create_stream("s", 1).repartition(2),
    "policy": lambda broker, _: broker.create_stream("s", 1).subscribe(policy="block"),
    "overflow": lambda broker, _: broker.create_stream("s", 1, overflow="block"),
    "partitions": lambda broker, _: broker.create_stream("s", 65),
}


@pytest.mark.cluster(
    "`get(where=…)`, `bulk`, `staged_publisher`, `fileno`, `attachments`, `leases`, "
    "`transaction`, tables, `holders` and `waiters` of a lock, `list_locks`, `exclusive`, "
    "`auto_delete`, `expires`",
    "refused",
    "`Unsupported`, with the reason",
)
@pytest.mark.cluster(
    '`share`, `repartition`, `subscribe(policy="block")`, `overflow="block"` of a stream, more '
    "than 64 partitions",
    "refused",
    "`Unsupported`, with the reason",
)
@pytest.mark.parametrize("what", _REFUSED)
def test_what_a_cluster_cannot_do_is_refused(broker: shmq.Broker, what: str) -> None:
    queue = broker.create_queue("q")
    with pytest.raises(shmq.Unsupported, match=what):
        _REFUSED[what](broker, queue)


@pytest.mark.cluster(
    '`confirm="disk"`', "refused", "unless the operator says `?sync=always` of every server"
)
def test_a_disk_is_confirmed_only_where_servers_sync(broker: shmq.Broker, url: str) -> None:
    with pytest.raises(shmq.Unsupported, match="sync=always"):
        broker.create_queue("q", durability="journal", confirm="disk")
    queue = broker.create_queue("q", durability="journal")
    with pytest.raises(shmq.Unsupported, match="sync=always"):
        queue.put("a", confirm="disk")
    with shmq.connect(f"{url}?sync=always") as synced:
        assert synced.queue("q").put("a", confirm="disk").sequence == 1


@pytest.mark.cluster(
    "servers before 2.12", "refused", "they would ignore delays, ttls and batches silently"
)
def test_an_old_server_is_refused() -> None:
    info = b'INFO {"version":"2.9.10","max_payload":1048576,"jetstream":true} \r\n'
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def greet() -> None:
            with contextlib.suppress(OSError), contextlib.ExitStack() as clients:
                while True:
                    client = clients.enter_context(listening.accept()[0])
                    client.sendall(info)

        threading.Thread(target=greet, daemon=True).start()
        with pytest.raises(shmq.Unsupported, match=r"2\.9\.10"):
            shmq.connect(f"nats://127.0.0.1:{port}", connect_timeout=PATIENCE)


@pytest.mark.cluster(
    "a stream or consumer that is not as was asked", "refused", "what the server echoes is compared"
)
def test_what_the_server_echoes_is_compared(broker: shmq.Broker, url: str) -> None:
    connection = ClusterConnection(ClusterTarget.of(url))
    name = queue_stream(connection.namespace, "q")
    subject = f"shmq.{connection.namespace}.q.q.>"
    with contextlib.closing(connection):
        connection.run(
            connection.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [subject]})
        )
        with pytest.raises(shmq.Unsupported, match="retention"):
            broker.create_queue("q")


# ---- the others ----


@pytest.mark.cluster(
    "exchanges: direct, topic, fanout, headers, alternates",
    "exact",
    "the publisher routes by the table in the KV bucket",
)
def test_an_exchange_puts_copies(broker: shmq.Broker) -> None:
    queue, stream = broker.create_queue("q"), broker.create_stream("s", 1)
    exchange = broker.create_exchange("x", "topic")
    assert exchange.bind("q", "a.#.z")
    assert not exchange.bind("q", "a.#.z")
    exchange.bind("s", "a.*", kind="stream")
    assert exchange.publish("one", "a.z").delivered == 2
    assert got(queue).body == "one"
    assert [record.body for record in stream.read(0, 0)] == ["one"]
    with pytest.raises(shmq.Unroutable):
        exchange.publish("none", "b", mandatory=True)
    assert exchange.publish("none", "b").delivered == 0
    assert exchange.stats() == shmq.ExchangeStats(published=None, unrouted=None)


@pytest.mark.cluster("`request`, `serve`", "exact", "requests in a queue, replies by a subject")
def test_a_request_is_answered(broker: shmq.Broker, connect: Connect) -> None:
    broker.create_queue("q")
    stop, server = threading.Event(), connect()
    serving = threading.Thread(
        target=server.serve, args=("q", lambda m: m.body * 2), kwargs={"stop": stop}, daemon=True
    )
    serving.start()
    assert broker.request("q", 21, timeout=PATIENCE).body == 42
    assert asyncio.run(broker.arequest("q", "ab", timeout=PATIENCE)).body == "abab"
    stop.set()
    serving.join(PATIENCE)


@pytest.mark.cluster("streams: offsets, keys, headers", "exact", "a stream for each partition")
def test_records_have_offsets(broker: shmq.Broker) -> None:
    stream = broker.create_stream("s", 2)
    before = time.time()
    ranges = stream.append_many(["a", "b", "c"], partition=1, keys=["k", None, b"\0"])
    assert [(one.partition, one.first, one.count) for one in ranges] == [(1, 0, 3)]
    records = list(stream.read(1, 1))
    assert [(one.offset, one.key, one.body) for one in records] == [(1, None, "b"), (2, b"\0", "c")]
    assert stream.at(before - 5, 1) == 0
    assert (stream.earliest(1), stream.latest(1)) == (0, 3)
    with pytest.raises(shmq.OffsetOutOfRange):
        stream.read(1, 4)


@pytest.mark.cluster(
    "`at`", "weaker", "goes by when the server stored a record, not by a `timestamp=` given to it"
)
def test_a_time_is_looked_up_by_when_records_were_stored(broker: shmq.Broker) -> None:
    stream = broker.create_stream("s", 1)
    before = time.time()
    stream.append("a", timestamp=before - 1000)
    assert stream.read(0, 0)[0].timestamp == pytest.approx(before - 1000, abs=0.01)
    assert stream.at(before - 5, 0) == 0
    assert stream.at(time.time() + 5, 0) == 1


def test_a_ttl_counts_from_the_put_though_the_message_is_due_later(broker: shmq.Broker) -> None:
    queue = broker.create_queue("q")
    queue.put("never", delay=0.2, ttl=0.1)
    queue.put("probe", delay=0.3)
    assert got(queue).body == "probe"
    assert got(broker.queue("q.dlq")).body == "never"


@pytest.mark.cluster(
    "`append(producer=…, sequence=…)`", "weaker", "known for 2 minutes; gaps are not noticed"
)
def test_a_repeated_append_is_known(broker: shmq.Broker) -> None:
    stream = broker.create_stream("s", 1)
    first = stream.append("a", partition=0, producer=7, sequence=0)
    again = stream.append("a", partition=0, producer=7, sequence=0)
    assert (first.duplicate, again.duplicate, again.offset) == (False, True, first.offset)


@pytest.mark.cluster(
    "groups of a stream: members, commits, fencing",
    "exact",
    "a definition that each change compares first; a member that dies is missed after the session",
)
def test_a_member_that_lost_its_partition_commits_nothing(broker: shmq.Broker) -> None:
    stream = broker.create_stream("s", 2)
    stream.append_many(["a", "b"], partition=0)
    group = stream.group("g", session_timeout=1.5)
    slow = group.join("slow")
    assert slow.poll(timeout=PATIENCE)
    assert slow.assignment == {0, 1}
    other = group.join("other")
    eventually(lambda: bool(other.poll() or other.assignment == {0, 1}), "it takes over")
    eventually(lambda: other.poll() is not None and other.assignment == {0, 1}, "both")
    with pytest.raises(shmq.MemberFenced):
        slow.commit({0: 2})
    other.commit({0: 1})
    assert group.committed()[0] == 1


@pytest.mark.cluster(
    "definitions: options, schemas, bindings", "exact", "a KV bucket, changed by its revision"
)
def test_definitions_are_shared(broker: shmq.Broker, connect: Connect) -> None:
    made = broker.create_queue("a.b:c_d", ttl=5)
    other = connect()
    assert other.queue("a.b:c_d").identity == made.identity
    assert other.queue_names() == ["a.b:c_d", "a.b:c_d.dlq"]
    with pytest.raises(shmq.QueueExists) as refused:
        other.create_queue("a.b:c_d", ttl=6)
    assert refused.value.differences == {"ttl": (6, 5.0)}
    assert broker.set_schema("a.b:c_d", {"type": "integer"}) == 1
    typed = other.typed("a.b:c_d")
    with pytest.raises(shmq.SchemaError):
        typed.put("text")
    broker.delete_queue("a.b:c_d")
    with pytest.raises(shmq.QueueDeleted):
        made.put(1)


def test_secrets_are_never_shown() -> None:
    target = ClusterTarget.of("nats://me:hush@127.0.0.1:1,127.0.0.1:2/ns", connect_timeout=0.2)
    assert "hush" not in f"{target} {target!r} {target.address!r} {target.secret!r}"
    with pytest.raises(shmq.ConnectionLost) as lost:
        shmq.connect("nats://me:hush@127.0.0.1:1,127.0.0.1:2/ns", connect_timeout=0.2)
    assert "hush" not in str(lost.value)
    assert issubclass(ApiError, shmq.ShmqError)
