"""What takes long shows how far it is: on a terminal, in lines, or not at all."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq.cli.shared.exit_codes import Code
from tests.support.queue_files import Building, put
from tests.support.shell import Ran, Shell, ended, read_until, terminal
from tests.support.waiting import PATIENCE, eventually
from tests.support.writer_process import running_writer
from tests.system.cli.conftest import Quick

#: The command as it is for a long step: it is shown at once, and often.
EAGER = """
from shmq.cli.shared import progress
from shmq.cli.main import main
progress.DELAY = 0.0
progress._ASK = 0.01
progress._FRAME = 0.05
progress._Bar.pause = progress._Lines.pause = 0.0
main()
"""


class Eager(Shell):
    """Runs the command so that a short step is shown as a long one is."""

    def command(self, *arguments: str | bytes) -> list[str | bytes]:
        return [sys.executable, "-c", EAGER, *arguments]


@pytest.fixture
def eager(shell: Shell) -> Any:
    made = Eager(shell.namespace)
    yield made
    made.close()


def on_terminal(shell: Shell, wanted: bytes, *arguments: str) -> tuple[bytes, Ran]:
    """What stderr has, until ``wanted`` appears, where it is a terminal; and how it ended."""
    with terminal() as (ours, theirs):
        running = shell.start(*arguments, stdout=subprocess.PIPE, stderr=theirs)
        return read_until(ours, wanted), ended(running)


def test_a_pipe_that_stays_open_shows_a_bar_on_a_terminal_alone(
    shell: Shell, queue: shmq.Queue
) -> None:
    with terminal() as (ours, theirs):
        running = shell.start(
            "produce", "jobs", "--file", "-",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=theirs,
        )  # fmt: skip
        assert running.stdin is not None
        running.stdin.write(b"one\n")
        running.stdin.flush()
        seen = read_until(ours, b"1 message put")
        assert ended(running).text == "1 message put on queue 'jobs'\n"
    assert "━".encode() in seen


def test_what_is_short_shows_nothing(shell: Shell, queue: shmq.Queue, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("line\n" * 100)
    assert shell("produce", "jobs", "--file", str(tmp_path / "lines")).err == b""
    assert shell("purge", "jobs", "--yes").err == b""
    with terminal() as (ours, theirs):
        running = shell.start("produce", "jobs", "-m", "x", stdout=subprocess.PIPE, stderr=theirs)
        assert ended(running).code == 0
        os.write(theirs, b"end")
        assert read_until(ours, b"end") == b"end"


def test_a_file_shows_lines_without_a_terminal(
    eager: Eager, queue: shmq.Queue, tmp_path: Path
) -> None:
    (tmp_path / "lines").write_text("line\n" * 100)
    path = str(tmp_path / "lines")

    ran = eager("produce", "jobs", "--file", path, "--json")

    assert ran.json == {"queue": "jobs", "put": 100}
    assert b"shmq: produce: 100 messages put, 500 bytes of 500 bytes" in ran.err
    assert eager("produce", "jobs", "--file", path, "--quiet").err == b""
    assert eager("produce", "jobs", stdin=b"piped\n").code == 0


def test_a_measurement_shows_how_long_it_lasts(eager: Eager, queue: shmq.Queue) -> None:
    measure = ("advise", "--from-queue", "jobs", "--seconds", "300ms", "--defaults", "--json")

    ran = eager(*measure)

    assert ran.json["kind"] == "queue"
    assert re.search(rb"shmq: measure: \d+ %, \d+ s left", ran.err)
    assert b"measure: " not in eager(*measure, "--quiet").err


@pytest.mark.prove
def test_a_redrive_is_asked_how_far_it_is(eager: Eager, broker: shmq.Broker) -> None:
    count = 10_000
    with broker.create_queue("spoilt") as queue, broker.queue("spoilt.dlq") as letters:
        queue.put_many([b"x"] * count)
        for _ in range(count):
            queue.get(timeout=PATIENCE).reject()
        eventually(lambda: queue.qsize() + letters.qsize() == count, "all are dead letters")

    seen, ran = on_terminal(eager, b" messages", "redrive", "spoilt", "--json")

    assert b"redrive: " in seen
    assert ran.json == {"queue": "spoilt", "redriven": count}


@pytest.mark.prove
def test_a_search_through_a_deep_queue_shows_that_it_works(
    eager: Eager, broker: shmq.Broker
) -> None:
    with broker.create_queue("deep", capacity=1 << 17) as queue:
        queue.put_many([b"x"] * 100_000)
    search = ("peek", "deep", "--where", "sequence = 0")
    ran = eager(*search, code=Code.NOTHING)
    assert re.match(rb"shmq: peek: \d+ s so far", ran.err)
    assert eager(*search, "--quiet", code=Code.NOTHING).err == b""


@pytest.mark.prove
def test_a_snapshot_shows_that_it_works(eager: Eager, broker: shmq.Broker) -> None:
    queue = broker.create_queue("jobs", durability="journal", dead_letter=None)
    with running_writer(eager.namespace) as writer:
        writer.follows(queue)
        writer.freeze()
        try:
            running = eager.start("snapshot", "jobs", stdout=subprocess.PIPE)
            assert running.stderr is not None
            assert re.match(rb"shmq: snapshot: \d+ s so far", running.stderr.readline())
        finally:
            writer.thaw()
        assert ended(running).text.startswith("queue 'jobs' is in ")


@pytest.mark.prove
def test_a_backup_a_restore_and_the_files_show_how_far_they_are(
    eager: Eager, broker: shmq.Broker, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    queue = broker.create_queue("jobs", durability="journal", dead_letter=None)
    stream = broker.create_stream("log", durability="journal")
    with running_writer(eager.namespace) as writer:
        writer.follows(queue)
        queue.put_many([b"x" * 100] * 1000, confirm="disk")
        stream.append_many([b"y" * 100] * 1000, confirm="disk")

        seen, ran = on_terminal(eager, b" of ", "backup", str(copy), "--json")
        assert b"backup: " in seen
        assert [one["queue"] for one in ran.json["queues"]] == ["jobs"]
        lines = eager("backup", str(tmp_path / "other")).err.decode().splitlines()
        assert all(line.startswith("shmq: backup") for line in lines)
        assert any("100 %" in line for line in lines)
        assert eager("backup", str(tmp_path / "third"), "--quiet").err == b""

    other = Eager(f"{eager.namespace}-restored")
    files = [str(path) for path in copy.glob("jobs*.dmsq")]
    dumped = eager("dmsq", "dump", *files)
    assert len(dumped.lines) == 1000
    assert b"shmq: dump: 1,000 of 1,000 messages" in dumped.err
    assert eager("dmsq", "dump", *files, "--quiet").err == b""
    assert b"shmq: verify: " in eager("dmsq", "verify", *files).err
    try:
        restored = other("restore", str(copy), "--salvage", "--json")
        assert {one["state"] for one in restored.json} == {"restored"}
        for step in (b"reading queues: ", b"restoring queues: ", b"copying stream 'log': "):
            assert b"shmq: " + step in restored.err
        assert b"salvaging stream 'log': " in restored.err
    finally:
        with shmq.connect(other.namespace) as there:
            there.delete_queue("jobs")
            there.delete_stream("log")


@pytest.mark.parametrize("command", ["verify", "dump", "inspect"])
def test_how_far_one_large_file_is_gets_shown(eager: Eager, tmp_path: Path, command: str) -> None:
    made = Building()
    for seq in range(1, 501):
        made.batch(put(seq, bytes(64 << 10)))
    path = tmp_path / "q.dmsq"
    path.write_bytes(bytes(made))

    ran = eager("dmsq", command, str(path))

    step = {"dump": "read"}.get(command, command)
    shown = re.findall(rf"shmq: {step}: .*, (\d+) %", ran.err.decode())
    assert any(0 < int(percent) < 100 for percent in shown)
    assert eager("dmsq", command, str(path), "--quiet").err == b""


@pytest.mark.prove
def test_stress_shows_lines_without_a_terminal_and_draws_its_plot(
    eager: Eager, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    plot = tmp_path / "run.png"

    ran = eager("stress", "--duration", "1500ms", "--plot", str(plot), "--json")

    assert ran.json["problems"] == []
    assert plot.read_bytes().startswith(b"\x89PNG")
    lines = ran.err.decode().splitlines()
    assert lines[0].startswith("shmq: stress: put ")
    assert any(" %, " in line and line.endswith(" s left") for line in lines)
    quiet = eager("stress", "--messages", "100", "--quiet", "--plot", str(tmp_path / "run.svg"))
    assert quiet.err == b""
    assert b"<svg" in (tmp_path / "run.svg").read_bytes()


def test_a_plot_that_cannot_be_drawn_is_refused_before_the_run(
    quick: Quick, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, code: Code) -> str:
        return quick("stress", "--duration", "60s", "--plot", str(path), code=code).error

    assert "must end in .png, .svg, .pdf" in refused(tmp_path / "run.txt", Code.USAGE)
    assert "the folder does not exist" in refused(tmp_path / "none" / "run.png", Code.REFUSED)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    told = refused(tmp_path / "run.png", Code.REFUSED)
    assert told == "--plot needs matplotlib: pip install 'shmq[plot]'"


# -- stats --watch ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
def test_watching_draws_sparklines_on_a_terminal(
    shell: Shell, queue: shmq.Queue, number: signal.Signals, code: int
) -> None:
    queue.put_many([b"x"] * 1234)
    with terminal() as (ours, theirs):
        running = shell.start(
            "stats", "--watch", "--interval", "100ms", stdout=theirs, stderr=subprocess.PIPE
        )
        seen = read_until(ours, "██".encode())
        read_until(ours, b"1,234")
        running.send_signal(number)
        read_until(ours, b"\x1b[?1049l")
        ran = ended(running)
    assert b"jobs" in seen
    assert (ran.code, ran.err) == (code, b"")


def test_watching_prints_lines_without_a_terminal(shell: Shell, queue: shmq.Queue) -> None:
    queue.put(b"x")
    running = shell.start("stats", "jobs", "--watch", "--interval", "50ms", stdout=subprocess.PIPE)
    assert running.stdout is not None
    lines = [running.stdout.readline().decode() for _ in range(2)]
    running.send_signal(signal.SIGINT)
    ran = ended(running)
    assert all(line[8:].startswith(" jobs: visible 1, in flight 0, in ") for line in lines)
    assert (ran.code, ran.err) == (0, b"")


def test_watching_as_json_prints_an_array_for_each_look(shell: Shell, queue: shmq.Queue) -> None:
    ran = shell.pipeline("shmq stats --watch --interval 50ms --json --kind queue | head -n 2")
    assert ran.err == b""
    names = {one["name"] for line in ran.lines for one in json.loads(line)}
    assert (len(ran.lines), names) == (2, {"jobs", "jobs.dlq"})


def test_watching_ends_when_the_queue_is_deleted(
    shell: Shell, broker: shmq.Broker, queue: shmq.Queue
) -> None:
    running = shell.start("stats", "jobs", "--watch", "--interval", "50ms", stdout=subprocess.PIPE)
    assert running.stdout is not None
    running.stdout.readline()
    queue.close()
    broker.delete_queue("jobs")
    ran = ended(running)
    assert (ran.code, ran.error) == (4, "queue 'jobs' was deleted while it was watched")


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--interval", "1s"], "--interval is for --watch"),
        (["--watch", "--interval", "1ms"], "0.05s or more, not 0.001s"),
        (["--watch", "--kind", "exchange"], "queues and streams"),
    ],
)
def test_what_cannot_be_watched_is_refused(quick: Quick, flags: list[str], why: str) -> None:
    assert why in quick("stats", *flags, code=Code.USAGE).error
