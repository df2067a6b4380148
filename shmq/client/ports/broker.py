"""The port of a broker: what a transport does for the handle that keeps the contract."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from shmq import api
from shmq.api.options import QueueOptions

if TYPE_CHECKING:
    from shmq.api.stream_options import StreamOptions
    from shmq.api.table import TableDurability

Queue = TypeVar("Queue", bound=api.Queue)
Stream = TypeVar("Stream", bound=api.Stream)
Exchange = TypeVar("Exchange", bound=api.Exchange)
Table = TypeVar("Table", bound=api.Table)


class BrokerPort(abc.ABC, Generic[Queue, Stream, Exchange, Table]):
    """A namespace of a transport.

    Names and options were checked, and ``given`` are the options that the application gave. What is
    made or opened is a new handle. A transport's class inherits
    :class:`~shmq.client.handles.broker.BrokerHandle`, and implements the port, and ``namespace``
    of the contract.
    """

    @abc.abstractmethod
    def make_queue(
        self, name: str, wanted: QueueOptions, given: Mapping[str, Any], exact: bool
    ) -> Queue:
        """Create the queue, or open it; ``exact``: raise QueueExists if its options differ.

        Declaring a queue again restarts its ``expires``.
        """

    @abc.abstractmethod
    def open_queue(self, name: str, to_put: bool) -> Queue:
        """Open the queue, perhaps only to put. Raises NoSuchQueue, and Forbidden unless so."""

    @abc.abstractmethod
    def remove_queue(self, name: str) -> None:
        """Delete the queue. Raises NoSuchQueue."""

    @abc.abstractmethod
    def summarize_queues(self) -> list[api.QueueSummary]:
        """Return the summary of each queue, sorted by name."""

    @abc.abstractmethod
    def find_queue_names(self) -> list[str]:
        """Return the names of all queues, sorted."""

    @abc.abstractmethod
    def make_stream(
        self, name: str, wanted: StreamOptions, given: Mapping[str, Any], exact: bool
    ) -> Stream:
        """Create the stream, or open it; ``exact``: raise StreamExists if its options differ."""

    @abc.abstractmethod
    def open_stream(self, name: str) -> Stream:
        """Open the stream. Raises NoSuchStream."""

    @abc.abstractmethod
    def remove_stream(self, name: str) -> None:
        """Delete the stream. Raises NoSuchStream."""

    @abc.abstractmethod
    def summarize_streams(self) -> list[api.StreamSummary]:
        """Return the summary of each stream, sorted by name."""

    @abc.abstractmethod
    def make_exchange(
        self, name: str, kind: api.ExchangeKind, alternate: str | None, exact: bool
    ) -> Exchange:
        """Create the exchange, or open it; ``exact``: raise ExchangeExists if it differs."""

    @abc.abstractmethod
    def open_exchange(self, name: str) -> Exchange:
        """Open the exchange. Raises NoSuchExchange."""

    @abc.abstractmethod
    def remove_exchange(self, name: str) -> None:
        """Delete the exchange. Raises NoSuchExchange."""

    @abc.abstractmethod
    def summarize_exchanges(self) -> list[api.ExchangeSummary]:
        """Return the summary of each exchange, sorted by name."""

    @abc.abstractmethod
    def make_table(self, name: str, durability: TableDurability, max_bytes: int | None) -> Table:
        """Create the table, or open it."""

    @abc.abstractmethod
    def open_table(self, name: str) -> Table:
        """Open the table. Raises NoSuchTable."""

    @abc.abstractmethod
    def remove_table(self, name: str) -> None:
        """Delete the table. Raises NoSuchTable."""

    @abc.abstractmethod
    def find_table_names(self) -> list[str]:
        """Return the names of all tables, sorted."""

    @abc.abstractmethod
    def add_schema(self, name: str, schema: dict[str, Any], rule: str | None) -> int:
        """Set the JSON Schema of a queue or stream, and return its version. Raises SchemaError."""

    @abc.abstractmethod
    def test_schema(self, name: str, schema: dict[str, Any], rule: str | None) -> None:
        """Raise what `add_schema` would raise."""

    @abc.abstractmethod
    def find_schemas(self, name: str) -> list[api.SchemaVersion]:
        """Return every version of the schema of a queue or stream."""

    @abc.abstractmethod
    def disconnect(self) -> None:
        """Release what the broker has, after its handles were closed. Called once."""
