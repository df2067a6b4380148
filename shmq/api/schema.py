"""The contracts of schemas, and of queues and streams that are checked by them."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

if TYPE_CHECKING:
    from shmq.api.keywords import ProducerKeywords, PutKeywords, PutManyKeywords
    from shmq.api.message import Message, Put
    from shmq.api.producer import Producer
    from shmq.api.queue import Queue
    from shmq.api.record import Appended, AppendedRange, Record
    from shmq.api.stream import Stream


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVersion:
    """One version of the schema of a queue, or of a stream."""

    #: The queue's or the stream's name.
    name: str
    #: 1 for the first version.
    version: int
    #: The JSON Schema.
    schema: Mapping[str, Any]
    #: What it had to be to the versions before it: ``"none"``, ``"backward"``, ``"forward"``,
    #: ``"full"``.
    compatibility: str
    #: When it was set, in seconds since 1970.
    at: float


T = TypeVar("T")


class TypedQueue(abc.ABC, Generic[T]):
    """A queue whose puts are checked against one version of its schema.

    A body is a map or another msgpack value, or a Struct ``T`` if the schema is one. The message's
    header ``shmq-schema`` holds the version that it was checked against.
    """

    @property
    @abc.abstractmethod
    def queue(self) -> Queue:
        """The plain queue, which checks nothing."""

    @property
    @abc.abstractmethod
    def version(self) -> int:
        """The version of the schema that bodies are checked against."""

    @abc.abstractmethod
    def check(self, body: T | Mapping[str, Any]) -> None:
        """Raise :class:`~shmq.SchemaError` if the body does not match the schema."""

    @abc.abstractmethod
    def put(
        self,
        body: T | Mapping[str, Any],
        block: bool | None = None,
        timeout: float | None = None,
        **properties: Unpack[PutKeywords],
    ) -> Put:
        """``Queue.put`` of a body that matches the schema.

        Raises :class:`~shmq.SchemaError`, which names the field, and puts nothing, if it does not
        match; and what ``Queue.put`` raises. The codec is msgpack unless another one is given.
        """

    @abc.abstractmethod
    async def aput(
        self, body: T | Mapping[str, Any], timeout: float | None = None, **properties: Any
    ) -> Put:
        """``put`` for asyncio."""

    @abc.abstractmethod
    def put_many(
        self,
        bodies: Iterable[T | Mapping[str, Any]],
        block: bool | None = None,
        timeout: float | None = None,
        **properties: Unpack[PutManyKeywords],
    ) -> int:
        """``Queue.put_many``; every body is checked before any is put."""

    @abc.abstractmethod
    def body(self, message: Message) -> T:
        """The body of a message, checked; an instance of the Struct if the schema is one.

        Raises :class:`~shmq.SchemaError`.
        """


class TypedStream(abc.ABC, Generic[T]):
    """A stream whose appends are checked against one version of its schema.

    Values and the header with the version are as for :class:`TypedQueue`.
    """

    @property
    @abc.abstractmethod
    def stream(self) -> Stream:
        """The plain stream, which checks nothing."""

    @property
    @abc.abstractmethod
    def version(self) -> int:
        """The version of the schema that values are checked against."""

    @abc.abstractmethod
    def check(self, value: T | Mapping[str, Any]) -> None:
        """Raise :class:`~shmq.SchemaError` if the value does not match the schema."""

    @abc.abstractmethod
    def append(
        self, value: T | Mapping[str, Any], *, headers: Mapping[str, Any] | None = None, **how: Any
    ) -> Appended:
        """``Stream.append`` of a value that matches the schema.

        Raises :class:`~shmq.SchemaError`, which names the field, and appends nothing, if the value
        does not match; and what ``Stream.append`` raises. The codec is msgpack unless another one
        is given.
        """

    @abc.abstractmethod
    def append_many(
        self,
        values: Iterable[T | Mapping[str, Any]],
        *,
        headers: Sequence[Mapping[str, Any] | None] | None = None,
        **how: Any,
    ) -> list[AppendedRange]:
        """``Stream.append_many``; every value is checked before any is appended."""

    @abc.abstractmethod
    def producer(self, **options: Unpack[ProducerKeywords]) -> Producer:
        """``Stream.producer``, whose ``send`` also raises :class:`~shmq.SchemaError`.

        A refused value is in no batch.
        """

    @abc.abstractmethod
    def body(self, record: Record) -> T:
        """The body of a record, checked; an instance of the Struct if the schema is one.

        Raises :class:`~shmq.SchemaError`.
        """
