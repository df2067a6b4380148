"""What ``docs/protocol.md`` says in tables and in hex is what the sources say."""

from __future__ import annotations

import importlib.util
import re
import struct
from typing import Any

import pytest

from shmq.api.options import QueueOptions
from shmq.api.stream_options import StreamOptions
from shmq.protocol.opcodes import DEFAULT_PORT, HEADER, MAGIC, MAX_HELLO, MORE, Status, Type
from tests.unit.protocol.page import PAGE, Frame, frames


def _generator() -> Any:
    path = PAGE.parents[1] / "tools/protocol.py"
    spec = importlib.util.spec_from_file_location("protocol_generator", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = _generator()
TEXT = PAGE.read_text()
FRAMES = frames()


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading, as plain text."""
    part = re.search(rf"^#+ {heading}\n(.*?)(?=^#|\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert part, heading
    plain = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", part[1]).replace("`", "")
    lines = re.findall(r"^\| (.*) \|$", plain, re.MULTILINE)
    return [line.split(" | ") for line in lines[2:]]


def test_what_is_made_of_the_definition_is_as_the_definition_says() -> None:
    for path, text in GENERATOR.made().items():
        assert path.read_text() == text, f"{path} is older than opcodes.toml: make protocol"


def test_a_change_of_the_definition_shows_in_every_file(monkeypatch: pytest.MonkeyPatch) -> None:
    table = GENERATOR.read()
    table["operation"]["COUNT"] = {
        "number": 0x15,
        "request": ["name", "u32 most"],
        "answer": "REPLY: u64 messages",
        "by": "policy",
        "about": "queue",
        "right": "consume",
    }
    monkeypatch.setattr(GENERATOR, "read", lambda: table)

    made = GENERATOR.made()

    assert "COUNT = 0x15" in made[GENERATOR.PYTHON]
    assert "Type.COUNT: Right.CONSUME" in made[GENERATOR.PYTHON]
    dispatched = made[GENERATOR.HEADER].partition("[SHMQ_T_COUNT] = ")[2].partition("[")[0]
    assert ".path = SHMQ_PATH_QUEUE" in dispatched
    assert ".least = 4" in dispatched
    assert "| 0x15 | [COUNT](#count) | name, u32 most | REPLY: u64 messages |" in made[PAGE]


def test_the_options_of_create_are_those_of_a_queue() -> None:
    told = {key for row in rows("CREATE") for key in row[0].split(", ")}

    assert told == set(QueueOptions().as_dict()) | {"own"}


def test_the_options_of_stream_create_are_those_of_a_stream() -> None:
    told = {key for row in rows("STREAM_CREATE") for key in row[0].split(", ")}

    assert told == set(StreamOptions().as_dict())


def test_the_numbers_are_those_of_the_sources() -> None:
    assert f"on port {DEFAULT_PORT} " in TEXT
    assert f"0x{MAGIC:X}" in TEXT
    assert f"at most {MAX_HELLO:,} bytes" in " ".join(TEXT.split())


@pytest.mark.parametrize("frame", FRAMES, ids=[frame.label for frame in FRAMES])
def test_a_frame_of_a_session_is_what_its_comment_says(frame: Frame) -> None:
    magic, length, kind, version, status, number = struct.unpack(">IIBBHI", frame.header)
    name, identifier, *outcome = re.split(r", |: ", frame.label)

    assert magic == MAGIC or frame.label.endswith("but for the magic")
    assert (name, identifier, version) == (Type(kind).name, f"id {number}", 1)
    assert length == (frame.size or 0)
    if frame.side == "server":
        told = "MORE" if status == MORE else Status(status).name
        assert outcome == ([told] if kind == Type.REPLY or status else [])
    assert len(frame.header) == HEADER


def test_the_sessions_show_what_a_client_needs() -> None:
    shown = {Type(frame.header[8]).name for frame in FRAMES if frame.header[8] in list(Type)}
    outcomes = {frame.label for frame in FRAMES if frame.side == "server"}

    assert {"HELLO", "CREATE", "PRODUCE", "CONSUME", "DELIVER", "ACK", "PRODUCE_BATCH"} <= shown
    assert {"SUBSCRIBE", "UNSUBSCRIBE", "NACK", "REJECT"} <= shown
    assert {"STREAM_CREATE", "STREAM_INFO", "APPEND", "FETCH"} <= shown
    assert any("LEASE_EXPIRED" in label for label in outcomes)
    assert any("BAD_MAGIC" in label for label in outcomes)
