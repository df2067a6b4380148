"""Saves the offsets of a stream's groups in its metadata file, and restores them.

Only what survives a reboot is saved: the options of each group, and its offset in each
partition. Members and leases are not.
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

#: Options that the next group of the same name must not inherit.
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
    """For each partition the committed offset; in a shared group, the lowest unsettled one."""
    if group_state.options["assignment"] == "shared":
        return list(group_state.lows())
    return [seat[2] for seat in group_state.seats()]


def restore_groups(namespace: Namespace, stored: StoredStream) -> None:
    """Recreate the groups of the metadata file with their offsets; a failure is logged.

    A group may have consumed records, or whole partitions, that were not on disk yet. So no
    offset is set beyond the end of the files: the records appended there now are new to it.
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
