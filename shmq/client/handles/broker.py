"""What the brokers of all transports have in common."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, TypeVar, get_args, overload

from shmq import api
from shmq.api.options import IfDifferent, check_one_of
from shmq.client.shared.rpc_client import RpcClient
from shmq.errors import InvalidOption
from shmq.lazy_imports import late_imports
from shmq.model.schema.check import as_json_schema
from shmq.model.schema.compare import Compatibility

T = TypeVar("T")
_Handle = TypeVar("_Handle", bound="api.Queue | api.Stream | api.Exchange")


class BaseBroker(RpcClient):
    """A broker that sends and serves requests, and handles schemas."""

    @abc.abstractmethod
    def _set_schema(self, name: str, schema: dict[str, Any], rule: str | None) -> int:
        """`set_schema` with a validated JSON Schema."""

    @abc.abstractmethod
    def _check_schema(self, name: str, schema: dict[str, Any], rule: str | None) -> None:
        """`check_schema` with a validated JSON Schema."""

    def set_schema(self, name: str, schema: Any, compatibility: str | None = None) -> int:
        return self._set_schema(name, as_json_schema(schema), _rule(compatibility))

    def check_schema(self, name: str, schema: Any, compatibility: str | None = None) -> None:
        self._check_schema(name, as_json_schema(schema), _rule(compatibility))

    @overload
    def typed(
        self, of: str | api.Queue, schema: type[T], compatibility: str | None = None
    ) -> api.TypedQueue[T]: ...

    @overload
    def typed(
        self, of: str | api.Queue, schema: Any = None, compatibility: str | None = None
    ) -> api.TypedQueue[Any]: ...

    @overload
    def typed(
        self, of: api.Stream, schema: type[T], compatibility: str | None = None
    ) -> api.TypedStream[T]: ...

    @overload
    def typed(
        self, of: api.Stream, schema: Any = None, compatibility: str | None = None
    ) -> api.TypedStream[Any]: ...

    def typed(
        self, of: str | api.Queue | api.Stream, schema: Any = None, compatibility: str | None = None
    ) -> api.TypedQueue[Any] | api.TypedStream[Any]:
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
        with late_imports:
            from shmq.client.handles.typed_queue import typed  # noqa: PLC0415

        return typed(opened, self.schema(opened.name, version), kind)


def check_if_different(value: object) -> None:
    """Raise TypeError or InvalidOption if ``value`` is no ``if_different``."""
    check_one_of("if_different", value, get_args(IfDifferent))


def given_of(kind: api.ExchangeKind | None, alternate: str | None) -> dict[str, Any]:
    """The options that were given for an exchange: None stands for one that was not."""
    both = {"kind": kind, "alternate": alternate}
    return {key: value for key, value in both.items() if value is not None}


def same(handle: _Handle, given: Mapping[str, Any], if_different: IfDifferent) -> _Handle:
    """The handle; if it must be as given and is not, it is closed, and `check_same` raises."""
    if if_different == "refuse":
        # Loaded when it is asked for: it imports the options of streams and exchanges.
        with late_imports:
            from shmq.client.shared.differences import check_same  # noqa: PLC0415

        try:
            check_same(handle, given)
        except BaseException:
            handle.close()
            raise
    return handle


def _rule(compatibility: str | None) -> str | None:
    if compatibility is not None:
        check_one_of("compatibility", compatibility, get_args(Compatibility))
    return compatibility
