"""How far the groups of a stream are, for its card, and back.

Only what outlives a machine is told: the options of each group, and of each partition the
offset up to which it is done. Members and leases are not.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from typing import Any, Final

from shmq.errors import SegmentError, ShmqError
from shmq.namespace import group_files
from shmq.namespace.namespace import Namespace
from shmq.native._group import GroupState
from shmq.persistence.stream_recovery import StoredStream

__all__ = ["groups_of", "restore_groups"]

log = logging.getLogger("shmq")

#: What a group is made with that the next one of its name must not have.
_OWN: Final = frozenset({"group_id", "stream_id"})


def groups_of(namespace: Namespace, identity: int) -> dict[str, Any]:
    """Each group's options and its committed offsets, by name."""
    found: dict[str, Any] = {}
    for name in group_files.group_names(namespace, identity):
        with contextlib.suppress(SegmentError, ShmqError):
            group_state = group_files.look_at(namespace, identity, name)
            if group_state is not None:
                options = {
                    key: value for key, value in group_state.options.items() if key not in _OWN
                }
                found[name] = {"options": options, "committed": _done(group_state)}
    return found


def _done(group_state: GroupState) -> list[int | None]:
    """Of each partition the offset before which all is done: committed, or if shared, settled."""
    if group_state.options["assignment"] == "shared":
        return list(group_state.lows())
    return [seat[2] for seat in group_state.seats()]


def restore_groups(namespace: Namespace, stored: StoredStream) -> None:
    """Make the groups that a card tells of, each where it was; what cannot be is logged.

    What a group has done may not have been on disk yet, nor the partitions that it was in: none
    is ahead of where the files end, and what is appended there now is nothing that it has done.
    """
    for name, told in stored.groups.items():
        try:
            _restore(namespace, stored, name, told["options"], told["committed"])
        except (ShmqError, KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            log.error("group %s of stream %s is not brought back: %s", name, stored.name, error)


def _restore(
    namespace: Namespace,
    stored: StoredStream,
    name: str,
    options: dict[str, Any],
    committed: Sequence[int | None],
) -> None:
    group_state = group_files.open_or_make(namespace, stored.name, stored.identity, name, options)
    there = list(zip(committed, stored.ends, strict=False))
    group_state.widen(len(there))
    for partition, (offset, end) in enumerate(there):
        if offset is not None:
            done = min(offset, end.next)
            group_state.commit(partition, 0, done)
            group_state.begin(partition, done)
