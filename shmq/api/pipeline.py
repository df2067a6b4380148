"""The contract of a pipeline: many puts in flight."""

from __future__ import annotations

import abc
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from shmq.api.message import Body

__all__ = ["Pipeline"]


class Pipeline(abc.ABC):
    """Puts that do not wait for each other's answers.

    Up to a window of puts are in flight. The end of the block waits for them all. If a put was
    refused, :class:`~shmq.PutsRefused` is raised at the next call or at the end of the block, once
    every answer has arrived: it says which puts were taken and which were not. Puts after a refused
    one may have been taken. With ``confirm="disk"`` a put is answered once it is on disk; a message
    that is in the queue without that confirmation is listed as ``unconfirmed``.
    """

    @abc.abstractmethod
    def put(self, body: Body, **properties: Any) -> int:
        """Put one message; returns its number in this pipeline, from 0 on.

        The properties are those of ``Queue.put``, and so are the errors raised at once for an
        invalid body or property. If a put to the queue would wait for room, so does this one; its
        message may then end up behind later ones. Raises :class:`~shmq.PutsRefused`.
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
