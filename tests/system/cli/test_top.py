"""``shmq top``, on a terminal and without one."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import io
import os
import re
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator

import hypothesis
import pytest
from hypothesis import strategies
from rich.cells import cell_len
from rich.console import Console

import shmq
from shmq.cli.shared.exit_codes import Code
from shmq.cli.top import ORDERS, Row, draw, left_out, ordered
from tests.support.shell import Shell, ended, read_until, terminal
from tests.support.waiting import PATIENCE, eventually

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"


class Screen:
    """``shmq top`` on a terminal of its own."""

    def __init__(self, ours: int, theirs: int, process: subprocess.Popen[bytes]) -> None:
        self._ours = ours
        self._theirs = theirs
        self.process = process
        self.seen = b""

    def shows(self, *wanted: str) -> str:
        """Return the frame once there is one with all that is wanted."""
        deadline = time.monotonic() + PATIENCE
        while not all(word in self.frame for word in wanted):
            assert time.monotonic() < deadline, f"{wanted} never appeared, but:\n{self.frame}"
            self.seen += read_until(self._ours, b"\x1b[H")
        return self.frame

    @property
    def frame(self) -> str:
        """The last whole frame, without its colours."""
        frames = self.seen.split(b"\x1b[H")[1:-1] or [b""]
        plain = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", frames[-1])
        return plain.decode(errors="ignore").replace("\r\n", "\n")

    def press(self, key: bytes) -> None:
        os.write(self._ours, key)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))

    def mode(self) -> list[object]:
        return termios.tcgetattr(self._theirs)

    def left(self) -> int:
        """The exit code, once the terminal is as it was."""
        if LEAVE not in self.seen:
            self.seen += read_until(self._ours, LEAVE)
        return ended(self.process).code


@pytest.fixture
def screen(shell: Shell) -> Iterator[Callable[..., Screen]]:
    with contextlib.ExitStack() as stack:

        def start(*flags: str, columns: int = 120, lines: int = 24) -> Screen:
            ours, theirs = stack.enter_context(terminal())
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))
            process = shell.start("top", "--interval", "50ms", *flags, stdin=theirs, stdout=theirs)
            stack.callback(process.kill)
            return Screen(ours, theirs, process)

        yield start


@pytest.mark.prove
@pytest.mark.debris
def test_queues_appear_are_damaged_and_go(
    shell: Shell, broker: shmq.Broker, screen: Callable[..., Screen]
) -> None:
    shown = screen()
    shown.shows("0 queues")
    queue = broker.create_queue("jobs", dead_letter=None)
    queue.put_many(map(str, range(1234)))
    shown.shows("1 queue ", "jobs", "1,234")
    held = queue.get()
    shown.shows("1,233", f" {os.getpid()}")
    held.ack()
    broker.create_queue("spoilt", dead_letter=None).close()
    shown.shows("2 queues", "spoilt")
    os.truncate(f"/dev/shm/shmq@{shell.namespace}@spoilt", 100)
    shown.shows("spoilt: the segment of queue 'spoilt' is truncated")
    broker.delete_queue("spoilt")
    broker.delete_queue("jobs")
    shown.shows("0 queues")

    shown.press(b"q")

    assert shown.left() == 0
    assert shown.seen.startswith(ENTER)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_leaves_the_terminal_as_it_was(
    queue: shmq.Queue, screen: Callable[..., Screen], number: signal.Signals, code: int
) -> None:
    shown = screen("--interval", "1h")
    before = shown.mode()
    shown.seen += read_until(shown._ours, b"jobs.dlq")
    assert shown.mode() != before

    shown.process.send_signal(number)

    assert shown.left() == code
    assert shown.mode() == before


def test_the_key_sorts_by_the_next_column(
    broker: shmq.Broker, screen: Callable[..., Screen]
) -> None:
    for name, depth in (("a", 1), ("b", 3), ("c", 2)):
        broker.create_queue(name, dead_letter=None).put_many(map(str, range(depth)))
    shown = screen()

    def order(frame: str) -> list[str]:
        return re.findall(r"^ ([abc]) ", frame, re.MULTILINE)

    assert order(shown.shows("by name", " c ")) == ["a", "b", "c"]
    shown.press(b"s")
    assert order(shown.shows("by depth", " c ")) == ["b", "c", "a"]
    shown.press(b"Q")
    assert shown.left() == 0


@pytest.mark.prove
def test_a_small_terminal_gets_what_fits_and_a_larger_one_more(
    broker: shmq.Broker, screen: Callable[..., Screen]
) -> None:
    for number in range(20):
        broker.create_queue(f"queue-with-a-long-name-{number:02}", dead_letter=None).close()

    shown = screen(columns=24, lines=10)
    frame = shown.shows("queue-w…", "more:", "no room for ")

    assert all(cell_len(line.rstrip("\n")) <= 24 for line in frame.split("\n"))
    assert len(frame.split("\n")) <= 10
    shown.resize(160, 50)
    frame = shown.shows("queue-with-a-long-name-00", "queue-with-a-long-name-19", "waiting", "who")
    assert "more:" not in frame and "no room for" not in frame
    shown.press(b"q")
    assert shown.left() == 0


def test_without_a_terminal_it_prints_one_frame(
    shell: Shell, broker: shmq.Broker, queue: shmq.Queue
) -> None:
    queue.put_many(["a", "b"])
    queue.get().reject()
    eventually(lambda: broker.queue("jobs.dlq").qsize() == 1, "the message is a dead letter")

    heading, *rows = shell("top").lines

    assert re.split(r"  +", heading) == [
        *("name", "kind", "visible", "oldest", "in flight", "delayed"),
        *("in/s", "out/s", "dead", "waiting", "who"),
    ]
    assert rows[0].split()[:3] == ["jobs", "queue", "1"]
    assert f" {os.getpid()}" in rows[0]
    told = {one["name"]: one for one in shell("top", "--json").json}
    assert set(told["jobs"]) == {field.name for field in dataclasses.fields(Row)}
    assert (told["jobs"]["depth"], told["jobs"]["dead_letters"]) == (1, 1)
    assert [who.split()[-1] for who in told["jobs"]["who"]] == [str(os.getpid())]


@pytest.mark.debris
def test_one_frame_tells_what_cannot_be_used_and_goes_on(
    shell: Shell, broker: shmq.Broker, queue: shmq.Queue
) -> None:
    broker.create_queue("cut", dead_letter=None).close()
    os.truncate(f"/dev/shm/shmq@{shell.namespace}@cut", 100)

    ran = shell("top", "--once")

    assert [line.split()[0] for line in ran.lines] == ["name", "jobs", "jobs.dlq"]
    assert "cut: the segment of queue 'cut' is truncated" in ran.error


def test_once_on_a_terminal_is_one_frame_without_taking_the_screen(
    shell: Shell, queue: shmq.Queue, screen: Callable[..., Screen]
) -> None:
    shown = screen("--once")

    seen = read_until(shown._ours, b"jobs.dlq")

    assert ended(shown.process).code == 0
    assert ENTER not in seen


@pytest.mark.prove
def test_a_namespace_without_queues_is_said(shell: Shell) -> None:
    assert "has no queues" in shell("top").error
    assert shell("top", "--json").json == []


@pytest.mark.parametrize("flags", [["--interval", "0"], ["--sort", "size"]])
def test_what_cannot_be_is_wrong_usage(shell: Shell, flags: list[str]) -> None:
    assert flags[0] in shell("top", *flags, code=Code.USAGE).error


def test_dead_counts_the_dead_letters_that_are_there_now(
    shell: Shell, broker: shmq.Broker, queue: shmq.Queue
) -> None:
    def dead() -> int:
        told = {one["name"]: one for one in shell("top", "--json").json}
        return int(told["jobs"]["dead_letters"])

    queue.put_many(["a", "b"])
    for message in queue.get_many(2, timeout=0):
        message.reject()
    eventually(lambda: broker.queue("jobs.dlq").qsize() == 2, "two dead letters")
    assert dead() == 2
    broker.queue("jobs.dlq").get(timeout=0).ack()
    assert dead() == 1
    assert queue.stats().dead_lettered == 2


def test_columns_that_do_not_fit_are_mentioned() -> None:
    row = Row(name="jobs", who=["a consumer with a long name 12345"])
    assert left_out([row], 200) is None
    assert (
        left_out([row], 60) == "no room for kind, delayed, waiting, who: a wider window shows them"
    )


ROWS = strategies.lists(
    strategies.builds(
        Row,
        name=strategies.from_regex(r"[A-Za-z0-9._:-]{1,100}", fullmatch=True),
        depth=strategies.integers(0, 10**7),
        oldest_age=strategies.floats(0, 10**7),
        rate_in=strategies.floats(0, 10**8),
        who=strategies.lists(strategies.text(max_size=15), max_size=5),
    ),
    max_size=5,
)


@pytest.mark.prove
@hypothesis.given(rows=ROWS, width=strategies.integers(3, 300))
def test_a_table_is_never_wider_than_the_terminal(rows: list[Row], width: int) -> None:
    made = draw(rows, width)
    console = Console(file=io.StringIO(), width=1000, color_system=None)
    with console.capture() as captured:
        console.print(made.as_rich())

    lines = [line.rstrip() for line in captured.get().splitlines() if line.strip()]

    assert max(map(cell_len, lines)) <= width
    assert len(lines) == 2 + len(rows)


@pytest.mark.parametrize(
    ("order", "row"),
    [
        ("depth", Row(name="b", depth=5)),
        ("oldest", Row(name="b", oldest_age=5)),
        ("flight", Row(name="b", in_flight=5)),
        ("in", Row(name="b", rate_in=5)),
        ("out", Row(name="b", rate_out=5)),
        ("dead", Row(name="b", dead_letters=5)),
    ],
)
def test_rows_are_ordered_with_the_largest_first(order: str, row: Row) -> None:
    rows = [Row(name="c"), Row(name="a"), row]

    assert set(ORDERS) >= {order, "name"}
    assert [each.name for each in ordered(rows, order)] == ["b", "a", "c"]
    assert [each.name for each in ordered(rows, "name")] == ["a", "b", "c"]
