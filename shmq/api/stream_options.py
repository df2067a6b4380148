"""The options of a stream: their names, defaults and ranges.

They are fixed when the stream is made and stored in its control segment, so every
process that attaches sees the same ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Literal

from shmq.api.options import Confirm, check_one_of, check_seconds, check_whole, hint_at
from shmq.errors import InvalidOption
from shmq.native._core import plain_number

__all__ = ["MAX_PARTITIONS", "StreamDurability", "StreamOptions", "StreamOverflow"]

StreamDurability = Literal["memory", "journal"]
StreamOverflow = Literal["drop-oldest", "block"]

MAX_PARTITIONS: Final = 1024
DEFAULT_RING: Final = 16 << 20
MIN_RING: Final = 64 << 10
MAX_RING: Final = 1 << 36
MIN_SEGMENT: Final = 1 << 16
MAX_SEGMENT: Final = 1 << 36


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """What a stream was made with. Times are in seconds, sizes in bytes."""

    #: How many partitions it has: 1 to 1,024. A key always goes to the same one.
    partitions: int = 4
    #: Room for the records of one partition in shared memory: 64 KiB to 64 GiB. Taken as it
    #: is needed, rounded up to a page.
    ring_bytes: int = DEFAULT_RING
    #: Of each partition the records beyond so many bytes go, and from 64 KiB on at least nine
    #: tenths of it stay. In memory ``ring_bytes`` at most; on disk whole files go. None: as the
    #: ring, or for ever on disk.
    retention_bytes: int | None = None
    #: Records that are older than this go: 0.001 to 1e9; None: none for its age.
    retention_seconds: float | None = None
    #: What outlives the machine: nothing with ``"memory"``, every record with ``"journal"``.
    durability: StreamDurability = "memory"
    #: What an append to a full ring does: with ``"drop-oldest"`` the oldest records go, unless
    #: they are not on disk yet or somebody has pinned them; with ``"block"`` it waits until
    #: those who read along have read them.
    overflow: StreamOverflow = "drop-oldest"
    #: The largest record, its key and headers included: 1 to a quarter of ``ring_bytes``, which
    #: is the default.
    max_record_bytes: int = DEFAULT_RING // 4
    #: When an append returns that does not say so itself: once it is in ``"memory"``, or on
    #: ``"disk"``, which takes ``durability="journal"``.
    confirm: Confirm = "memory"
    #: With ``durability="journal"``, how long a file grows before the next one begins: 64 KiB
    #: to 64 GiB.
    segment_bytes: int = 64 << 20

    @classmethod
    def given(cls, given: Mapping[str, Any]) -> StreamOptions:
        """The options of a stream, the ``given`` ones over the defaults.

        Raises :class:`~shmq.InvalidOption` for an unknown option or a value out of range,
        and TypeError for a value of the wrong type; both name it.
        """
        _refuse_unknown(given)
        filled = {key: plain_number(value) for key, value in given.items()}
        ring = check_whole("ring_bytes", filled.get("ring_bytes", DEFAULT_RING), MIN_RING, MAX_RING)
        filled.setdefault("max_record_bytes", ring // 4)
        options = cls(**filled)
        options._check()
        return options

    def as_dict(self) -> dict[str, Any]:
        """The options by name, as :meth:`given` takes them."""
        return dataclasses.asdict(self)

    def differences(self, other: StreamOptions) -> dict[str, tuple[Any, Any]]:
        """The options in which ``self`` and ``other`` differ: name to both values."""
        mine, theirs = self.as_dict(), other.as_dict()
        return {key: (mine[key], theirs[key]) for key in mine if mine[key] != theirs[key]}

    def _check(self) -> None:
        check_whole("partitions", self.partitions, 1, MAX_PARTITIONS)
        check_whole("max_record_bytes", self.max_record_bytes, 1, self.ring_bytes // 4)
        if self.retention_bytes is not None:
            check_whole("retention_bytes", self.retention_bytes, 1)
            self._check_kept_in_memory(self.retention_bytes)
        if self.retention_seconds is not None:
            check_seconds("retention_seconds", self.retention_seconds, 0.001)
        check_one_of("durability", self.durability, ("memory", "journal"))
        check_one_of("overflow", self.overflow, ("drop-oldest", "block"))
        check_one_of("confirm", self.confirm, ("memory", "disk"))
        check_whole("segment_bytes", self.segment_bytes, MIN_SEGMENT, MAX_SEGMENT)
        if self.confirm == "disk" and self.durability != "journal":
            raise InvalidOption(
                f"confirm='disk' needs a journal, and durability={self.durability!r} keeps none: "
                f"set durability='journal'"
            )

    def _check_kept_in_memory(self, kept: int) -> None:
        if self.durability == "memory" and kept > self.ring_bytes:
            raise InvalidOption(
                f"retention_bytes={kept} is more than ring_bytes={self.ring_bytes}, and a stream "
                f"with durability='memory' keeps its records there alone: set ring_bytes to as "
                f"much, or durability='journal'"
            )


def _refuse_unknown(given: Mapping[str, Any]) -> None:
    known = [field.name for field in dataclasses.fields(StreamOptions)]
    for key in given:
        if key not in known:
            raise InvalidOption(f"unknown option {key!r} of a stream: {hint_at(key, known)}")
