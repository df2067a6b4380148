"""A message that was never in a queue, for the broker of tests."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any, Final

import shmq
from shmq.api.options import Confirm
from shmq.model.codec.codecs import decode_body, encode_body

_sequences: Final = itertools.count(1)


@dataclasses.dataclass(kw_only=True, eq=False)
class FakeMessage(shmq.Message):
    """One message of the arguments of a put; settling it does nothing but mark it so."""

    body: Any = b""
    codec: str = "bytes"
    headers: Any = None
    priority: int = 1
    group: str | None = None
    reply_to: str | None = None
    correlation: str | None = None
    # properties of a fake message: made by tools/options.py
    delay: float | None = None
    deliver_at: float | None = None
    ttl: float | None = None
    dedupe_id: str | None = None
    confirm: Confirm | None = None
    # end
    dead: None = None
    delivery_count: int = 1
    receipt: int = 0
    settled: bool = False
    #: Of its put.
    duplicate: bool = False
    sequence: int = 0

    def __post_init__(self) -> None:
        raw, number = encode_body(self.body, self.codec)
        self._raw = bytes(raw)
        self.body = decode_body(self._raw, number, self.codec)
        self.headers = self.headers or {}
        self.sequence = self.receipt = next(_sequences)

    @property
    def properties(self) -> Mapping[str, Any]:
        return {"headers": self.headers}

    @property
    def view(self) -> memoryview:
        return memoryview(self._raw)

    def readinto(self, buffer: Any) -> int:
        memoryview(buffer)[: len(self._raw)] = self._raw
        return len(self._raw)

    def ack(self) -> None:
        self.settled = True

    def nack(self, delay: float | None = None, *, counted: bool = True) -> None:
        del delay, counted
        self.settled = True

    def reject(self) -> None:
        self.settled = True

    def extend(self, seconds: float) -> None:
        """Do nothing: it has no lease."""
