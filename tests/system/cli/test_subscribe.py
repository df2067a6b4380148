"""``shmq subscribe``."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

import shmq
from shmq.cli.shared.exit_codes import Code
from tests.support.shell import Shell, ended
from tests.system.cli.conftest import Quick


@pytest.fixture
def stream(broker: shmq.Broker) -> shmq.Stream:
    """A stream called ``events`` that has five records."""
    stream = broker.create_stream("events", 2)
    for n in range(5):
        stream.append(f"order {n}", key=f"orders.{n % 2}")
    return stream


def test_the_newest_that_match_are_written(quick: Quick, stream: shmq.Stream) -> None:
    some = quick("subscribe", "events", "orders.0", "--history", "2", "--timeout", "0")
    every = quick("subscribe", "events", "--history", "none", "--timeout", "0", "--with-key")
    as_json = quick("subscribe", "events", "#", "--history", "1", "-n", "1", "--json").json

    assert some.lines == ["order 2", "order 4"]
    assert sorted(every.lines) == [f"orders.{n % 2}\torder {n}" for n in (0, 2, 4, 1, 3)]
    assert (as_json["key"], as_json["value"]) == ("orders.0", "order 4")


def test_nothing_in_time_has_a_code_of_its_own(quick: Quick, stream: shmq.Stream) -> None:
    assert quick("subscribe", "events", "--timeout", "10ms", code=Code.NOTHING).out == b""
    assert "nowhere" in quick("subscribe", "nowhere", code=Code.NO_QUEUE).error
    assert "a*" in quick("subscribe", "events", "a*", code=Code.USAGE).error
    assert "overflow" in quick("subscribe", "events", "--policy", "block", code=Code.USAGE).error


def test_it_writes_what_comes_until_it_is_told_to_end(shell: Shell, stream: shmq.Stream) -> None:
    process = shell.start("subscribe", "events", "--history", "1", "--json", stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["value"] == "order 4"

    stream.append("new", key="x")
    assert json.loads(process.stdout.readline())["value"] == "new"
    process.send_signal(signal.SIGTERM)

    assert ended(process).code == Code.OK
