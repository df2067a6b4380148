"""Names: 1 to 100 of A-Z a-z 0-9 . _ : -, and BAD_REQUEST for any other, in every type."""

from __future__ import annotations

import pytest

from tests.system.wire import frames
from tests.system.wire.client import Wire
from tests.system.wire.frames import NAMED, OPERATIONS, S, T

BAD = {
    "empty": frames.name(b""),
    "101 bytes": frames.name(b"n" * 101),
    "65535 bytes": frames.name(b"n" * 65_535),
    "a space": frames.name(b"a b"),
    "a slash": frames.name(b"../etc"),
    "an at": frames.name(b"a@b"),
    "a zero byte": frames.name(b"a\x00"),
    "not ASCII": frames.name("naïve".encode()),
    "a high byte": frames.name(b"a\xff"),
    "a line feed at the end": frames.name(b"name\n"),
    "no length": b"",
    "half a length": b"\x00",
    "shorter than it says": b"\x00\x05name",
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("type", sorted(NAMED))
def test_any_other_name_is_bad_request_in_every_type(wire: Wire, type: T, bad: str) -> None:
    cut = bad in {"no length", "half a length", "shorter than it says"}
    payload = BAD[bad] if cut else BAD[bad] + OPERATIONS[type].rest

    answer = wire.ask(type, payload)

    assert (answer.kind, answer.status) == (T.REPLY, S.BAD_REQUEST)
    assert answer.payload.decode(), "the answer says why"
    wire.still_answers()


@pytest.mark.parametrize("name", [b".", b".."])
@pytest.mark.parametrize("type", sorted(NAMED))
def test_the_name_of_an_entry_of_every_directory_is_bad_request_in_every_type(
    wire: Wire, type: T, name: bytes
) -> None:
    answer = wire.ask(type, frames.name(name) + OPERATIONS[type].rest)

    assert (answer.kind, answer.status) == (T.REPLY, S.BAD_REQUEST)
    wire.still_answers()


def test_every_other_byte_in_a_name_is_bad_request(wire: Wire) -> None:
    good = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-"
    for byte in range(256):
        for name in (bytes([byte]), b"no." + bytes([byte]), bytes([byte]) + b".no"):
            wanted = S.NO_QUEUE if byte in good and name != b"." else S.BAD_REQUEST
            assert wire.status(T.STATS, frames.name(name)) == wanted, name


@pytest.mark.parametrize("type", sorted(NAMED - {T.CREATE, T.STREAM_CREATE}))
def test_a_name_without_a_queue_is_no_queue_in_every_type_but_create(wire: Wire, type: T) -> None:
    for name in (b"none", b"n" * 100, b"A-Z_a.z:0-9"):
        assert wire.status(type, frames.request(type, name)) == S.NO_QUEUE

    assert not {"none", "n" * 100, "A-Z_a.z:0-9"} & set(wire.names())


@pytest.mark.parametrize("name", ["x", "A-Z_a.z:0-9", "-", ":", "...", "_.-:", "n" * 96])
def test_a_name_of_1_to_100_allowed_bytes_names_a_queue(wire: Wire, name: str) -> None:
    wire.create(name)
    try:
        wire.put(name, b"here")
        assert wire.take_one(name).body == b"here"
        assert {name, f"{name}.dlq"} <= set(wire.names())
    finally:
        wire.ok(T.DELETE, frames.name(name))
        wire.ok(T.DELETE, frames.name(f"{name}.dlq"))


@pytest.mark.parametrize("length", [97, 100])
def test_a_name_over_96_bytes_must_set_dead_letter(wire: Wire, length: int) -> None:
    name = "n" * length
    assert wire.status(T.CREATE, frames.create(name)) == S.BAD_REQUEST
    assert name not in wire.names()

    for dead_letter in (None, "of.long.names"):
        wire.create(name, dead_letter=dead_letter)
        wire.ok(T.DELETE, frames.name(name))
    wire.ok(T.DELETE, frames.name("of.long.names"))
