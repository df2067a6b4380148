"""``shmq stress``: sound queues pass, and whatever breaks a promise is seen."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

import shmq
from shmq.cli.shared.exit_codes import Code
from shmq.extras.stress.workers import Bodies
from tests.support.shell import Ran, Shell, ended, read_until, terminal
from tests.support.waiting import PATIENCE, eventually

SIZE = 64


def files(shell: Shell) -> list[str]:
    return [name for name in os.listdir("/dev/shm") if shell.namespace in name]


def is_verified(told: dict[str, Any], promise: str) -> None:
    assert told["problems"] == []
    assert told["promise"] == promise
    assert told["put"] > 0
    assert told["put_per_second"] > 0
    assert told["got_per_second"] > 0
    assert list(told["latency"]) == ["p50", "p90", "p99", "p99_9", "max"]
    values = list(told["latency"].values())
    assert values == sorted(values)
    assert values[0] > 0


@pytest.mark.parametrize("batch", [1, 7])
def test_every_message_comes_once_and_in_order(shell: Shell, batch: int) -> None:
    told = shell(
        *("stress", "-p", "3", "-c", "2", "--messages", "1000", "--batch", str(batch), "--json")
    ).json

    is_verified(told, "exactly once, each producer's in order at each consumer")
    assert (told["put"], told["got"]) == (1000, 1000)
    assert (told["killed"], told["redelivered"]) == (0, 0)
    assert (told["producers"], told["consumers"], told["batch"]) == (3, 2, batch)
    assert files(shell) == []


@pytest.mark.prove
def test_it_goes_on_for_as_long_as_asked_and_writes_a_row_a_second(
    shell: Shell, tmp_path: Path
) -> None:
    path = tmp_path / "numbers.csv"

    ran = shell("stress", "--duration", "1500ms", "--size", "1KiB", "--csv", str(path), "--quiet")

    shown = [" ".join(line.split()) for line in ran.lines]
    assert "processes 2 producers, 2 consumers" in shown
    assert "body 1024 bytes, 1 in a call" in shown
    assert any(line.startswith("put to get, p99.9 ") for line in shown)
    assert ran.err == b""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) >= 2
    assert list(rows[0])[-5:] == ["p50_us", "p90_us", "p99_us", "p99_9_us", "max_us"]
    assert float(rows[-1]["seconds"]) >= 1.5
    puts = [int(row["put"]) for row in rows]
    assert puts == sorted(puts)
    assert rows[-1]["put"] == rows[-1]["got"]


@pytest.mark.prove
def test_on_a_terminal_it_shows_how_it_goes(shell: Shell) -> None:
    with terminal() as (ours, theirs):
        running = shell.start("stress", "--duration", "4s", stdout=subprocess.PIPE, stderr=theirs)
        seen = read_until(ours, b"killed 0")
        ran = ended(running)

    assert b"/s, backlog " in seen
    assert ran.code == 0
    assert "verified exactly once" in " ".join(ran.text.split())


@pytest.mark.prove
@pytest.mark.parametrize("grouped", [[], ["--grouped"]])
def test_what_killed_consumers_held_comes_back(shell: Shell, grouped: list[str]) -> None:
    told = shell(
        *("stress", "--duration", "2s", "--kill", "--batch", "4", "--seed", "7", "--json"), *grouped
    ).json

    promise = "at least once, each producer's in order" if grouped else "at least once"
    is_verified(told, promise)
    assert told["killed"] > 1
    assert told["put"] - told["killed"] * 4 <= told["got"] <= told["put"]
    assert files(shell) == []


def test_a_queue_that_is_there_is_left_there(shell: Shell, queue: shmq.Queue) -> None:
    told = shell("stress", "-q", "jobs", "--messages", "100", "--json").json

    is_verified(told, "exactly once, each producer's in order at each consumer")
    assert told["queue"] == "jobs"
    assert queue.stats().acked == 100


@pytest.fixture
def meddled(shell: Shell, broker: shmq.Broker) -> Any:
    """Runs stress on a queue, and something else on it at the same time."""

    def run(meddle: Any) -> Ran:
        queue = broker.create_queue("shared", max_deliveries=None)
        running = shell.start(
            *("stress", "-q", "shared", "--duration", "4s", "-c", "1", "--size", str(SIZE)),
            "--quiet",
            stdout=subprocess.PIPE,
        )
        eventually(lambda: queue.stats().acked > 0, "messages pass through the queue")
        meddle(queue)
        queue.close()
        return ended(running)

    return run


@pytest.mark.prove
def test_a_message_that_is_taken_away_is_lost(meddled: Any) -> None:
    ran = meddled(lambda queue: queue.get(timeout=PATIENCE).ack())

    assert ran.code == Code.WRONG
    assert "lost: 1 of" in ran.error
    assert "producer" in ran.error
    assert "verified no: see below" in " ".join(ran.text.split())


@pytest.mark.prove
@pytest.mark.parametrize(
    ("producer", "number", "wrong"), [(1, 0, "twice: 1 of"), (99, 0, "unexpected: 1 of")]
)
def test_a_message_that_is_slipped_in_is_seen(
    meddled: Any, producer: int, number: int, wrong: str
) -> None:
    body = Bodies(producer, SIZE).make(number)

    ran = meddled(lambda queue: queue.put(body, block=True))

    assert ran.code == Code.WRONG
    assert wrong in ran.error


def test_a_body_that_is_not_what_was_put_is_seen(meddled: Any) -> None:
    body = bytearray(Bodies(1, SIZE).make(0))
    body[40] ^= 1

    ran = meddled(lambda queue: queue.put(bytes(body), block=True))

    assert ran.code == Code.WRONG
    assert "consumer 3: " in ran.error
    assert "checksum of message 0 of producer 1" in ran.error


@pytest.mark.prove
def test_a_worker_that_dies_by_itself_is_seen(shell: Shell) -> None:
    running = shell.start("stress", "--duration", "60s", "--quiet", stdout=subprocess.PIPE)
    eventually(lambda: len(psutil.Process(running.pid).children()) == 4, "it has its workers")
    psutil.Process(running.pid).children()[-1].kill()

    ran = ended(running)

    assert ran.code == Code.WRONG
    assert "ended by itself with -9" in ran.error
    assert files(shell) == []


IMPATIENT = """
import shmq.extras.stress.run
from shmq.cli.main import main
shmq.extras.stress.run.PATIENCE = 1.0
main()
"""


@pytest.mark.prove
def test_workers_that_stand_still_are_seen(shell: Shell) -> None:
    running = subprocess.Popen(
        [sys.executable, "-c", IMPATIENT, "stress", "--duration", "600s", "--quiet"],
        env=shell.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        eventually(lambda: len(psutil.Process(running.pid).children()) == 4, "it has its workers")
        for worker in psutil.Process(running.pid).children():
            worker.suspend()
        ran = ended(running)
    finally:
        running.kill()
        running.communicate()

    assert ran.code == Code.WRONG
    assert "nothing has moved for 1 s" in ran.error
    assert files(shell) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_leaves_nothing(
    shell: Shell, broker: shmq.Broker, number: signal.Signals
) -> None:
    running = shell.start("stress", "--duration", "60s", "--quiet", stdout=subprocess.PIPE)
    eventually(lambda: any(one.depth for one in broker.list_queues()), "messages are put")
    workers = psutil.Process(running.pid).children()

    running.send_signal(number)

    ran = ended(running)
    assert (ran.code, ran.out, ran.err) == (128 + number, b"", b"")
    assert broker.list_queues() == []
    assert not any(worker.is_running() for worker in workers)


@pytest.mark.prove
def test_workers_whose_starter_was_killed_end_by_themselves(
    shell: Shell, broker: shmq.Broker, tmp_path: Path
) -> None:
    running = subprocess.Popen(
        shell.command("stress", "--duration", "60s"),
        env={**shell.environment(), "TMPDIR": str(tmp_path)},
    )
    try:
        eventually(lambda: any(one.depth for one in broker.list_queues()), "messages are put")
        workers = psutil.Process(running.pid).children()
    finally:
        running.kill()
        running.wait()

    eventually(lambda: not any(worker.is_running() for worker in workers), "all have ended")


@pytest.mark.parametrize(
    ("options", "flags", "why"),
    [
        ({"ttl": 60}, [], "has a ttl"),
        ({"overflow": "drop-oldest"}, [], "drops its oldest"),
        ({}, ["--kill"], "has a delivery limit"),
    ],
)
def test_a_queue_that_may_lose_messages_is_refused(
    shell: Shell, broker: shmq.Broker, options: dict[str, Any], flags: list[str], why: str
) -> None:
    broker.create_queue("odd", **options).close()

    ran = shell("stress", "-q", "odd", "--messages", "1", *flags, code=Code.USAGE)

    assert why in ran.error


def test_a_queue_with_messages_is_refused(shell: Shell, queue: shmq.Queue) -> None:
    queue.put("mine")

    assert "holds 1 messages" in shell("stress", "-q", "jobs", code=Code.USAGE).error
    assert queue.get(timeout=0).body == "mine"


@pytest.mark.prove
@pytest.mark.parametrize(
    ("flags", "code", "why"),
    [
        (["--duration", "1s", "--messages", "1"], Code.USAGE, "exclude each other"),
        (["--size", "19"], Code.USAGE, "20 to"),
        (["--duration", "0"], Code.USAGE, "'--duration': 0: a run of no time checks nothing"),
        (["-p", "0"], Code.USAGE, "--producers"),
        (["-q", "nowhere", "--messages", "1"], Code.NO_QUEUE, "'nowhere'"),
        (["-q", "jobs", "--messages", "1", "--size", "8MiB"], Code.TOO_LARGE, "can never fit"),
        (["--messages", "1", "--csv", "/nowhere/x"], Code.REFUSED, "cannot write '/nowhere/x'"),
    ],
)
def test_what_cannot_be_done_is_refused_before_it_begins(
    shell: Shell, queue: shmq.Queue, flags: list[str], code: Code, why: str
) -> None:
    assert why in shell("stress", *flags, code=code).error
