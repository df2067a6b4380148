"""What the brokers of all transports have in common."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args, overload

from shmq import api
from shmq.api.options import check_one_of
from shmq.client.shared.rpc_client import RpcClient
from shmq.errors import InvalidOption, QueueExists, StreamExists, descriptors
from shmq.schema.check import as_json_schema
from shmq.schema.compare import Compatibility

if TYPE_CHECKING:
    from shmq.client.shared.typed_queue import TypedQueue, TypedStream

__all__ = ["BaseBroker", "exists_otherwise"]


class BaseBroker(RpcClient):
    """A broker that sends and serves requests, and handles schemas."""

    @abc.abstractmethod
    def _set_schema(self, name: str, schema: dict[str, Any], rule: str | None) -> int:
        """`set_schema` with a validated JSON Schema."""

    @abc.abstractmethod
    def _check_schema(self, name: str, schema: dict[str, Any], rule: str | None) -> None:
        """`check_schema` with a validated JSON Schema."""

    def set_schema(self, name: str, schema: Any, compatibility: str | None = None) -> int:
        """See :class:`shmq.api.Broker`."""
        return self._set_schema(name, as_json_schema(schema), _rule(compatibility))

    def check_schema(self, name: str, schema: Any, compatibility: str | None = None) -> None:
        """See :class:`shmq.api.Broker`."""
        self._check_schema(name, as_json_schema(schema), _rule(compatibility))

    @overload
    def typed(
        self, of: str | api.Queue, schema: Any = None, compatibility: str | None = None
    ) -> TypedQueue: ...

    @overload
    def typed(
        self, of: api.Stream, schema: Any = None, compatibility: str | None = None
    ) -> TypedStream: ...

    def typed(
        self,
        of: str | api.Queue | api.Stream,
        schema: Any = None,
        compatibility: str | None = None,
    ) -> TypedQueue | TypedStream:
        """See :class:`shmq.api.Broker`."""
        if schema is None and compatibility is not None:
            raise InvalidOption(
                f"compatibility={compatibility!r} is for a schema that is set: give one, or neither"
            )
        opened = self.queue(of) if isinstance(of, str) else of
        version = None
        if schema is not None:
            version = self.set_schema(opened.name, schema, compatibility)
        kind = schema if isinstance(schema, type) else None
        # Loaded with the first typed handle: it imports what streams and their producers import.
        with descriptors:
            from shmq.client.shared.typed_queue import typed  # noqa: PLC0415

        return typed(opened, self.schema(opened.name, version), kind)


def exists_otherwise(
    kind: Literal["queue", "stream"], name: str, differences: Mapping[str, tuple[Any, Any]]
) -> QueueExists | StreamExists:
    """The error for a name whose options differ from those that were asked for."""
    error = QueueExists if kind == "queue" else StreamExists
    told = ", ".join(
        f"{key} is {has!r}, not {asked!r}" for key, (has, asked) in differences.items()
    )
    return error(
        f"{kind} {name!r} exists with other options{told and ': ' + told}; use it as it is, or "
        f"delete it first"
    )


def _rule(compatibility: str | None) -> str | None:
    if compatibility is not None:
        check_one_of("compatibility", compatibility, get_args(Compatibility))
    return compatibility
