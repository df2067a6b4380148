"""``shmq stream``."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest
from click.testing import Result

import shmq
from shmq.cli.shared.exit_codes import Code
from tests.support.deleted_groups import delete_before_opening
from tests.support.shell import Shell
from tests.system.cli.conftest import Quick

Invoke = Callable[..., Result]


@pytest.fixture
def stream(broker: shmq.Broker) -> Iterator[shmq.Stream]:
    """The stream ``events`` with three records in partition 0 and one in partition 1."""
    with broker.create_stream("events", 2) as stream:
        stream.append_many(["one", "two", "three"], keys=["a", None, "a"], partition=0)
        stream.append({"n": 4}, partition=1, headers={"h": "v"})
        yield stream


def test_a_stream_is_made_listed_and_deleted(invoke: Invoke) -> None:
    made = invoke("stream", "create", "s", "--partitions", "2", "--ring-bytes", "64KiB")
    assert "2 partitions" in made.stdout
    again = json.loads(
        invoke(
            "stream", "create", "s", "--partitions", "2", "--ring-bytes", "64KiB", "--json"
        ).stdout
    )
    assert again["options"]["ring_bytes"] == 64 << 10
    assert invoke("stream", "create", "s").exit_code == Code.EXISTS
    assert [it["name"] for it in json.loads(invoke("stream", "list", "--json").stdout)] == ["s"]
    assert invoke("stream", "delete", "s").exit_code == Code.USAGE
    assert invoke("stream", "delete", "s", "--yes").exit_code == Code.OK
    assert "no streams" in invoke("stream", "list").stderr
    assert invoke("stream", "read", "s").exit_code == Code.NO_QUEUE


def test_records_are_appended_from_flags_and_lines(
    invoke: Invoke, quick: Quick, stream: shmq.Stream
) -> None:
    one = invoke("stream", "append", "events", "-m", "x", "-p", "1", "--header", "k=v", "--json")
    assert json.loads(one.stdout) == {
        "stream": "events",
        "appended": 1,
        "partition": 1,
        "offset": 1,
    }
    (record,) = stream.read(1, 1)
    assert (record.body, record.headers) == ("x", {"k": "v"})
    many = quick("stream", "append", "events", "--key-separator", ":", stdin=b"a:1\nb:2\n")
    assert "2 records appended" in many.text
    assert {record.key for p in range(2) for record in stream.read(p, 0)} >= {b"a", b"b"}
    bad = quick(
        "stream", "append", "events", "--key-separator", ":", stdin=b"none\n", code=Code.REFUSED
    )
    assert "0 records appended" in bad.text
    half = quick(
        "stream",
        "append",
        "events",
        "--key-separator",
        ":",
        stdin=b"c:3\nnone\nd:4\n",
        code=Code.REFUSED,
    )
    assert "record 4 appended to partition 1" in half.text
    assert b"the line b'none' has no b':'" in half.err
    none = quick(
        "stream", "append", "events", "--key-separator", "", stdin=b"a:1\n", code=Code.USAGE
    )
    assert "'--key-separator': it is empty" in none.error


def test_records_are_read_and_stay(invoke: Invoke, stream: shmq.Stream) -> None:
    for _ in range(2):
        assert invoke("stream", "read", "events", "-p", "0").stdout == "one\ntwo\nthree\n"
    assert invoke("stream", "read", "events", "-p", "0", "--offset", "2").stdout == "three\n"
    assert invoke("stream", "read", "events", "-p", "0", "-n", "1").stdout == "one\n"
    assert invoke("stream", "read", "events", "--from", "1h", "-n", "9").stdout.count("\n") == 4
    assert invoke("stream", "read", "events", "--from", "latest").exit_code == Code.NOTHING
    assert invoke("stream", "read", "events", "-p", "0", "--with-key").stdout.startswith("a\tone\n")
    assert invoke("stream", "read", "events", "--offset", "1").exit_code == Code.USAGE
    both = invoke("stream", "read", "events", "-p", "0", "--offset", "1", "--from", "latest")
    assert (both.exit_code, "exclude each other" in both.stderr) == (Code.USAGE, True)
    shown = json.loads(invoke("stream", "read", "events", "-p", "1", "--json").stdout)
    assert (shown["value"], shown["encoding"], shown["headers"]) == ({"n": 4}, "json", {"h": "v"})
    chosen = invoke("stream", "read", "events", "--where", "codec = 'msgpack'")
    assert chosen.stdout == '{"n":4}\n'


def test_the_tail_follows_until_it_is_stopped(shell: Shell, stream: shmq.Stream) -> None:
    tail = subprocess.Popen(
        shell.command("stream", "tail", "events", "-p", "0", "-n", "1"),
        stdout=subprocess.PIPE,
        env=shell.environment(),
    )
    assert tail.stdout is not None
    assert tail.stdout.readline() == b"three\n"
    stream.append("four", partition=0)
    assert tail.stdout.readline() == b"four\n"
    tail.send_signal(signal.SIGINT)
    assert tail.wait() == Code.OK
    tail.stdout.close()


def test_the_offsets_and_the_rates_are_shown(invoke: Invoke, stream: shmq.Stream) -> None:
    found = json.loads(invoke("stream", "offsets", "events", "--at", "1h", "--json").stdout)
    assert [(it["earliest"], it["latest"], it["at"]) for it in found] == [(0, 3, 0), (0, 1, 0)]
    assert "newest" in invoke("stream", "offsets", "events").stdout
    rates = json.loads(invoke("stream", "hot", "events", "--over", "1h", "--json").stdout)
    assert [rate["partition"] for rate in rates] == [0, 1]
    assert not any(rate["hot"] for rate in rates)
    assert "of the mean" in invoke("stream", "hot", "events").stdout


def test_it_gets_more_partitions(invoke: Invoke, stream: shmq.Stream) -> None:
    told = invoke("stream", "repartition", "events", "--partitions", "3")
    assert told.stdout == "stream 'events' is appended to in partitions 2 to 4 now\n"
    refused = invoke("stream", "repartition", "events", "--partitions", "2")
    assert (refused.exit_code, "only more" in refused.stderr) == (Code.USAGE, True)
    made = json.loads(invoke("stream", "repartition", "events", "--partitions=4", "--json").stdout)
    assert made == {"name": "events", "open": [5, 6, 7, 8], "partitions": 9}
    assert invoke("stream", "offsets", "events").stdout.count("sealed") == 5


def test_the_groups_are_shown_and_reset(invoke: Invoke, stream: shmq.Stream) -> None:
    assert "no consumer groups" in invoke("stream", "groups", "events").stderr
    with stream.group("g").join("somebody") as member:
        member.poll()
        member.commit()
        told = json.loads(invoke("stream", "groups", "events", "-g", "g", "--json").stdout)
        assert [it["committed"] for it in told["partitions"]] == [3, 1]
        assert told["members"][0]["name"] == "somebody"
        refused = invoke("stream", "reset", "events", "-g", "g", "--to", "earliest")
        assert "being read" in refused.stderr
    assert "somebody" not in invoke("stream", "groups", "events", "-g", "g").stdout
    stream.share("s").close()
    (g, s) = json.loads(invoke("stream", "groups", "events", "--json").stdout)
    assert (g["name"], g["lag"], s["assignment"]) == ("g", 0, "shared")
    assert invoke("stream", "groups", "events", "-g", "s").exit_code == Code.USAGE
    reset = invoke("stream", "reset", "events", "-g", "g", "-p", "0", "--offset", "2", "--json")
    assert json.loads(reset.stdout)["committed"] == {"0": 2}
    assert (
        "continues at offset 0"
        in invoke("stream", "reset", "events", "-g", "g", "--to", "earliest").stdout
    )
    assert invoke("stream", "reset", "events", "-g", "none", "--to", "latest").exit_code == 4
    assert invoke("stream", "reset", "events", "-g", "g").exit_code == Code.USAGE
    assert invoke("stream", "delete", "events", "--group", "g", "--yes").exit_code == Code.OK
    assert [it.name for it in stream.groups()] == ["s"]


def test_an_unknown_group_is_not_created_and_the_nearest_is_suggested(
    invoke: Invoke, stream: shmq.Stream
) -> None:
    stream.group("billing")
    refused = invoke("stream", "groups", "events", "-g", "biling")
    assert (refused.exit_code, "did you mean 'billing'" in refused.stderr) == (Code.NO_QUEUE, True)
    assert [it.name for it in stream.groups()] == ["billing"]


@pytest.mark.parametrize("command", ["groups", "reset --to latest"])
def test_a_group_that_is_deleted_before_it_is_opened_stays_deleted(
    invoke: Invoke, stream: shmq.Stream, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    stream.group("g")
    delete_before_opening(monkeypatch)
    refused = invoke("stream", *command.split(), "events", "-g", "g")
    assert (refused.exit_code, "no group 'g'" in refused.stderr) == (Code.NO_QUEUE, True)
    assert stream.groups() == []


@pytest.mark.parametrize("command", ["read", "tail"])
def test_a_partition_that_the_stream_does_not_have_is_named(
    quick: Quick, stream: shmq.Stream, command: str
) -> None:
    ran = quick("stream", command, "events", "-p", "99", code=Code.USAGE)
    assert ran.error == "--partition 99 is out of range: 0 to 1 in stream 'events'"


def test_a_time_that_rates_cannot_be_over_is_named_by_its_flag(
    quick: Quick, stream: shmq.Stream
) -> None:
    error = quick("stream", "hot", "events", "--over", "0", code=Code.USAGE).error
    assert "--over 0.0 s is out of range" in error
