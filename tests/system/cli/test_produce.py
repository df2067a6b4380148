"""``shmq produce``."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq.api.properties import PROPERTIES
from shmq.cli.shared.exit_codes import Code
from tests.support.shell import Shell, ended, read_until, terminal
from tests.support.waiting import PATIENCE, eventually
from tests.system.cli.conftest import Quick


def bodies(queue: shmq.Queue) -> list[Any]:
    return [message.body for message in queue.peek(100_000)]


def test_a_message_given_as_a_flag_is_put_as_text(quick: Quick, queue: shmq.Queue) -> None:
    ran = quick("produce", "-q", "jobs", "-m", "hello, wörld")

    assert ran.text == "message 1 put on queue 'jobs'\n"
    (message,) = queue.peek()
    assert (message.codec, message.body) == ("text", "hello, wörld")


def test_the_flag_may_be_repeated(quick: Quick, queue: shmq.Queue) -> None:
    ran = quick("produce", "-q", "jobs", "-m", "a", "-m", "", "-m", "c")

    assert ran.text == "3 messages put on queue 'jobs'\n"
    assert bodies(queue) == ["a", "", "c"]


@pytest.mark.parametrize("flags", [[], ["--file", "-"]], ids=["default", "dash"])
def test_each_line_of_standard_input_is_a_message(
    quick: Quick, queue: shmq.Queue, flags: list[str]
) -> None:
    ran = quick("produce", "-q", "jobs", *flags, stdin=b"one\n\ntwo\r\nlast, without an end")

    assert ran.text == "4 messages put on queue 'jobs'\n"
    assert bodies(queue) == ["one", "", "two\r", "last, without an end"]


def test_each_line_of_a_file_is_a_message_in_order(
    quick: Quick, queue: shmq.Queue, tmp_path: Path
) -> None:
    lines = [f"line {number} {'x' * (number % 500)}" for number in range(5000)]
    path = tmp_path / "lines"
    path.write_text("\n".join(lines) + "\n")

    assert quick("produce", "-q", "jobs", "--file", str(path), "--json").json == {
        "queue": "jobs",
        "put": 5000,
    }
    assert bodies(queue) == lines


def test_no_lines_are_no_messages(quick: Quick, queue: shmq.Queue) -> None:
    assert quick("produce", "-q", "jobs").text == "0 messages put on queue 'jobs'\n"
    assert queue.empty()


def test_a_line_is_put_before_the_next_one_is_there(shell: Shell, queue: shmq.Queue) -> None:
    producer = shell.start("produce", "-q", "jobs", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert producer.stdin is not None
    producer.stdin.write(b"early\nunfinished")
    producer.stdin.flush()

    assert queue.get(timeout=PATIENCE).body == "early"

    ran = ended(producer)
    assert (ran.code, ran.text) == (0, "2 messages put on queue 'jobs'\n")


def test_a_message_carries_its_properties(quick: Quick, queue: shmq.Queue) -> None:
    flags = ["--priority", "high", "--group", "g", "--header", "k=v=w", "--header", "é=ü"]

    quick("produce", "-q", "jobs", "-m", "x", *flags)

    (message,) = queue.peek()
    assert (message.priority, message.group) == (shmq.HIGH, "g")
    assert dict(message.headers) == {"k": "v=w", "é": "ü"}


def test_lines_carry_the_same_properties(quick: Quick, queue: shmq.Queue) -> None:
    quick("produce", "-q", "jobs", "--priority", "0", "--header", "k=v", stdin=b"a\nb\n")

    assert [(m.priority, dict(m.headers)) for m in queue.peek()] == [(0, {"k": "v"})] * 2


def test_a_delayed_message_is_not_yet_visible(quick: Quick, queue: shmq.Queue) -> None:
    quick("produce", "-q", "jobs", "-m", "x", "--delay", "1h")

    assert (queue.qsize(), queue.stats().delayed) == (0, 1)


def test_a_message_past_its_ttl_is_not_served(quick: Quick, queue: shmq.Queue) -> None:
    quick("produce", "-q", "jobs", "-m", "x", "--ttl", "1ms")

    eventually(queue.empty, "the message expired")


def test_a_duplicate_is_told_with_the_first_ones_sequence(
    quick: Quick, broker: shmq.Broker
) -> None:
    queue = broker.create_queue("jobs", dedupe_window=600.0)
    command = ("produce", "-q", "jobs", "-m", "x", "--dedupe-id", "only")

    first, second = quick(*command, "--json").json, quick(*command, "--json").json

    assert first == {"queue": "jobs", "put": 1, "sequence": 1, "duplicate": False}
    assert second == {"queue": "jobs", "put": 0, "sequence": 1, "duplicate": True}
    assert "duplicate of message 1" in quick(*command).text
    assert queue.qsize() == 1


def test_an_id_without_a_window_is_refused_with_the_flag_that_makes_one(
    quick: Quick, queue: shmq.Queue
) -> None:
    ran = quick("produce", "-q", "jobs", "-m", "x", "--dedupe-id", "a", code=Code.USAGE)

    assert re.search(r"--dedupe-id: queue 'jobs' .* --dedupe-window 1h", ran.error)
    assert queue.qsize() == 0


def test_a_message_carries_what_its_reply_is_recognised_by(quick: Quick, queue: shmq.Queue) -> None:
    quick("produce", "-q", "jobs", "-m", "x", "--reply-to", "answers", "--correlation", "q1")

    (message,) = queue.peek()
    assert (message.reply_to, message.correlation) == ("answers", "q1")


def test_every_property_but_the_time_of_delivery_has_a_flag(quick: Quick) -> None:
    said = quick("produce", "--help").text

    without = {row.name for row in PROPERTIES.values() if f" {row.option} " not in said}
    assert without == {"deliver_at"}


@pytest.mark.parametrize("codec", ["json", "msgpack", "command", "event"])
def test_a_codec_but_text_and_bytes_takes_json(quick: Quick, queue: shmq.Queue, codec: str) -> None:
    body = {"name": "start", "args": [1, 2.5, None, "é"]}

    quick("produce", "-q", "jobs", "--codec", codec, "-m", json.dumps(body))

    (message,) = queue.peek()
    assert (message.codec, message.body) == (codec, body)


def test_bytes_are_put_as_they_are(quick: Quick, queue: shmq.Queue) -> None:
    quick("produce", "-q", "jobs", "--codec", "bytes", stdin=b"\xff\x00\n\xfe")
    quick("produce", "-q", "jobs", "--codec", "bytes", "-m", b"\xfd")

    assert bodies(queue) == [b"\xff\x00", b"\xfe", b"\xfd"]


@pytest.mark.parametrize(
    ("flags", "stdin", "said"),
    [
        ([], b"good\nalso\n\xff\nnever\n", "line 3 of standard input: its byte 1 (0xff)"),
        (["--codec", "json"], b"1\n2\n{]\n4\n", "line 3 of standard input: it is not JSON"),
        (["--codec", "json"], b"1\n2\n" + b"[" * 100_000, "nested too deeply"),
    ],
    ids=["utf-8", "json", "deep"],
)
def test_a_line_that_is_no_message_is_named_and_those_before_it_are_put(
    quick: Quick, queue: shmq.Queue, flags: list[str], stdin: bytes, said: str
) -> None:
    ran = quick("produce", "-q", "jobs", *flags, stdin=stdin, code=Code.REFUSED)

    assert said in ran.error
    assert ran.text == "2 messages put on queue 'jobs'\n"
    assert queue.qsize() == 2


@pytest.mark.parametrize("end", [b"\n", b""], ids=["ended", "endless"])
def test_a_line_longer_than_the_queue_takes_is_named(
    quick: Quick, broker: shmq.Broker, end: bytes
) -> None:
    queue = broker.create_queue("jobs", max_message_bytes=1000)
    stdin = b"a\nb\n" + b"x" * 200_000 + end

    ran = quick("produce", "-q", "jobs", stdin=stdin, code=Code.TOO_LARGE)

    assert "line 3 of standard input" in ran.error
    assert "1000" in ran.error
    assert bodies(queue) == ["a", "b"]


def test_a_message_longer_than_the_queue_takes_is_refused(
    quick: Quick, broker: shmq.Broker
) -> None:
    broker.create_queue("jobs", max_message_bytes=10)

    assert "11" in quick("produce", "-q", "jobs", "-m", "x" * 11, code=Code.TOO_LARGE).error


def test_what_a_codec_cannot_hold_is_refused(quick: Quick, queue: shmq.Queue) -> None:
    ran = quick("produce", "-q", "jobs", "--codec", "msgpack", "-m", str(2**64), code=Code.REFUSED)

    assert f"msgpack cannot hold {2**64} of type int: it has more than 64 bits" in ran.error
    assert queue.empty()


@pytest.mark.parametrize("command", ["produce", "publish", "request", "table"])
def test_a_number_that_msgpack_cannot_hold_is_refused_without_advice_for_programs(
    quick: Quick, broker: shmq.Broker, queue: shmq.Queue, command: str
) -> None:
    broker.create_exchange("shop", "direct")
    broker.ensure_table("rates")
    arguments = {
        "produce": ["jobs", "--codec", "msgpack", "-m"],
        "publish": ["shop", "--codec", "msgpack", "-m"],
        "request": ["jobs", "--codec", "msgpack", "-m"],
        "table": ["set", "rates", "euro", "--codec", "json"],
    }
    ran = quick(command, *arguments[command], str(2**64), code=Code.REFUSED)

    assert (
        f"cannot hold {2**64} of type int: it has more than 64 bits: put it as a str" in ran.error
    )
    assert "default=" not in ran.error
    assert "internal error" not in ran.error


def test_a_full_queue_takes_what_fits_and_says_how_much(quick: Quick, broker: shmq.Broker) -> None:
    queue = broker.create_queue("jobs", capacity=3)

    ran = quick("produce", "-q", "jobs", "--json", stdin=b"1\n2\n3\n4\n5\n", code=Code.FULL)

    assert ran.json == {"queue": "jobs", "put": 3}
    assert "--block" in ran.error
    assert bodies(queue) == ["1", "2", "3"]


@pytest.mark.parametrize("flags", [["--timeout", "50ms"], ["--block", "--timeout", "0.05"], []])
@pytest.mark.parametrize("messages", [["-m", "x"], ["-m", "x", "-m", "y"]])
def test_a_full_queue_is_refused_after_the_timeout(
    quick: Quick, broker: shmq.Broker, flags: list[str], messages: list[str]
) -> None:
    queue = broker.create_queue("jobs", capacity=1)
    queue.put("first")

    ran = quick("produce", "-q", "jobs", *messages, *flags, code=Code.FULL)

    assert "full" in ran.error
    assert ran.text == "0 messages put on queue 'jobs'\n"


def test_a_queue_that_blocks_is_not_waited_for_with_no_block(
    quick: Quick, broker: shmq.Broker
) -> None:
    broker.create_queue("jobs", capacity=1, overflow="block").put("first")

    quick("produce", "-q", "jobs", "-m", "x", "--no-block", code=Code.FULL)
    quick("produce", "-q", "jobs", "--no-block", stdin=b"x\ny\n", code=Code.FULL)


@pytest.mark.parametrize("flags", [["--block"], ["--timeout", "1h"]])
def test_a_blocked_producer_goes_on_when_there_is_space(
    shell: Shell, broker: shmq.Broker, flags: list[str]
) -> None:
    queue = broker.create_queue("jobs", capacity=2)
    producer = shell.start(
        "produce", "-q", "jobs", *flags, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert producer.stdin is not None
    producer.stdin.write(b"".join(b"%d\n" % number for number in range(20)))
    producer.stdin.close()
    producer.stdin = None
    eventually(lambda: queue.stats().waiting_put > 0, "the producer waits")

    taken = []
    for _ in range(20):
        with queue.get(timeout=PATIENCE) as message:
            taken.append(message.body)

    assert taken == [str(number) for number in range(20)]
    assert ended(producer).text == "20 messages put on queue 'jobs'\n"


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, Code.INTERRUPTED), (signal.SIGTERM, 143)]
)
def test_a_producer_that_waits_for_space_stops_at_a_signal_with_its_count(
    shell: Shell, broker: shmq.Broker, number: int, code: int
) -> None:
    queue = broker.create_queue("jobs", capacity=2)
    producer = shell.start(
        "produce", "-q", "jobs", "--block", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert producer.stdin is not None
    producer.stdin.write(b"1\n2\n3\n")
    producer.stdin.flush()
    eventually(lambda: queue.stats().waiting_put > 0, "the producer waits")

    producer.send_signal(number)

    ran = ended(producer)
    assert (ran.code, ran.text, ran.err) == (code, "2 messages put on queue 'jobs'\n", b"")
    assert bodies(queue) == ["1", "2"]


def test_a_producer_that_waits_for_a_line_stops_at_ctrl_c(shell: Shell, queue: shmq.Queue) -> None:
    producer = shell.start("produce", "-q", "jobs", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert producer.stdin is not None
    producer.stdin.write(b"1\n")
    producer.stdin.flush()
    eventually(lambda: queue.qsize() == 1, "the first line is put")

    producer.send_signal(signal.SIGINT)

    ran = ended(producer)
    assert (ran.code, ran.text, ran.err) == (
        Code.INTERRUPTED,
        "1 message put on queue 'jobs'\n",
        b"",
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-m", "x", "--file", "f"], "--file"),
        (["--dedupe-id", "d"], "exactly one -m"),
        (["-m", "x", "-m", "y", "--dedupe-id", "d"], "exactly one -m"),
        (["-m", "x", "-m", "y", "--reply-to", "r"], "--reply-to names one message"),
        (["-m", "x", "--header", "novalue"], "KEY=VALUE"),
        (["-m", "x", "--header", "k=1", "--header", "k=2"], "twice"),
        (["-m", "x", "--header", b"k=\xff"], "not UTF-8"),
        (["-m", "x", "--group", b"\xff"], "not UTF-8"),
        (["-m", "x", "--priority", "urgent"], "low, normal or high"),
        (["-m", "x", "--priority", "3"], "priority"),
        (["-m", "x", "--delay", "soon"], "500ms"),
        (["-m", "x", "--codec", "pickle"], "msgpack"),
        (["-m", "x", "--no-block", "--timeout", "1"], "--no-block"),
    ],
)
def test_a_wrong_flag_is_named_and_nothing_is_put(
    quick: Quick, queue: shmq.Queue, arguments: list[str], said: str
) -> None:
    assert said in quick("produce", "-q", "jobs", *arguments, code=Code.USAGE).error
    assert queue.stats().put == 0


def test_a_message_that_is_not_utf_8_is_refused_with_the_way_out(
    quick: Quick, queue: shmq.Queue
) -> None:
    ran = quick("produce", "-q", "jobs", "-m", b"caf\xe9", code=Code.REFUSED)

    assert "byte 4 (0xe9) is not UTF-8: use --codec bytes" in ran.error
    assert queue.empty()


def test_a_file_that_cannot_be_read_is_named(
    quick: Quick, queue: shmq.Queue, tmp_path: Path
) -> None:
    missing = str(tmp_path / "missing")

    assert missing in quick("produce", "-q", "jobs", "--file", missing, code=1).error
    directory = quick("produce", "-q", "jobs", "--file", str(tmp_path), code=1).error
    assert str(tmp_path) in directory
    assert "directory" in directory


def test_a_closed_standard_input_is_one_line_of_error(shell: Shell, queue: shmq.Queue) -> None:
    ran = shell.pipeline("shmq produce -q jobs <&-")

    assert (ran.code, queue.stats().put) == (Code.USAGE, 0)
    assert "-m TEXT" in ran.error


def test_a_missing_queue_is_named(quick: Quick) -> None:
    assert "'nowhere'" in quick("produce", "-q", "nowhere", "-m", "x", code=Code.NO_QUEUE).error


def test_a_file_that_fails_half_way_is_named(quick: Quick, queue: shmq.Queue) -> None:
    ran = quick("produce", "-q", "jobs", "--file", "/proc/self/mem", code=Code.REFUSED)

    assert "cannot read '/proc/self/mem'" in ran.error
    assert ran.text == "0 messages put on queue 'jobs'\n"


def test_a_terminal_is_told_how_to_end_the_input(shell: Shell, queue: shmq.Queue) -> None:
    with terminal() as (ours, theirs):
        producer = shell.start(
            "produce", "-q", "jobs", stdin=theirs, stdout=subprocess.PIPE, stderr=theirs
        )
        read_until(ours, b"Ctrl-D")
        os.write(ours, b"typed\n\x04")
        assert ended(producer).text == "1 message put on queue 'jobs'\n"


def test_a_message_without_its_flag_is_told_the_flag(quick: Quick) -> None:
    ran = quick("produce", "jobs", "hello", code=Code.USAGE)

    assert "write -m before each message" in ran.error
