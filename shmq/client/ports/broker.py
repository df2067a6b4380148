"""The port of a broker: what a transport does for the handle that keeps the contract."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, Literal

from shmq import api
from shmq.errors import AlreadyExists, NoSuchQueue, QueueExists, StreamExists

#: What has a name in a namespace.
Kind = Literal["queue", "stream", "exchange", "table"]


def make_neither_error(name: str, where: str) -> NoSuchQueue:
    """Return the error for a schema of a name that no queue and no stream has ``where``."""
    return NoSuchQueue(
        f"neither a queue nor a stream {name!r} exists {where}: create it first", name
    )


def make_taken_error(kind: Literal["queue", "stream"], name: str) -> AlreadyExists:
    """Return the error for creating what would have the name of an existing queue or stream."""
    error, other = (QueueExists, "stream") if kind == "queue" else (StreamExists, "queue")
    return error(
        f"{kind} {name!r} exists, and a {other} of that name would be mistaken for it: use another "
        f"name, or pass allow_same_name to have both"
    )


class CollectionPort(abc.ABC):
    """All queues of a namespace, or all its streams, exchanges or tables.

    Names and options were checked. What is made or opened is a new handle. Options are a
    QueueOptions or StreamOptions, or the arguments of `create_exchange` or `ensure_table`.
    """

    @abc.abstractmethod
    def make(self, name: str, wanted: Any, given: Mapping[str, Any], exact: bool) -> Any:
        """Create it, or open it; ``exact``: raise AlreadyExists if its options differ.

        ``given`` are the options that the application gave. A queue or stream is not created if the
        other has the name (see `make_taken_error`), unless ``given`` has ``allow_same_name``.
        Declaring a queue again restarts its ``expires``.
        """

    @abc.abstractmethod
    def open(self, name: str, to_put: bool = False) -> Any:
        """Open it, ``to_put``: perhaps only for that. Raises NotFound, and Forbidden unless so."""

    @abc.abstractmethod
    def delete(self, name: str) -> None:
        """Delete it. Raises NotFound."""

    @abc.abstractmethod
    def summaries(self) -> list[Any]:
        """Return the summary of each, sorted by name; of a table the name."""

    def alter(self, name: str, given: Mapping[str, Any]) -> Any:
        """Change options of a queue or stream, of which ``given`` was not checked.

        See `alter_queue` and `alter_stream`. Returns all of its options.
        """
        raise NotImplementedError

    def names(self) -> list[str]:
        """Return the names of all, sorted."""
        return [one if isinstance(one, str) else one.name for one in self.summaries()]


class BrokerPort(abc.ABC):
    """A namespace of a transport.

    Names and schemas were checked. A transport's class inherits
    :class:`~shmq.client.handles.broker.BrokerHandle`, and implements the port, and ``namespace``
    of the contract.
    """

    @abc.abstractmethod
    def collection(self, kind: Kind) -> CollectionPort:
        """Return the names of that kind."""

    @abc.abstractmethod
    def add_schema(
        self, name: str, schema: dict[str, Any], rule: str | None, *, only_check: bool = False
    ) -> int:
        """Set the JSON Schema of a queue or stream, and return its version. Raises SchemaError.

        ``only_check``: raise what that would raise, and return 0.
        """

    @abc.abstractmethod
    def find_schemas(self, name: str) -> list[api.SchemaVersion]:
        """Return every version of the schema of a queue or stream."""

    @abc.abstractmethod
    def disconnect(self) -> None:
        """Release what the broker has, after its handles were closed. Called once."""
