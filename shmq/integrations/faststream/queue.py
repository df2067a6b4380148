"""The name of a queue with the options that it is made with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shmq.api.names import check_name
from shmq.api.options import QueueOptions

if TYPE_CHECKING:
    from typing import Unpack

    from shmq.api.keywords import QueueKeywords

__all__ = ["ShmqQueue"]


@dataclasses.dataclass(frozen=True, init=False)
class ShmqQueue:
    """A queue by its name, and the options that it is made with if it does not exist.

    Raises :class:`~shmq.InvalidName`, and :class:`~shmq.InvalidOption` for an unknown option or a
    value out of range.
    """

    #: The queue's name, without the prefix of a router.
    name: str
    #: The options by name: the fields of :class:`shmq.QueueOptions`.
    options: Mapping[str, Any]

    def __init__(self, name: str, **options: Unpack[QueueKeywords]) -> None:
        QueueOptions.for_queue(check_name(name), dict(options))
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "options", dict(options))

    @classmethod
    def of(cls, queue: ShmqQueue | str) -> ShmqQueue:
        """The queue, or that of the name."""
        return queue if isinstance(queue, ShmqQueue) else cls(queue)

    def named(self, prefix: str) -> ShmqQueue:
        """The queue with a router's prefix before its name."""
        return ShmqQueue(prefix + self.name, **self.options) if prefix else self

    def __hash__(self) -> int:
        return hash(self.name)
