"""Moving the messages of a queue to another one: each batch is a transaction."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from shmq.client.local.transaction import LocalTransaction
from shmq.errors import Full, LeaseExpired, LockTimeout, MessageTooLarge, NoSpace
from shmq.native import _core

#: The most messages, and the bytes of bodies after which no more join, of one transaction.
_MOST: Final = 256
_MOST_BYTES: Final = 4 << 20


def move_messages(source: Any, target: Any, limit: int, where: _core.Filter | None) -> int:
    """Move up to ``limit`` visible messages from one LocalQueue to another; return how many.

    Raises Full and NoSpace if none could be moved, and MessageTooLarge.
    """
    moved, most = 0, _MOST
    while moved < limit:
        messages = source.get_many(min(most, limit - moved), block=False, where=where)
        if not messages:
            break
        try:
            moved += _move_batch(source, target, messages)
        except (Full, NoSpace, MessageTooLarge) as error:
            if len(messages) > 1:
                most = len(messages) // 2
                continue
            if not moved or isinstance(error, MessageTooLarge):
                raise
            break
        finally:
            _return_unmoved(messages)
    return moved


def _move_batch(source: Any, target: Any, messages: list[_core.Message]) -> int:
    """Move the first of the messages, up to `_MOST_BYTES`; return how many."""
    count = size = 0
    with LocalTransaction(source.namespace, _find_none, 0.0, None) as transaction:
        while count < len(messages) and size < _MOST_BYTES:
            transaction.move(source, target, messages[count])
            size += len(messages[count].view)
            count += 1
    return count


def _find_none(kind: str, name: str) -> None:
    raise AssertionError(f"a move opens its queues itself, not {kind} {name}")


def _return_unmoved(messages: list[_core.Message]) -> None:
    for message in messages:
        if not message.settled:
            with contextlib.suppress(LeaseExpired, LockTimeout):  # its lease ends in any case
                message.nack(counted=False)
