"""What writers ask of the transactions, and the answers where there are none."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

from shmq.storage.transaction_file import Id, Part

__all__ = ["NO_NOTES", "Notes"]


class Notes(Protocol):
    """The transactions as writers see them: `shmq.persistence.transactions.Transactions`."""

    def begun(self, part: Part) -> None:
        """Record that the part has a file. A part without files counts as deleted."""

    def note(self) -> None:
        """Write every transaction committed by now to disk. Raises OSError."""

    def happened(self, part: Part) -> frozenset[Id]:
        """Transactions that are applied in memory, with this part not known to be on disk."""

    def open(self, part: Part) -> frozenset[Id]:
        """Noted transactions with this part, which is not marked as done."""

    def done(self, part: Part, which: Collection[Id]) -> None:
        """Record that the part of these transactions is on disk."""

    def mark(self) -> None:
        """Mark the parts that are done in the file on disk. Raises OSError."""

    def forget(self, part: Part) -> None:
        """Record that the queue, stream or groups of the part were deleted."""


class _NoNotes:
    """The answers where there are no transactions."""

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
