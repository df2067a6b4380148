"""Very many queues: what a terminal shows, and commands about one that ask about no other."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq.cli.shared.output import MOST_ROWS, WORST
from tests.support.shell import Shell, read_until, terminal
from tests.support.waiting import eventually
from tests.system.cli.conftest import Quick

MANY = MOST_ROWS + 5


@pytest.fixture
def many(broker: shmq.Broker) -> list[str]:
    """More queues than a terminal shows; one is full, and one has a dead letter."""
    names = [f"q{at:03}" for at in range(MANY)]
    for name in names:
        broker.create_queue(name, capacity=16, dead_letter=None).close()
    with broker.queue("q077") as queue:
        queue.put_many([b"x"] * 16)
    with broker.create_queue("orders", max_deliveries=1) as queue:
        queue.put("a")
        with queue.get() as message:
            message.reject()
    with broker.queue("q011") as queue:
        queue.put("y")
    return sorted([*names, "orders", "orders.dlq"])


def first_words(text: str, among: list[str]) -> list[str]:
    return [word for line in text.splitlines() for word in line.split()[:1] if word in among]


def on_a_terminal(shell: Shell, *arguments: str, until: bytes) -> str:
    with terminal() as (ours, theirs):
        process = shell.start(*arguments, stdin=theirs, stdout=theirs, stderr=theirs)
        shown = read_until(ours, until)
        process.wait(60)
    return shown.decode()


def test_a_terminal_shows_totals_and_the_worst_and_says_how_to_see_all(
    shell: Shell, many: list[str]
) -> None:
    shown = on_a_terminal(shell, "list", until=b"shows every one")

    assert f"showing 3 of {len(many)} queues: --all" in shown
    assert first_words(shown, many) == ["q077", "orders.dlq", "q011"]
    assert "q077' is full" in shown
    assert "1 dead letter of 'orders'" in shown
    totals = [line.split() for line in shown.splitlines()]
    assert ["queues", str(len(many))] in totals
    assert ["visible", "18"] in totals


def test_all_are_shown_if_they_are_asked_for_and_to_whatever_is_no_terminal(
    shell: Shell, quick: Quick, many: list[str]
) -> None:
    every = on_a_terminal(shell, "list", "--all", until=many[-1].encode())
    assert first_words(every, many) == many

    assert [line.split()[0] for line in quick("list").lines[1:]] == many
    assert [one["name"] for one in quick("list", "--json").json] == many
    assert [one["name"] for one in quick("stats", "--json").json] == many
    assert [one["name"] for one in quick("fsck", "--json").json] == many
    assert len(quick("doctor", "--json").json["segments"]) == len(many)


@pytest.mark.parametrize(
    ("command", "expected"),
    [("stats", "showing 20 of 107 queues"), ("doctor", "107 queues, "), ("fsck", "107 sound")],
)
def test_other_commands_shorten_what_a_terminal_shows(
    shell: Shell, many: list[str], command: str, expected: str
) -> None:
    assert (MANY, WORST, len(many)) == (105, 20, 107)
    assert expected in on_a_terminal(shell, command, until=expected.encode())


class Opened:
    """The files in /dev/shm that this process opens while it watches; a hook stays for good."""

    def __init__(self) -> None:
        self.names: set[str] | None = None
        sys.addaudithook(self._see)

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and self.names is not None and isinstance(arguments[0], str | Path):
            folder, _, name = os.fspath(arguments[0]).rpartition("/")
            if folder == "/dev/shm":
                self.names.add(name)


_opened = Opened()


@pytest.fixture
def opened() -> Iterator[set[str]]:
    _opened.names = set()
    yield _opened.names
    _opened.names = None


@pytest.mark.parametrize(
    "command",
    [
        ("stats", "one"), ("peek", "one"), ("consume", "one"), ("purge", "one", "-y"),
        ("alter", "one", "--visibility-timeout", "9s"), ("who", "one"),
        ("produce", "one", "-m", "x"), ("delete", "one", "-y"),
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_a_command_about_one_queue_opens_no_other(
    quick: Quick, broker: shmq.Broker, opened: set[str], command: tuple[str, ...]
) -> None:
    for name in ("another", "one", "two"):
        broker.create_queue(name, dead_letter=None).close()
    opened.clear()

    quick(*command, code=None)

    assert f"shmq@{quick.namespace}@one" in opened
    assert not opened & {f"shmq@{quick.namespace}@{name}" for name in ("another", "two")}


def test_a_list_does_the_maintenance_that_is_due(quick: Quick, broker: shmq.Broker) -> None:
    """The counts are those after it, although most queues are read without a handle."""
    with broker.create_queue("jobs", dead_letter=None) as queue:
        queue.put("a", delay=0.01)
        queue.put("b")
        code = f"import shmq; held = shmq.connect({quick.namespace!r}).queue('jobs').get(); input()"
        with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as holder:
            eventually(lambda: queue.stats().in_flight == 1, "it has the message")
            holder.kill()

    def counts() -> tuple[int, int, int]:
        (one,) = quick("list", "--json").json
        return one["depth"], one["delayed"], one["in_flight"]

    eventually(lambda: counts() == (2, 0, 0), "the lease is back, and the delay is over")


def test_a_list_shows_a_queue_that_has_lost_a_semaphore(
    quick: Quick, broker: shmq.Broker, queue: shmq.Queue
) -> None:
    queue.close()
    for semaphore in Path("/dev/shm").glob(f"sem.shmq@{quick.namespace}@*.not_full"):
        semaphore.unlink()
    found = {one["name"]: one["problem"] for one in quick("list", "--json").json}
    assert "lost its semaphore" in found["jobs"]


def test_the_name_of_a_queue_and_of_a_stream_on_disk_or_in_memory_is_found(
    quick: Quick, broker: shmq.Broker
) -> None:
    broker.create_queue("both", dead_letter=None).close()
    broker.create_stream("both", 1, allow_same_name=True).close()
    assert "names a queue and a stream" in quick("stats", "both", code=2).error
    assert "did you mean 'both'" in quick("stats", "bothe", code=4).error
    broker.ensure_table("rates")
    for command in (("stats", "rates"), ("delete", "rates"), ("consume", "rates")):
        assert "a table has this name: use table(), or `shmq table" in quick(*command, code=4).error
