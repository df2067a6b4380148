"""What the broker of taskiq, its results and its schedules promise."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from taskiq import (
    AckableMessage,
    Context,
    ScheduledTask,
    TaskiqDepends,
    TaskiqResult,
    TaskiqScheduler,
)
from taskiq.acks import AcknowledgeType
from taskiq.depends.progress_tracker import TaskProgress
from taskiq.exceptions import (
    ResultGetError,
    ScheduledTaskCancelledError,
    SendTaskError,
    TaskiqResultTimeoutError,
)

import shmq
from shmq.extras.frameworks.task_queues import TaskQueues
from shmq.extras.taskiq import ShmqBroker, ShmqResultBackend, ShmqScheduleSource
from shmq.extras.taskiq.in_hand import MessagesInHand
from tests.support.server import serve
from tests.support.taskiq_worker import worker
from tests.support.waiting import PATIENCE

#: Marks the parameter that taskiq fills in.
DEPENDS: Any = TaskiqDepends()


async def until(condition: Any, what: str) -> None:
    """Return once the condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - of what another process may do
            await asyncio.sleep(0.002)


def stats(namespace: str) -> shmq.QueueStats:
    with shmq.connect(namespace) as local, local.queue("taskiq") as queue:
        return queue.stats()


def leased(namespace: str) -> int:
    """How many messages are leased and not acknowledged."""
    with shmq.connect(namespace) as local, local.queue("taskiq") as queue:
        return len(queue.leases())


# ---- tasks ----


def test_labels_of_a_call_go_into_the_message(target: str, namespace: str) -> None:
    broker = ShmqBroker(target)

    @broker.task(priority=3)
    async def task(number: int) -> None: ...

    async def main() -> None:
        await task.kiq(1)
        await task.kicker().with_labels(priority=9, group="g", ttl=60).kiq(2)
        await task.kicker().with_labels(delay=3600.0).kiq(3)
        await task.kicker().with_labels(queue_name="other/queue").kiq(4)
        await broker.shutdown()

    asyncio.run(main())
    with shmq.connect(namespace) as local, local.queue("taskiq") as queue:
        urgent, usual = queue.peek()
        assert (urgent.priority, urgent.group, urgent.properties["ttl"]) == (9, "g", 60_000)
        assert (usual.priority, usual.group) == (3, None)
        assert usual.headers["task"] == task.task_name
        assert queue.stats().delayed == 1
        assert local.queue("other:2Fqueue").qsize() == 1


def test_a_label_that_is_no_number_is_refused_by_its_name() -> None:
    broker = ShmqBroker("unused")

    @broker.task
    async def task() -> None: ...

    with pytest.raises(SendTaskError) as refused:
        asyncio.run(task.kicker().with_labels(delay="soon").kiq())
    assert str(refused.value.__cause__) == "label delay='soon' must be of type float"


@pytest.mark.parametrize(
    ("mode", "held"),
    [
        (AcknowledgeType.WHEN_RECEIVED, 0),
        (AcknowledgeType.WHEN_EXECUTED, 1),
        (AcknowledgeType.WHEN_SAVED, 1),
    ],
)
def test_a_task_is_acknowledged_when_the_worker_is_told_to(
    mode: AcknowledgeType, held: int, namespace: str
) -> None:
    broker = ShmqBroker(namespace)
    seen: list[int] = []

    @broker.task
    async def task() -> None:
        seen.append(leased(namespace))

    async def main() -> None:
        async with worker(broker, ack_type=mode):
            await task.kiq()
            await until(lambda: stats(namespace).acked == 1, "it is acknowledged")

    asyncio.run(main())
    assert seen == [held]


def test_a_task_acknowledges_itself_or_comes_again_from_the_next_worker(
    target: str, namespace: str
) -> None:
    broker = ShmqBroker(target)
    runs: list[str] = []

    @broker.task(ack_type="manual")
    async def task(acks: bool, context: Context = DEPENDS) -> None:
        runs.append("acks" if acks else "does not")
        if acks:
            await context.ack()

    async def main() -> None:
        async with worker(broker):
            await task.kiq(True)
            await task.kiq(False)
            await until(lambda: len(runs) == 2, "both run")

    asyncio.run(main())
    assert sorted(runs) == ["acks", "does not"]
    with shmq.connect(namespace) as local:
        (left,) = local.queue("taskiq").get_many(2, block=False)
        assert left.delivery_count == 2


@pytest.mark.parametrize("how", ["text", "long", "surrogate", "without a text"])
def test_a_failed_task_that_was_not_acknowledged_returns_with_its_exception(
    target: str, namespace: str, how: str
) -> None:
    class WithoutTextError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    texts = {"text": "no", "long": "x" * (1 << 20), "surrogate": "\udcff"}
    failed: list[str] = []

    async def main() -> None:
        broker = ShmqBroker(target, max_deliveries=2)

        @broker.task(ack_type="manual")
        async def task() -> None:
            failed.append(how)
            raise ValueError(texts[how]) if how in texts else WithoutTextError

        async with worker(broker):
            if not failed:
                await task.kiq()
            runs = len(failed) + 1
            await until(lambda: len(failed) == runs, "it runs")

    asyncio.run(main())
    with shmq.connect(namespace) as local:
        (again,) = local.queue("taskiq").peek()
    asyncio.run(main())
    with shmq.connect(namespace) as local, local.queue("taskiq.dlq").get(timeout=PATIENCE) as dead:
        assert dead.dead is not None
        assert dead.dead.reason == "max_deliveries"
        errors = [again.last_error, dead.dead.error]

    expected = {
        "text": "ValueError: no",
        "long": "ValueError: xxx",
        "surrogate": "ValueError: \\udcff",
    }
    for error in errors:
        assert error is not None
        assert len(str(error).encode()) < 4096
        if how in texts:
            assert str(error).startswith(expected[how])
        else:
            assert (error.type.rpartition(".")[2], error.text) == (
                "WithoutTextError",
                "its text raised RuntimeError",
            )
        assert "test_taskiq.py" in error.trace


def test_a_task_that_fails_is_acknowledged(target: str, namespace: str) -> None:
    results: ShmqResultBackend[Any] = ShmqResultBackend(target)
    broker = ShmqBroker(target).with_result_backend(results)

    @broker.task
    async def fail() -> None:
        raise ValueError("no")

    async def main() -> TaskiqResult[Any]:
        async with worker(broker):
            sent = await fail.kiq()
            result = await results.wait_result(sent.task_id, PATIENCE)
            await until(lambda: stats(namespace).acked == 1, "it is acknowledged")
            return result

    result = asyncio.run(main())
    assert result.is_err
    with pytest.raises(ValueError, match="no"):
        result.raise_for_error()
    assert stats(namespace).in_flight == 0


def test_tasks_of_a_group_run_one_after_the_other(target: str) -> None:
    broker = ShmqBroker(target)
    order: list[tuple[str, int]] = []

    @broker.task(group="g")
    async def task(number: int) -> None:
        order.append(("begin", number))
        await asyncio.sleep(0)
        order.append(("end", number))

    async def main() -> None:
        async with worker(broker):
            for number in range(5):
                await task.kiq(number)
            await until(lambda: len(order) == 10, "all have run")

    asyncio.run(main())
    assert order == [(what, number) for number in range(5) for what in ("begin", "end")]


def test_tasks_that_run_when_a_worker_ends_are_acknowledged(target: str, namespace: str) -> None:
    broker = ShmqBroker(target)
    begun, go_on = asyncio.Event(), asyncio.Event()

    @broker.task
    async def task() -> None:
        begun.set()
        await go_on.wait()

    async def main() -> None:
        async with worker(broker):
            await task.kiq()
            await begun.wait()
            asyncio.get_running_loop().call_later(0.05, go_on.set)

    asyncio.run(main())
    assert (stats(namespace).acked, stats(namespace).depth) == (1, 0)


def test_a_worker_goes_on_with_a_new_queue_when_its_queue_was_deleted(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shmq.extras.taskiq.broker.PAUSE", 0.01)
    broker = ShmqBroker(namespace)
    ran: list[int] = []

    @broker.task
    async def task(number: int) -> None:
        ran.append(number)

    async def main() -> None:
        async with worker(broker):
            await task.kiq(1)
            await until(lambda: ran == [1], "the first runs")
            with shmq.connect(namespace) as local:
                local.delete_queue("taskiq")
            await task.kiq(2)
            await until(lambda: ran == [1, 2], "the second runs")

    asyncio.run(main())


def test_a_late_kick_into_a_deleted_queue_leaves_the_new_handle_open(
    target: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = ShmqBroker(target)
    forget = TaskQueues.forget
    others = []

    @broker.task
    async def task(number: int) -> None: ...

    def forget_later(self: TaskQueues, name: str, *more: Any) -> None:
        monkeypatch.setattr(TaskQueues, "forget", forget)
        self.put(name, b"of another task")  # it makes the queue again
        others.append(self.queue(name))
        forget(self, name, *more)

    async def main() -> None:
        await task.kiq(1)
        monkeypatch.setattr(TaskQueues, "forget", forget_later)
        with shmq.connect(namespace) as local:
            local.delete_queue("taskiq")
        await task.kiq(2)
        assert others[0].qsize() == 2
        await broker.shutdown()

    asyncio.run(main())


def test_a_worker_that_waits_leaves_nothing_in_flight(target: str, namespace: str) -> None:
    broker = ShmqBroker(target)

    @broker.task
    async def task() -> None: ...

    async def main() -> None:
        async with worker(broker):
            await task.kiq()
            await until(lambda: stats(namespace).acked == 1, "it is acknowledged")
            await until(lambda: stats(namespace).in_flight == 0, "nothing is in flight")

    asyncio.run(main())


@pytest.mark.prove
def test_a_worker_that_is_full_keeps_its_connection_and_its_leases(namespace: str) -> None:
    idle = 2.0
    with serve(namespace, limits={"idle": idle}) as server:
        broker = ShmqBroker(server.url)

        @broker.task
        async def task() -> None:
            await asyncio.sleep(2 * idle)

        async def main() -> None:
            async with worker(broker, max_async_tasks=1):
                await task.kiq()
                await until(lambda: stats(namespace).acked == 1, "it is acknowledged")

        asyncio.run(main())
        assert stats(namespace).redelivered == 0


def test_what_listen_yields_is_the_message_as_it_was_put(namespace: str) -> None:
    broker = ShmqBroker(namespace)

    @broker.task
    async def task(number: int) -> None: ...

    async def main() -> AckableMessage:
        await task.kiq(7)
        listening = broker.listen()
        message = await anext(listening)
        await listening.aclose()
        await broker.shutdown()
        return message

    assert b'"args":[7]' in asyncio.run(main()).data.replace(b" ", b"")


# ---- results ----


def result_of(value: Any) -> TaskiqResult[Any]:
    return TaskiqResult(is_err=False, return_value=value, execution_time=0.5)


def test_a_result_is_there_until_it_was_got_if_it_is_not_kept(target: str) -> None:
    async def main() -> None:
        results: ShmqResultBackend[Any] = ShmqResultBackend(target, keep_results=False)
        assert not await results.is_result_ready("1")
        await results.set_result("1", result_of({"a": [1, None]}))
        assert await results.is_result_ready("1")
        assert (await results.get_result("1")).return_value == {"a": [1, None]}
        with pytest.raises(ResultGetError):
            await results.get_result("1")
        await results.shutdown()

    asyncio.run(main())


def test_a_result_wakes_who_waits_for_it(target: str) -> None:
    async def main() -> None:
        results: ShmqResultBackend[Any] = ShmqResultBackend(target)
        waiting = asyncio.create_task(results.wait_result("1", PATIENCE))
        await asyncio.sleep(0)
        await results.set_result("1", result_of(5))
        assert (await waiting).return_value == 5
        with pytest.raises(TaskiqResultTimeoutError):
            await results.wait_result("2", 0.01)
        await results.shutdown()

    asyncio.run(main())


def test_progress_is_kept_beside_the_result(target: str) -> None:
    async def main() -> None:
        results: ShmqResultBackend[Any] = ShmqResultBackend(target)
        assert await results.get_progress("1") is None
        await results.set_progress("1", TaskProgress(state="half", meta={"done": 5}))
        progress = await results.get_progress("1")
        assert progress is not None
        assert (progress.state, progress.meta) == ("half", {"done": 5})
        assert not await results.is_result_ready("1")
        await results.shutdown()

    asyncio.run(main())


# ---- schedules ----


def schedule(**when: Any) -> ScheduledTask:
    return ScheduledTask(task_name="task", labels={}, args=[1], kwargs={}, schedule_id="s", **when)


WHENS: list[dict[str, Any]] = [
    {"time": datetime(2020, 1, 1, tzinfo=UTC)},
    {"cron": "*/5 * * * *", "cron_offset": "Europe/Berlin"},
    {"interval": timedelta(seconds=90)},
    {"interval": 5},
]


@pytest.mark.parametrize("when", WHENS, ids=str)
def test_a_schedule_is_kept_as_it_was_added_until_it_is_deleted(
    when: dict[str, Any], target: str
) -> None:
    async def main() -> None:
        source, other = ShmqScheduleSource(target), ShmqScheduleSource(target)
        await source.add_schedule(schedule(**when))
        assert await other.get_schedules() == [schedule(**when)]
        await other.delete_schedule("s")
        assert await source.get_schedules() == []
        await source.shutdown()
        await other.shutdown()

    asyncio.run(main())


@pytest.mark.parametrize("when", WHENS, ids=str)
def test_one_of_two_schedulers_sends_a_run(when: dict[str, Any], target: str) -> None:
    async def main() -> None:
        sources = [ShmqScheduleSource(target) for _ in range(2)]
        await sources[0].add_schedule(schedule(**when))
        claims = await asyncio.gather(
            *(source.pre_send(schedule(**when)) for source in sources), return_exceptions=True
        )
        assert sorted(map(type, claims), key=str) == [type(None), ScheduledTaskCancelledError]
        for source in sources:
            await source.shutdown()

    asyncio.run(main())


def test_a_schedule_that_was_deleted_is_not_sent(target: str) -> None:
    async def main() -> None:
        source = ShmqScheduleSource(target)
        with pytest.raises(ScheduledTaskCancelledError):
            await source.pre_send(schedule(interval=5))
        await source.shutdown()

    asyncio.run(main())


def test_a_single_run_is_sent_once_and_its_schedule_deleted(target: str, namespace: str) -> None:
    broker = ShmqBroker(target)

    @broker.task("task")
    async def task(number: int) -> None: ...

    async def main() -> None:
        source = ShmqScheduleSource(target)
        await source.add_schedule(schedule(**WHENS[0]))
        schedulers = [TaskiqScheduler(broker, [source]) for _ in range(2)]
        for scheduler in schedulers:
            await scheduler.on_ready(source, schedule(**WHENS[0]))
        assert await source.get_schedules() == []
        await source.shutdown()
        await broker.shutdown()

    asyncio.run(main())
    assert stats(namespace).put == 1


def test_what_is_no_schedule_is_passed_over(target: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> list[ScheduledTask]:
        source = ShmqScheduleSource(target)
        await source.add_schedule(schedule(interval=5))
        with shmq.connect(target) as broker:
            broker.table("taskiq-schedules").set("schedule:t", "nothing")
        found = await source.get_schedules()
        await source.shutdown()
        return found

    assert asyncio.run(main()) == [schedule(interval=5)]
    assert "'schedule:t' of table 'taskiq-schedules' is not a schedule" in caplog.text


def test_a_task_that_fails_while_the_worker_ends_returns_like_the_others(
    broker: shmq.Broker,
) -> None:
    in_hand = MessagesInHand()
    queue = broker.create_queue("tasks")
    messages = {}
    for name in ("one", "two", "three"):
        queue.put(name)
        messages[name] = queue.get(False)

    def fail(name: str) -> None:
        task: Any = SimpleNamespace(task_id=name)
        result = TaskiqResult[Any](is_err=True, return_value=None, execution_time=0.0)
        in_hand.on_error(task, result, ValueError(name))

    def return_slowly(*how: Any, **more: Any) -> None:
        fail("three")  # meanwhile, in the event loop
        in_hand.release("two", messages["two"])
        messages["one"].nack(*how, **more)

    slow: Any = SimpleNamespace(nack=return_slowly)
    for name, message in (messages | {"one": slow}).items():
        in_hand.hold(name, message)
    fail("two")
    fail("one")
    asyncio.run(in_hand.shutdown())
    assert sorted(each.body for each in queue.peek()) == ["one", "three"]
