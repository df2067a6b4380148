"""Which values, names and times FastStream's users may rely on; the others fail at once."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pytest
from faststream import AckPolicy, Context
from faststream.exceptions import AckMessage, NackMessage, RejectMessage

import shmq
from shmq.extras.faststream import ShmqBroker, ShmqMessage, ShmqQueue
from tests.support.loops import occupied_pool, until
from tests.support.processes import environment
from tests.support.waiting import PATIENCE, eventually

#: A value that is published or returned, and what arrives.
VALUES: list[tuple[Any, Any]] = [
    (2**64, 2**64),
    (-(2**200), -(2**200)),
    (math.inf, math.inf),
    ("\0 тест 订单", "\0 тест 订单"),
    (b"\xff\x00", b"\xff\x00"),
    (b'{"a": 1}', {"a": 1}),
    (Decimal("1.50"), "1.50"),
    ({7}, [7]),
    ({"a": b"text"}, {"a": "text"}),
    ({1: (2, None)}, {"1": [2, None]}),
    (None, b""),
    ("x" * 1_000_000, "x" * 1_000_000),
]
#: What is rejected, and why.
REJECTED: list[tuple[Any, str]] = [
    ("\ud800", "surrogates not allowed"),
    (["\ud800"], "surrogates not allowed"),
    ({"a": b"\xff"}, "invalid utf-8"),
    (object(), "Unable to serialize unknown type"),
]

#: A name of 255 bytes, and one of 98 characters, after which `.dlq` does not fit.
NAMES = ("订单处理" * 21 + "abc", "n" * 98, "n" * 255, "a b/c:d", "orders")

Message = Annotated[ShmqMessage, Context("message")]


@contextlib.asynccontextmanager
async def running(app: ShmqBroker) -> AsyncIterator[ShmqBroker]:
    async with app:
        await app.start()
        yield app


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE))


@pytest.fixture
def app(target: str) -> ShmqBroker:
    return ShmqBroker(target, logger=None, graceful_timeout=5.0)


# ---- values ----


def test_a_value_arrives_as_documented_in_a_message_and_in_a_reply(app: ShmqBroker) -> None:
    got: list[Any] = []
    returned: dict[str, Any] = {}

    @app.subscriber("in")
    async def handle(body: Any) -> None:
        got.append(body)

    @app.subscriber("ask")
    async def answer(key: str) -> Any:
        return returned[key]

    async def main() -> None:
        async with running(app):
            for given, _ in VALUES:
                await app.publish(given, "in")
            await until(lambda: len(got) == len(VALUES))
            for given, arrives in VALUES:
                returned["value"] = given
                reply = await app.request("value", "ask", timeout=PATIENCE)
                assert await reply.decode() == arrives
            returned["value"] = math.nan
            assert str(await (await app.request("value", "ask")).decode()) == "nan"

    run(main())
    assert got == [arrives for _, arrives in VALUES]


def test_a_value_that_cannot_be_published_is_an_error_of_the_publisher(app: ShmqBroker) -> None:
    async def main() -> None:
        async with app:
            for value, reason in REJECTED:
                with pytest.raises(Exception, match=reason):
                    await app.publish(value, "in")
                with pytest.raises(Exception, match=reason):
                    await app.publish_batch(1, value, queue="in")

    run(main())


def test_a_reply_that_cannot_be_sent_is_an_error_of_the_caller_at_once(app: ShmqBroker) -> None:
    returned: dict[str, Any] = {}

    @app.subscriber("ask")
    async def answer(key: str) -> Any:
        return returned[key]

    async def main() -> None:
        async with running(app):
            for value, reason in REJECTED:
                returned["value"] = value
                with pytest.raises(shmq.RequestFailed, match=reason):
                    await app.request("value", "ask", timeout=PATIENCE)
            returned["value"] = b"\0" * (300 << 20)
            with pytest.raises(shmq.RequestFailed, match="MessageTooLarge"):
                await app.request("value", "ask", timeout=PATIENCE)

    run(main())


# ---- requests whose handler fails ----


@pytest.mark.parametrize(
    ("policy", "error", "reason"),
    [
        (AckPolicy.REJECT_ON_ERROR, ValueError("no"), "ValueError: no"),
        (AckPolicy.ACK, ValueError("no"), "ValueError: no"),
        (AckPolicy.ACK_FIRST, ValueError("no"), "ValueError: no"),
        (AckPolicy.NACK_ON_ERROR, RejectMessage(), "RejectMessage: Message was rejected"),
        (AckPolicy.NACK_ON_ERROR, AckMessage(), "AckMessage: Message was acked"),
    ],
    ids=str,
)
def test_the_caller_of_a_handler_that_fails_gets_its_error_at_once(
    app: ShmqBroker, policy: AckPolicy, error: Exception, reason: str
) -> None:
    @app.subscriber("ask", ack_policy=policy)
    async def fail(number: int) -> None:
        raise error

    async def main() -> None:
        async with running(app):
            with pytest.raises(shmq.RequestFailed, match=reason):
                await app.request(1, "ask", timeout=PATIENCE)
            with pytest.raises(shmq.RequestFailed, match="ValidationError"):
                await shmq_client(app).arequest("ask", "text", PATIENCE)

    if policy is AckPolicy.NACK_ON_ERROR:

        async def main() -> None:
            async with running(app):
                with pytest.raises(shmq.RequestFailed, match=reason):
                    await app.request(1, "ask", timeout=PATIENCE)

    run(main())


def shmq_client(app: ShmqBroker) -> shmq.Broker:
    return app.config.broker_config.client


@pytest.mark.parametrize("error", [ValueError("no"), NackMessage(delay=0)], ids=str)
def test_a_request_that_is_delivered_again_fails_with_its_last_delivery(
    app: ShmqBroker, error: Exception
) -> None:
    runs: list[int] = []
    queue = ShmqQueue("ask", max_deliveries=3, retry_delay=0.0)

    @app.subscriber(queue, ack_policy=AckPolicy.NACK_ON_ERROR)
    async def fail(number: int) -> str:
        runs.append(number)
        if number == 2 and runs.count(2) == 2:
            return "the second time"
        raise error

    async def main() -> None:
        async with running(app):
            with pytest.raises(shmq.RequestFailed):
                await app.request(1, queue, timeout=PATIENCE)
            reply = await app.request(2, queue, timeout=PATIENCE)
            assert await reply.decode() == "the second time"

    run(main())
    assert runs == [1, 1, 1, 2, 2]


def test_the_caller_gets_the_error_of_a_batch_and_a_filter_without_a_handler(
    app: ShmqBroker,
) -> None:
    @app.subscriber("batch", batch=True)
    async def fail(numbers: list[int]) -> None:
        raise ValueError("no")

    chosen = app.subscriber("chosen")

    @chosen(filter=lambda message: False)
    async def never(number: int) -> None: ...

    async def main() -> None:
        async with running(app):
            with pytest.raises(shmq.RequestFailed, match="ValueError: no"):
                await app.request(1, "batch", timeout=PATIENCE)
            with pytest.raises(shmq.RequestFailed, match="There is no suitable handler"):
                await app.request(1, "chosen", timeout=PATIENCE)

    run(main())


def test_a_handler_that_has_replied_and_then_fails_sends_no_second_reply(
    app: ShmqBroker, namespace: str
) -> None:
    @app.subscriber("ask")
    @app.publisher("full")
    async def answer(number: int) -> int:
        return number

    async def main() -> None:
        async with running(app):
            with shmq.connect(namespace) as local:
                local.ensure_queue("full", capacity=1).put(b"x")
                replies = local.ensure_queue("replies")
                await app.publish(7, "ask", reply_to="replies")
                await until(lambda: local.queue("ask").stats().dead_lettered == 1)
                assert [message.body for message in replies.get_many(9, block=False)] == [7]

    run(main())


# ---- names, priorities and times ----


@pytest.mark.parametrize("name", NAMES)
def test_a_queue_has_any_name_of_up_to_255_bytes(app: ShmqBroker, name: str) -> None:
    @app.subscriber(name)
    async def answer(number: int) -> int:
        return number + 1

    async def main() -> None:
        async with running(app):
            assert await (await app.request(1, name, timeout=PATIENCE)).decode() == 2
            back = app.subscriber(f"{name} back", persistent=False)
            assert await back.get_one(timeout=0) is None
            await app.publish(5, name, reply_to=f"{name} back")
            reply = await back.get_one(timeout=PATIENCE)
            assert reply is not None
            assert await reply.decode() == 6

    run(main())


@pytest.mark.parametrize(
    "options",
    [
        {"priority": None, "delay": None, "ttl": None, "group": None, "dedupe_id": None},
        {"priority": 2, "delay": 0, "ttl": 0.001, "timeout": 0},
        {"correlation_id": "号" * 85, "headers": {"订": "单", "n": 2**64 - 1}},
    ],
    ids=str,
)
def test_a_property_within_its_range_is_used(app: ShmqBroker, options: dict[str, Any]) -> None:
    async def main() -> None:
        async with app:
            assert (await app.publish(1, "in", **options)).sequence == 1

    run(main())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"priority": -1}, "priority=-1 is out of range: 0 to 2"),
        ({"priority": 3}, "priority=3 is out of range: 0 to 2"),
        ({"priority": 1.5}, "priority=1.5 must be an int"),
        ({"delay": -1}, "delay=-1 s is out of range"),
        ({"delay": math.nan}, "delay=nan s is out of range"),
        ({"ttl": 0}, "ttl=0 s is out of range: 0.001 to"),
        ({"timeout": -1}, "timeout=-1 must be 0 or more seconds"),
        ({"headers": {"n": 2**64}}, "msgpack cannot hold 18446744073709551616"),
        ({"headers": {"n": object()}}, "msgpack cannot hold"),
    ],
    ids=str,
)
def test_a_property_out_of_range_is_rejected_to_the_publisher(
    app: ShmqBroker, options: dict[str, Any], reason: str
) -> None:
    async def main() -> None:
        async with app:
            with pytest.raises((shmq.InvalidOption, TypeError), match=reason):
                await app.publish(1, "in", **options)
            with pytest.raises((shmq.InvalidOption, TypeError), match=reason):
                await app.request(1, "in", **options)

    run(main())


# ---- waits ----


def test_messages_are_settled_while_the_default_pool_is_occupied(
    app: ShmqBroker, namespace: str
) -> None:
    @app.subscriber("in", max_workers=4)
    async def handle(number: int, message: Message) -> None:
        await message.extend(60)
        await [message.ack, message.nack, message.reject][number % 3]()

    async def main() -> None:
        async with occupied_pool(), running(app):
            assert await app.publish_batch(*range(6), queue="in") == 6
            assert await app.ping(PATIENCE)
            with shmq.connect(namespace) as local, local.queue("in") as queue:
                await until(lambda: queue.stats().acked == 2)
                await until(lambda: queue.stats().dead_lettered >= 2)
                await until(lambda: queue.stats().nacked >= 2)

    run(main())


# ---- the command ----

APP = """
from faststream import FastStream
from shmq.extras.faststream import ShmqBroker

broker = ShmqBroker()
app = FastStream(broker)


@broker.subscriber("sums")
async def add(numbers: list[int]) -> int:
    return sum(numbers)
"""


@pytest.mark.prove
def test_the_command_of_faststream_runs_with_what_the_extra_installs(
    namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(APP)
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "faststream", "run", "shop:app"],
            cwd=tmp_path,
            env=environment(SHMQ_NAMESPACE=namespace, PYTHONPATH=path),
            stdout=log,
            stderr=log,
        )
    try:
        with shmq.connect(namespace) as local:
            eventually(
                lambda: "sums" in local.queue_names() or process.poll() is not None,
                "the application has started",
            )
            assert process.poll() is None, (tmp_path / "log").read_text()
            assert local.request("sums", [1, 2], PATIENCE).body == 3
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
