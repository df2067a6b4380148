"""Requests about leases that are held in a name. For any thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shmq.api import Claim, Run
from shmq.client.local.bulk import LocalBulkQueue
from shmq.client.local.queue import LocalQueue
from shmq.errors import Full, LeaseExpired
from shmq.protocol.messages.named_lease import NamedLease, NamedLeaseState
from shmq.server.config.settings import Limits

_WITHOUT_LIMIT: Final = 1 << 32


class NamedLeaseHandler:
    """Runs in a name, each of at most as many messages as one connection may hold."""

    def __init__(self, limits: Limits) -> None:
        self._messages = limits.unsettled_messages or _WITHOUT_LIMIT
        self._bytes = limits.unsettled_bytes or 1 << 63
        self._actions: dict[str, Callable[[LocalBulkQueue, NamedLease], NamedLeaseState]] = {
            "take_over": _take_over,
            "lease": self._lease,
            "find": _find,
            "check": _check,
            "release": _release,
        }

    def ask(self, queue: LocalQueue, asked: NamedLease) -> NamedLeaseState:
        """Carry out the request. Raises ShmqError, and TypeError for a value of another type."""
        try:
            return self._actions[asked.action](queue.bulk(), asked)
        except LeaseExpired as error:
            return NamedLeaseState(void=str(error))
        except Full as error:
            return NamedLeaseState(full=str(error))

    def _lease(self, bulk: LocalBulkQueue, asked: NamedLease) -> NamedLeaseState:
        run = bulk.lease_run(
            min(asked.most, self._messages),
            max_bytes=min(asked.max_bytes, self._bytes),
            seconds=asked.ms / 1000,
            claim=_claim(asked),
            epoch=asked.epoch,
        )
        return _state(run)


def _take_over(bulk: LocalBulkQueue, asked: NamedLease) -> NamedLeaseState:
    taken = bulk.take_over(
        asked.holder, settled=asked.settled, epoch=asked.epoch, seconds=asked.ms / 1000
    )
    return NamedLeaseState(
        token=taken.claim.token,
        settled=taken.settled,
        returned=taken.returned,
        sequences=taken.run.sequences,
        receipts=taken.run.receipts,
        slots=taken.run.slots,
    )


def _find(bulk: LocalBulkQueue, asked: NamedLease) -> NamedLeaseState:
    return _state(bulk.find_run(_claim(asked), asked.epoch, asked.ms / 1000))


def _check(bulk: LocalBulkQueue, asked: NamedLease) -> NamedLeaseState:
    return NamedLeaseState(known=bulk.is_claimed(_claim(asked)))


def _release(bulk: LocalBulkQueue, asked: NamedLease) -> NamedLeaseState:
    return NamedLeaseState(returned=bulk.release(asked.holder))


def _claim(asked: NamedLease) -> Claim:
    return Claim(asked.holder, asked.token)


def _state(run: Run) -> NamedLeaseState:
    return NamedLeaseState(sequences=run.sequences, receipts=run.receipts, slots=run.slots)
