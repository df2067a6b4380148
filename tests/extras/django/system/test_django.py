"""Django's tasks in queues of shmq: what is enqueued, what a worker makes of it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import django
import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import transaction
from django.test import override_settings
from django.utils import timezone

import shmq
from shmq import Reject
from tests.support.namespaces import own_namespace
from tests.support.processes import ROOT, environment
from tests.support.server import serve
from tests.support.waiting import PATIENCE, eventually

SITE = "tests.support.django_site.settings"
with pytest.MonkeyPatch.context() as patch:  # the processes of other tests have their own settings
    patch.setenv("DJANGO_SETTINGS_MODULE", SITE)
    django.setup()

from shmq.extras.django import place as places  # noqa: E402
from shmq.extras.django.execution import WorkerDied, run  # noqa: E402
from shmq.extras.django.framework import (  # noqa: E402
    BaseTaskBackend,
    InvalidTask,
    InvalidTaskBackend,
    TaskResultDoesNotExist,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from shmq.extras.django.process import run_task  # noqa: E402
from tests.support.django_site import tasks  # noqa: E402


@pytest.fixture(params=["here", pytest.param("tcp", marks=pytest.mark.prove)], scope="module")
def place(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """A namespace, and the target by which the backend reaches it."""
    with own_namespace() as name:
        if request.param == "here":
            yield name, name
        else:
            with serve(name) as server:
                yield name, server.url


@pytest.fixture(autouse=True)
def options(place: tuple[str, str]) -> Iterator[dict[str, Any]]:
    """The options of the backend, which has opened no queue yet."""
    places._places.clear()
    given = {**settings.TASKS["default"]["OPTIONS"], "target": place[1]}
    with override_settings(TASKS={"default": {**settings.TASKS["default"], "OPTIONS": given}}):
        yield given


@pytest.fixture(autouse=True)
def broker(place: tuple[str, str]) -> Iterator[shmq.Broker]:
    """The queues as a client of shmq sees them."""
    with shmq.connect(place[0]) as made:
        yield made
        for name in made.queue_names():
            with contextlib.suppress(shmq.NoSuchQueue):  # a dead-letter queue goes with its own
                made.delete_queue(name)


def backend() -> Any:
    return task_backends["default"]


def work(broker: shmq.Broker, queue: str = "default") -> list[str]:
    """Run the tasks of a queue as a worker does; the names of those that succeeded."""
    done = []
    for message in broker.queue(shmq.escape_name(f"django.{queue}")).get_many(100, 0):
        with message:
            try:
                run(backend(), message)
            except Reject:
                message.reject()
            else:
                done.append(message.body["task"].rpartition(".")[2])
    return done


# ---- enqueueing ----


def test_a_task_is_run_with_its_arguments_and_its_result_is_found_by_its_id(
    broker: shmq.Broker,
) -> None:
    result = tasks.add.enqueue(1, b=2)
    assert (result.status, result.attempts, result.is_finished) == ("READY", 0, False)
    assert work(broker) == ["add"]
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == ("SUCCESSFUL", 3, 1)
    found = tasks.add.get_result(result.id)
    assert (found.id, found.args, found.kwargs) == (result.id, [1], {"b": 2})
    assert found.enqueued_at <= found.started_at <= found.finished_at
    assert found.worker_ids[0].endswith(f"-{os.getpid()}")
    with pytest.raises(TaskResultDoesNotExist):
        tasks.add.get_result("unknown")


def test_a_coroutine_is_a_task_and_is_enqueued_from_one(broker: shmq.Broker) -> None:
    async def enqueue() -> Any:
        return await tasks.send.aenqueue("me", subject="tea")

    result = asyncio.run(enqueue())
    assert work(broker, "mails") == ["send"]
    found = asyncio.run(tasks.send.aget_result(result.id))
    assert found.return_value == {"to": "me", "subject": "tea"}


def test_the_backend_says_what_it_can() -> None:
    found = backend()
    assert found.supports_defer
    assert found.supports_async_task
    assert found.supports_get_result
    assert found.supports_priority


def test_a_task_with_a_higher_priority_is_run_first(broker: shmq.Broker) -> None:
    for priority in (0, -100, 100, 50, -50):
        tasks.add.using(priority=priority).enqueue(priority, 0)
    messages = broker.queue("django.default").get_many(9, 0)
    assert [one.body["args"][0] for one in messages] == [100, 50, 0, -50, -100]


def test_a_task_waits_for_its_time(broker: shmq.Broker) -> None:
    later = timezone.now() + timedelta(hours=1)
    tasks.add.using(run_after=later).enqueue(1, 2)
    tasks.add.using(run_after=timezone.now() - timedelta(hours=1)).enqueue(3, 4)
    found = broker.queue("django.default").stats()
    assert (found.delayed, found.depth) == (1, 1)


def test_what_is_enqueued_at_the_commit_is_there_after_it_alone(broker: shmq.Broker) -> None:
    queue = broker.ensure_queue("django.default", max_deliveries=None)
    with transaction.atomic():
        transaction.on_commit(functools.partial(tasks.add.enqueue, 1, 2))
        assert queue.empty()
    assert queue.qsize() == 1
    with contextlib.suppress(ValueError), transaction.atomic():
        transaction.on_commit(functools.partial(tasks.add.enqueue, 1, 2))
        raise ValueError
    assert queue.qsize() == 1


def test_arguments_are_json_and_nothing_else(broker: shmq.Broker) -> None:
    with pytest.raises(TypeError):
        tasks.add.enqueue(object(), 1)
    assert broker.queue_names() == []
    tasks.add.enqueue((1, 2), {"a": None})
    with broker.queue("django.default").get(timeout=0) as message:
        assert message.codec == "json"
        assert json.loads(bytes(message.view))["args"] == [[1, 2], {"a": None}]


def test_a_queue_that_the_settings_do_not_name_is_refused() -> None:
    with pytest.raises(InvalidTask):
        tasks.add.using(queue_name="other")


@pytest.fixture
def any_queue(options: dict[str, Any]) -> Iterator[None]:
    """Settings that allow tasks of any queue."""
    given = {**settings.TASKS["default"], "QUEUES": [], "OPTIONS": options}
    with override_settings(TASKS={"default": given}):
        yield


@pytest.mark.parametrize(
    "name", ["a/b", "订单处理" * 3, "größe " * 31 + "x" * 7, "n" * 91], ids=len
)
def test_a_queue_may_have_a_name_of_255_bytes_of_any_text(
    any_queue: None, broker: shmq.Broker, name: str
) -> None:
    assert len(name.encode()) <= 255
    result = tasks.add.using(queue_name=name).enqueue(1, 2)

    assert f"django.{name}" in map(shmq.unescape_name, broker.queue_names())
    assert work(broker, name) == ["add"]
    assert tasks.add.get_result(result.id).task.queue_name == name


@pytest.mark.parametrize(
    "name", ["\ud800", "x" * 1025, 5, b"x"], ids=["surrogate", "long", "5", "b"]
)
def test_a_name_that_no_queue_can_have_is_refused(any_queue: None, name: Any) -> None:
    with pytest.raises(InvalidTask, match="queue_name="):
        tasks.add.using(queue_name=name)


@pytest.mark.parametrize("priority", [-101, 101, 1.5, float("inf"), 2**70])
def test_a_priority_that_django_has_not_is_refused(priority: Any) -> None:
    with pytest.raises((InvalidTask, OverflowError)):
        tasks.add.using(priority=priority)


@pytest.mark.parametrize("priority", [None, -100, 100, 1.0])
def test_a_task_of_every_priority_is_run(broker: shmq.Broker, priority: Any) -> None:
    tasks.add.using(priority=priority).enqueue(1, 2)
    assert work(broker) == ["add"]


@pytest.mark.parametrize("days", [0, -1, -700_000])
def test_a_task_of_a_time_that_is_past_is_run_at_once(broker: shmq.Broker, days: int) -> None:
    tasks.add.using(run_after=timezone.now() + timedelta(days=days)).enqueue(1, 2)
    assert work(broker) == ["add"]


def test_a_time_has_a_limit(broker: shmq.Broker) -> None:
    tasks.add.using(run_after=timezone.now() + timedelta(days=11_000)).enqueue(1, 2)
    assert broker.queue("django.default").stats().delayed == 1
    with pytest.raises(InvalidTask, match="run_after must be at most"):
        tasks.add.using(run_after=timezone.now() + timedelta(days=12_000))


# ---- values ----


@pytest.mark.parametrize(
    ("value", "returned"),
    [
        (2**70, 2**70),
        (-(2**70), -(2**70)),
        ({"a": [None, True, 1.5]}, {"a": [None, True, 1.5]}),
        ({1: 2}, {"1": 2}),
        ((1, (2,)), [1, [2]]),
        (b"utf-8", "utf-8"),
        ("\0 订单", "\0 订单"),
    ],
    ids=str,
)
def test_a_value_of_json_is_an_argument_and_a_result(
    broker: shmq.Broker, value: Any, returned: Any
) -> None:
    result = tasks.echo.enqueue(value)
    assert work(broker) == ["echo"]
    assert tasks.echo.get_result(result.id).return_value == returned


@pytest.mark.parametrize(
    "value",
    [{1}, Decimal(1), timezone.now(), object(), b"\xff", "\ud800", float("nan"), float("inf")],
    ids=ascii,
)
def test_what_json_does_not_hold_is_an_error_of_the_caller(broker: shmq.Broker, value: Any) -> None:
    known = len(broker.ensure_table("django.results"))
    with pytest.raises((TypeError, ValueError)):
        tasks.echo.enqueue(value)
    assert len(broker.table("django.results")) == known
    assert not any(queue.depth for queue in broker.list_queues())


def test_arguments_that_no_message_holds_are_an_error_of_the_caller() -> None:
    with pytest.raises(shmq.MessageTooLarge, match="max_message_bytes=4194304"):
        tasks.echo.enqueue("x" * (4 << 20))


@pytest.mark.prove
def test_arguments_that_leave_no_room_for_the_result_are_an_error_of_the_caller(
    broker: shmq.Broker,
) -> None:
    broker.create_queue("django.default", arena_bytes=128 << 20, max_deliveries=None)
    most = 16 << 20
    for size in (most + 1, most, most - 1000):
        with pytest.raises(shmq.MessageTooLarge, match="bytes"):
            tasks.echo.enqueue("x" * size)
    result = tasks.repeat.enqueue("x" * (most * 60 // 64), 0)
    assert work(broker) == ["repeat"]
    assert tasks.repeat.get_result(result.id).return_value == ""


def test_a_result_or_an_error_that_is_too_large_is_a_failure_that_says_so(
    broker: shmq.Broker,
) -> None:
    sent = [made.enqueue("x", 17 << 20) for made in (tasks.repeat, tasks.fail_at_length)]
    assert work(broker) == ["repeat", "fail_at_length"]
    for result in sent:
        result.refresh()
        assert result.status == "FAILED"
        assert result.errors[0].exception_class is shmq.MessageTooLarge


def test_a_result_or_an_error_with_a_lone_surrogate_is_stored(broker: shmq.Broker) -> None:
    results = [tasks.surrogate.enqueue(), tasks.fail_surrogate.enqueue()]
    work(broker)
    for result in results:
        result.refresh()
    assert results[0].return_value == "\ud800"
    assert "\ud800" in results[1].errors[0].traceback


def test_a_result_with_nan_and_infinities_is_stored(broker: shmq.Broker) -> None:
    result = tasks.not_a_number.enqueue()
    work(broker)
    assert repr(tasks.not_a_number.get_result(result.id).return_value) == "[nan, -inf]"


@pytest.mark.parametrize("name", ["", "x" * 513, "\ud800", "\0"], ids=ascii)
def test_an_id_that_no_result_has_is_unknown(name: str) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        tasks.add.get_result(name)


def test_a_task_that_cannot_be_put_leaves_no_result(broker: shmq.Broker) -> None:
    broker.create_queue("django.default", capacity=1, max_deliveries=None)
    tasks.add.enqueue(1, 2)
    known = len(broker.table("django.results"))
    with pytest.raises(shmq.Full):
        tasks.add.enqueue(1, 2)
    assert len(broker.table("django.results")) == known


def test_a_queue_that_was_deleted_is_made_again(broker: shmq.Broker) -> None:
    tasks.add.enqueue(1, 2)
    broker.delete_queue("django.default")
    tasks.add.enqueue(1, 2)
    assert work(broker) == ["add"]


# ---- running ----


def test_a_task_that_raises_has_failed_and_its_error_is_kept(broker: shmq.Broker) -> None:
    result = tasks.fail.enqueue("no")
    left = tasks.leave.enqueue()
    odd = tasks.return_what_json_has_not.enqueue()
    assert len(work(broker)) == 3
    result.refresh()
    assert result.status == "FAILED"
    (error,) = result.errors
    assert error.exception_class is ValueError
    assert "raise ValueError(text)" in error.traceback
    for other, kind in ((left, SystemExit), (odd, TypeError)):
        other.refresh()
        assert (other.status, other.errors[0].exception_class) == ("FAILED", kind)
    assert broker.queue("django.default").stats().acked == 3


def test_a_task_knows_its_attempt(broker: shmq.Broker) -> None:
    result = tasks.attempt.enqueue()
    work(broker)
    result.refresh()
    assert result.return_value == [1, result.id]


def test_the_signals_of_django_are_sent(broker: shmq.Broker) -> None:
    seen: list[str] = []

    def note(name: str, *, task_result: Any, **_: Any) -> None:
        seen.append(f"{name} {task_result.status}")

    receivers = {
        sent: functools.partial(note, name)
        for name, sent in (
            ("enqueued", task_enqueued),
            ("started", task_started),
            ("finished", task_finished),
        )
    }
    for sent, receiver in receivers.items():
        sent.connect(receiver)
    try:
        tasks.add.enqueue(1, 2)
        tasks.fail.enqueue("no")
        work(broker)
    finally:
        for sent, receiver in receivers.items():
            sent.disconnect(receiver)
    assert seen == [
        "enqueued READY",
        "enqueued READY",
        "started RUNNING",
        "finished SUCCESSFUL",
        "started RUNNING",
        "finished FAILED",
    ]


def test_a_task_that_was_done_before_its_worker_died_is_not_done_again(
    broker: shmq.Broker, tmp_path: Path
) -> None:
    tasks.note.enqueue(str(tmp_path / "notes"), "once")
    message = broker.queue("django.default").get(timeout=0)
    run(backend(), message)
    message.nack(0.0)  # as if it had died before its acknowledgement
    assert work(broker) == ["note"]
    assert (tmp_path / "notes").read_text() == "once\n"


def test_a_task_has_failed_when_too_many_processes_died_with_it(broker: shmq.Broker) -> None:
    result = tasks.add.enqueue(1, 2)
    queue = broker.queue("django.default")
    for _ in range(2):
        queue.get(timeout=0).nack(0.0, error="killed by signal 9")
    assert work(broker) == []
    result.refresh()
    assert (result.status, result.errors[0].exception_class) == ("FAILED", WorkerDied)
    assert "2 processes have died with it: killed by signal 9" in result.errors[0].traceback
    with broker.queue("django.default.dlq").get(timeout=0) as letter:
        assert letter.body["id"] == result.id


def test_a_dead_letter_that_is_sent_back_is_a_new_beginning(broker: shmq.Broker) -> None:
    result = tasks.add.enqueue(1, 2)
    queue = broker.queue("django.default")
    for _ in range(2):
        queue.get(timeout=0).nack(0.0)
    work(broker)
    assert broker.queue("django.default.dlq").redrive() == 1
    assert work(broker) == ["add"]
    result.refresh()
    assert (result.status, result.errors) == ("SUCCESSFUL", [])


def test_a_task_whose_result_is_gone_is_run_nevertheless(broker: shmq.Broker) -> None:
    result = tasks.add.enqueue(1, 2)
    broker.table("django.results").delete(result.id)
    work(broker)
    assert tasks.add.get_result(result.id).return_value == 3


@pytest.mark.parametrize(
    "change",
    [
        {"task": "os.getcwd"},
        {"task": "no.such.module"},
        {"task": 5},
        {"args": 5},
        {"kwargs": []},
        {"priority": "high"},
        {"status": "LOST"},
        {"id": None},
    ],
    ids=str,
)
def test_a_message_that_is_no_task_becomes_a_dead_letter(
    broker: shmq.Broker, change: dict[str, Any]
) -> None:
    tasks.add.enqueue(1, 2)
    queue = broker.queue("django.default")
    with queue.get(timeout=0) as message:
        body = {**message.body, "id": "other", **change}
    queue.put(body, codec="json")
    assert work(broker) == []
    assert broker.queue("django.default.dlq").qsize() == 1


@pytest.mark.parametrize("change", [{"args": 5}, {"task": 5}, {"priority": "high"}], ids=str)
def test_a_task_that_a_worker_cannot_read_has_failed(
    broker: shmq.Broker, change: dict[str, Any]
) -> None:
    result = tasks.add.enqueue(1, 2)
    queue = broker.queue("django.default")
    with queue.get(timeout=0) as message:
        body = {**message.body, **change}
    queue.put(body, codec="json")
    assert work(broker) == []
    result.refresh()
    assert (result.status, result.errors[0].exception_class) == ("FAILED", shmq.InvalidOption)


@pytest.mark.parametrize("kind", [None, "dummy.DummyBackend"], ids=["unknown", "of another kind"])
def test_a_task_of_a_backend_that_the_worker_has_not_has_failed(
    broker: shmq.Broker, kind: str | None
) -> None:
    mine = settings.TASKS["default"]
    with override_settings(TASKS={"default": mine, "reports": mine}):
        result = tasks.add.using(backend="reports").enqueue(1, 2)
    worker = {"default": mine, "other": {**mine, "OPTIONS": {**mine["OPTIONS"], "results": "b"}}}
    if kind is not None:
        worker["reports"] = {"BACKEND": f"{BaseTaskBackend.__module__.rpartition('.')[0]}.{kind}"}
    with override_settings(TASKS=worker), broker.queue("django.default").get(timeout=0) as message:
        with pytest.raises(Reject, match="no backend of shmq with the alias 'reports'"):
            run_task(message)
        message.reject()
    with override_settings(TASKS={"default": mine, "reports": mine}):
        result.refresh()
        (error,) = result.errors
        assert (result.status, error.exception_class) == ("FAILED", InvalidTaskBackend)
        assert "only default, other: add it to the worker's settings" in error.traceback
        assert broker.queue("django.default.dlq").redrive() == 1
        assert work(broker) == ["add"]  # by a worker that has it
        result.refresh()
        assert result.status == "SUCCESSFUL"


def test_a_result_is_kept_for_its_time(broker: shmq.Broker, options: dict[str, Any]) -> None:
    for ttl, end in ((None, None), (3600.0, 3600.0)):
        given = {**options, "result_ttl": ttl}
        tasked = {"default": {**settings.TASKS["default"], "OPTIONS": given}}
        with override_settings(TASKS=tasked):
            result = tasks.add.enqueue(1, 2)
            work(broker)
            assert backend().shmq.result_ttl == end
            assert tasks.add.get_result(result.id).return_value == 3


# ---- the settings ----


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"targt": "x"}, "did you mean 'target'"),
        ({"max_attempts": 0}, "max_attempts=0"),
        ({"result_ttl": -1}, "result_ttl=-1"),
        ({"result_ttl": 0}, "result_ttl=0"),
        ({"result_ttl": 1e9}, "result_ttl=1000000000"),
        ({"result_durability": "tape"}, "tape"),
        ({"results": "a/b"}, "a/b"),
        ({"prefix": "a/"}, "a/"),
        ({"queue_options": {"capacty": 1}}, "capacity"),
        ({"queue_options": {"max_deliveries": 1}}, "max_attempts"),
    ],
    ids=str,
)
def test_an_option_that_is_wrong_is_refused_with_what_to_do(
    given: dict[str, Any], told: str
) -> None:
    tasked = {"default": {**settings.TASKS["default"], "OPTIONS": given}}
    with override_settings(TASKS=tasked), pytest.raises(ImproperlyConfigured, match=told):
        backend()


def test_a_queue_whose_messages_die_too_early_is_refused(broker: shmq.Broker) -> None:
    broker.create_queue("django.default", max_deliveries=2)
    with pytest.raises(ImproperlyConfigured, match="max_deliveries=2"):
        tasks.add.enqueue(1, 2)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"backend": "other"}, "no backend 'other'"),
        ({"queue": ["other"]}, "none of QUEUES"),
        ({"processes": 0}, "processes=0"),
        ({"timeout": 0.0}, "timeout=0"),
        ({"timeout": -1.0}, "timeout=-1"),
        ({"max_tasks": 0}, "max_messages=0"),
        ({"idle_timeout": -1.0}, "idle_timeout=-1"),
        ({"drain_timeout": -1.0}, "drain_timeout=-1"),
    ],
)
def test_the_command_refuses_what_is_not_there(flags: dict[str, Any], told: str) -> None:
    with pytest.raises(CommandError, match=told):
        call_command("shmq_worker", **flags)


# ---- the worker ----


@contextlib.contextmanager
def worker(target: str, log: Path, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """``manage.py shmq_worker`` as an operator starts it."""
    command = [sys.executable, "-m", "django", "shmq_worker", *flags]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(SITE_TARGET=target, DJANGO_SETTINGS_MODULE=SITE),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def finished(result: Any) -> bool:
    result.refresh()
    return bool(result.is_finished)


@pytest.mark.prove
def test_a_worker_runs_tasks_through_kills_until_it_is_stopped(
    place: tuple[str, str], broker: shmq.Broker, tmp_path: Path
) -> None:
    numbers = [tasks.add.enqueue(n, n) for n in range(50)]
    sent = tasks.send.enqueue("me")
    once = tasks.die.enqueue(str(tmp_path / "once"), 1)
    always = tasks.die.enqueue(str(tmp_path / "always"), 1000)
    with worker(place[1], tmp_path / "log", "--processes", "2") as process:
        for result in (*numbers, sent, once, always):
            eventually(functools.partial(finished, result), result.task.name)
        slow = tasks.wait_for.enqueue(str(tmp_path / "go"))
        eventually(lambda: tasks.wait_for.get_result(slow.id).status == "RUNNING", "it runs")
        process.send_signal(signal.SIGTERM)
        (tmp_path / "go").touch()
        assert process.wait(PATIENCE) == 0, (tmp_path / "log").read_text()
    assert [one.return_value for one in numbers] == [2 * n for n in range(50)]
    assert (once.return_value, once.attempts) == (2, 2)
    assert (always.status, always.attempts) == ("FAILED", 2)
    assert always.errors[0].exception_class is WorkerDied
    assert tasks.wait_for.get_result(slow.id).status == "SUCCESSFUL"
    assert broker.queue("django.default").stats().in_flight == 0


@pytest.mark.prove
def test_a_worker_ends_when_no_task_comes(place: tuple[str, str], tmp_path: Path) -> None:
    result = tasks.add.enqueue(1, 2)
    flags = ("--queue", "default", "--idle-timeout", "0.1")
    with worker(place[1], tmp_path / "log", *flags) as process:
        assert process.wait(PATIENCE) == 0, (tmp_path / "log").read_text()
    assert tasks.add.get_result(result.id).return_value == 3
