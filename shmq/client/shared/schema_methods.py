"""The schema methods of a broker, for any transport."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, get_args, overload

from shmq import api
from shmq.api.options import check_one_of
from shmq.errors import InvalidOption, descriptors
from shmq.schema.check import as_json_schema
from shmq.schema.compare import Compatibility

if TYPE_CHECKING:
    from shmq.client.shared.typed_queue import TypedQueue, TypedStream

__all__ = ["SchemaMethods"]


class SchemaMethods(api.Broker):
    """The part of a broker that handles schemas."""

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


def _rule(compatibility: str | None) -> str | None:
    if compatibility is not None:
        check_one_of("compatibility", compatibility, get_args(Compatibility))
    return compatibility
