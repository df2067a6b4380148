"""The contract of many puts in flight."""

from __future__ import annotations

import abc
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from shmq.api.message import Body

__all__ = ["Pipeline"]


class Pipeline(abc.ABC):
    """Puts that do not wait for each other's answers.

    Up to a window of them are under way at a time. Leaving the block waits for them all. A
    put that was refused raises :class:`~shmq.PutsRefused` at the next call or at the end of
    the block, when every answer is there: it says which were taken and which were not. Those
    put behind a refused one may have been taken. With ``confirm="disk"`` the answer to a put
    is that it is on disk; one that is in the queue without that is ``unconfirmed``.
    """

    @abc.abstractmethod
    def put(self, body: Body, **properties: Any) -> int:
        """Put one message; returns its number in this pipeline, from 0 on.

        The properties are those of ``Queue.put``, and so is what is raised at once for a
        body or a property that cannot be. Where a put to the queue waits for room, so does
        this one; it may then come behind later ones. Raises :class:`~shmq.PutsRefused`.
        """

    @abc.abstractmethod
    def flush(self) -> None:
        """Return once every put so far was taken. Raises :class:`~shmq.PutsRefused`."""

    @property
    @abc.abstractmethod
    def taken(self) -> int:
        """How many puts are known to have been taken."""

    def __enter__(self) -> Self:
        return self

    @abc.abstractmethod
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
