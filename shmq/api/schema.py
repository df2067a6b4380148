"""What a schema is, as a broker keeps it."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

if TYPE_CHECKING:
    from shmq.api.keywords import ProducerKeywords
    from shmq.api.message import Message, Put
    from shmq.api.producer import Producer
    from shmq.api.queue import Queue
    from shmq.api.record import Appended, AppendedRange, Record
    from shmq.api.stream import Stream

__all__ = ["SchemaVersion", "TypedQueue", "TypedStream"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVersion:
    """One version of the schema of a queue, or of a stream."""

    #: The queue's or the stream's name.
    name: str
    #: 1 for the first.
    version: int
    #: The JSON Schema.
    schema: Mapping[str, Any]
    #: What it had to be to those before it: ``"none"``, ``"backward"``, ``"forward"``, ``"full"``.
    compatibility: str
    #: When it was set, in seconds since 1970.
    at: float


class TypedQueue(abc.ABC):
    """A queue whose puts are checked by a version of its schema.

    What is put is a map or another value of msgpack, or a Struct where that is the schema. A
    message says by its header ``shmq-schema`` which version it was checked by.
    """

    @property
    @abc.abstractmethod
    def queue(self) -> Queue:
        """The queue itself, by which nothing is checked."""

    @property
    @abc.abstractmethod
    def version(self) -> int:
        """The version that it is checked by."""

    @abc.abstractmethod
    def check(self, body: Any) -> None:
        """Raise :class:`~shmq.SchemaError` for a body that is not as the schema says."""

    @abc.abstractmethod
    def put(
        self, body: Any, block: bool | None = None, timeout: float | None = None, **properties: Any
    ) -> Put:
        """``Queue.put`` of a body that is as the schema says.

        Raises :class:`~shmq.SchemaError`, which names the field, and then nothing is put; and
        what ``Queue.put`` raises. The codec is msgpack unless another one is given.
        """

    @abc.abstractmethod
    async def aput(self, body: Any, timeout: float | None = None, **properties: Any) -> Put:
        """``put``, for a task."""

    @abc.abstractmethod
    def put_many(
        self,
        bodies: Iterable[Any],
        block: bool | None = None,
        timeout: float | None = None,
        **properties: Any,
    ) -> int:
        """``Queue.put_many``; every body is checked before any is put."""

    @abc.abstractmethod
    def body(self, message: Message) -> Any:
        """The body of a message, checked; of the Struct's type where that is the schema.

        Raises :class:`~shmq.SchemaError`.
        """


class TypedStream(abc.ABC):
    """A stream of which what is appended is checked by a version of its schema.

    A value is as :class:`TypedQueue` has it, and says its version by the same header.
    """

    @property
    @abc.abstractmethod
    def stream(self) -> Stream:
        """The stream itself, by which nothing is checked."""

    @property
    @abc.abstractmethod
    def version(self) -> int:
        """The version that it is checked by."""

    @abc.abstractmethod
    def check(self, value: Any) -> None:
        """Raise :class:`~shmq.SchemaError` for a value that is not as the schema says."""

    @abc.abstractmethod
    def append(
        self, value: Any, *, headers: Mapping[str, Any] | None = None, **how: Any
    ) -> Appended:
        """``Stream.append`` of a value that is as the schema says.

        Raises :class:`~shmq.SchemaError`, which names the field, and then nothing is appended;
        and what ``Stream.append`` raises. The codec is msgpack unless another one is given.
        """

    @abc.abstractmethod
    def append_many(
        self,
        values: Iterable[Any],
        *,
        headers: Sequence[Mapping[str, Any] | None] | None = None,
        **how: Any,
    ) -> list[AppendedRange]:
        """``Stream.append_many``; every value is checked before any is appended."""

    @abc.abstractmethod
    def producer(self, **options: Unpack[ProducerKeywords]) -> Producer:
        """``Stream.producer``, whose ``send`` raises :class:`~shmq.SchemaError` as well.

        A value that is refused is in no batch.
        """

    @abc.abstractmethod
    def body(self, record: Record) -> Any:
        """The body of a record, checked; of the Struct's type where that is the schema.

        Raises :class:`~shmq.SchemaError`.
        """
