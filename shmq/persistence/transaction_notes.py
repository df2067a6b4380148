"""What those who write ask of the transactions, and the answer where there are none."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

from shmq.storage.transaction_file import Id, Part

__all__ = ["NO_NOTES", "Notes"]


class Notes(Protocol):
    """What is known of transactions: see `shmq.persistence.transactions.Transactions`."""

    def begun(self, part: Part) -> None:
        """There is a file of that, until it is deleted: without any it was."""

    def note(self) -> None:
        """Have every transaction that is committed by now on disk. Raises OSError."""

    def happened(self, part: Part) -> frozenset[Id]:
        """Transactions of which all has happened, and this part is not known to be on disk."""

    def open(self, part: Part) -> frozenset[Id]:
        """Transactions that are noted, with this part, and it is not marked."""

    def done(self, part: Part, which: Collection[Id]) -> None:
        """That part of these is on disk."""

    def mark(self) -> None:
        """Have it on disk which parts are. Raises OSError."""

    def forget(self, part: Part) -> None:
        """What that was is no more."""


class _NoNotes:
    """Where there are no transactions."""

    def begun(self, part: Part) -> None:
        """See :class:`Notes`."""

    def note(self) -> None:
        """See :class:`Notes`."""

    def happened(self, part: Part) -> frozenset[Id]:  # noqa: ARG002
        """See :class:`Notes`."""
        return frozenset()

    def open(self, part: Part) -> frozenset[Id]:  # noqa: ARG002
        """See :class:`Notes`."""
        return frozenset()

    def done(self, part: Part, which: Collection[Id]) -> None:
        """See :class:`Notes`."""

    def mark(self) -> None:
        """See :class:`Notes`."""

    def forget(self, part: Part) -> None:
        """See :class:`Notes`."""


NO_NOTES: Final = _NoNotes()
