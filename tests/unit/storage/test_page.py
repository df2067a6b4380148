"""The example of docs/internals/dmsq.md is a valid file: read here by the page alone."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from shmq.disk.storage.queue_files import QueueFiles
from tests.support.queue_files import HASH_KEY, WALL, Building, put, settle

PAGE = (Path(__file__).resolve().parents[3] / "docs/internals/dmsq.md").read_text()
SALT = 0x01020304


def example() -> bytes:
    """The bytes of the page's dumps, whose offsets must be right."""
    data = bytearray()
    for block in re.findall(r"^```hex\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            offset, raw, text = line[:8], bytes.fromhex(line[10:57]), line[59:]
            assert int(offset, 16) == len(data)
            assert text == "".join(chr(byte) if 32 <= byte < 127 else "." for byte in raw)
            data += raw
    return bytes(data)


def crc32c(data: bytes, crc: int = 0) -> int:
    """A bit at a time, as RFC 3720 has it."""
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def record(data: bytes, at: int) -> tuple[bytes, int]:
    """The payload of the record at ``at``, and where the next one begins."""
    words, crc = struct.unpack_from("<II", data, at)
    end = at + 8 + 8 * words
    payload = data[at + 8 : end]
    assert crc == crc32c(payload, crc32c(data[at : at + 4], SALT))
    return payload, end


def test_the_page_tells_the_checksum_of_nine_digits() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert "`123456789` is 0xE3069283" in PAGE


def test_the_example_is_what_is_written() -> None:
    made = Building(options={"capacity": 64}, salt=SALT, queue_id=7, first_batch=1)
    made.batch(put(1, b"hello", priority=1, codec=1)).batch(settle(1)).close()
    assert example() == bytes(made)


def test_the_example_is_read_as_the_queue_that_it_leaves() -> None:
    with QueueFiles([("example", example())]) as chain:
        assert (chain.name, chain.options, chain.hash_key) == ("q", {"capacity": 64}, HASH_KEY)
        assert (list(chain), chain.last_seq, chain.last_batch) == ([], 1, 2)


def test_the_header_of_the_example_is_as_the_table_says() -> None:
    data = example()
    assert data[:4] == b"DMSQ"
    version, kind, scope, size, salt = struct.unpack_from("<HBBII", data, 4)
    assert (version, kind, scope, size, salt) == (1, 2, 1, 0x68, SALT)
    assert struct.unpack_from("<QQQQqQII", data, 16) == (7, HASH_KEY, 1, 0, WALL, 1, 27, 0)
    assert data[72:99] == b"\x82\xa4name\xa1q\xa7options\x81\xa8capacity\x40"
    assert data[99 : size - 4] == bytes(1)
    assert struct.unpack_from("<I", data, size - 4)[0] == crc32c(data[: size - 4])


def test_the_records_of_the_example_are_as_the_tables_say() -> None:
    data = example()
    payload, at = record(data, 0x68)
    kind, crc, batch, wall, last, size, zero = struct.unpack("<IIQqQQQ", payload)
    assert (kind, batch, wall, last, size, zero) == (1, 1, WALL, 1, 48, 0)
    assert crc == crc32c(data[at : at + size])
    payload, at = record(data, at)
    assert struct.unpack_from("<BBBBHBBQqII", payload) == (2, 0, 1, 1, 0, 0, 0, 1, WALL, 5, 0)
    assert payload[32:] == b"hello\0\0\0"
    payload, at = record(data, at)
    assert struct.unpack_from("<I", payload)[0] == 1
    assert struct.unpack_from("<QqQQ", payload, 8) == (2, WALL, 1, 24)
    payload, at = record(data, at)
    assert struct.unpack("<IIQ", payload) == (3, 1, 1)
    end = at
    payload, at = record(data, at)
    assert struct.unpack("<QQQQQ", payload) == (7, 2, 1, 2, 1)
    index = at
    payload, at = record(data, at)
    assert struct.unpack("<IIQQQ", payload) == (8, 1, 0x68, 1, 1)
    payload, at = record(data, at)
    assert struct.unpack("<QQQ", payload) == (9, end, index)
    assert at == len(data)
    assert f"END begins at {end:#x}, INDEX at {index:#x}" in PAGE
