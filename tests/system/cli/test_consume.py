"""``shmq consume``: what it writes, when it ends, and what it acknowledges."""

from __future__ import annotations

import datetime as dt
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import msgpack
import pytest

import shmq
from shmq.cli.shared.exit_codes import Code
from tests.support.shell import Shell, ended, read_until, terminal
from tests.support.waiting import PATIENCE, eventually
from tests.system.cli.conftest import Quick


def left(queue: shmq.Queue) -> list[Any]:
    """The bodies that are still in the queue; nothing may be leased."""
    eventually(lambda: queue.stats().in_flight == 0, "nothing is leased")
    return [message.body for message in queue.peek(100_000)]


def test_what_is_there_is_written_and_removed(quick: Quick, queue: shmq.Queue) -> None:
    queue.put_many(["one", "two", "drei ü"])

    assert quick("consume", "-q", "jobs").lines == ["one", "two", "drei ü"]
    assert left(queue) == []
    assert queue.stats().acked == 3


def test_an_empty_queue_has_an_exit_code_of_its_own(quick: Quick, queue: shmq.Queue) -> None:
    ran = quick("consume", "-q", "jobs", code=Code.NOTHING)

    assert (ran.out, ran.err) == (b"", b"")


def test_a_timeout_bounds_the_wait_for_a_message(quick: Quick, queue: shmq.Queue) -> None:
    quick("consume", "-q", "jobs", "--timeout", "50ms", code=Code.NOTHING)
    quick("consume", "-q", "jobs", "--follow", "--timeout", "50ms", code=Code.NOTHING)


def test_a_message_is_waited_for_within_the_timeout(shell: Shell, queue: shmq.Queue) -> None:
    consumer = shell.start("consume", "-q", "jobs", "-n", "1", "--timeout", "1h", stdout=-1)
    eventually(lambda: queue.stats().waiting_get > 0, "the consumer waits")

    queue.put("late")

    ran = ended(consumer)
    assert (ran.code, ran.text) == (0, "late\n")


def test_no_more_than_the_count_is_taken(quick: Quick, queue: shmq.Queue) -> None:
    queue.put_many([str(number) for number in range(200)])

    assert quick("consume", "-q", "jobs", "-n", "150").lines == [str(n) for n in range(150)]
    assert left(queue) == [str(n) for n in range(150, 200)]
    assert queue.stats().redelivered == 0


def test_fewer_than_the_count_is_no_failure(quick: Quick, queue: shmq.Queue) -> None:
    queue.put("only")

    assert quick("consume", "-q", "jobs", "-n", "5").text == "only\n"


def test_a_file_gets_everything(shell: Shell, queue: shmq.Queue, tmp_path: Path) -> None:
    queue.put_many([f"{number} {'x' * (number % 300)}" for number in range(5000)])
    path = tmp_path / "out"

    assert shell.pipeline(f"shmq consume -q jobs > {path}").code == 0
    assert [line.split()[0] for line in path.read_text().splitlines()] == [
        str(number) for number in range(5000)
    ]
    assert left(queue) == []


def test_following_writes_each_message_as_it_comes_and_ends_at_ctrl_c(
    shell: Shell, queue: shmq.Queue
) -> None:
    consumer = shell.start("consume", "-q", "jobs", "--follow", stdout=subprocess.PIPE)
    assert consumer.stdout is not None
    for body in ("first", "second"):
        queue.put(body)
        assert consumer.stdout.readline().decode() == f"{body}\n"
    eventually(lambda: queue.stats().acked == 2, "what was read is acknowledged")

    consumer.send_signal(signal.SIGINT)

    ran = ended(consumer)
    assert (ran.code, ran.out, ran.err) == (0, b"", b"")


@pytest.mark.parametrize(
    ("number", "flags", "code"),
    [
        (signal.SIGINT, ["--timeout", "1h"], Code.INTERRUPTED),
        (signal.SIGTERM, ["--timeout", "1h"], 143),
        (signal.SIGTERM, ["--follow"], 0),
        (signal.SIGHUP, ["--follow"], 0),
    ],
)
def test_a_signal_is_a_clean_stop_with_a_code_that_tells(
    shell: Shell, queue: shmq.Queue, number: int, flags: list[str], code: int
) -> None:
    consumer = shell.start("consume", "-q", "jobs", *flags, stdout=subprocess.PIPE)
    eventually(lambda: queue.stats().waiting_get > 0, "the consumer waits")

    consumer.send_signal(number)

    ran = ended(consumer)
    assert (ran.code, ran.out, ran.err) == (code, b"", b"")


def test_following_ends_when_the_queue_is_deleted(
    shell: Shell, broker: shmq.Broker, queue: shmq.Queue
) -> None:
    consumer = shell.start("consume", "-q", "jobs", "--follow", stdout=subprocess.PIPE)
    eventually(lambda: queue.stats().waiting_get > 0, "the consumer waits")

    broker.delete_queue("jobs")

    ran = ended(consumer)
    assert ran.code == Code.NO_QUEUE
    assert "jobs" in ran.error


def test_json_is_one_object_a_line(quick: Quick, queue: shmq.Queue) -> None:
    queue.put("text\nof two lines", priority=2, group="g", headers={"k": b"\xff"})
    queue.put(b"\xff\x00")
    queue.put({"a": [1, None, float("nan")], 2: b"x"})
    queue.put([1], codec="json", correlation="c-1")

    lines = quick("consume", "-q", "jobs", "--format", "json").lines

    told = [json.loads(line) for line in lines]
    assert told[0] == {
        "sequence": 1,
        "priority": 2,
        "group": "g",
        "delivery_count": 1,
        "codec": "text",
        "headers": {"k": {"base64": "/w=="}},
        "properties": {},
        "dead": None,
        "last_error": None,
        "body": "text\nof two lines",
        "encoding": "text",
    }
    assert [(one["body"], one["encoding"]) for one in told[1:]] == [
        ("/wA=", "base64"),
        ({"a": [1, None, "nan"], "2": {"base64": "eA=="}}, "json"),
        ([1], "json"),
    ]
    assert told[3]["properties"] == {"corr": "c-1"}


def test_json_has_a_flag_of_its_own(quick: Quick, queue: shmq.Queue) -> None:
    queue.put("x")

    assert quick("consume", "-q", "jobs", "--json").json["body"] == "x"


def test_raw_is_every_byte_as_it_was_put(quick: Quick, queue: shmq.Queue) -> None:
    body = bytes(range(256))
    queue.put_many([body, b"", b"\n"])

    assert quick("consume", "-q", "jobs", "--format", "raw").out == body + b"\n" + b"\n" + b"\n\n"


@pytest.mark.parametrize(("flag", "end"), [("\\0", b"\0"), ("", b""), ("--\\n", b"--\\n")])
@pytest.mark.parametrize("form", ["raw", "body"])
def test_a_delimiter_follows_each_message(
    quick: Quick, queue: shmq.Queue, form: str, flag: str, end: bytes
) -> None:
    queue.put_many([b"a", b"b"])

    ran = quick("consume", "-q", "jobs", "--format", form, "--delimiter", flag)

    assert ran.out == b"a" + end + b"b" + end


def test_a_body_that_is_not_utf_8_is_escaped(quick: Quick, queue: shmq.Queue) -> None:
    queue.put(b"caf\xe9")
    for codec in ("text", "msgpack", "json"):
        with queue.loan(1, codec=codec) as view:
            view[:] = b"\xc1"
    queue.put({"a": b"\xff", "at": dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)})
    queue.put([msgpack.Timestamp(300_000_000_000)])

    assert quick("consume", "-q", "jobs").lines == [
        "caf\\xe9",
        "\\xc1",
        "\\xc1",
        "\\xc1",
        '{"a":{"base64":"/w=="},"at":"2026-03-01T12:00:00+00:00"}',
        '["Timestamp(seconds=300000000000, nanoseconds=0)"]',
    ]


def test_a_terminal_is_shown_a_body_that_it_does_not_obey(shell: Shell, queue: shmq.Queue) -> None:
    queue.put("\x1b[31mred\ttab\nline\x07 ü")

    with terminal() as (ours, theirs):
        consumer = shell.start("consume", "-q", "jobs", stdout=theirs)
        seen = read_until(ours, "ü\r\n".encode())
        assert ended(consumer).code == 0

    assert seen.replace(b"\r", b"").decode() == "\\x1b[31mred\ttab\nline\\x07 ü\n"


def test_a_large_message_is_written_whole(quick: Quick, queue: shmq.Queue) -> None:
    body = bytes(range(256)) * 8192
    queue.put(body)

    assert quick("consume", "-q", "jobs", "--format", "raw", "--delimiter", "").out == body


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-n", "0"], "0"),
        (["--format", "xml"], "raw"),
        (["--timeout", "soon"], "500ms"),
        (["--format", "json", "--delimiter", ","], "--delimiter"),
        (["--format", "raw", "--json"], "--json"),
        (["--folow"], "--follow"),
    ],
)
def test_a_wrong_flag_is_named_and_nothing_is_taken(
    quick: Quick, queue: shmq.Queue, arguments: list[str], said: str
) -> None:
    queue.put("x")

    assert said in quick("consume", "-q", "jobs", *arguments, code=Code.USAGE).error
    assert left(queue) == ["x"]


def test_what_a_killed_consumer_held_is_back_at_once(shell: Shell, queue: shmq.Queue) -> None:
    queue.put_many(["a", "b"])
    consumer = shell.start("consume", "-q", "jobs", "--follow", stdout=subprocess.PIPE)
    eventually(lambda: queue.stats().in_flight > 0, "the consumer holds a message")

    consumer.kill()
    consumer.wait(PATIENCE)

    assert {queue.get(timeout=PATIENCE).body for _ in range(2)} == {"a", "b"}


def test_those_that_are_meant_are_taken_and_the_others_stay(
    quick: Quick, queue: shmq.Queue
) -> None:
    for number in range(6):
        queue.put(str(number), headers={"odd": number % 2 == 1})

    assert quick("consume", "-q", "jobs", "--where", "header.odd = true").lines == ["1", "3", "5"]
    quick("consume", "-q", "jobs", "--where", "header.odd = true", code=Code.NOTHING)
    assert left(queue) == ["0", "2", "4"]


def test_an_expression_that_cannot_be_read_is_named(quick: Quick, queue: shmq.Queue) -> None:
    ran = quick("consume", "-q", "jobs", "--where", "header.odd", code=Code.USAGE)

    assert "where, at character 11" in ran.error
