"""The sessions of ``docs/internals/protocol.md``, with a server at the other end."""

from __future__ import annotations

import socket
import struct
from typing import BinaryIO

from shmq.protocol.opcodes import HEADER
from tests.support.server import serve
from tests.support.waiting import PATIENCE
from tests.unit.protocol.page import frames


def received(reader: BinaryIO) -> bytes:
    """The next frame."""
    header = reader.read(HEADER)
    assert len(header) == HEADER, f"the server ended the connection after {header!r}"
    (length,) = struct.unpack_from(">I", header, 4)
    return header + reader.read(length)


def test_the_sessions_go_as_they_stand_byte_by_byte(namespace: str) -> None:
    chosen: dict[str, bytes] = {}
    with serve(namespace) as server, socket.create_connection(server.address, PATIENCE) as there:
        reader = there.makefile("rb")
        for frame in frames():
            if frame.side == "client":
                there.sendall(frame.encoded(chosen))
            else:
                frame.compare(received(reader), chosen)
        assert reader.read() == b"", "after a fatal status nothing follows"
        reader.close()

    assert chosen["U"] == chosen["T"][::-1], "entries are little-endian"
    assert len(set(chosen.values())) == len(chosen), "the server never gives a receipt twice"
