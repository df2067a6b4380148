"""Assignment of partitions to the members of a group.

Pure functions of the members, in the order in which they joined, and of the current owner of each
partition (0: none). Each assigns every partition to exactly one member, and no member gets more
than one partition more than another. An owner keeps its partition until it gives it up, whatever
the plan says; so under every rule only the partitions that move are interrupted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

__all__ = ["ASSIGNORS", "divided", "in_turns", "ranges", "sticky"]

NOBODY: Final = 0


def ranges(members: Sequence[int], owners: Sequence[int]) -> list[int]:
    """Adjacent partitions for each member; the first members get the extra ones."""
    each, more = divmod(len(owners), len(members))
    shares = [each + (place < more) for place in range(len(members))]
    return [member for member, share in zip(members, shares, strict=True) for _ in range(share)]


def in_turns(members: Sequence[int], owners: Sequence[int]) -> list[int]:
    """Round-robin: partition ``p`` goes to member ``p`` modulo their number."""
    return [members[partition % len(members)] for partition in range(len(owners))]


def sticky(members: Sequence[int], owners: Sequence[int]) -> list[int]:
    """Move as few partitions as possible: those without an owner, and each owner's surplus.

    The members with the most partitions keep the extra ones.
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
    """How many partitions each member gets; those that have the most get the extra ones."""
    each, more = divmod(len(owners), len(members))
    has = Counter(owners)
    richest = sorted(members, key=lambda member: -has[member])[:more]
    return {member: each + (member in richest) for member in members}


#: The rules, by the value of ``assignment`` of ``Stream.group``.
ASSIGNORS: Final[dict[str, Callable[[Sequence[int], Sequence[int]], list[int]]]] = {
    "range": ranges,
    "round-robin": in_turns,
    "sticky": sticky,
}


def divided(
    assignment: str, members: Sequence[int], owners: Sequence[int], begin: int
) -> list[int]:
    """The member for each partition, by the rule of that name.

    Partitions below ``begin``, which take no more records, and the others are divided separately,
    so that each member gets its share of both. If all members were just removed, no partition gets
    one.
    """
    if not members:
        return [NOBODY] * len(owners)
    rule = ASSIGNORS[assignment]
    return [*rule(members, owners[:begin]), *rule(members, owners[begin:])]
