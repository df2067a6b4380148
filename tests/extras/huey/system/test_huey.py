"""What huey does with the storage of shmq, beyond what huey's own tests see."""

from __future__ import annotations

import contextlib
import datetime as dt
import multiprocessing
import os
import signal
import sys
import threading
import time
from typing import Any

import pytest
from huey import crontab
from huey.exceptions import TaskException
from huey.serializer import SignedSerializer

import shmq
from shmq.extras.frameworks.task_queues import TaskQueues
from shmq.extras.huey import ShmqHuey
from tests.support.proxy import Proxy
from tests.support.server import fixed_port, serve
from tests.support.tcp_servers import TCP_SERVERS
from tests.support.waiting import PATIENCE, eventually

PAST = dt.datetime(2000, 1, 1)  # noqa: DTZ001 - huey's times have no zone


def make(target: str, name: str = "app", **options: Any) -> ShmqHuey:
    """An application with a task ``double``; over TCP its tasks are signed."""
    options = {"blocking": False} | options
    huey = ShmqHuey(name, url=target, serializer=SignedSerializer(secret="s"), utc=False, **options)

    @huey.task(name="double")
    def double(number: Any) -> Any:
        return number * 2

    return huey


def put(huey: ShmqHuey, number: Any, **options: Any) -> Any:
    """Enqueue ``double(number)``; its result."""
    return huey.enqueue(huey._registry.string_to_task(f"{__name__}.double")((number,), **options))


def run_next(huey: ShmqHuey) -> Any:
    """Execute the next task, as a worker does."""
    task = huey.dequeue()
    assert task is not None
    return huey.execute(task)


@pytest.mark.parametrize("name", ["app", "приложение", "鍵 & <x>"])
def test_a_task_runs_once_and_its_result_can_be_read_by_all(target: str, name: str) -> None:
    sender, worker = make(target, name), make(target, name)
    results = [put(sender, "ключ" * number) for number in range(3)]
    assert [run_next(worker) for _ in results] == ["", "ключ" * 2, "ключ" * 4]

    for _ in range(2):
        assert [make(target, name).result(each.id) for each in results][2] == "ключ" * 4
    assert (sender.pending_count(), worker.storage.dequeue()) == (0, None)


def test_a_wait_for_a_result_ends_with_the_result(target: str) -> None:
    sender, worker = make(target), make(target, blocking=True, read_timeout=PATIENCE)
    thread = threading.Thread(target=run_next, args=(worker,))  # waits for the task, too
    thread.start()
    result = put(sender, 4)
    assert result.get(blocking=True, timeout=PATIENCE) == 8
    thread.join(PATIENCE)


def test_tasks_go_by_priorities_that_the_application_names(target: str) -> None:
    huey = make(target, priorities=(-5, 0, 90), results=False)
    for number, priority in enumerate((-5, None, 90)):
        put(huey, number, priority=priority)
    assert [run_next(huey) for _ in range(3)] == [4, 2, 0]
    with pytest.raises(shmq.InvalidOption, match=r"priority=50 must be one of \[-5, 0, 90\]"):
        put(huey, 1, priority=50)
    with pytest.raises(shmq.InvalidOption, match="priorities"):
        make(target, "other", priorities=range(17)).pending_count()


def _take_and_die(target: str, ready: Any) -> None:
    huey = make(target)
    huey.task(name="die")(lambda: os.kill(os.getpid(), signal.SIGKILL))
    ready.set()
    run_next(huey)


def test_the_task_of_a_killed_process_runs_again_and_in_the_end_is_a_dead_letter(
    target: str, namespace: str
) -> None:
    spawn = multiprocessing.get_context("spawn")
    sender = make(target, max_deliveries=2)
    sender.enqueue(sender.task(name="die")(lambda: None).s())
    for count in (1, 0):
        ready = spawn.Event()
        worker = spawn.Process(target=_take_and_die, args=(target, ready))
        worker.start()
        worker.join(PATIENCE)
        assert (ready.is_set(), worker.exitcode) == (True, -signal.SIGKILL)
        eventually(lambda count=count: sender.pending_count() == count, "the task comes back")  # type: ignore[misc]

    with shmq.connect(namespace) as broker, broker.queue("app.dlq") as letters:
        eventually(lambda: letters.qsize() == 1, "it is a dead letter")
        (letter,) = letters.peek()
        assert letter.dead is not None
        assert letter.dead.reason == "max_deliveries"


def test_a_thread_that_is_late_to_find_the_queue_deleted_returns_no_task_of_another(
    target: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    huey = make(target)
    put(huey, 1)
    assert huey.storage.dequeue() is not None
    forget = TaskQueues.forget
    leased = []

    def forget_later(self: TaskQueues, *what: Any) -> None:
        monkeypatch.setattr(TaskQueues, "forget", forget)
        put(huey, 2)  # another thread makes the queue again, and runs the task
        leased.append(huey.storage.lease())
        forget(self, *what)

    monkeypatch.setattr(TaskQueues, "forget", forget_later)
    with shmq.connect(namespace) as broker:
        broker.delete_queue("app")
    assert huey.storage.lease() is None
    assert huey.storage.lease() is None  # the task is still leased
    leased[0].ack()


@pytest.mark.prove
def test_a_long_task_keeps_its_lease_over_tcp(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shmq.extras.huey.storage.SILENCE", 0.1)
    idle = 1.0
    with serve(namespace, limits={"idle": idle}) as server, shmq.connect(namespace) as broker:
        worker = make(server.url)
        worker.task(name="long")(lambda: time.sleep(3 * idle))()
        run_next(worker)
        with broker.queue("app") as queue:
            stats = queue.stats()
            assert (stats.acked, stats.redelivered, stats.depth) == (1, 0, 0)
        worker.storage.close()


@pytest.mark.prove
def test_a_worker_outlives_an_outage_and_logs_it_once(
    namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    port = fixed_port()
    with TCP_SERVERS.serve(namespace) as url, contextlib.closing(Proxy(url, port)) as proxy:
        sender, worker = make(namespace), make(proxy.url, blocking=True, read_timeout=0.05)
        put(sender, 1)
        assert run_next(worker) == 2
        proxy.close()
        assert worker.dequeue() is worker.dequeue() is None
        put(sender, 2)
        with contextlib.closing(Proxy(url, port)):
            eventually(lambda: worker.dequeue() is not None, "the task arrives")
            worker.storage.close()
    assert caplog.text.count("waiting for the server") == 1


def test_an_interrupted_task_goes_back_uncounted(target: str, namespace: str) -> None:
    huey = make(target)
    calls: list[int] = []

    @huey.task()
    def stop() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt

    stop()
    run_next(huey)
    with shmq.connect(namespace) as broker, broker.queue("app") as queue:
        assert (queue.stats().delayed, queue.stats().in_flight) == (1, 0)
        eventually(lambda: queue.qsize() == 1, "it is delivered again")
        run_next(huey)
        assert (len(calls), queue.qsize(), queue.stats().acked) == (2, 0, 1)


def test_what_cannot_be_decoded_or_ends_its_worker_is_a_dead_letter(
    target: str, namespace: str
) -> None:
    huey = make(target)
    huey.task(name="leave")(lambda: sys.exit(3))()
    with pytest.raises(SystemExit):
        run_next(huey)
    huey.storage.enqueue(b"\x00")
    with pytest.raises(ValueError, match="Separator"):
        huey.dequeue()

    assert (huey.pending_count(), huey.dequeue()) == (0, None)
    with shmq.connect(namespace) as broker, broker.queue("app.dlq") as letters:
        assert [letter.dead.reason for letter in letters.peek() if letter.dead] == ["rejected"] * 2


def test_a_result_that_cannot_be_stored_is_an_error_of_the_result(target: str) -> None:
    huey = make(target)

    @huey.task()
    def large() -> bytes:
        return bytes(17 << 20)

    @huey.task()
    def local() -> Any:
        return lambda: None

    for task in (large, local):
        result = task()
        run_next(huey)
        with pytest.raises(TaskException, match="ResultNotStored"):
            result.get()
    with pytest.raises(shmq.MessageTooLarge):
        put(huey, bytes(300 << 20))


def test_a_scheduled_task_stays_until_it_is_in_the_queue_and_is_put_once(target: str) -> None:
    one, other = make(target), make(target)
    for number in (1, 2):
        put(one, number, eta=PAST + dt.timedelta(seconds=number))
        one.execute(one.dequeue(), PAST)
    assert (one.scheduled_count(), one.pending_count()) == (2, 0)

    now = PAST + dt.timedelta(seconds=1)
    (first,), (same,) = one.read_schedule(now), other.read_schedule(now)  # one could be killed here
    assert one.scheduled_count() == 2
    one.enqueue(first)
    other.enqueue(same)
    assert (one.scheduled_count(), one.pending_count()) == (1, 1)
    assert [task.args for task in one.scheduled()] == [(2,)]
    assert run_next(other) == 2
    one.storage.flush_schedule()
    assert one.read_schedule() == []


def test_a_scheduler_that_dies_between_its_put_and_its_delete_puts_once(target: str) -> None:
    huey = make(target)
    put(huey, 1, eta=PAST + dt.timedelta(1))
    huey.execute(huey.dequeue(), PAST)
    (task,) = huey.read_schedule()
    huey.storage.enqueue(huey.serialize_task(task))  # and it is killed
    (again,) = huey.read_schedule()
    huey.enqueue(again)
    assert (huey.pending_count(), huey.scheduled_count()) == (1, 0)


def test_a_scheduled_task_that_cannot_be_decoded_is_moved_to_the_queue(target: str) -> None:
    huey = make(target)
    huey.storage.add_to_schedule(b"\x00", PAST)
    assert huey.read_schedule() == []
    assert (huey.scheduled_count(), huey.storage.enqueued_items()) == (0, [b"\x00"])


def test_any_number_of_consumers_enqueue_a_minute_of_a_crontab_once(target: str) -> None:
    consumers = [make(target) for _ in range(3)]
    for huey in consumers:
        huey.periodic_task(crontab(minute="*/2"), name="report")(lambda: None)
    for minute, count in ((0, 1), (1, 1), (2, 2)):
        for huey in consumers:
            for task in huey.read_periodic(PAST + dt.timedelta(minutes=minute)):
                huey.enqueue(task)
        assert consumers[0].pending_count() == count


def test_locks_counters_and_groups(target: str) -> None:
    huey = make(target)
    with huey.lock_task("замок"):
        assert huey.is_locked("замок")
        assert not make(target).put_if_empty("app.lock.замок", 1)
    assert huey.put_if_empty("app.lock.замок", 1, ttl=0.01)
    eventually(lambda: not huey.is_locked("замок"), "a lock with a ttl ends")
    assert [huey.storage.incr(b"n", 2) for _ in range(2)] == [2, 4]
    assert huey.storage.incr("k" * 1000) == 1


def test_a_deleted_queue_or_table_is_an_empty_one(target: str, namespace: str) -> None:
    huey = make(target)
    put(huey, 1)
    huey.put("k", 1)
    with shmq.connect(namespace) as broker:
        broker.delete_queue("app")
        for name in ("app-schedule", "app-results", "app-counters"):
            broker.ensure_table(name)
            broker.delete_table(name)

    assert huey.get("k", peek=True) is None
    assert (huey.pending_count(), huey.scheduled_count(), huey.storage.incr("n")) == (0, 0, 1)
    assert huey.dequeue() is None
    put(huey, 4)
    assert run_next(huey) == 8


def test_a_full_queue_or_table_is_an_error_and_forgets_nothing(target: str) -> None:
    huey = make(target, capacity=2, table_max_bytes=64 << 10)
    for number in range(2):
        put(huey, number)
    with pytest.raises(shmq.Full):
        put(huey, 2)
    with pytest.raises(shmq.NoSpace):
        for number in range(100):
            huey.put(f"k{number}", bytes(2000))
    assert huey.get("k0", peek=True) == bytes(2000)
    assert [task.args for task in huey.pending()] == [(0,), (1,)]


def test_immediate_mode_uses_no_queue(namespace: str) -> None:
    huey = make(namespace, immediate=True)
    assert put(huey, 4).get() == 8
    assert (huey.dequeue(), huey.read_schedule()) == (None, [])
    with shmq.connect(namespace) as broker:
        assert broker.list_queues() == []


def test_pickle_is_not_for_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(shmq.InvalidOption, match="SignedSerializer"):
        ShmqHuey(url="shmq://host:9991")
    monkeypatch.setenv("SHMQ_URL", "shmq://host:9991")
    with pytest.raises(shmq.InvalidOption, match="shmq://host:9991"):
        ShmqHuey()
    with pytest.raises(shmq.InvalidOption, match="durability"):
        ShmqHuey(url="here", table_durability="ram")
