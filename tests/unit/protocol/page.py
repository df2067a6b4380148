"""The hex sessions of ``docs/internals/protocol.md`` as bytes to send and to expect.

A ``wire`` block is frames. A line that begins with ``client`` or ``server`` begins a frame of
that side; the lines after it go on with it, and ``#`` begins a comment. Between the hex there
may stand:

``{A}``
    eight bytes that the server chooses, such as a receipt: the same wherever the letter is
``{crc}``
    a checksum: four bytes that the server computes
``{length}``
    the length of what follows, in four bytes
``{map: one, two=A}``
    a msgpack map with at least these keys; the value of the second is a number, which ``{A}``
    stands for
``{text}``
    UTF-8 up to the end of the frame
"""

from __future__ import annotations

import dataclasses
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import msgpack

from shmq.protocol.opcodes import HEADER

PAGE = Path(__file__).resolve().parents[3] / "docs/internals/protocol.md"

_BLOCK = re.compile(r"^```wire\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"(client|server)?([^#]*)(?:# (.*))?")
_PART = re.compile(
    r"(?P<hex>[0-9A-F]{2})\b|\{(?P<name>[A-Z]|crc|length|text|map)(?:: (?P<keys>[^}]*))?\}"
)

#: Bytes that a placeholder stands for; a letter: 8.
_SIZES = {"crc": 4}

#: What the server chose, by its letter.
Chosen = dict[str, bytes]


@dataclasses.dataclass
class Frame:
    """One frame of a session."""

    #: ``client`` or ``server``.
    side: str
    #: What the page says of its header.
    label: str
    #: The hex, and what stands between it.
    text: str = ""

    def encoded(self, chosen: Chosen) -> bytes:
        """The bytes of a client's frame, with what the server chose."""
        return b"".join(
            bytes.fromhex(part["hex"]) if part["hex"] else chosen[part["name"]]
            for part in self._parts()
        )

    def compare(self, received: bytes, chosen: Chosen) -> None:
        """AssertionError unless a server's frame was received; what the server chose is noted."""
        at, length = 0, None
        for part in self._parts():
            rest = received[at:]
            if part["hex"]:
                size = 1
                assert rest[:1].hex().upper() == part["hex"], self._describe(received, at)
            elif part["name"] == "length":
                size = 4
                (length,) = struct.unpack(">I", rest[:4])
            elif part["name"] in _SIZES:
                size = _SIZES[part["name"]]
            elif part["name"] == "text":
                size = len(rest)
                rest.decode()
            elif part["name"] == "map":
                size = self._map(rest, part["keys"], chosen)
                assert length in (size, len(received) - HEADER), self._describe(received, at)
            else:
                size = 8
                assert chosen.setdefault(part["name"], rest[:8]) == rest[:8], f"{part[0]} differs"
            at += size
        assert at == len(received), self._describe(received, at)

    @property
    def header(self) -> bytes:
        """The header, with a length of 0 where the page leaves it open."""
        text = self.text.replace("{length}", "00 00 00 00", 1)
        return bytes.fromhex("".join(text.split()[:HEADER]))

    @property
    def size(self) -> int | None:
        """The bytes after the header; None where the page leaves them open."""
        total = 0
        for part in self._parts():
            if part["name"] in {"text", "map", "length"}:
                return None
            total += 1 if part["hex"] else _SIZES.get(part["name"], 8)
        return total - HEADER

    def _parts(self) -> Iterator[re.Match[str]]:
        at = 0
        text = " ".join(self.text.split())
        while at < len(text):
            part = _PART.match(text, at)
            assert part, f"neither hex nor a placeholder: {text[at:]}"
            yield part
            at = part.end() + 1

    def _map(self, rest: bytes, keys: str, chosen: Chosen) -> int:
        reader = msgpack.Unpacker()
        reader.feed(rest)
        found = reader.unpack()
        assert isinstance(found, dict), (self.label, found)
        for key, _, letter in (each.partition("=") for each in keys.split(", ")):
            assert key in found, (self.label, key, found)
            if letter:
                chosen[letter] = struct.pack(">Q", found[key])
        return int(reader.tell())

    def _describe(self, received: bytes, at: int) -> str:
        return f"{self.label}: byte {at} of {received.hex(' ')}"


def frames() -> list[Frame]:
    """The frames of the page's sessions, in their order."""
    found: list[Frame] = []
    for block in _BLOCK.findall(PAGE.read_text()):
        for line in block.splitlines():
            match = _LINE.fullmatch(line)
            assert match, line
            if match[1]:
                found.append(Frame(match[1], match[3] or ""))
            found[-1].text += match[2]
    return found
