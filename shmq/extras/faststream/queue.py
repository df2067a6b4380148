"""The name of a queue with the options that it is made with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shmq.api.names import given_name, with_dead_letter
from shmq.api.options import QueueOptions

if TYPE_CHECKING:
    from typing import Unpack

    from shmq.api.keywords import QueueKeywords


@dataclasses.dataclass(frozen=True, init=False)
class ShmqQueue:
    """A queue by its name, and the options that it is made with if it does not exist.

    The name is any text of 1 to 1,024 bytes. Raises :class:`~shmq.InvalidName`, and
    :class:`~shmq.InvalidOption` for an unknown option or a value out of range.
    """

    #: The queue's name, without the prefix of a router.
    name: str
    #: The options by name: the fields of :class:`shmq.QueueOptions`.
    options: Mapping[str, Any]

    def __init__(self, name: str, **options: Unpack[QueueKeywords]) -> None:
        shared = given_name(name)
        QueueOptions.for_queue(shared, with_dead_letter(shared, options))
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "options", dict(options))

    @property
    def shared_name(self) -> str:
        """The queue's name in shmq: a text that is not a name, or too long for one, is escaped."""
        return given_name(self.name)

    @classmethod
    def of(cls, queue: ShmqQueue | str) -> ShmqQueue:
        """The queue, or that of the name."""
        return queue if isinstance(queue, ShmqQueue) else cls(queue)

    def named(self, prefix: str) -> ShmqQueue:
        """The queue with a router's prefix before its name."""
        return ShmqQueue(prefix + self.name, **self.options) if prefix else self

    def __hash__(self) -> int:
        return hash(self.name)
