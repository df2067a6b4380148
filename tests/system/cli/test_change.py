"""``shmq delete``, ``purge`` and ``redrive``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

import shmq
from shmq.cli.shared.exit_codes import Code
from tests.support.shell import Shell, ended, read_until, terminal
from tests.support.waiting import eventually
from tests.system.cli.conftest import Quick


def names(broker: shmq.Broker) -> list[str]:
    return [queue.name for queue in broker.list_queues()]


def test_delete_takes_the_queue_and_leaves_its_dead_letters(
    quick: Quick, broker: shmq.Broker, queue: shmq.Queue
) -> None:
    queue.put("x")
    queue.get_nowait().reject()

    assert quick("delete", "-q", "jobs", "--yes").text == "queue 'jobs' is deleted\n"
    assert names(broker) == ["jobs.dlq"]
    assert quick("delete", "-q", "jobs.dlq", "-y", "--json").json == {
        "namespace": quick.namespace,
        "kind": "queue",
        "deleted": "jobs.dlq",
    }
    assert names(broker) == []


def test_purge_removes_what_is_visible_or_delayed(quick: Quick, queue: shmq.Queue) -> None:
    queue.put_many(["a", "b", "c"])
    queue.put("d", delay=3600)
    lease = queue.get()

    assert quick("purge", "-q", "jobs", "--yes", "--json").json == {"queue": "jobs", "purged": 3}

    assert (queue.qsize(), queue.stats().in_flight) == (0, 1)
    lease.ack()
    assert quick("purge", "-q", "jobs", "--yes").text == "0 messages removed from queue 'jobs'\n"


def test_release_returns_what_a_name_holds(quick: Quick, queue: shmq.Queue) -> None:
    queue.put_many(["a", "b", "c"])
    claim = queue.bulk().take_over("query").claim
    queue.bulk().lease_run(2, claim=claim, epoch=1)
    assert "query" in quick("peek", "-q", "jobs", "--leased").text

    assert quick("release", "-q", "jobs", "--holder", "other", "-y", "--json").json == {
        "queue": "jobs",
        "holder": "other",
        "returned": 0,
    }
    said = quick("release", "-q", "jobs", "--holder", "query", "--yes").text
    assert said == "2 messages returned to queue 'jobs'\n"
    assert queue.qsize() == 3
    assert not queue.bulk().is_claimed(claim)
    ran = quick("release", "-q", "jobs", "--holder", b"\xff", "--yes", code=Code.USAGE)
    assert "'--holder'" in ran.error and "is not UTF-8" in ran.error
    ran = quick("release", "-q", "jobs", "--holder", "", "--yes", code=Code.USAGE)
    assert "'--holder': '' must be 1 to 200 bytes of UTF-8, and has 0" in ran.error


@pytest.mark.parametrize("command", ["delete", "purge"])
def test_what_cannot_be_undone_needs_a_yes_without_a_terminal(
    quick: Quick, queue: shmq.Queue, command: str
) -> None:
    queue.put("x")

    ran = quick(command, "-q", "jobs", stdin=b"y\n", code=Code.USAGE)

    assert "--yes" in ran.error
    assert queue.qsize() == 1


@pytest.mark.parametrize(
    ("answer", "code", "remaining"), [(b"y\n", Code.OK, 0), (b"n\n", Code.REFUSED, 3)]
)
@pytest.mark.parametrize("command", ["delete", "purge"])
def test_a_terminal_is_asked_and_told_how_much_is_lost(
    shell: Shell,
    broker: shmq.Broker,
    queue: shmq.Queue,
    command: str,
    answer: bytes,
    code: int,
    remaining: int,
) -> None:
    queue.put_many(["a", "b", "c"])

    with terminal() as (ours, theirs):
        asking = shell.start(
            command, "-q", "jobs", stdin=theirs, stdout=subprocess.PIPE, stderr=theirs
        )
        assert b"3 messages" in read_until(ours, b"[y/N]")
        os.write(ours, answer)
        ran = ended(asking)
        if code:
            assert b"nothing was changed" in read_until(ours, b"changed")

    assert ran.code == code
    left = {queue.name: queue.depth for queue in broker.list_queues()}
    assert left.get("jobs", 0) == remaining


def test_ctrl_c_at_the_question_changes_nothing(
    shell: Shell, broker: shmq.Broker, queue: shmq.Queue
) -> None:
    with terminal() as (ours, theirs):
        asking = shell.start(
            "delete", "-q", "jobs", stdin=theirs, stdout=subprocess.PIPE, stderr=theirs
        )
        read_until(ours, b"[y/N]")
        process = psutil.Process(asking.pid)
        eventually(lambda: process.status() == psutil.STATUS_SLEEPING, "it waits for an answer")
        asking.send_signal(signal.SIGINT)
        ran = ended(asking)

    assert (ran.code, ran.out) == (Code.INTERRUPTED, b"")
    assert "jobs" in names(broker)


@pytest.mark.parametrize("command", ["delete", "purge"])
@pytest.mark.parametrize("flags", [[], ["--yes"]])
def test_a_missing_queue_is_missing_before_anyone_is_asked(
    quick: Quick, command: str, flags: list[str]
) -> None:
    assert "'nowhere'" in quick(command, "-q", "nowhere", *flags, code=Code.NO_QUEUE).error


@pytest.mark.parametrize("name", ["jobs", "jobs.dlq"])
def test_redrive_sends_dead_letters_back(quick: Quick, queue: shmq.Queue, name: str) -> None:
    queue.put_many(["a", "b", "c"])
    for message in queue.get_many(3):
        message.reject()

    assert quick("redrive", "-q", name, "-n", "1", "--json").json == {"queue": name, "redriven": 1}
    assert queue.qsize() == 1
    assert quick("redrive", "-q", name).text == "2 dead letters sent back\n"
    assert queue.qsize() == 3
    assert quick("redrive", "-q", name).text == "0 dead letters sent back\n"


def test_move_moves_what_is_visible_and_says_what_is_left(
    quick: Quick, queue: shmq.Queue, broker: shmq.Broker
) -> None:
    target = broker.create_queue("jobs2")
    queue.put_many(["a", "b", "c"])
    queue.put("later", delay=3600)
    held = queue.get()

    ran = quick("move", "jobs", "--to", "jobs2", "-n", "1", "--json")
    assert ran.json == {
        "queue": "jobs", "to": "jobs2", "moved": 1, "depth": 1, "delayed": 1, "in_flight": 1,
    }  # fmt: skip
    ran = quick("move", "-q", "jobs", "--to", "jobs2")
    assert ran.text == "1 message moved to queue 'jobs2'\n"
    assert "2 messages left in 'jobs': 0 visible, 1 delayed, 1 in flight" in ran.err.decode()
    assert target.qsize() == 2
    held.ack()


@pytest.mark.parametrize(
    ("given", "code", "why"),
    [
        (["--to", "jobs"], Code.USAGE, "itself"),
        (["--to", "nowhere"], Code.NO_QUEUE, "'nowhere'"),
        ([], Code.USAGE, "--to"),
        (["--to", "jobs2", "-n", "0"], Code.USAGE, "0"),
        (["--to", "jobs2", "--where", "header.a ="], Code.USAGE, "--where"),
    ],
)
def test_move_says_why_it_cannot(
    quick: Quick, queue: shmq.Queue, broker: shmq.Broker, given: list[str], code: Code, why: str
) -> None:
    broker.create_queue("jobs2")
    queue.put("stays")
    assert why in quick("move", "jobs", *given, code=code).error
    assert queue.qsize() == 1


def make_dead_letter(queue: shmq.Queue, body: object, **properties: Any) -> None:
    queue.put(body, **properties)
    queue.get().reject()


@pytest.mark.parametrize("name", ["jobs", "jobs.dlq"])
def test_redrive_sends_back_those_that_the_expression_means(
    quick: Quick, queue: shmq.Queue, name: str
) -> None:
    make_dead_letter(queue, "a", headers={"source": "web"})
    make_dead_letter(queue, "b")

    told = quick("redrive", "-q", name, "--where", "header.source = 'web'", "--json")

    assert told.json == {"queue": name, "redriven": 1}
    assert queue.get(timeout=0).body == "a"


def test_redrive_reads_the_expression_from_a_file(
    quick: Quick, queue: shmq.Queue, tmp_path: Path
) -> None:
    make_dead_letter(queue, "a", group="x")
    make_dead_letter(queue, "b")
    file = tmp_path / "which"
    file.write_text("group = 'x'\n  and reason = 'rejected'\n")

    assert quick("redrive", "-q", "jobs", "--where", f"@{file}").text == "1 dead letter sent back\n"
    assert queue.get(timeout=0).body == "a"


def test_redrive_takes_rows_of_a_triage(quick: Quick, queue: shmq.Queue, tmp_path: Path) -> None:
    for body in ("a", 1, 1.5, b"x"):
        make_dead_letter(queue, body)
    file = tmp_path / "triage.json"
    rows = [
        {"row": 1, "where": "codec = 'text'"},
        {"row": 2, "where": "shape = 'int'"},
        {"row": 3, "where": "shape = 'float' or shape = 'never'"},
    ]
    file.write_text(json.dumps({"queue": "jobs.dlq", "rows": rows}))
    chosen = ("redrive", "-q", "jobs.dlq", "--where", f"@{file}")

    assert quick(*chosen, "--row", "2", "--json").json["redriven"] == 1
    assert queue.get(timeout=0).body == 1
    assert quick(*chosen, "--json").json["redriven"] == 2
    assert [queue.get(timeout=0).body for _ in range(2)] == ["a", 1.5]


@pytest.mark.parametrize(
    ("text", "flags", "why"),
    [
        (None, ["--where", "reson = 'x'"], "did you mean 'reason'"),
        (None, ["--row", "1"], "--where @FILE"),
        ("reason = 'x'", ["--where", "@FILE", "--row", "1"], "has no rows"),
        ('{"rows": [{"row": 1, "where": "age > 1"}]}', ["--where", "@FILE", "--row", "2"], "row 2"),
        ('{"rows": []}', ["--where", "@FILE"], "it has none"),
        ('{"lines": 5}', ["--where", "@FILE"], "was not written by shmq pipeline triage"),
        ("{nope", ["--where", "@FILE"], "was not written by shmq pipeline triage"),
    ],
)
def test_redrive_refuses_what_it_cannot_choose_by(
    quick: Quick, queue: shmq.Queue, tmp_path: Path, text: str | None, flags: list[str], why: str
) -> None:
    make_dead_letter(queue, "a")
    if text is not None:
        (tmp_path / "file").write_text(text)

    given = [flag.replace("FILE", str(tmp_path / "file")) for flag in flags]

    assert why in quick("redrive", "-q", "jobs", *given, code=Code.USAGE).error
    assert queue.qsize() == 0


def test_redrive_names_the_file_that_it_cannot_read(quick: Quick, queue: shmq.Queue) -> None:
    error = quick("redrive", "-q", "jobs", "--where", "@nowhere", code=Code.REFUSED).error

    assert "nowhere" in error


@pytest.mark.parametrize(
    ("where", "code", "why"),
    [
        ("@", Code.USAGE, "--where @: name a file after the @"),
        ("@/", Code.REFUSED, "--where @/: cannot be read: Is a directory"),
    ],
)
def test_an_expression_in_a_file_that_cannot_be_read_is_refused_as_it_was_given(
    quick: Quick, queue: shmq.Queue, where: str, code: Code, why: str
) -> None:
    assert why in quick("redrive", "-q", "jobs", "--where", where, code=code).error


def test_an_expression_that_cannot_be_parsed_is_refused_for_an_empty_queue_too(
    quick: Quick, queue: shmq.Queue, broker: shmq.Broker
) -> None:
    broker.create_queue("other", dead_letter=None)
    given = ("move", "jobs", "--to", "other", "--where", "garbage ((")
    assert "--where" in quick(*given, code=Code.USAGE).error
