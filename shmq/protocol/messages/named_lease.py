"""The request about leases that are held in a name, behind the queue's name, and its answer."""

from __future__ import annotations

import dataclasses
from typing import Final

from shmq.api import Run
from shmq.protocol.messages.payload import Reply, Request
from shmq.protocol.status import Refusal, senseless

_ACTIONS: Final = ("take_over", "lease", "find", "check", "release")
_WIDEST: Final = {"token": 64, "settled": 32, "epoch": 32, "most": 32, "max_bytes": 63, "ms": 32}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NamedLease(Request):
    """A NAMED_LEASE; an action ignores the numbers that it has no use for.

    ``take_over`` needs ``settled``, ``epoch`` and ``ms``; ``lease`` needs ``token``, ``epoch``,
    ``most``, ``max_bytes`` and ``ms``; ``find`` needs ``token``, ``epoch`` and ``ms``; ``check``
    needs ``token``.
    """

    action: str
    holder: str
    token: int = 0
    settled: int = 0
    epoch: int = 0
    most: int = 0
    max_bytes: int = 0
    ms: int = 0

    def check(self) -> None:
        if self.action not in _ACTIONS:
            raise Refusal.bad(f"'action' must be one of {', '.join(_ACTIONS)}, not {self.action!r}")
        for key, bits in _WIDEST.items():
            if not 0 <= getattr(self, key) < 1 << bits:
                raise Refusal.bad(f"{key!r} must be an int from 0, of {bits} bits")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NamedLeaseState(Reply):
    """The answer to a NAMED_LEASE; ``void``, ``full``: why nothing was done, or None."""

    token: int = 0
    settled: int = 0
    returned: int = 0
    known: bool = True
    sequences: bytes = b""
    receipts: bytes = b""
    slots: bytes = b""
    void: str | None = None
    full: str | None = None

    @property
    def run(self) -> Run:
        """The leased messages."""
        return Run(self.sequences, self.receipts, self.slots)

    def check(self) -> None:
        count = len(self.slots) // 4
        lengths = len(self.sequences), len(self.receipts), len(self.slots)
        if lengths != (8 * count, 8 * count, 4 * count):
            raise senseless("its columns have other lengths than a run's")
