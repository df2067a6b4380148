"""Which values, sizes, names and times taskiq's users may rely on; the others fail at once."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest
from taskiq import ScheduledTask, TaskiqResult
from taskiq.exceptions import SendTaskError, TaskiqResultTimeoutError
from taskiq.serializers import JSONSerializer, MSGPackSerializer, PickleSerializer

import shmq
from shmq.extras.taskiq import ShmqBroker, ShmqResultBackend, ShmqScheduleSource
from tests.support.loops import occupied_pool
from tests.support.taskiq_worker import worker
from tests.support.waiting import PATIENCE

SERIALIZERS = {"json": JSONSerializer, "pickle": PickleSerializer, "msgpack": MSGPackSerializer}

#: A value that is sent or returned, and what arrives.
VALUES: list[tuple[Any, Any]] = [
    (-(2**63), -(2**63)),
    (2**64 - 1, 2**64 - 1),
    (math.inf, math.inf),
    (-math.inf, -math.inf),
    (b"text", "text"),
    (Decimal("1.50"), "1.50"),
    ({7}, [7]),
    ((1, [2.5, None]), [1, [2.5, None]]),
    ({1: True}, {"1": True}),
    ("\0 тест 订单", "\0 тест 订单"),
    ("x" * 1_000_000, "x" * 1_000_000),
]
#: What only some serializers hold.
WIDE: list[Any] = [2**64, -(2**200), "\ud800"]
#: What no serializer holds.
REJECTED: list[Any] = [b"\xff", object(), TaskiqResult]


class App:
    """A broker with results and a task that returns its argument, or what `returned` has."""

    def __init__(self, target: str, serializer: str = "json") -> None:
        chosen = SERIALIZERS[serializer]()
        self.results: ShmqResultBackend[Any] = ShmqResultBackend(target, serializer=chosen)
        made = ShmqBroker(target).with_serializer(chosen).with_result_backend(self.results)
        assert isinstance(made, ShmqBroker)
        self.broker = made
        self.returned: dict[str, Any] = {}

        async def echo(value: Any) -> Any:
            return self.returned.get(value, value) if isinstance(value, str) else value

        self.task: Any = self.broker.task("echo")(echo)

    async def call(self, value: Any, **labels: Any) -> TaskiqResult[Any]:
        """The result of a task that was sent with this argument and these labels."""
        sent = await self.task.kicker().with_labels(**labels).kiq(value)
        return await self.results.wait_result(sent.task_id, PATIENCE)

    async def refuse(self, value: Any, **labels: Any) -> str:
        """The reason why a task with this argument and these labels is not sent."""
        with pytest.raises(SendTaskError) as rejected:
            await self.task.kicker().with_labels(**labels).kiq(value)
        return f"{type(rejected.value.__cause__).__name__}: {rejected.value.__cause__}"


@contextlib.asynccontextmanager
async def working(target: str, serializer: str = "json") -> AsyncIterator[App]:
    app = App(target, serializer)
    async with worker(app.broker):
        yield app


# ---- values ----


@pytest.mark.parametrize("serializer", SERIALIZERS)
def test_a_value_arrives_as_documented_as_an_argument_and_as_a_result(
    target: str, serializer: str
) -> None:
    async def main() -> None:
        async with working(target, serializer) as app:
            for given, arrives in VALUES:
                assert (await app.call(given)).return_value == arrives
                app.returned["given"] = given
                assert (await app.call("given")).return_value == arrives
            assert math.isnan((await app.call(math.nan)).return_value)

    asyncio.run(main())


@pytest.mark.parametrize("serializer", SERIALIZERS)
def test_a_value_beyond_a_serializer_arrives_or_is_rejected_at_once(
    target: str, serializer: str
) -> None:
    async def main() -> None:
        async with working(target, serializer) as app:
            for value in WIDE:
                app.returned["value"] = value
                if serializer == "msgpack":
                    await app.refuse(value)
                    result = await app.call("value")
                    assert "its result cannot be stored" in str(result.error)
                else:
                    assert (await app.call(value)).return_value == value
                    assert (await app.call("value")).return_value == value

    asyncio.run(main())


def test_a_value_that_cannot_be_sent_is_an_error_of_the_sender(target: str) -> None:
    async def main() -> list[str]:
        app = App(target)
        reasons = [await app.refuse(value) for value in REJECTED]
        await app.broker.shutdown()
        return reasons

    invalid, unknown, kind = asyncio.run(main())
    assert "invalid utf-8" in invalid
    assert "Unable to serialize unknown type: <class 'object'>" in unknown
    assert "Unable to serialize unknown type" in kind


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        (b"\xff", "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff"),
        (object(), "PydanticSerializationError: Unable to serialize unknown type"),
        ("x" * (16 << 20), "MessageTooLarge: "),
    ],
    ids=["bytes", "object", "16 MiB"],
)
def test_a_result_that_cannot_be_stored_is_an_error_of_the_caller_at_once(
    target: str, returned: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> TaskiqResult[Any]:
        async with working(target) as app:
            app.returned["value"] = returned
            return await app.call("value")

    result = asyncio.run(main())
    assert result.is_err
    assert type(result.error).__name__ == "ResultNotStored"
    assert str(result.error).startswith(
        f"the task has run, but its result cannot be stored: {reason}"
    )
    assert "Can't set result in result backend." in caplog.text


def test_a_result_of_nearly_16_mib_is_stored(target: str) -> None:
    async def main() -> int:
        async with working(target) as app:
            app.returned["value"] = "x" * ((16 << 20) - 1000)
            return len((await app.call("value")).return_value)

    assert asyncio.run(main()) == (16 << 20) - 1000


def test_an_error_with_a_text_that_is_too_long_reaches_the_caller_at_once(target: str) -> None:
    async def main() -> TaskiqResult[Any]:
        async with working(target) as app:

            @app.broker.task
            async def fail() -> None:
                raise ValueError("x" * (17 << 20))

            sent = await fail.kiq()
            return await app.results.wait_result(sent.task_id, PATIENCE)

    assert "MessageTooLarge" in str(asyncio.run(main()).error)


def test_a_task_that_no_worker_knows_is_an_error_of_the_caller_at_once(target: str) -> None:
    async def main() -> TaskiqResult[Any]:
        async with working(target) as app:
            sender = ShmqBroker(target)

            @sender.task("unknown")
            async def unknown() -> None: ...

            sent = await unknown.kiq()
            result = await app.results.wait_result(sent.task_id, PATIENCE)
            await sender.shutdown()
            return result

    with pytest.raises(LookupError, match="do not have a task 'unknown': start them with"):
        asyncio.run(main()).raise_for_error()


@pytest.mark.parametrize(
    ("body", "reason"),
    [(b"{", "JSONDecodeError"), (b"[1]", "ValidationError"), (b"\x80\x05", "UnicodeDecodeError")],
    ids=ascii,
)
def test_a_task_that_no_worker_can_read_is_an_error_of_the_caller_at_once(
    target: str, namespace: str, body: bytes, reason: str
) -> None:
    async def main() -> TaskiqResult[Any]:
        async with working(target) as app:
            assert (await app.call(1)).return_value == 1
            with shmq.connect(namespace) as local, local.queue("taskiq") as queue:
                queue.put(body, headers={"task": "echo", "task_id": "unreadable"})
            return await app.results.wait_result("unreadable", PATIENCE)

    with pytest.raises(ValueError, match=f"'taskiq' cannot read the task: {reason}"):
        asyncio.run(main()).raise_for_error()


@pytest.mark.parametrize("body", [{"task": 1}, "text", 5, None], ids=str)
def test_a_worker_goes_on_after_a_message_that_is_not_of_taskiq(
    target: str, namespace: str, body: Any
) -> None:
    async def main() -> Any:
        async with working(target) as app:
            await app.call(1)
            with shmq.connect(namespace) as local, local.queue("taskiq") as queue:
                queue.put(body)
            return (await app.call(2)).return_value

    assert asyncio.run(main()) == 2


def test_a_schedule_keeps_its_values(target: str) -> None:
    values = [math.inf, 2**200, "\ud800", "订单"]
    schedule = ScheduledTask(
        task_name="t", labels={}, args=values, kwargs={}, schedule_id="s" * 600, interval=5
    )

    async def main() -> list[ScheduledTask]:
        source = ShmqScheduleSource(target)
        await source.add_schedule(schedule)
        await source.pre_send(schedule)
        found = await source.get_schedules()
        await source.shutdown()
        return found

    assert asyncio.run(main()) == [schedule]


# ---- labels, times and names ----


@pytest.mark.parametrize(
    "labels",
    [
        {"priority": None, "delay": None, "ttl": None, "group": None, "queue_name": None},
        {"priority": 9, "delay": 0, "ttl": 60.5},
        {"priority": "0", "group": "группа" * 20},
    ],
    ids=str,
)
def test_a_label_within_its_range_is_used(target: str, labels: dict[str, Any]) -> None:
    async def main() -> Any:
        async with working(target) as app:
            return (await app.call(1, **labels)).return_value

    assert asyncio.run(main()) == 1


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ({"priority": -1}, "InvalidOption: priority=-1 is out of range: 0 to 9"),
        ({"priority": 10}, "InvalidOption: priority=10 is out of range: 0 to 9"),
        ({"priority": 2.5}, "ValueError: label priority='2.5' must be of type int"),
        ({"delay": -1}, "InvalidOption: delay=-1.0 s is out of range: 0.0 to"),
        ({"delay": math.nan}, "InvalidOption: delay=nan s is out of range"),
        ({"delay": math.inf}, "InvalidOption: delay=inf s is out of range"),
        ({"ttl": 0}, "InvalidOption: ttl=0.0 s is out of range: 0.001 to"),
        ({"ttl": -1}, "InvalidOption: ttl=-1.0 s is out of range: 0.001 to"),
        ({"queue_name": ""}, "InvalidName: invalid queue name ''"),
        ({"ack_type": "later"}, "ValueError: Unknown acknowledge type value: later"),
    ],
    ids=str,
)
def test_a_label_out_of_range_is_rejected_to_the_sender(
    target: str, labels: dict[str, Any], reason: str
) -> None:
    async def main() -> str:
        app = App(target)
        refusal = await app.refuse(1, **labels)
        await app.broker.shutdown()
        return refusal

    assert asyncio.run(main()).startswith(reason)


def test_a_label_none_is_as_none_given(namespace: str) -> None:
    async def main() -> None:
        app = App(namespace)
        await app.task.kicker().with_labels(group=None, priority=None).kiq(1)
        await app.broker.shutdown()

    asyncio.run(main())
    with shmq.connect(namespace) as local, local.queue("taskiq").get() as message:
        assert (message.group, message.priority) == (None, 0)


def test_a_task_id_has_any_text_and_length_but_not_none(target: str) -> None:
    async def main() -> None:
        async with working(target) as app:
            for task_id in ("i" * 600, "号" * 512, "号" * 513, " /:", "号" * 512 + "2"):
                await app.task.kicker().with_task_id(task_id).kiq(task_id)
                result = await app.results.wait_result(task_id, PATIENCE)
                assert result.return_value == task_id
            with pytest.raises(SendTaskError) as rejected:
                await app.task.kicker().with_task_id("").kiq(1)
            assert "at least one character" in str(rejected.value.__cause__)

    asyncio.run(main())


@pytest.mark.parametrize("name", ["订单处理 @/:" * 15 + "x" * 15, "n" * 98, "n" * 255], ids=len)
def test_queues_and_tasks_have_names_of_up_to_255_bytes_of_any_text(
    target: str, namespace: str, name: str
) -> None:
    assert len(name.encode()) <= 255

    async def main() -> TaskiqResult[Any]:
        results: ShmqResultBackend[Any] = ShmqResultBackend(target, table=name)
        broker = ShmqBroker(target, queue=name).with_result_backend(results)
        task = broker.register_task(lambda: 1, task_name=name)
        async with worker(broker):
            sent = await task.kicker().with_labels(queue_name=name, group=name).kiq()
            return await results.wait_result(sent.task_id, PATIENCE)

    assert asyncio.run(main()).return_value == 1
    with shmq.connect(namespace) as local:
        assert shmq.escape_name(name) in local.queue_names()


def test_a_wait_without_time_looks_once_and_a_negative_time_is_no_limit(target: str) -> None:
    async def main() -> None:
        async with working(target) as app:
            with pytest.raises(TaskiqResultTimeoutError):
                await app.results.wait_result("none", 0)
            sent = await app.task.kiq(1)
            assert (await app.results.wait_result(sent.task_id, -1)).return_value == 1
            assert (await app.results.wait_result(sent.task_id, 0)).return_value == 1
            assert (await app.results.wait_result(sent.task_id, None)).return_value == 1

    asyncio.run(main())


@pytest.mark.parametrize("ttl", [0, -1, math.nan, 1e10])
def test_a_result_ttl_out_of_range_is_rejected_by_the_constructor(ttl: float) -> None:
    with pytest.raises(shmq.InvalidOption, match="ttl="):
        ShmqResultBackend(result_ttl=ttl)


def test_results_go_into_a_new_table_if_theirs_was_deleted(target: str, namespace: str) -> None:
    async def main() -> Any:
        async with working(target) as app:
            await app.call(1)
            with shmq.connect(namespace) as local:
                local.delete_table("taskiq-results")
            return (await app.call(2)).return_value

    assert asyncio.run(main()) == 2


# ---- waits ----


def test_tasks_await_the_results_of_others_without_the_default_pool(target: str) -> None:
    async def main() -> list[Any]:
        async with occupied_pool(), working(target) as app:

            @app.broker.task
            async def parent(number: int) -> Any:
                return (await app.call(number)).return_value

            sent = [await parent.kiq(number) for number in range(6)]
            waits = [app.results.wait_result(task.task_id, PATIENCE) for task in sent]
            return [result.return_value for result in await asyncio.gather(*waits)]

    assert asyncio.run(main()) == list(range(6))
