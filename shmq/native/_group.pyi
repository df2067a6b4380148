"""A group of consumers of one stream, in shared memory: see core/stream/group_state.h.

Members have ids, which are never used twice; what they are lent has receipts. Times are in
ns, monotonic but for ``created_at``, ``joined_at`` and ``committed_at``. A method of a group
that was deleted raises StreamDeleted, one of a damaged group DamagedSegment.
"""

from mmap import mmap
from typing import Any

HAS_CRASHPOINTS: bool
MOST_PARTITIONS: int
MOST_MEMBERS: int
MOST_HELD: int
NAME_BYTES: int
ASSIGNMENTS: tuple[str, ...]

#: A receipt, the partition, the offset, and how often the record was delivered before.
_Lent = tuple[int, int, int, int]

def size_of(options: dict[str, Any]) -> int:
    """The bytes of a group's file with these options; 0 if they are out of range."""

def make(memory: mmap | bytearray, options: dict[str, Any]) -> None:
    """Make an empty group of zeroed ``memory`` that is as large as `size_of` says."""

class GroupState:
    """A group in the memory that it keeps mapped."""

    def __init__(self, memory: mmap | bytearray, what: str) -> None:
        """Open it; ``what`` names it in errors.

        Raises BlockingIOError if its maker has not finished it, and SegmentError.
        """

    @property
    def options(self) -> dict[str, Any]:
        """What it was made with."""

    @property
    def deleted(self) -> bool:
        """Whether it is gone."""

    @property
    def partitions(self) -> int:
        """How many partitions its members know of."""

    @property
    def epoch(self) -> int:
        """Another number after each change of members or partitions."""

    @property
    def planned(self) -> bool:
        """Whether the plan is of this epoch."""

    @property
    def change(self) -> int:
        """Another number after each change of the epoch, the plan, or who has a partition."""

    def numbers(self) -> dict[str, int]:
        """Its counters, and ``held``: the records that are lent, or wait to be again."""

    def members(self) -> list[tuple[int, int, str, int, int]]:
        """The id, process number, name, time of joining and deadline of each member."""

    def seats(self) -> list[tuple[int, int, int | None, int, int | None, int]]:
        """A row for each partition.

        Its owner, the member it is meant for (0: nobody), the committed offset, when that was
        committed, the next offset to be lent, and how often it had a new owner.
        """

    def committed(self, partition: int) -> int | None:
        """The partition's committed offset, if there is one."""

    def widen(self, partitions: int) -> None:
        """Note how many partitions the stream has. Raises InvalidOption if it is too many."""

    def join(self, process: int, name: bytes) -> tuple[int, int]:
        """Become a member: its place and its id. Raises Full."""

    def leave(self, id: int, evicted: bool) -> bool:
        """Take out a member; whether it was one."""

    def beat(self, at: int, id: int) -> int | None:
        """Say that the member lives: `change`; None if it is no member any more."""

    def watch(self, ns: int) -> bool:
        """Whether the caller is to look now who is alive: one of all, once in ``ns``."""

    def silent(self) -> int:
        """A member whose session is over; 0: none."""

    def survey(self) -> tuple[int, list[int], list[int]]:
        """The epoch, the members' ids, rising, and each partition's owner (0: nobody)."""

    def plan(self, epoch: int, whom: list[int]) -> bool:
        """Set for whom each partition is meant, found at that epoch; whether it still is it."""

    def claim(self, partition: int, id: int) -> bool:
        """Take a partition that is meant for the member; whether it has it now."""

    def release(self, partition: int, id: int) -> bool:
        """Leave a partition; whether the member had it."""

    def commit(self, partition: int, id: int, offset: int) -> bool:
        """Everything before ``offset`` is done; False if the partition is not the member's.

        With 0 for an id: if it is nobody's.
        """

    def begin(self, partition: int, offset: int) -> None:
        """The partition's first record to be lent, unless it has one."""

    def lend(self, id: int, partition: int, earliest: int, latest: int, limit: int) -> list[_Lent]:
        """Lend records that nobody has had; none where as many are held as may be."""

    def again(self, id: int, limit: int) -> list[_Lent]:
        """Lend records that came back."""

    def lows(self) -> list[int | None]:
        """Of each partition the first offset that is not settled; None: none was lent yet."""

    def hand(self, receipt: int) -> bool:
        """The application is handed the record; whether it is still lent."""

    def ack(self, receipt: int) -> bool:
        """The record is done; whether it was still lent."""

    def nack(self, receipt: int, delay: int) -> bool:
        """It comes back in ``delay`` ns, or is spent."""

    def reject(self, receipt: int) -> bool:
        """It is spent: for the dead letters, or dropped."""

    def extend(self, receipt: int, ns: int) -> bool:
        """It is lent for ``ns`` from now on; 0: for the group's lease."""

    def bury(self, id: int) -> _Lent | None:
        """A spent record, to be moved to the dead letters."""

    def buried(self, receipt: int, there: bool = True) -> bool:
        """It is there, or else dropped: there is no queue for it."""

    def lost(self, receipt: int) -> bool:
        """The stream no longer has the record."""

    def due(self) -> int:
        """When something that is held is due; may be early."""

    def close(self) -> None:
        """The group is deleted: for everybody from now on."""

def set_patience(seconds: float) -> None: ...
def set_clock(ns: int | None) -> None:
    """Fix the monotonic clock of this process's groups; None: the real one."""

def clock() -> int:
    """The monotonic time of this process's groups."""

def crash_at(store: int) -> None:
    """Die by SIGKILL right after the ``store``-th shared store from now; 0: never."""
