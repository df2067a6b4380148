"""What ``docs/internals/protocol.md`` says in tables and in hex is what the sources say."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from shmq.api.options import QueueOptions
from shmq.api.stream_options import StreamOptions
from shmq.protocol.opcodes import DEFAULT_PORT, HEADER, MAGIC, MAX_HELLO, MORE, Status, Type
from tests.unit.protocol.page import PAGE, Frame, frames
from tools import protocol

TEXT = PAGE.read_text()
FRAMES = frames()


def rows(heading: str) -> list[list[str]]:
    """The cells of the tables under a heading, as plain text."""
    part = re.search(rf"^#+ {heading}\n(.*?)(?=^#|\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert part, heading
    plain = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", part[1]).replace("`", "")
    tables = re.findall(r"(?:^\|.*\|\n)+", plain, re.MULTILINE)
    lines = [line for table in tables for line in table.splitlines()[2:]]
    return [line[2:-2].split(" | ") for line in lines]


def test_what_is_made_of_the_definition_is_as_the_definition_says() -> None:
    for path, text in protocol.made().items():
        assert path.read_text() == text, f"{path} is older than opcodes.toml: make protocol"


def test_a_change_of_the_definition_shows_in_every_file(monkeypatch: pytest.MonkeyPatch) -> None:
    table = protocol.read()
    number = protocol.read()["unused"]  # no real operation ever has it
    table["operation"]["NO_SUCH_OPERATION"] = {
        "number": number,
        "request": ["name", "u32 most"],
        "answer": "REPLY: u64 messages",
        "again": "with `care`",
        "by": "policy",
        "aside": True,
        "about": "queue",
        "right": "consume",
    }
    monkeypatch.setattr(protocol, "read", lambda: table)

    made = protocol.made()

    assert f"NO_SUCH_OPERATION = 0x{number:02X}" in made[protocol.PYTHON]
    assert "Type.NO_SUCH_OPERATION: Right.CONSUME" in made[protocol.PYTHON]
    aside = made[protocol.PYTHON].partition("\nASIDE: ")[2].partition("}")[0]
    assert "Type.NO_SUCH_OPERATION," in aside
    header = made[protocol.HEADER]
    dispatched = header.partition("[SHMQ_T_NO_SUCH_OPERATION] = ")[2].partition("[")[0]
    assert ".path = SHMQ_PATH_QUEUE" in dispatched
    assert ".least = 4" in dispatched
    row = "[NO_SUCH_OPERATION](#no_such_operation) | name, u32 most | REPLY: u64 messages |"
    assert row in made[PAGE]
    assert "Type.NO_SUCH_OPERATION: None," in made[protocol.PYTHON].partition("\nAGAIN: ")[2]
    assert "; NO_SUCH_OPERATION with `care`" in made[PAGE].partition("| only a | ")[2]
    assert (
        "NO_SUCH_OPERATION" in made[PAGE].partition("side threads carry out ")[2].partition(".")[0]
    )


@pytest.mark.parametrize(
    ("key", "said", "error"),
    [
        ("aside", "", "HELLO: aside = true or false"),
        ("aside", 'aside = "yes"\n', "HELLO: aside = true or false"),
        ("again", "", "HELLO: again = true, false or words"),
        ("again", "again = 1\n", "HELLO: again = true, false or words"),
    ],
)
def test_an_operation_must_say_where_it_is_carried_out_and_whether_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: str, said: str, error: str
) -> None:
    source = tmp_path / "opcodes.toml"
    source.write_text(re.sub(rf"(?m)^{key} = .*\n", said, protocol.SOURCE.read_text(), count=1))
    monkeypatch.setattr(protocol, "SOURCE", source)

    with pytest.raises(ValueError, match=error):
        protocol.read()


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
