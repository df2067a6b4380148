"""Records of a shared stream that nobody could settle, on their way to a dead-letter queue."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, cast

from shmq import api
from shmq.api.names import check_name
from shmq.client.group.group_context import GroupContext
from shmq.errors import (
    DamagedFile,
    InvalidOption,
    NoSuchQueue,
    OffsetOutOfRange,
    QueueDeleted,
    ShmqError,
)
from shmq.native import _group, _stream

__all__ = ["DeadLetterQueues", "DeadLetterTarget", "move_to_dead_letters"]

log = logging.getLogger("shmq.groups")

_AT_ONCE: Final = 64


class DeadLetterTarget(Protocol):
    """Where the dead letters of groups go."""

    def checked(self, name: str) -> str:
        """``name``, if it may be a dead-letter queue and there is one."""

    def queue(self, name: str) -> api.Queue:
        """The queue of that name."""

    def forget(self, name: str) -> None:
        """The queue is gone; there may be another one of that name."""


class DeadLetterQueues:
    """The queues of one broker."""

    def __init__(self, opened: Callable[[str], api.Queue]) -> None:
        self._opened = opened
        self._queues: dict[str, api.Queue] = {}

    def checked(self, name: str) -> str:
        """See :class:`DeadLetterTarget`. Raises InvalidName, and NoSuchQueue if there is none."""
        if not check_name(name):
            raise InvalidOption("dead_letter must name a queue")
        self.queue(name)
        return name

    def queue(self, name: str) -> api.Queue:
        """See :class:`DeadLetterTarget`. Raises NoSuchQueue."""
        if name not in self._queues:
            self._queues[name] = self._opened(name)
        return self._queues[name]

    def forget(self, name: str) -> None:
        """See :class:`DeadLetterTarget`."""
        self._queues.pop(name, None)


def move_to_dead_letters(
    group_state: _group.GroupState,
    member: int,
    context: GroupContext,
    dead_letter_target: DeadLetterTarget,
) -> int:
    """Move spent records to the group's dead-letter queue; how many.

    A record that the queue does not take stays with the mover until his lease of it ends, and
    is tried again; where the queue was deleted it is dropped. Whoever dies between the queue
    and the group leaves it in both: then it is in the queue twice.
    """
    moved = 0
    name = context.dead_letter
    while name is not None and moved < _AT_ONCE and (lent := group_state.bury(member)):
        receipt, partition, offset, deliveries = lent
        try:
            records = context.stream.read(partition, offset, 1)
            if not records:
                group_state.lost(receipt)
                continue
            there = _put(dead_letter_target, name, _dead_letter(context, records[0], deliveries))
        except OffsetOutOfRange:
            group_state.lost(receipt)
            continue
        except DamagedFile as error:
            log.warning("group %s: a dead letter cannot be read: %s", context.name, error)
            group_state.lost(receipt)
            continue
        except ShmqError as error:
            log.warning("group %s: %s takes no dead letter: %s", context.name, name, error)
            break
        if not there:
            log.warning("group %s: there is no queue %s: a record is dropped", context.name, name)
        group_state.buried(receipt, there)
        moved += 1
    return moved


def _put(
    dead_letter_target: DeadLetterTarget, name: str, letter: tuple[bytes, dict[str, Any]]
) -> bool:
    """Whether there is such a queue, deleted and made anew perhaps."""
    value, headers = letter
    for _ in range(2):
        try:
            dead_letter_target.queue(name).put(value, headers=headers, block=False)
        except (NoSuchQueue, QueueDeleted):
            dead_letter_target.forget(name)
        else:
            return True
    return False


def _dead_letter(
    context: GroupContext, record: api.Record, deliveries: int
) -> tuple[bytes, dict[str, Any]]:
    """The record, and in its headers where it comes from."""
    headers = {
        **_headers_of(record),
        "shmq-stream": context.stream.name,
        "shmq-group": context.name,
        "shmq-partition": record.partition,
        "shmq-offset": record.offset,
        "shmq-deliveries": deliveries,
        **({} if record.key is None else {"shmq-key": record.key}),
    }
    return bytes(record.value), headers


def _headers_of(record: api.Record) -> Mapping[str, Any]:
    """The record's own; of damaged ones, their bytes."""
    try:
        return record.headers
    except ShmqError:
        return {"shmq-headers": cast(_stream.Record, record).headers_packed}
