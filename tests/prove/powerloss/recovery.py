"""Recovery from a state of the disk, by the code that does it after a reboot."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from shmq.api.names import SHM
from shmq.disk.persistence.recovery import plan
from shmq.disk.persistence.transaction_recovery import complete_transactions
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.erase import finish_erasures
from shmq.disk.storage.transaction_file import TRANSACTIONS
from shmq.model.codec.codecs import unpack_properties
from tests.prove.powerloss.expectation import Found, Recovered
from tests.prove.powerloss.simulated_host import DATA
from tests.prove.powerloss.state_directory import StateDirectory
from tests.prove.powerloss.states import State


class Recoverer:
    """Lays states out in memory and recovers from each. A context manager."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="shmq-powerloss-", dir=SHM)
        self._directory = StateDirectory(Path(self._folder.name))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._folder.cleanup()

    def recover(self, state: State) -> Mapping[str, Recovered]:
        """What the queues hold, as recovery decides it. Raises what it finds wrong."""
        self._directory.lay_out(state)
        disk = Disk(self._directory.root / DATA)
        if finish_erasures(disk):
            self._directory.dirty = True
        if TRANSACTIONS in disk.names():
            self._directory.dirty = True
            complete_transactions(disk, ())
        found = {}
        for name, decision in plan(disk).items():
            if decision.error is not None:
                raise decision.error
            if decision.chain is not None:
                with decision.chain as chain:
                    found[name] = Recovered(
                        [_found(put) for put in chain],
                        frozenset(seq for _, _, seq, _ in chain.dedupe()),
                        chain.last_seq,
                    )
        return found


def _found(put: Mapping[str, Any]) -> Found:
    properties = unpack_properties(put["meta"]) if put["meta"] else {}
    dead = properties.get("dead") or {}
    return Found(
        put["seq"],
        put["body"],
        properties.get("headers", {}),
        put["deliveries"],
        dead.get("reason"),
    )
