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
from tests.support.shell import Shell, read_until, terminal
from tests.support.waiting import eventually
from tests.system.cli.conftest import Quick

Invoke = Callable[..., Result]


def test_peek_shows_what_would_be_served_first_and_takes_nothing(
    quick: Quick, queue: shmq.Queue
) -> None:
    queue.put("later")
    queue.put("first", priority=shmq.HIGH, group="g")

    heading, *rows = quick("peek", "-q", "jobs").lines

    assert " ".join(heading.split()) == "sequence priority deliveries group codec size body"
    assert [row.split()[-1] for row in rows] == ["first", "later"]
    assert "g" in rows[0].split()
    assert (queue.qsize(), queue.stats().in_flight) == (2, 0)


def test_peek_shows_those_that_are_meant(quick: Quick, queue: shmq.Queue) -> None:
    queue.put({"total": 3}, headers={"region": "eu"})
    queue.put({"total": 9}, headers={"region": "eu"})
    queue.put({"total": 9})

    shown = quick(
        "peek", "-q", "jobs", "--json", "--where", "header.region = 'eu' and body.total > 5"
    )

    assert [message["sequence"] for message in shown.json] == [2]
    quick("peek", "-q", "jobs", "--where", "header.region = 'us'", code=Code.NOTHING)


def test_peek_shows_no_more_than_the_count(quick: Quick, queue: shmq.Queue) -> None:
    queue.put_many(map(str, range(30)))

    assert len(quick("peek", "-q", "jobs", "--json").json) == 10
    assert len(quick("peek", "-q", "jobs", "-n", "25", "--json").json) == 25


def test_a_packed_batch_is_shown_as_its_records(quick: Quick, queue: shmq.Queue) -> None:
    queue.put_packed(b"aabbb", [2, 3])
    with queue.loan(20, codec="packed") as view:
        view[:] = b"it is not; it is not"
    records = [{"base64": "YWE="}, {"base64": "YmJi"}]

    _, *rows = quick("peek", "-q", "jobs").lines
    peeked, malformed = quick("peek", "-q", "jobs", "--json").json
    consumed = quick("consume", "-q", "jobs", "-n", "2").lines

    assert rows[0].split()[-1] == consumed[0] == json.dumps(records, separators=(",", ":"))
    assert (peeked["codec"], peeked["body"], peeked["encoding"]) == ("packed", records, "json")
    assert malformed["encoding"] == "base64"
    assert consumed[1] == "it is not; it is not"


def test_peek_tells_the_same_as_consume_in_json(quick: Quick, queue: shmq.Queue) -> None:
    queue.put(b"\xff", headers={"a": 1})

    (peeked,) = quick("peek", "-q", "jobs", "--json").json
    consumed = quick("consume", "-q", "jobs", "--json").json

    assert peeked["body"] == "/w=="
    assert {**peeked, "delivery_count": 1} == consumed


def test_peek_of_an_empty_queue_has_an_exit_code_of_its_own(
    quick: Quick, queue: shmq.Queue
) -> None:
    assert quick("peek", "-q", "jobs", code=Code.NOTHING).out == b""
    assert quick("peek", "-q", "jobs", "--json", code=Code.NOTHING).json == []


def test_peek_tells_why_a_letter_is_dead(quick: Quick, queue: shmq.Queue) -> None:
    queue.put("poison")
    queue.get().reject()

    assert "rejected in jobs after 1" in quick("peek", "-q", "jobs.dlq").text
    (dead,) = quick("peek", "-q", "jobs.dlq", "--json").json
    assert (dead["dead"]["reason"], dead["dead"]["queue"]) == ("rejected", "jobs")


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
    quick: Quick, queue: shmq.Queue, body: object, shown: str
) -> None:
    queue.put(body)

    (_, row) = quick("peek", "-q", "jobs").lines

    assert row.endswith(f"  {shown}")


def test_peek_shows_who_has_leased_what(quick: Quick, queue: shmq.Queue) -> None:
    queue.put_many(["waits", "held"])
    assert quick("peek", "--leased", "jobs", code=Code.NOTHING).out == b""
    held = queue.get()

    (lease,) = quick("peek", "--leased", "jobs", "--json").json
    heading, row = quick("peek", "--leased", "jobs").lines

    assert (lease["sequence"], lease["holder_pid"]) == (held.sequence, os.getpid())
    assert 0 < lease["expires_in"] <= queue.options.visibility_timeout + 1
    assert "receipt" not in lease
    assert heading.split()[:6] == ["sequence", "priority", "deliveries", "size", "pid", "holder"]
    assert str(os.getpid()) in row.split()
    quick("peek", "--leased", "jobs", "--where", "size > 1", code=Code.USAGE)


def test_stats_show_the_reasons_that_there_are(quick: Quick, queue: shmq.Queue) -> None:
    queue.put("x")
    queue.get().reject()

    shown = quick("stats", "-q", "jobs").text

    assert "dead lettered rejected" in shown
    assert "dead lettered expired" not in shown
    assert quick("stats", "-q", "jobs", "--json").json["dead_lettered_expired"] == 0


def test_peek_shortens_a_long_body(quick: Quick, queue: shmq.Queue) -> None:
    queue.put("x" * 100_000)

    (_, row) = quick("peek", "-q", "jobs").lines

    assert row.endswith("xxx…")
    assert "97.7 KiB" in row


def test_list_tells_every_queue_with_its_depths(
    quick: Quick, broker: shmq.Broker, queue: shmq.Queue
) -> None:
    queue.put_many(["a", "b", "c"])
    queue.put("d", delay=3600)
    lease = queue.get()

    told = quick("list", "--json").json

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
    heading, jobs, dead = quick("list").lines
    assert heading.split() == ["name", "kind", "visible", "delayed", "in", "flight", "capacity"]
    assert jobs.split() == ["jobs", "queue", "2", "1", "1", "16384"]
    assert dead.split()[0] == "jobs.dlq"
    lease.ack()


def test_the_names_alone_are_a_line_each_or_an_array(quick: Quick, queue: shmq.Queue) -> None:
    assert quick("list", "--names").out == b"jobs\njobs.dlq\n"
    assert quick("list", "--names", "--json").json == ["jobs", "jobs.dlq"]


def test_a_namespace_without_queues_is_an_empty_list(quick: Quick) -> None:
    ran = quick("list")

    assert ran.out == b""
    assert "shmq create NAME" in ran.error
    assert quick("list", "--json").json == []
    assert quick("stats", "--json").json == []


def test_a_namespace_can_be_given_as_a_flag(quick: Quick, queue: shmq.Queue) -> None:
    other = f"{quick.namespace}-other"

    assert quick("-n", other, "list", "--json").json == []
    assert len(quick("--namespace", quick.namespace, "list", "--json").json) == 2


def test_stats_tell_every_number_of_a_queue_and_its_options(
    quick: Quick, queue: shmq.Queue
) -> None:
    queue.put_many(["a", "b"])
    queue.get().ack()

    told = quick("stats", "-q", "jobs", "--json").json

    assert set(told) == {field.name for field in dataclasses.fields(shmq.QueueStats)} | {
        "kind",
        "options",
    }
    assert (told["name"], told["depth"], told["put"], told["acked"]) == ("jobs", 1, 2, 1)
    assert told["options"] == queue.options.as_dict()


def test_stats_of_a_queue_are_shown_with_units(quick: Quick, queue: shmq.Queue) -> None:
    queue.put("a")

    lines = [" ".join(line.split()) for line in quick("stats", "-q", "jobs").lines]

    assert "depth 1" in lines
    assert "capacity 16,384" in lines
    assert "arena bytes 16.0 MiB" in lines
    assert "visibility timeout 30.0 s" in lines
    assert "ttl none" in lines


def test_stats_without_a_name_are_those_of_every_queue(
    quick: Quick, broker: shmq.Broker, queue: shmq.Queue
) -> None:
    broker.create_queue("other")
    queue.put("x")

    told = quick("stats", "--json").json

    assert [one["name"] for one in told] == ["jobs", "jobs.dlq", "other", "other.dlq"]
    heading, *rows = quick("stats").lines
    assert heading.split()[0] == "queue"
    assert [row.split()[0] for row in rows] == ["jobs", "jobs.dlq", "other", "other.dlq"]
    assert rows[0].split()[1] == "1"


def fail(queue: shmq.Queue, *errors: BaseException | shmq.Failure | str) -> None:
    """Fail a delivery with each, so that it waits for the next."""
    for error in errors:
        queue.put("body")
        queue.get().nack(60, error=error)


ODD = shmq.Failure('a"b\n<b>\x1b[31m\udcff', "text")


def test_stats_of_a_queue_count_its_failures_by_type(quick: Quick, queue: shmq.Queue) -> None:
    fail(queue, ValueError("a"), ValueError("b"), ODD)

    told = quick("stats", "-q", "jobs", "--json").json
    shown = quick("stats", "-q", "jobs")

    assert told["errors"] == {"ValueError": 2, 'a"b\n<b>\x1b[31m\\udcff': 1}
    lines = [" ".join(line.split()) for line in shown.lines]
    assert "ValueError 2" in lines
    assert lines.index("errors value") < lines.index("ValueError 2") < lines.index("options value")
    assert b"\x1b" not in shown.out


def test_stats_group_failed_messages_and_dead_letters_by_error(
    quick: Quick, queue: shmq.Queue, broker: shmq.Broker
) -> None:
    queue.put("not failed")
    queue.get().ack()
    fail(queue, ValueError("SMTP refused"), ValueError("SMTP refused"), ODD)
    for reason in ("it's spam", None):
        queue.put("body")
        queue.get().reject(reason)

    waiting = quick("stats", "-q", "jobs", "--errors", "--json").json
    assert (waiting["name"], waiting["read"], waiting["more"]) == ("jobs", 3, False)
    assert [(one["messages"], one["reason"]) for one in waiting["errors"]] == [
        (2, "retry"),
        (1, "retry"),
    ]
    assert waiting["errors"][0]["error"] == "ValueError: SMTP refused"
    dead = quick("stats", "-q", "jobs.dlq", "--errors", "--json").json
    assert [(one["messages"], one["reason"], one["error"]) for one in dead["errors"]] == [
        (1, "rejected", "it's spam"),
        (1, "rejected", None),
    ]
    shown = quick("stats", "jobs", "--errors", "--kind", "queue")
    heading, *rows = shown.lines
    assert heading.split() == ["messages", "reason", "error"]
    assert rows[0].split() == ["2", "retry", "ValueError:", "SMTP", "refused"]
    assert b"\x1b" not in shown.out
    assert "2 dead letters in 'jobs.dlq': shmq stats jobs.dlq --errors" in shown.error
    for one in dead["errors"]:
        assert broker.queue("jobs.dlq").redrive(where=one["where"]) == 1


def test_stats_read_no_more_messages_than_the_count(quick: Quick, queue: shmq.Queue) -> None:
    fail(queue, "one", "two", "three")

    told = quick("stats", "-q", "jobs", "--errors", "-n", "2", "--json").json
    assert (told["read"], told["more"], len(told["errors"])) == (2, True, 2)
    assert "2 messages found were read" in quick("stats", "-q", "jobs", "--errors", "-n", "2").error
    assert not quick("stats", "-q", "jobs", "--errors", "-n", "3", "--json").json["more"]


def test_stats_of_a_queue_without_failures_say_so(quick: Quick, queue: shmq.Queue) -> None:
    queue.put("body")
    ran = quick("stats", "-q", "jobs", "--errors")
    assert ran.out == b""
    assert "no message of queue 'jobs' has failed" in ran.error
    assert "dead letter" not in ran.error


@pytest.mark.parametrize(
    "arguments", [["--errors"], ["jobs", "--errors", "--watch"], ["jobs", "--count", "3"]]
)
def test_errors_are_those_of_one_queue(
    quick: Quick, queue: shmq.Queue, arguments: list[str]
) -> None:
    quick("stats", *arguments, code=Code.USAGE)


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


def test_a_queue_without_processes_is_an_empty_list(quick: Quick) -> None:
    quick("create", "-q", "jobs")

    assert quick("who", "-q", "jobs", "--json").json == []
    assert "no process is attached" in quick("who", "-q", "jobs").error


def test_a_table_fits_the_terminal_it_is_shown_on(shell: Shell, queue: shmq.Queue) -> None:
    queue.put("x" * 500)

    with terminal() as (ours, theirs):
        shown = shell.start("peek", "-q", "jobs", stdout=theirs, stderr=subprocess.DEVNULL)
        seen = read_until(ours, b"xx")
        eventually(lambda: shown.poll() is not None, "the command ended")

    assert b"\xe2\x94\x80" in seen
    assert shown.returncode == 0


@pytest.mark.parametrize("command", ["peek", "stats", "who", "redrive", "consume"])
def test_a_missing_queue_has_an_exit_code_of_its_own(quick: Quick, command: str) -> None:
    ran = quick(command, "-q", "nowhere", code=Code.NO_QUEUE)

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


@pytest.mark.debris
def test_a_list_has_a_row_for_each_queue_that_cannot_be_used(
    quick: Quick, broker: shmq.Broker, queue: shmq.Queue
) -> None:
    stem = f"/dev/shm/shmq@{quick.namespace}@"
    broker.create_queue("open", dead_letter=None).close()
    broker.create_queue("newer", dead_letter=None).close()
    Path(f"{stem}open").chmod(0o666)
    with Path(f"{stem}newer").open("r+b") as file:
        file.write(b"\xff\xff")
    Path(f"{stem}folder").mkdir()
    Path(f"{stem}no name").touch(0o600)
    os.mkfifo(f"{stem}pipe", 0o600)
    Path(f"{stem}link").symlink_to("/dev/zero")

    def listed() -> dict[str, str | None]:
        return {one["name"]: one["problem"] for one in quick("list", "--json").json}

    damaged = {"folder", "link", "newer", "no name", "open", "pipe"}
    # Where the host has many files, their names are those of the last second.
    eventually(lambda: set(listed()) == {"jobs", "jobs.dlq"} | damaged, "each has a row")
    rows = listed()
    assert [name for name, problem in rows.items() if problem is None] == ["jobs", "jobs.dlq"]
    assert len(quick("list").lines) == 1 + len(rows)
    Path(f"{stem}folder").rmdir()
