"""Very many messages of a local queue at a time, and runs that are leased in a name."""

from __future__ import annotations

import array
from collections.abc import Callable
from typing import TYPE_CHECKING

from shmq import api
from shmq.api.bulk import check_epoch, check_holder
from shmq.api.contract import document
from shmq.native import _core

if TYPE_CHECKING:
    from shmq.client.local.run_store import RunStore


class LocalBulkQueue(_core.Bulk, api.BulkQueue):
    """Implements :class:`shmq.api.BulkQueue`."""

    #: Finds which messages its runs in a name have, on disk; None: the queue is in memory only.
    store: Callable[[], RunStore | None]

    def lease_run(
        self,
        max: int,
        *,
        max_bytes: int | None = None,
        seconds: float = 600.0,
        claim: api.Claim | None = None,
        epoch: int = 0,
    ) -> api.Run:
        if claim is not None:
            check_epoch("epoch", epoch, 1)
        run: api.Run = super().lease_run(
            max, max_bytes=max_bytes, seconds=seconds, claim=claim, epoch=epoch
        )
        if claim is not None and len(run) and (store := self.store()):
            store.save(claim.name, epoch, run.sequences)
        return run

    def find_run(self, claim: api.Claim, epoch: int, seconds: float) -> api.Run:
        """Lease again what the epoch has, under the same claim: for an answer that was lost."""
        run, _, _ = self.sort_tagged(claim, 0, check_epoch("epoch", epoch, 1), seconds, False)
        if len(run) and (store := self.store()):
            store.save(claim.name, epoch, run.sequences)
        return run

    def take_over(
        self, name: str, *, settled: int = 0, epoch: int = 0, seconds: float = 600.0
    ) -> api.Takeover:
        check_epoch("settled", settled)
        check_epoch("epoch", epoch)
        claim = api.Claim(name, self.make_claim(check_holder(name)))
        run, acked, returned = self.sort_tagged(claim, settled, epoch, seconds)
        store = self.store()
        kept = {} if store is None else store.load(name)
        for number, sequences in kept.items():
            if number <= settled:
                left = self.lease_again(sequences, seconds=seconds, claim=claim, epoch=number)
                acked += len(left) - self.ack_run(left.receipts)
        if epoch > settled and len(kept.get(epoch, b"")) > len(run.sequences):
            run = self._complete_run(run, kept[epoch], claim, epoch, seconds)
        return api.Takeover(claim, run, acked, returned)

    def release(self, name: str) -> int:
        claim = api.Claim(name, self.make_claim(check_holder(name)))
        _, _, returned = self.sort_tagged(claim, 0, 0, 1.0)
        if store := self.store():
            store.remove(name)
        self.forget_claim(claim)
        return returned

    def _complete_run(
        self, run: api.Run, sequences: bytes, claim: api.Claim, epoch: int, seconds: float
    ) -> api.Run:
        """The run, and those of its messages that have no tag, because shared memory was lost."""
        found = set(array.array("Q", run.sequences))
        missing = array.array("Q", (n for n in array.array("Q", sequences) if n not in found))
        more = self.lease_again(missing.tobytes(), seconds=seconds, claim=claim, epoch=epoch)
        return api.Run(
            run.sequences + more.sequences, run.receipts + more.receipts, run.slots + more.slots
        )


document(LocalBulkQueue, api.BulkQueue)
