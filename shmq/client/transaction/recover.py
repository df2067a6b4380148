"""Settles the transactions of processes that died, or fell silent, during a commit.

A process that takes something from another one settles the other's transactions first: committed
ones are applied, and the others never will be.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from shmq.client.transaction.transaction_log import (
    TRANSACTION,
    TransactionLog,
    hold,
    ledger_path,
    owners,
)
from shmq.errors import ShmqError, no_descriptor
from shmq.host.namespace.namespace import Namespace
from shmq.lazy_imports import late_imports
from shmq.native import _clock as time

if TYPE_CHECKING:
    from shmq.client.transaction.apply import Attach, TransactionHandles

log = logging.getLogger("shmq")

#: How often a process looks for files of dead processes, in seconds.
_LOOK: Final = 1.0

_looked_at: dict[str, float] = {}
#: Attaches to queues and streams, whose classes are built on this module.
_attach: Attach


def look(namespace: Namespace) -> None:
    """Settle what dead processes have left, unless this process has just looked."""
    now = time.monotonic()
    if now < _looked_at.get(namespace.name, 0.0) + _LOOK:
        return
    _looked_at[namespace.name] = now
    try:
        settle_all(namespace)
    except OSError as error:
        if no_descriptor(error) is error:
            raise
        log.warning("what dead processes were committing waits: %s", no_descriptor(error))


def settle_all(namespace: Namespace) -> None:
    """Settle what dead processes have left."""
    for process in owners(namespace):
        if not namespace.processes.is_alive(process):
            settle(namespace, process)


def settle(namespace: Namespace, process: int) -> bool:
    """Settle the process's transaction; whether everything it committed has been applied.

    False: another process is settling it, or it has to wait for room.
    """
    if not ledger_path(namespace, process).exists():
        return True
    with _hold_log(namespace, process, make=False) as transaction_log:
        if transaction_log is None:
            return not ledger_path(namespace, process).exists()
        return _finish(namespace, process, transaction_log)


@contextlib.contextmanager
def taking(namespace: Namespace, process: int) -> Iterator[bool]:
    """Whether the process's leases or partitions may be taken; in the block it commits nothing."""
    with _hold_log(namespace, process, make=True) as transaction_log:
        yield transaction_log is not None and _finish(namespace, process, transaction_log)


@contextlib.contextmanager
def _hold_log(namespace: Namespace, process: int, *, make: bool) -> Iterator[TransactionLog | None]:
    with contextlib.ExitStack() as stack:
        try:
            transaction_log = stack.enter_context(hold(namespace, process, make=make))
        except (ShmqError, OSError) as error:
            log.warning("what process %s was committing waits: %s", process, error)
            transaction_log = None
        yield transaction_log


def _finish(namespace: Namespace, process: int, transaction_log: TransactionLog) -> bool:
    if not transaction_log.is_committed:
        return True
    # Few processes meet one that died in the middle of a commit: it is loaded on demand.
    with late_imports:
        from shmq.client.transaction.apply import happen  # noqa: PLC0415

    try:
        done = happen(handles_in(namespace), transaction_log.read(), wait=False)
    except (ShmqError, OSError) as error:
        log.warning("what process %s has committed waits: %s", process, error)
        return False
    if done:
        transaction_log.finish()
    return done


def handles_in(namespace: Namespace) -> TransactionHandles:
    """The handles of a transaction, none of them open yet."""
    with late_imports:
        from shmq.client.transaction.apply import TransactionHandles  # noqa: PLC0415 - as above

    return TransactionHandles(namespace, _attach)


def attach_by(attach: Attach) -> None:
    """Set the function that attaches to queues and streams."""
    global _attach  # noqa: PLW0603 - one for the process
    _attach = attach


def is_transaction(sequence: int) -> bool:
    """Whether a copy with that origin belongs to a transaction."""
    return bool(sequence & TRANSACTION)


def settle_copy(namespace: Namespace, target: Any, process: int, sequence: int) -> None:
    """Resolve an orphaned copy of a transaction: publish it if that is committed, else void it."""
    if not namespace.processes.is_alive(process) and settle(namespace, process):
        target.transfer.void_copies(process, sequence)
