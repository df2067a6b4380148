"""FastStream over shmq's queues: what FastStream's own tests ask of each of its brokers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from faststream import AckPolicy, BaseMiddleware, Context, Depends, FastStream, TestApp
from faststream.exceptions import AckMessage, NackMessage, RejectMessage, StopConsume
from faststream.specification import AsyncAPI
from pydantic import BaseModel

import shmq
from shmq.extras.faststream import (
    ShmqBatchMessage,
    ShmqBroker,
    ShmqMessage,
    ShmqQueue,
    ShmqResponse,
    ShmqRoute,
    ShmqRoutePublisher,
    ShmqRouter,
    TestShmqBroker,
)
from tests.support.certificates import WHY_NOT, Certificates
from tests.support.loops import until
from tests.support.namespaces import own_namespace
from tests.support.processes import HOUR
from tests.support.server import serve
from tests.support.waiting import PATIENCE

TOKEN = "a token that only the tests of FastStream use"

Message = Annotated[ShmqMessage, Context("message")]


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    """A namespace that all tests of the module share, each with no queue at its beginning."""
    with own_namespace() as name:
        yield name


@pytest.fixture(autouse=True)
def broker(place: str) -> Iterator[shmq.Broker]:
    """The queues as a client of shmq sees them."""
    with shmq.connect(place) as made:
        yield made
        for name in reversed(made.queue_names()):
            made.delete_queue(name)


@pytest.fixture(scope="module")
def url(place: str) -> Iterator[str]:
    """A server of the namespace."""
    with serve(place) as server:
        yield server.url


@pytest.fixture(params=["here", pytest.param("tcp", marks=pytest.mark.prove)])
def target(request: pytest.FixtureRequest, place: str) -> str:
    """What a broker connects to: the namespace itself, or the server."""
    return place if request.param == "here" else str(request.getfixturevalue("url"))


@pytest.fixture
def app(target: str) -> ShmqBroker:
    """A broker of FastStream that is not started yet, and logs nothing."""
    return ShmqBroker(target, logger=None, graceful_timeout=5.0)


@contextlib.asynccontextmanager
async def running(app: ShmqBroker) -> AsyncIterator[ShmqBroker]:
    async with app:
        await app.start()
        yield app


def run(work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    asyncio.run(asyncio.wait_for(work(), PATIENCE))


class Order(BaseModel):
    item: str
    count: int = 1


# ---- bodies ----


def test_a_model_is_handled_and_what_the_handler_returns_is_published(
    app: ShmqBroker, broker: shmq.Broker
) -> None:
    @app.subscriber("orders")
    @app.publisher("bills", headers={"by": "pack"}, priority=2)
    async def pack(order: Order) -> dict[str, int]:
        return {order.item: order.count}

    async def work() -> None:
        async with running(app):
            put = await app.publish(Order(item="tea", count=2), "orders")
            assert put.sequence == 1
            with await broker.ensure_queue("bills").aget(PATIENCE) as message:
                assert (message.body, message.codec) == ({"tea": 2}, "json")
                assert (message.headers, message.priority) == ({"by": "pack"}, 2)

    run(work)


def test_what_a_client_of_shmq_puts_is_decoded(app: ShmqBroker, broker: shmq.Broker) -> None:
    got: list[Any] = []

    @app.subscriber("in")
    async def handle(body: Any) -> None:
        got.append(body)

    bodies = ["tea", {"a": [1, None]}, b"\xff", 5]

    async def work() -> None:
        async with running(app):
            queue = broker.queue("in")
            for body in bodies:
                queue.put(body)
            queue.put({"a": 1}, codec="json")
            await until(lambda: len(got) == 5)

    run(work)
    assert got == [*bodies, {"a": 1}]


@pytest.mark.parametrize(
    ("given", "codec", "body"),
    [
        ("tea", "text", "tea"),
        (b"\x00", "bytes", b"\x00"),
        ({"a": 1}, "json", {"a": 1}),
        (None, "bytes", b""),
    ],
)
def test_a_client_of_shmq_reads_what_is_published(
    app: ShmqBroker, broker: shmq.Broker, given: Any, codec: str, body: Any
) -> None:
    async def work() -> None:
        async with app:
            await app.publish(given, "out", correlation_id="c", reply_to="back", group="g")

    run(work)
    with broker.queue("out").get(timeout=0) as message:
        assert (message.codec, message.body) == (codec, body)
        assert (message.correlation, message.reply_to, message.group) == ("c", "back", "g")


def test_a_batch_is_handled_as_one_list_and_acknowledged_together(
    app: ShmqBroker, broker: shmq.Broker
) -> None:
    got: list[list[int]] = []

    @app.subscriber("in", batch=True, max_records=3)
    @app.publisher("out", batch=True)
    async def handle(
        numbers: list[int], message: Annotated[ShmqBatchMessage, Context("message")]
    ) -> list[int]:
        assert [one["n"] for one in message.batch_headers] == [1] * len(numbers)
        got.append(numbers)
        return [number * 10 for number in numbers]

    async def work() -> None:
        async with app:
            assert await app.publish_batch(1, 2, 3, 4, queue="in", headers={"n": 1}) == 4
            await app.start()
            await until(lambda: broker.queue("in").stats().acked == 4)

    run(work)
    assert got == [[1, 2, 3], [4]]
    assert [one.body for one in broker.queue("out").get_many(9, 0)] == [10, 20, 30, 40]


# ---- settlements ----


@pytest.mark.parametrize(
    ("policy", "acked", "dead", "waiting"),
    [
        (AckPolicy.REJECT_ON_ERROR, 0, 1, 0),
        (AckPolicy.ACK, 1, 0, 0),
        (AckPolicy.ACK_FIRST, 1, 0, 0),
        (AckPolicy.NACK_ON_ERROR, 0, 0, 1),
    ],
)
def test_the_policy_says_what_becomes_of_a_message_whose_handler_raises(
    target: str, broker: shmq.Broker, policy: AckPolicy, acked: int, dead: int, waiting: int
) -> None:
    app = ShmqBroker(target, logger=None, ack_policy=policy)

    @app.subscriber(ShmqQueue("in", retry_delay=1000))
    async def fail() -> None:
        raise ValueError("no")

    async def work() -> None:
        async with running(app):
            await app.publish(b"", "in")
            queue = broker.queue("in")

            def done() -> bool:
                found = queue.stats()
                return (found.acked, found.dead_lettered, found.delayed) == (acked, dead, waiting)

            await until(done)

    run(work)


@pytest.mark.parametrize("policy", [None, AckPolicy.NACK_ON_ERROR])
def test_an_exception_settles_the_message_as_it_says(
    app: ShmqBroker, broker: shmq.Broker, policy: AckPolicy | None
) -> None:
    how = {} if policy is None else {"ack_policy": policy}
    seen: list[int] = []

    @app.subscriber("in", **how)  # type: ignore[arg-type]
    async def handle(kind: str, message: Message) -> None:
        seen.append(message.raw_message.delivery_count)
        if kind == "reject":
            raise RejectMessage
        if kind == "ack" or message.raw_message.delivery_count == 3:
            raise AckMessage
        raise NackMessage(delay=0.0)

    async def work() -> None:
        async with running(app):
            for kind in ("reject", "ack", "nack"):
                await app.publish(kind, "in")
            await until(lambda: broker.queue("in").stats().acked == 2)

    run(work)
    assert sorted(seen) == [1, 1, 1, 2, 3]
    assert broker.queue("in.dlq").get(timeout=0).body == "reject"


def test_a_handler_settles_its_message_itself(app: ShmqBroker, broker: shmq.Broker) -> None:
    @app.subscriber("in", ack_policy=AckPolicy.MANUAL)
    async def handle(kind: str, message: Message) -> None:
        await message.extend(60)
        if kind == "nack":
            await message.nack(delay=1000)
        else:
            await (message.ack() if kind == "ack" else message.reject())
        await message.ack()  # settled already: nothing

    async def work() -> None:
        async with running(app):
            for kind in ("reject", "ack", "nack"):
                await app.publish(kind, "in")
            queue = broker.queue("in")
            await until(lambda: queue.stats().in_flight + queue.qsize() == 0)
            found = queue.stats()
            assert (found.acked, found.dead_lettered, found.delayed) == (1, 1, 1)

    run(work)


def test_a_batch_whose_handler_raises_is_rejected_as_a_whole(
    app: ShmqBroker, broker: shmq.Broker
) -> None:
    @app.subscriber("in", batch=True)
    async def fail(bodies: list[str]) -> None:
        raise ValueError(bodies)

    async def work() -> None:
        async with app:
            await app.publish_batch("a", "b", queue="in")
            await app.start()
            await until(lambda: broker.queue("in").stats().dead_lettered == 2)

    run(work)


def test_a_lease_is_extended_while_its_message_is_handled(
    app: ShmqBroker, broker: shmq.Broker
) -> None:
    deliveries: list[int] = []

    @app.subscriber(ShmqQueue("in", visibility_timeout=2.0))
    async def handle(message: Message) -> None:
        deliveries.append(message.raw_message.delivery_count)
        queue, extended, last = broker.queue("in"), 0, 2.0
        while extended < 2:  # it ends later than it did
            (lease,) = queue.leases()
            extended, last = extended + (lease.expires_in > last), lease.expires_in
            await asyncio.sleep(0.001)

    async def work() -> None:
        async with running(app):
            await app.publish(b"", "in")
            await until(lambda: broker.queue("in").stats().acked == 1)

    run(work)
    assert deliveries == [1]


# ---- how many at a time, and the end ----


def test_as_many_messages_are_handled_at_a_time_as_there_are_workers(
    app: ShmqBroker, broker: shmq.Broker
) -> None:
    at_work, most, all_here = 0, 0, asyncio.Event()

    @app.subscriber("in", max_workers=3)
    async def handle() -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        if at_work == 3:
            all_here.set()
        await all_here.wait()
        at_work -= 1

    async def work() -> None:
        async with app:
            await app.publish_batch(*range(9), queue="in")
            await app.start()
            await until(lambda: broker.queue("in").stats().acked == 9)

    run(work)
    assert most == 3


def test_the_messages_of_a_group_follow_each_other(app: ShmqBroker, broker: shmq.Broker) -> None:
    got: list[int] = []

    @app.subscriber(ShmqQueue("in", visibility_timeout=HOUR), max_workers=3)
    async def handle(number: int) -> None:
        await asyncio.sleep(0)
        got.append(number)

    async def work() -> None:
        async with running(app):
            for number in range(5):
                await app.publish(number, "in", group="g")
            await until(lambda: broker.queue("in").stats().acked == 5)

    run(work)
    assert got == [0, 1, 2, 3, 4]


def test_what_was_leased_ahead_returns_uncounted_and_a_handler_comes_to_its_end(
    app: ShmqBroker, broker: shmq.Broker
) -> None:
    begun, finish, ended = asyncio.Event(), asyncio.Event(), []

    @app.subscriber("in", prefetch=4)
    async def handle(number: int) -> None:
        begun.set()
        await finish.wait()
        ended.append(number)

    async def work() -> None:
        async with app:
            await app.publish_batch(*range(4), queue="in")
            await app.start()
            await begun.wait()
            await until(lambda: broker.queue("in").stats().in_flight == 4)
            stop = asyncio.create_task(app.stop())
            await until(lambda: broker.queue("in").stats().in_flight == 1)
            finish.set()
            await stop

    run(work)
    assert ended == [0]
    rest = broker.queue("in").get_many(9, 0)
    assert [(one.body, one.delivery_count) for one in rest] == [(n, 1) for n in (1, 2, 3)]


def test_a_message_whose_handler_is_cancelled_at_the_end_is_delivered_again(
    target: str, broker: shmq.Broker
) -> None:
    app = ShmqBroker(target, logger=None, graceful_timeout=0.0)
    begun = asyncio.Event()

    @app.subscriber("in")
    async def handle() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def work() -> None:
        async with running(app):
            await app.publish(b"", "in")
            await begun.wait()

    run(work)
    with broker.queue("in").get(timeout=PATIENCE) as message:
        assert message.delivery_count == 2


def test_a_handler_stops_its_subscriber(app: ShmqBroker, broker: shmq.Broker) -> None:
    @app.subscriber("in")
    async def handle() -> None:
        raise StopConsume

    async def work() -> None:
        async with running(app):
            await app.publish(b"first", "in")
            await until(lambda: not app.subscribers[0].running)
            await until(
                lambda: broker.queue("in").attachments() == [] or broker.queue("in").empty()
            )
            await app.publish(b"second", "in")
            assert broker.queue("in").stats().acked + broker.queue("in").stats().dead_lettered == 1

    run(work)
    assert broker.queue("in").qsize() == 1


@pytest.mark.prove
def test_a_queue_that_is_deleted_is_made_again(app: ShmqBroker, broker: shmq.Broker) -> None:
    got: list[str] = []

    @app.subscriber("in")
    async def handle(body: str) -> None:
        got.append(body)

    async def work() -> None:
        async with running(app):
            await app.publish("one", "in")
            await until(lambda: got == ["one"])
            broker.delete_queue("in")
            await app.publish("two", "in")
            await until(lambda: got == ["one", "two"])

    run(work)


def test_one_message_is_taken_and_messages_are_iterated_over(
    app: ShmqBroker, broker: shmq.Broker
) -> None:
    async def work() -> None:
        async with app:
            one = app.subscriber("in")
            assert await one.get_one(timeout=0.0) is None
            await app.publish_batch("a", "b", "c", queue="in")
            message = await one.get_one()
            assert message is not None
            assert await message.decode() == "a"
            await message.ack()
            async for message in one:
                assert await message.decode() == "b"
                await message.ack()
                break
            await one.stop()

    run(work)
    assert broker.queue("in").stats().acked == 2


def test_messages_are_chosen_by_an_expression(app: ShmqBroker, broker: shmq.Broker) -> None:
    got: list[str] = []

    @app.subscriber("in", where="header.region = 'eu'")
    async def handle(body: str) -> None:
        got.append(body)

    async def work() -> None:
        async with running(app):
            await app.publish("us", "in", headers={"region": "us"})
            await app.publish("eu", "in", headers={"region": "eu"})
            await until(lambda: got == ["eu"])

    run(work)
    assert broker.queue("in").qsize() == 1


# ---- requests ----


def test_a_request_is_answered_with_its_correlation_and_headers(app: ShmqBroker) -> None:
    @app.subscriber("sums")
    async def add(numbers: list[int]) -> ShmqResponse:
        return ShmqResponse(sum(numbers), headers={"by": "add"})

    async def work() -> None:
        async with running(app):
            reply = await app.request([1, 2], "sums", correlation_id="c", timeout=PATIENCE)
            assert (await reply.decode(), reply.correlation_id) == (3, "c")
            assert reply.headers == {"by": "add"}
            asked = app.publisher("sums")
            replies = await asyncio.gather(*(asked.request([n, 1]) for n in range(9)))
            assert [await one.decode() for one in replies] == list(range(1, 10))

    run(work)


def test_a_client_of_shmq_asks_a_handler(app: ShmqBroker, broker: shmq.Broker) -> None:
    @app.subscriber("sums")
    async def add(numbers: list[int]) -> int:
        return sum(numbers)

    async def work() -> None:
        async with running(app):
            assert (await broker.arequest("sums", [1, 2], PATIENCE)).body == 3

    run(work)


def test_a_reply_goes_to_the_queue_that_the_message_names_and_to_none_that_is_gone(
    app: ShmqBroker, broker: shmq.Broker
) -> None:
    @app.subscriber("in")
    async def echo(body: str) -> str:
        return body

    async def work() -> None:
        async with running(app):
            await app.publish("lost", "in", reply_to="nowhere")
            back = broker.create_queue("back")
            await app.publish("tea", "in", reply_to="back", correlation_id="c")
            with await back.aget(PATIENCE) as message:
                assert (message.body, message.correlation) == ("tea", "c")
            await until(lambda: broker.queue("in").stats().acked == 2)

    run(work)
    assert "nowhere" not in broker.queue_names()


def test_a_request_without_a_reply_is_a_timeout(app: ShmqBroker) -> None:
    async def work() -> None:
        async with app:
            with pytest.raises(shmq.NoReply) as raised:
                await app.request("anybody?", "in", timeout=0.01)
            assert isinstance(raised.value, TimeoutError)

    run(work)


@pytest.mark.prove
@pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
def test_a_server_with_tls_and_tokens_is_reached(place: str, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    certificate, key = certificates.sign("server")
    everything = {"admin": ["*"], "produce": ["*"], "consume": ["*"]}
    with serve(
        place, tokens={TOKEN: everything}, tls={"certificate": str(certificate), "key": str(key)}
    ) as server:
        app = ShmqBroker(server.url, token=TOKEN, tls=str(certificates.ca), logger=None)

        @app.subscriber("sums")
        async def add(numbers: list[int]) -> int:
            return sum(numbers)

        async def work() -> None:
            async with running(app):
                reply = await app.request([1, 2], "sums", timeout=PATIENCE)
                assert await reply.decode() == 3

        assert server.url.startswith("shmqs://")
        run(work)


# ---- what FastStream adds ----


def test_middlewares_see_messages_and_publications_in_their_order(
    target: str, broker: shmq.Broker
) -> None:
    seen: list[str] = []

    class Outer(BaseMiddleware):
        async def consume_scope(self, call_next: Any, msg: Any) -> Any:
            seen.append("outer")
            return await call_next(msg)

    class Inner(BaseMiddleware):
        async def consume_scope(self, call_next: Any, msg: Any) -> Any:
            seen.append("inner")
            return await call_next(msg)

        async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
            cmd.add_headers({"seen": True})
            return await call_next(cmd)

    app = ShmqBroker(target, logger=None, middlewares=(Outer, Inner))

    @app.subscriber("in")
    @app.publisher("out")
    async def handle(body: str) -> str:
        return body

    async def work() -> None:
        async with running(app):
            await app.publish("x", "in")
            with await broker.ensure_queue("out").aget(PATIENCE) as message:
                assert message.headers == {"seen": True}

    run(work)
    assert seen == ["outer", "inner"]


def test_a_router_has_a_prefix_dependencies_and_routes(
    app: ShmqBroker, broker: shmq.Broker
) -> None:
    async def handle(body: str, number: Annotated[int, Depends(lambda: 7)]) -> str:
        return body * number

    router = ShmqRouter("shop.", [ShmqRoute(handle, "in", publishers=[ShmqRoutePublisher("out")])])
    app.include_router(router)

    async def work() -> None:
        async with running(app):
            await app.publish("x", "shop.in")
            with await broker.ensure_queue("shop.out").aget(PATIENCE) as message:
                assert message.body == "x" * 7

    run(work)


def test_an_application_starts_and_stops_its_broker_with_its_lifespan(app: ShmqBroker) -> None:
    seen: list[Any] = []

    @contextlib.asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        seen.append(app.running)
        yield
        seen.append(app.running)

    @app.subscriber("in")
    async def handle(body: str) -> None:
        seen.append(body)

    async def work() -> None:
        async with TestApp(FastStream(app, lifespan=lifespan)):
            assert await app.ping(PATIENCE)
            await app.publish("x", "in")
            await until(lambda: "x" in seen)
        assert not await app.ping(PATIENCE)

    run(work)
    assert seen == [False, "x", False]


def test_the_page_of_asyncapi_names_the_queues_and_no_password() -> None:
    app = ShmqBroker("shmqs://host:9999", token="secret")

    @app.subscriber("orders", title="Orders")
    @app.publisher("bills")
    async def pack(order: Order) -> int:
        """Pack an order."""
        return order.count

    page = AsyncAPI(app).to_specification().to_jsonable()
    assert page["servers"]["development"] == {
        "host": "host:9999",
        "pathname": "",
        "protocol": "shmqs",
    }
    found = {one["address"] for one in page["channels"].values()}
    assert found == {"orders", "bills"}
    assert "secret" not in str(page)


@pytest.mark.parametrize(
    "declare",
    [
        lambda app: app.subscriber(""),
        lambda app: app.subscriber("in", max_workers=0),
        lambda app: app.subscriber("in", prefetch=0),
        lambda app: app.subscriber("in", batch=True, prefetch=7),
        lambda app: app.subscriber("in", batch=True, max_records=0),
        lambda app: app.publisher(ShmqQueue("in", capacity=-1)),
        lambda app: ShmqBroker(queue_options={"nothing": 1}),
    ],
)
def test_what_a_queue_cannot_be_is_refused_when_it_is_declared(declare: Any) -> None:
    with pytest.raises((shmq.InvalidName, shmq.InvalidOption)):
        declare(ShmqBroker())


def test_a_queue_is_made_with_the_options_that_are_declared(
    target: str, broker: shmq.Broker
) -> None:
    app = ShmqBroker(target, logger=None, queue_options={"priorities": 9, "capacity": 64})

    async def work() -> None:
        async with app:
            await app.publish("x", "plain")
            await app.publish("x", ShmqQueue("own", capacity=1))
            with pytest.raises(shmq.Full):
                await app.publish("x", "own")

    run(work)
    found = {name: broker.queue(name).options for name in ("plain", "own")}
    assert (found["plain"].priorities, found["plain"].capacity) == (9, 64)
    assert (found["own"].priorities, found["own"].capacity) == (9, 1)


# ---- the broker of tests ----


def test_the_broker_of_tests_runs_handlers_in_memory(broker: shmq.Broker) -> None:
    app = ShmqBroker(broker.namespace)

    @app.subscriber("in")
    @app.publisher("out")
    async def double(number: int) -> int:
        return number * 2

    @app.subscriber("out")
    async def store(number: int) -> None:
        if number > 100:
            raise ValueError(number)

    @app.subscriber("many", batch=True)
    async def many(numbers: list[int]) -> None: ...

    async def work() -> None:
        async with TestShmqBroker(app) as tested:
            await tested.publish(4, "in")
            double.mock.assert_called_once_with(4)
            store.mock.assert_called_once_with(8)
            assert await (await tested.request(3, "in")).decode() == 6
            assert await tested.publish_batch(1, 2, queue="many") == 2
            many.mock.assert_called_once_with([1, 2])
            with pytest.raises(ValueError, match="102"):
                await tested.publish(51, "in")
            assert await tested.ping(1.0)

    run(work)
    assert broker.queue_names() == []


def test_the_broker_of_tests_watches_handlers_over_real_queues(broker: shmq.Broker) -> None:
    app = ShmqBroker(broker.namespace, logger=None)

    @app.subscriber("in")
    async def handle(number: int) -> None: ...

    async def work() -> None:
        async with TestShmqBroker(app, with_real=True) as tested:
            await tested.publish(4, "in")
            await handle.wait_call(timeout=PATIENCE)
            handle.mock.assert_called_once_with(4)

    run(work)
    assert broker.queue_names() == ["in", "in.dlq"]
