"""``SHMQ_AUDIT_LOG``: what commands change on this host."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import shmq
from tests.support.shell import Shell


def test_each_changing_command_is_one_event(
    quick: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, schema = tmp_path / "audit.jsonl", tmp_path / "s.json"
    schema.write_text('{"type": "object"}')
    monkeypatch.setenv("SHMQ_AUDIT_LOG", str(path))
    for line in (
        "create shop",
        "purge shop --yes",
        "redrive shop",
        "create shop2",
        "move shop --to shop2",
        f"schema set shop {schema}",
        "stream create clicks",
        "stream repartition clicks --partitions 8",
        "exchange create events --kind fanout",
        "exchange bind events shop",
        "exchange unbind events shop",
        "delete events --yes",
        "delete clicks --yes",
        "delete shop --yes",
        "list",
    ):
        quick(*line.split())
    quick("create", "shop", "--capacity", "10")
    quick("create", "shop", "--capacity", "20", code=6)
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [each["event"] for each in found] == [
        "queue.create", "queue.purge", "queue.redrive", "queue.create", "queue.move", "schema.set",
        "stream.create", "stream.repartition", "exchange.create", "exchange.bind",
        "exchange.unbind",
        "exchange.delete", "stream.delete", "queue.delete", "queue.create", "queue.create",
    ]  # fmt: skip
    assert [each["outcome"] for each in found][-2:] == ["ok", "queue_exists"]
    assert {(each["peer"], each["via"], each["uid"]) for each in found} == {
        ("local", "cli", os.getuid())
    }


def test_nothing_is_changed_if_the_file_cannot_be_written(
    quick: Shell, broker: shmq.Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHMQ_AUDIT_LOG", str(tmp_path))
    ran = quick("create", "unaudited", code=2)
    assert b"cannot be written" in ran.err
    assert "unaudited" not in broker.queue_names()


def test_a_server_whose_audit_log_cannot_be_written_does_not_start(
    shell: Shell, tmp_path: Path
) -> None:
    ran = shell("serve", "--port", "0", "--audit-log", str(tmp_path / "absent" / "log"), code=2)
    assert b"cannot be written" in ran.err
