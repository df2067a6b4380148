"""The definitions of a namespace in a cluster: keys of a KV bucket, changed by their revision."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

from shmq.client.ports.broker import make_taken_error
from shmq.errors import ServerError
from shmq.extras.nats.client import names
from shmq.extras.nats.client.connection import ApiError, ClusterConnection
from shmq.extras.nats.client.jetstream import NO_MESSAGE, NO_STREAM, WRONG_LAST, create_stream
from shmq.model.codec.strict_json import decode_json, encode_json

#: The header with the revision that a key must have to be set.
EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"


class Definition(NamedTuple):
    """The value of a key, and its revision."""

    value: dict[str, Any]
    revision: int


class Definitions:
    """The bucket of a namespace; it is made by the first definition."""

    def __init__(self, connection: ClusterConnection) -> None:
        self._connection = connection
        self._namespace = connection.namespace
        self._stream = names.kv_stream(self._namespace)
        self._is_there = False

    def subject(self, key: str) -> str:
        """The subject of a key."""
        return names.kv_subject(self._namespace, key)

    async def get(self, key: str) -> Definition | None:
        """The newest definition of the key, as the leader has it; None if there is none."""
        asked = {"last_by_subj": self.subject(key)}
        try:
            found = await self._connection.api(f"STREAM.MSG.GET.{self._stream}", asked)
        except ApiError as error:
            if error.number in (NO_STREAM, NO_MESSAGE):
                return None
            raise
        message = found["message"]
        data = base64.b64decode(message.get("data") or "")
        if not data:
            return None  # a deletion by a tool for KV buckets
        try:
            value = decode_json(data)
        except ValueError as error:
            raise ServerError(
                f"the definition {key!r} of {self._connection.url} is not JSON: {error}"
            ) from error
        return Definition(value, int(message["seq"]))

    async def put(
        self,
        key: str,
        value: Mapping[str, Any],
        revision: int | None = None,
        *,
        ttl: int | None = None,
    ) -> int | None:
        """Set the key; returns its new revision, or None if it has another one than ``revision``.

        A revision of 0 is that of a key that is not there; None: whatever it is. ``ttl`` is in
        seconds.
        """
        await self.make()
        headers = {} if revision is None else {EXPECTED: str(revision)}
        if ttl is not None:
            headers["Nats-TTL"] = f"{ttl}s"
        try:
            answer = await self._connection.publish(
                self.subject(key),
                encode_json(value),
                headers,
                what=f"definition {key!r}",
                check_there=self._make_anew,
            )
        except ApiError as error:
            if error.number in WRONG_LAST:
                return None
            raise
        return int(answer["seq"])

    async def check_alone(self, kind: str, name: str, revision: int | None = None) -> None:
        """Raise AlreadyExists if the other of a queue and a stream has that name.

        ``revision``: that of a definition just made, to which a later one of the other kind has
        lost the name. So of two clients that create both at once, one succeeds.
        """
        other: Literal["queue", "stream"] = "stream" if kind == "queue" else "queue"
        found = await self.get(names.kv_key(other, name))
        if found is not None and (revision is None or found.revision < revision):
            raise make_taken_error(other, name)

    async def remove(self, key: str) -> None:
        """Remove the key, and all below it if it ends with ``.>``."""
        try:
            await self._connection.api(
                f"STREAM.PURGE.{self._stream}", {"filter": self.subject(key)}
            )
        except ApiError as error:
            if error.number != NO_STREAM:
                raise

    async def names(self, kind: str) -> list[str]:
        """The names that are defined as ``kind``, sorted."""
        return sorted([name async for name in self._names(kind)])

    async def _names(self, kind: str) -> AsyncIterator[str]:
        async for key in self.keys_below(kind):
            yield names.unescape(key)

    async def keys_below(self, key: str) -> AsyncIterator[str]:
        """The last parts of the keys right below ``key``."""
        prefix = self.subject(f"{key}.")
        try:
            async for subject in subjects_of(self._connection.api, self._stream, f"{prefix}*"):
                yield subject.removeprefix(prefix)
        except ApiError as error:
            if error.number != NO_STREAM:
                raise

    async def _make_anew(self) -> None:
        """Make the bucket if another program has deleted it."""
        self._is_there = False
        await self.make()

    async def make(self) -> None:
        """Make the bucket, unless it is there."""
        if self._is_there:
            return
        await create_stream(
            self._connection,
            {
                "name": self._stream,
                "subjects": [self.subject(">")],
                "retention": "limits",
                "storage": "file",
                "discard": "new",
                "max_msgs_per_subject": 1,
                "num_replicas": self._connection.replicas,
                "duplicate_window": 120 * 10**9,
                "allow_rollup_hdrs": True,
                "deny_delete": True,
                "allow_direct": True,
                "allow_msg_ttl": True,
            },
        )
        self._is_there = True


async def subjects_of(
    api: Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]], stream: str, pattern: str
) -> AsyncIterator[str]:
    """The subjects of a stream that the pattern fits, asked for by parts. Raises ApiError."""
    offset = 0
    while True:
        asked = {"subjects_filter": pattern, "offset": offset}
        found = await api(f"STREAM.INFO.{stream}", asked)
        subjects = found["state"].get("subjects") or {}
        for subject in subjects:
            yield subject
        offset += len(subjects)
        if not subjects or offset >= int(found.get("total") or 0):
            return
