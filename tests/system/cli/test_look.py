"""``shmq peek``, ``list``, ``stats`` and ``who``."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import shmq
from shmq.cli.shared.exit_codes import Code
from tests.support.shell import Shell, eventually, read_until, terminal

Invoke = Callable[..., Result]


def test_peek_shows_what_would_be_served_first_and_takes_nothing(
    shell: Shell, queue: shmq.Queue
) -> None:
    queue.put("later")
    queue.put("first", priority=shmq.HIGH, group="g")

    heading, *rows = shell("peek", "-q", "jobs").lines

    assert " ".join(heading.split()) == "sequence priority deliveries group codec size body"
    assert [row.split()[-1] for row in rows] == ["first", "later"]
    assert "g" in rows[0].split()
    assert (queue.qsize(), queue.stats().in_flight) == (2, 0)


@pytest.mark.prove
def test_peek_shows_those_that_are_meant(shell: Shell, queue: shmq.Queue) -> None:
    queue.put({"total": 3}, headers={"region": "eu"})
    queue.put({"total": 9}, headers={"region": "eu"})
    queue.put({"total": 9})

    shown = shell(
        "peek", "-q", "jobs", "--json", "--where", "header.region = 'eu' and body.total > 5"
    )

    assert [message["sequence"] for message in shown.json] == [2]
    shell("peek", "-q", "jobs", "--where", "header.region = 'us'", code=Code.NOTHING)


def test_peek_shows_no_more_than_the_count(shell: Shell, queue: shmq.Queue) -> None:
    queue.put_many(map(str, range(30)))

    assert len(shell("peek", "-q", "jobs", "--json").json) == 10
    assert len(shell("peek", "-q", "jobs", "-n", "25", "--json").json) == 25


@pytest.mark.prove
def test_a_packed_batch_is_shown_as_its_records(shell: Shell, queue: shmq.Queue) -> None:
    queue.put_packed(b"aabbb", [2, 3])
    with queue.loan(20, codec="packed") as view:
        view[:] = b"it is not; it is not"
    records = [{"base64": "YWE="}, {"base64": "YmJi"}]

    _, *rows = shell("peek", "-q", "jobs").lines
    peeked, malformed = shell("peek", "-q", "jobs", "--json").json
    consumed = shell("consume", "-q", "jobs", "-n", "2").lines

    assert rows[0].split()[-1] == consumed[0] == json.dumps(records, separators=(",", ":"))
    assert (peeked["codec"], peeked["body"], peeked["encoding"]) == ("packed", records, "json")
    assert malformed["encoding"] == "base64"
    assert consumed[1] == "it is not; it is not"


@pytest.mark.prove
def test_peek_tells_the_same_as_consume_in_json(shell: Shell, queue: shmq.Queue) -> None:
    queue.put(b"\xff", headers={"a": 1})

    (peeked,) = shell("peek", "-q", "jobs", "--json").json
    consumed = shell("consume", "-q", "jobs", "--json").json

    assert peeked["body"] == "/w=="
    assert {**peeked, "delivery_count": 1} == consumed


@pytest.mark.prove
def test_peek_of_an_empty_queue_has_an_exit_code_of_its_own(
    shell: Shell, queue: shmq.Queue
) -> None:
    assert shell("peek", "-q", "jobs", code=Code.NOTHING).out == b""
    assert shell("peek", "-q", "jobs", "--json", code=Code.NOTHING).json == []


@pytest.mark.prove
def test_peek_tells_why_a_letter_is_dead(shell: Shell, queue: shmq.Queue) -> None:
    queue.put("poison")
    queue.get().reject()

    assert "rejected in jobs after 1" in shell("peek", "-q", "jobs.dlq").text
    (dead,) = shell("peek", "-q", "jobs.dlq", "--json").json
    assert (dead["dead"]["reason"], dead["dead"]["queue"]) == ("rejected", "jobs")


@pytest.mark.prove
@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("[bold]not markup[/bold] :smile:", "[bold]not markup[/bold] :smile:"),
        (b"\xff\x00", "\\xff\\x00"),
        ("two\nlines", "two lines"),
        ("\u202eright to left", "\\u202eright to left"),
        ({"a": [1]}, '{"a":[1]}'),
    ],
)
def test_peek_shows_a_body_without_obeying_it(
    shell: Shell, queue: shmq.Queue, body: object, shown: str
) -> None:
    queue.put(body)

    (_, row) = shell("peek", "-q", "jobs").lines

    assert row.endswith(f"  {shown}")


def test_peek_shortens_a_long_body(shell: Shell, queue: shmq.Queue) -> None:
    queue.put("x" * 100_000)

    (_, row) = shell("peek", "-q", "jobs").lines

    assert row.endswith("xxx…")
    assert "97.7 KiB" in row


@pytest.mark.prove
def test_list_tells_every_queue_with_its_depths(
    shell: Shell, broker: shmq.Broker, queue: shmq.Queue
) -> None:
    queue.put_many(["a", "b", "c"])
    queue.put("d", delay=3600)
    lease = queue.get()

    told = shell("list", "--json").json

    assert told == [
        {"kind": "queue", **dataclasses.asdict(summary)} for summary in broker.list_queues()
    ]
    assert told[0] == {
        "kind": "queue",
        "name": "jobs",
        "depth": 2,
        "delayed": 1,
        "in_flight": 1,
        "capacity": queue.options.capacity,
        "problem": None,
    }
    heading, jobs, dead = shell("list").lines
    assert heading.split() == ["name", "kind", "visible", "delayed", "in", "flight", "capacity"]
    assert jobs.split() == ["jobs", "queue", "2", "1", "1", "16384"]
    assert dead.split()[0] == "jobs.dlq"
    lease.ack()


@pytest.mark.prove
def test_the_names_alone_are_a_line_each_or_an_array(shell: Shell, queue: shmq.Queue) -> None:
    assert shell("list", "--names").out == b"jobs\njobs.dlq\n"
    assert shell("list", "--names", "--json").json == ["jobs", "jobs.dlq"]


@pytest.mark.prove
def test_a_namespace_without_queues_is_an_empty_list(shell: Shell) -> None:
    ran = shell("list")

    assert ran.out == b""
    assert "shmq create NAME" in ran.error
    assert shell("list", "--json").json == []
    assert shell("stats", "--json").json == []


def test_a_namespace_can_be_given_as_a_flag(shell: Shell, queue: shmq.Queue) -> None:
    other = f"{shell.namespace}-other"

    assert shell("-n", other, "list", "--json").json == []
    assert len(shell("--namespace", shell.namespace, "list", "--json").json) == 2


def test_stats_tell_every_number_of_a_queue_and_its_options(
    shell: Shell, queue: shmq.Queue
) -> None:
    queue.put_many(["a", "b"])
    queue.get().ack()

    told = shell("stats", "-q", "jobs", "--json").json

    assert set(told) == {field.name for field in dataclasses.fields(shmq.QueueStats)} | {
        "kind",
        "options",
    }
    assert (told["name"], told["depth"], told["put"], told["acked"]) == ("jobs", 1, 2, 1)
    assert told["options"] == queue.options.as_dict()


def test_stats_of_a_queue_are_shown_with_units(shell: Shell, queue: shmq.Queue) -> None:
    queue.put("a")

    lines = [" ".join(line.split()) for line in shell("stats", "-q", "jobs").lines]

    assert "depth 1" in lines
    assert "capacity 16,384" in lines
    assert "arena bytes 16.0 MiB" in lines
    assert "visibility timeout 30.0 s" in lines
    assert "ttl none" in lines


@pytest.mark.prove
def test_stats_without_a_name_are_those_of_every_queue(
    shell: Shell, broker: shmq.Broker, queue: shmq.Queue
) -> None:
    broker.create_queue("other")
    queue.put("x")

    told = shell("stats", "--json").json

    assert [one["name"] for one in told] == ["jobs", "jobs.dlq", "other", "other.dlq"]
    heading, *rows = shell("stats").lines
    assert heading.split()[0] == "queue"
    assert [row.split()[0] for row in rows] == ["jobs", "jobs.dlq", "other", "other.dlq"]
    assert rows[0].split()[1] == "1"


@pytest.mark.prove
def test_who_tells_the_processes_attached_but_not_itself(shell: Shell, queue: shmq.Queue) -> None:
    queue.put_many(["a", "b"])
    held = queue.get_many(2)

    (told,) = shell("who", "-q", "jobs", "--json").json

    assert set(told) == {field.name for field in dataclasses.fields(shmq.Attachment)}
    assert (told["pid"], told["leases"], told["alive"]) == (os.getpid(), 2, True)
    assert told["since"] in [one.since for one in queue.attachments()]
    heading, row = shell("who", "-q", "jobs").lines
    assert heading.split() == ["pid", "name", "leases", "since", "alive"]
    assert row.split()[0] == str(os.getpid())
    assert row.split()[-1] == "yes"
    queue.ack_many(held)


@pytest.mark.prove
def test_nobody_attached_is_an_empty_list(shell: Shell) -> None:
    shell("create", "-q", "jobs")

    assert shell("who", "-q", "jobs", "--json").json == []
    assert "nobody is attached" in shell("who", "-q", "jobs").error


def test_a_table_fits_the_terminal_it_is_shown_on(shell: Shell, queue: shmq.Queue) -> None:
    queue.put("x" * 500)

    with terminal() as (ours, theirs):
        shown = shell.start("peek", "-q", "jobs", stdout=theirs, stderr=subprocess.DEVNULL)
        seen = read_until(ours, b"xx")
        eventually(lambda: shown.poll() is not None, "the command ended")

    assert b"\xe2\x94\x80" in seen
    assert shown.returncode == 0


@pytest.mark.parametrize("command", ["peek", "stats", "who", "redrive", "consume"])
def test_a_missing_queue_has_an_exit_code_of_its_own(shell: Shell, command: str) -> None:
    ran = shell(command, "-q", "nowhere", code=Code.NO_QUEUE)

    assert "'nowhere'" in ran.error
    assert ran.out == b""


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [(["list"], {"SHMQ_NAMESPACE": "no spaces"}), (["-n", "", "list"], {})],
)
def test_a_wrong_namespace_is_wrong_usage(
    invoke: Invoke, arguments: list[str], environment: dict[str, str]
) -> None:
    result = invoke(*arguments, env=environment)

    assert result.exit_code == Code.USAGE
    assert "namespace" in result.stderr


@pytest.mark.prove
@pytest.mark.debris
def test_a_list_has_a_row_for_each_queue_that_cannot_be_used(
    shell: Shell, broker: shmq.Broker, queue: shmq.Queue
) -> None:
    stem = f"/dev/shm/shmq@{shell.namespace}@"
    broker.create_queue("open", dead_letter=None).close()
    broker.create_queue("newer", dead_letter=None).close()
    Path(f"{stem}open").chmod(0o666)
    with Path(f"{stem}newer").open("r+b") as file:
        file.write(b"\xff\xff")
    Path(f"{stem}folder").mkdir()
    Path(f"{stem}no name").touch(0o600)
    os.mkfifo(f"{stem}pipe", 0o600)
    Path(f"{stem}link").symlink_to("/dev/zero")

    rows = {one["name"]: one["problem"] for one in shell("list", "--json").json}

    assert [name for name, problem in rows.items() if problem is None] == ["jobs", "jobs.dlq"]
    assert set(rows) - {"jobs", "jobs.dlq"} == {
        *("folder", "link", "newer", "no name", "open", "pipe")
    }
    assert len(shell("list").lines) == 1 + len(rows)
    Path(f"{stem}folder").rmdir()
