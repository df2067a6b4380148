"""Audit events: their text, their JSON, the file, and what keeps floods out of the log."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

import shmq
from shmq.host.supervision.audit import Actor, Event, EventLimit, outcome_of, record, to_file
from shmq.host.supervision.stderr import JsonFormatter
from shmq.protocol.opcodes import AUDIT

WHO = Actor(who="billing", peer="127.0.0.1:4711", via="tcp")


def test_every_event_of_the_protocol_is_in_the_table() -> None:
    for events in AUDIT.values():
        assert {Event(event) for event in events.values()} <= set(Event)


def test_an_event_is_one_line_of_keys_and_values(caplog: pytest.LogCaptureFixture) -> None:
    with to_file(None), caplog.at_level(logging.INFO, "shmq.audit"):
        record(Event.QUEUE_PURGE, "orders", "ok", WHO, messages=3)
    assert caplog.messages == [
        (
            "audit event=queue.purge name=orders outcome=ok who=billing peer=127.0.0.1:4711 via=tcp "  # noqa: E501
            f"pid={os.getpid()} uid={os.getuid()} messages=3"
        )
    ]


def test_hostile_values_stay_in_their_field_and_are_cut(caplog: pytest.LogCaptureFixture) -> None:
    hostile = 'x\nevent=login.ok who=root "\x1b[2J\x7f\u2028\ud800' + "a" * 1000
    with caplog.at_level(logging.INFO, "shmq.audit"):
        record(Event.LOGIN_FAILED, "", "unauthorized", WHO, client=hostile)
    (line,) = caplog.messages
    assert line.isascii()
    assert line.isprintable()
    assert line.count(" event=") == 1
    assert r'client="x\nevent=' in line
    assert len(line) < 600
    formatted = JsonFormatter().format(caplog.records[0])
    assert formatted.isascii()
    assert formatted.isprintable()
    assert len(json.loads(formatted)["client"]) == 256


def test_a_line_of_json_has_the_time_and_the_exception() -> None:
    try:
        raise ValueError("no\nway")
    except ValueError:
        import sys

        made = logging.LogRecord("shmq.x", 40, "f", 1, "it %s", ("failed",), sys.exc_info())
    made.created = 1_700_000_000.25
    line = JsonFormatter().format(made)
    assert "\n" not in line
    found = json.loads(line)
    assert "ValueError" in found.pop("exception")
    assert found == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "error",
        "logger": "shmq.x",
        "process": os.getpid(),
        "message": "it failed",
    }


def test_the_file_has_one_line_for_each_event_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with to_file(path):
        record(Event.QUEUE_CREATE, "a", "ok", WHO)
        path.rename(tmp_path / "audit.1")  # as logrotate does
        record(Event.QUEUE_DELETE, "a", "no_queue", WHO)
    assert json.loads((tmp_path / "audit.1").read_text())["event"] == "queue.create"
    assert json.loads(path.read_text())["outcome"] == "no_queue"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_written_is_refused_before_anything(tmp_path: Path) -> None:
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(tmp_path / "elsewhere")
    os.mkfifo(pipe)
    for path in (tmp_path, tmp_path / "absent" / "file", link, pipe):
        with (
            pytest.raises(shmq.InvalidOption, match=r"cannot be written.*nothing was"),
            to_file(path),
        ):
            pytest.fail("the block must not begin")
    assert not (tmp_path / "elsewhere").exists()


def test_an_outcome_is_the_word_of_the_wire() -> None:
    assert outcome_of(None) == "ok"
    assert outcome_of(shmq.NoSuchQueue("x")) == "no_queue"
    assert outcome_of(shmq.Forbidden("x")) == "forbidden"
    assert outcome_of(KeyError("x")) == "KeyError"


def test_a_limit_lets_ten_events_through_and_then_one_a_second() -> None:
    now = [0.0]
    limit = EventLimit(clock=lambda: now[0])
    assert [limit.take() for _ in range(12)] == [{}] * 10 + [None, None]
    now[0] = 1.5
    assert limit.take() == {"left_out": 2}
    assert limit.take() is None
