"""What ``docs/protocol.md`` says in tables and in hex is what the sources say."""

from __future__ import annotations

import re
import struct

import pytest

from shmq.api.options import QueueOptions
from shmq.api.stream_options import StreamOptions
from shmq.protocol.opcodes import DEFAULT_PORT, HEADER, MAGIC, MAX_HELLO, MORE, Flag, Status, Type
from tests.unit.protocol.page import PAGE, Frame, frames

TEXT = PAGE.read_text()
FRAMES = frames()


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading, as plain text."""
    part = re.search(rf"^#+ {heading}\n(.*?)(?=^#|\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert part, heading
    plain = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", part[1]).replace("`", "")
    lines = re.findall(r"^\| (.*) \|$", plain, re.MULTILINE)
    return [line.split(" | ") for line in lines[2:]]


def test_the_types_are_those_of_the_sources() -> None:
    told = {row[1]: int(row[0], 0) for row in rows("Types")}

    assert told == {kind.name: kind.value for kind in Type}


def test_the_statuses_are_those_of_the_sources() -> None:
    told = {row[1]: int(row[0], 0) for row in rows("Status")}

    assert told == {status.name: status.value for status in Status} | {"MORE": MORE}


def test_the_flags_are_those_of_the_sources() -> None:
    told = {(int(row[0], 0), on.strip()) for row in rows("Flags") for on in row[1].split(",")}

    assert told == {
        (Flag.PROPERTIES, "PRODUCE"),
        (Flag.PROPERTIES, "a message of a PRODUCE_BATCH"),
        (Flag.PROPERTIES, "DELIVER"),
        (Flag.DURABLE, "PRODUCE"),
        (Flag.DURABLE, "PRODUCE_BATCH itself"),
        (Flag.SETTLED, "CONSUME"),
        (Flag.SETTLED, "SUBSCRIBE"),
        (Flag.CHOSEN, "CONSUME"),
        (Flag.CHOSEN, "SUBSCRIBE"),
        (Flag.REDELIVERED, "DELIVER"),
        (Flag.DURABLE, "APPEND"),
        (Flag.PRODUCER, "APPEND"),
        (Flag.GAPS, "APPEND"),
    }


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
