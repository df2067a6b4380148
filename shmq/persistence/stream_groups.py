"""How far the groups of a stream are, for its card, and back.

Only what outlives a machine is told: the options of each group, and of each partition the
offset up to which it is done. Members and leases are not.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Any, Final

from shmq.client.groups import files
from shmq.errors import SegmentError, ShmqError
from shmq.registry import Namespace

__all__ = ["groups_of", "restore_groups"]

log = logging.getLogger("shmq")

#: What a group is made with that the next one of its name must not have.
_OWN: Final = frozenset({"group_id", "stream_id"})


def groups_of(namespace: Namespace, identity: int) -> dict[str, Any]:
    """Each group's options and its committed offsets, by name."""
    found: dict[str, Any] = {}
    for name in files.group_names(namespace, identity):
        with contextlib.suppress(SegmentError, ShmqError):
            roster = files.look_at(namespace, identity, name)
            if roster is not None:
                options = {key: value for key, value in roster.options.items() if key not in _OWN}
                seats = [seat[2] for seat in roster.seats()]
                found[name] = {"options": options, "committed": seats}
    return found


def restore_groups(
    namespace: Namespace, stream: str, identity: int, groups: dict[str, Any]
) -> None:
    """Make the groups that a card tells of, each where it was; what cannot be is logged."""
    for name, told in groups.items():
        try:
            roster = files.open_or_make(namespace, stream, identity, name, told["options"])
            committed = list(told["committed"])
            roster.widen(len(committed))
            for partition, offset in enumerate(committed):
                if offset is not None:
                    roster.commit(partition, 0, offset)
                    roster.begin(partition, offset)
        except (ShmqError, KeyError, TypeError, ValueError) as error:
            log.error("group %s of stream %s is not brought back: %s", name, stream, error)
