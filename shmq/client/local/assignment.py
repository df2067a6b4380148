"""Which member of a group is to have which partition.

Pure functions of the members, in the order in which they joined, and of who has each
partition now (0: nobody). Each gives every partition to exactly one member, and no member
more than one partition more than another. Who has a partition keeps it until he has let go
of it, whatever is planned; so whatever the rule, only what has to move stops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

__all__ = ["ASSIGNORS", "divided", "in_turns", "ranges", "sticky"]

NOBODY: Final = 0


def ranges(members: Sequence[int], owners: Sequence[int]) -> list[int]:
    """Neighbouring partitions for each: the first members get one more where it is uneven."""
    each, more = divmod(len(owners), len(members))
    shares = [each + (place < more) for place in range(len(members))]
    return [member for member, share in zip(members, shares, strict=True) for _ in range(share)]


def in_turns(members: Sequence[int], owners: Sequence[int]) -> list[int]:
    """Round-robin: partition ``p`` goes to member ``p`` modulo their number."""
    return [members[partition % len(members)] for partition in range(len(owners))]


def sticky(members: Sequence[int], owners: Sequence[int]) -> list[int]:
    """As few partitions move as can: those without a member, and what one has too many.

    Who has most may keep one more than the others where it is uneven.
    """
    room = _room(members, owners)
    whom = []
    for owner in owners:
        keeps = room.get(owner, 0) > 0
        whom.append(owner if keeps else NOBODY)
        if keeps:
            room[owner] -= 1
    wanting = (member for member in members for _ in range(room[member]))
    return [member or next(wanting) for member in whom]


def _room(members: Sequence[int], owners: Sequence[int]) -> dict[int, int]:
    """How many partitions each member gets: one more for those who have most."""
    each, more = divmod(len(owners), len(members))
    has = Counter(owners)
    richest = sorted(members, key=lambda member: -has[member])[:more]
    return {member: each + (member in richest) for member in members}


#: By the name of ``Stream.group``'s ``assignment``.
ASSIGNORS: Final[dict[str, Callable[[Sequence[int], Sequence[int]], list[int]]]] = {
    "range": ranges,
    "round-robin": in_turns,
    "sticky": sticky,
}


def divided(
    assignment: str, members: Sequence[int], owners: Sequence[int], begin: int
) -> list[int]:
    """Which member gets which partition, as the rule of that name says.

    Those before ``begin``, which take no records any more, and the others are divided each for
    themselves: so everybody has as much of both. Where all members have just been taken out
    nobody gets any.
    """
    if not members:
        return [NOBODY] * len(owners)
    rule = ASSIGNORS[assignment]
    return [*rule(members, owners[:begin]), *rule(members, owners[begin:])]
