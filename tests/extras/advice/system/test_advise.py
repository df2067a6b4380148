"""``shmq advise``: questions, files, a live queue, and the programs that it prints."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import shmq
from shmq.extras.advice.measurement import measure
from shmq.extras.advice.question import QUESTIONS
from shmq.extras.advice.workload import ANSWERS, Workload
from tests.support.shell import ROOT, Shell, read_until, terminal
from tests.support.waiting import PATIENCE, eventually
from tests.support.workloads import GOLDEN
from tests.system.cli.conftest import Quick


def test_the_twelve_questions_ask_for_each_answer_once() -> None:
    asked = [name for question in QUESTIONS for name in question.answers]
    assert len(QUESTIONS) == 12
    assert sorted(asked) == sorted(ANSWERS)
    assert all(question.why for question in QUESTIONS)


def test_an_empty_line_takes_the_defaults_of_a_question(quick: Quick) -> None:
    asked = quick("advise", "--json", stdin=b"\n" * 12)
    taken = quick("advise", "--json", "--defaults")
    assert json.loads(asked.text) == json.loads(taken.text)
    for number, question in enumerate(QUESTIONS, 1):
        assert f"{number}. {question.text}  ({question.why})" in asked.err.decode()


def test_an_answer_out_of_range_is_asked_again(quick: Quick) -> None:
    lines = ["100 10", "x", "100 400 20s", "", "0.5 2 computes", *[""] * 9]
    ran = quick("advise", "--json", stdin="\n".join(lines).encode() + b"\n")
    assert "peak_rate=10.0 is less than rate=100.0" in ran.err.decode()
    assert "rate='x': it is not a number" in ran.err.decode()
    workload = json.loads(ran.text)["workload"]
    assert (workload["rate"], workload["peak_rate"], workload["burst"]) == (100, 400, 20)
    assert (workload["work_p99"], workload["work_kind"]) == (2, "computes")


def test_on_a_terminal_the_reasons_have_most_of_its_width(shell: Shell) -> None:
    with terminal() as (ours, theirs):
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 40, 80, 0, 0))
        running = shell.start("advise", "--defaults", stdout=theirs, stderr=subprocess.PIPE)
        seen = read_until(ours, b"mean wait over the load").decode()
        assert running.wait(PATIENCE) == 0
    assert "3 × 80 ms (p99); three times the" in seen
    assert "shorter: a message is delivered" in seen


def test_answers_that_end_too_early_are_told(quick: Quick) -> None:
    ran = quick("advise", stdin=b"100\n\n", code=2)
    assert "the answers ended at question 3 of 12" in ran.err.decode()
    assert "--defaults" in ran.err.decode()


def test_a_file_answers_what_it_has_and_leaves_the_rest_to_the_defaults(
    quick: Quick, tmp_path: Path
) -> None:
    file = tmp_path / "workload.toml"
    file.write_text('rate = 20\nwork_p99 = "2s"\nuseful_for = "1h"\nrow = 1\n')
    assert "unknown answer 'row'" in quick("advise", str(file), code=2).err.decode()
    file.write_text('rate = 20\nwork_p99 = "2s"\nuseful_for = "1h"\nproducers = "request"\n')
    told = json.loads(quick("advise", str(file), "--json").text)
    assert told["options"]["visibility_timeout"] == 6
    assert told["options"]["ttl"] == 3600
    assert told["options"]["overflow"] == "reject"


def test_the_template_is_a_file_with_all_defaults(quick: Quick, tmp_path: Path) -> None:
    file = tmp_path / "workload.toml"
    file.write_bytes(quick("advise", "--template").out)
    assert set(tomllib.loads(file.read_text())) == set(ANSWERS)
    told = quick("advise", str(file), "--json").text
    assert told == quick("advise", "--defaults", "--json").text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rate =", "is not TOML"),
        ('rate = "fast"', "rate='fast': it is not a number"),
        ("rate = -1", "rate=-1: it is 0 to 1,000,000,000 a second"),
        ("rate = [1]", "rate=[1]"),
        ('order = "some"', "order='some': it is one of none, key, total"),
        ("runs = [[]]", "runs=[[]]: it is some of"),
        ("with_row = 1", "with_row=1: it is yes or no"),
        ("keys = 1.5", "keys=1.5: it is a whole number"),
        ("rate = nan", "rate=nan"),
        (f"keys = 1{'0' * 400}", "keys=1000"),
        ("rates = 3", "unknown answer 'rates' of a workload: did you mean 'rate'"),
        ("[rate]", "rate={}: it is 0 to 1,000,000,000 a second"),
        ('burst = "10 parsec"', "burst='10 parsec': it is not a time such as 30, 500ms"),
        ('body_p50 = "4XB"', "body_p50='4XB': it is not a size such as 4096"),
        ("rate = 5\npeak_rate = 1", "peak_rate=1.0 is less than rate=5.0: give that, or more"),
        ("runs = [" + "1, " * 9_000 + "]", "…: it is some of postgres"),
        ("x" * 70_000, "is longer than 65536 bytes"),
    ],
)
def test_a_file_that_is_no_workload_is_refused(
    quick: Quick, tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "workload.toml"
    file.write_text(text)
    error = quick("advise", str(file), code=2).error
    assert words in error
    assert str(file) in error
    assert len(error) < len(str(file)) + 200


@pytest.mark.parametrize("name", ["none.toml", ".", "locked.toml"])
def test_a_file_that_cannot_be_read_is_named(
    quick: Quick, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "locked.toml").write_text("rate = 1")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may read any file
    assert str(tmp_path / name) in quick("advise", str(tmp_path / name), code=2).error


def test_the_answers_of_a_file_are_checked_before_a_queue_is_measured(
    quick: Quick, queue: shmq.Queue, tmp_path: Path
) -> None:
    file = tmp_path / "workload.toml"
    file.write_text("keys = 0")
    measured = ("advise", str(file), "--from-queue", "jobs", "--seconds", "1h")
    assert f"{file}: keys=0: it is 1 to 1,000,000,000,000" in quick(*measured, code=2).error


def test_the_code_is_10_where_another_system_suits(quick: Quick, tmp_path: Path) -> None:
    file = tmp_path / "workload.toml"
    file.write_text('workflow = true\nsurvives = "machine"\n')
    ran = quick("advise", str(file), code=10)
    assert ran.text.startswith("Use Temporal instead: ")
    assert json.loads(quick("advise", str(file), "--json", code=10).text)["shmq"] is False
    assert "Temporal" in quick("advise", str(file), "--code", code=10).err.decode()


def test_every_setting_is_told_with_its_reason_and_the_wait_is_drawn(quick: Quick) -> None:
    text = quick("advise", "--defaults", "--cores", "4").text
    for words in (
        "3 × 80 ms (p99)",
        "delivered again while the first consumer still works",
        "Little",
        "M/M/c",
        "Poisson",
        "← peak",
        "6 consumers are more than 4 cores",
    ):
        assert words in text


def test_the_command_that_is_printed_makes_the_advised_queue(
    quick: Quick, broker: shmq.Broker
) -> None:
    printed = quick("advise", "--defaults", "--code", "--name", "made").text
    command = next(line[2:] for line in printed.splitlines() if line.startswith("# shmq create"))
    quick(*command.split()[1:])
    options = json.loads(quick("advise", "--defaults", "--json").text)["options"]
    with broker.queue("made") as queue:
        made = queue.options.as_dict()
    assert {name: made[name] for name in options} == options


@pytest.mark.prove
@pytest.mark.parametrize(("suffix", "begin"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_the_plot_is_written_in_the_format_of_its_name(
    quick: Quick, tmp_path: Path, suffix: str, begin: bytes
) -> None:
    file = tmp_path / f"wait{suffix}"
    quick("advise", "--defaults", "--plot", str(file))
    assert file.read_bytes().startswith(begin)


def test_a_plot_in_an_unknown_format_is_refused(quick: Quick, tmp_path: Path) -> None:
    ran = quick("advise", "--defaults", "--plot", str(tmp_path / "wait.nonsense"), code=2)
    assert "--plot" in ran.err.decode()


# ---- a live queue ----


@pytest.fixture
def busy(broker: shmq.Broker) -> Iterator[shmq.Queue]:
    """A queue with a producer, and a consumer that keeps a message for a while."""
    queue = broker.create_queue("busy", visibility_timeout=20)
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            queue.put(bytes(500))
            message = queue.get(timeout=30)
            done.wait(0.05)
            message.ack()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for one in threads:
        one.start()
    try:
        yield queue
    finally:
        done.set()
        for one in threads:
            one.join(30)


def test_a_live_queue_answers_by_its_rates_sizes_and_leases(busy: shmq.Queue) -> None:
    eventually(lambda: busy.stats().acked > 0, "work has begun")
    found = measure(busy, 1.0)
    before = busy.stats()
    answers = Workload.of(found.answers)
    # Each of two workers keeps a message for 50 ms, so at most 40 a second; both are loose bounds.
    assert 2 < answers.rate < 45
    assert answers.peak_rate >= answers.rate
    assert 500 <= answers.body_p50 <= 520
    assert 0.04 < answers.work_p50 < 1
    assert before.redelivered == 0 and found.remarks == ()


@pytest.mark.prove
def test_what_a_queue_answers_is_not_asked_and_its_options_stand_beside(
    quick: Quick, busy: shmq.Queue
) -> None:
    eventually(lambda: busy.stats().acked > 0, "work has begun")
    ran = quick("advise", "--from-queue", "busy", "--seconds", "1.5", stdin=b"\n" * 12)
    assert "measured 'busy'" in ran.err.decode()
    assert "how long a peak lasts" in ran.err.decode()
    assert "the median body" not in ran.err.decode()
    head, *rows = ran.text.splitlines()[1:]
    while not head.startswith("setting"):
        head, *rows = rows
    assert head.split()[:3] == ["setting", "value", "now"]
    row = next(row for row in rows if row.startswith("visibility_timeout"))
    assert row.split()[2] == "20.0"


@pytest.mark.prove
def test_returned_and_expired_messages_are_told(broker: shmq.Broker) -> None:
    queue = broker.create_queue("bad", retry_delay=0, max_deliveries=None)
    queue.put("one")
    started, stop = threading.Event(), threading.Event()

    def fail() -> None:
        started.wait(30)
        while not stop.is_set():
            queue.get(timeout=30).nack()

    thread = threading.Thread(target=fail)
    thread.start()
    try:
        started.set()
        found = measure(queue, 1.0)
    finally:
        stop.set()
        thread.join(30)
    assert any("messages were returned" in one for one in found.remarks)
    assert any("deliveries were not the first" in one for one in found.remarks)


def test_a_queue_in_which_nothing_happens_leaves_everything_to_be_asked(
    broker: shmq.Broker,
) -> None:
    queue = broker.create_queue("still")
    assert measure(queue, 0.3).answers == {}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--from-queue", "missing", "--seconds", "1", "--defaults"), 4),
        (("--seconds", "5", "--defaults"), 2),
        (("--from-queue", "missing", "--seconds", "0", "--defaults"), 2),
    ],
)
def test_what_cannot_be_measured_is_refused(
    quick: Quick, arguments: tuple[str, ...], code: int
) -> None:
    assert quick("advise", *arguments, code=code).err.decode().count("\n") == 1


# ---- the programs ----

PROGRAMS = ["payments by account", "a ledger in total order", "counters"]
OTHERS = ["orders to five departments", "positions of the last minutes"]


@pytest.mark.prove
@pytest.mark.parametrize("name", PROGRAMS + OTHERS)
def test_the_program_that_is_printed_does_the_work(
    shell: Shell, broker: shmq.Broker, tmp_path: Path, name: str
) -> None:
    answers = next(one for one in GOLDEN if one.name == name).answers
    few = {**answers, "rate": 5, "peak_rate": 5}  # and few processes
    lines = [f"{key} = {json.dumps(value)}" for key, value in few.items()]
    file = tmp_path / "workload.toml"
    # A journal would need a writer beside the test's; what it changes is one option.
    file.write_text("\n".join(line for line in lines if not line.startswith("survives")))
    program = tmp_path / "program.py"
    program.write_bytes(shell("advise", str(file), "--code").out)
    environment = {**os.environ, **shell.environment(), "PYTHONPATH": str(ROOT)}
    environment["PYTHONUNBUFFERED"] = "1"
    with subprocess.Popen(
        [sys.executable, str(program)], env=environment, cwd=tmp_path, stdout=subprocess.PIPE
    ) as run:
        limit = threading.Timer(PATIENCE, run.kill)
        limit.start()
        try:
            assert run.stdout is not None
            assert run.stdout.readline() == b"{'id': 1}\n"
        finally:
            run.send_signal(signal.SIGINT)
            run.wait()
            limit.cancel()
