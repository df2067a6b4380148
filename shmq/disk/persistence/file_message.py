"""A message that was read from a file."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

import msgpack

from shmq.api import DeadLetter, Failure
from shmq.client.shared.policy import dead_letter
from shmq.errors import FileError
from shmq.model.codec import codecs
from shmq.model.failure import unpack_error

_REASONS: Final = ("", "rejected", "max_deliveries", "expired")


class StoredMessage:
    """A message of the queue ``queue``, from the ``fields`` of its record.

    It has the readable members of :class:`shmq.Message`. Times are in seconds since 1970.
    """

    def __init__(self, queue: str, fields: Mapping[str, Any]) -> None:
        self.sequence: int = fields["seq"]
        self.priority: int = fields["priority"]
        #: How many times it has been delivered.
        self.delivery_count: int = fields["deliveries"]
        self.put_at: float = fields["put_at"] / 1e9
        #: When it becomes visible (None: at once), and when its ttl ends (None: never).
        self.visible_at: float | None = _convert_to_seconds(fields.get("until"))
        self.expires_at: float | None = _convert_to_seconds(fields.get("expires"))
        self._queue = queue
        self._raw: bytes = fields["body"]
        self._meta: bytes = fields["meta"]
        self._number: int = fields["codec"]
        self._reason: int = fields.get("reason", 0)
        self._dead_at: int = fields.get("dead_at", 0)

    @functools.cached_property
    def properties(self) -> dict[str, Any]:
        """The properties of the message, by their names on the wire.

        Raises :class:`~shmq.FileError` if they are not valid msgpack.
        """
        try:
            return codecs.unpack_properties(self._meta)
        except (ValueError, msgpack.UnpackException) as error:
            raise FileError(
                f"the properties of message {self.sequence} of queue {self._queue!r} cannot be "
                f"read: {error}"
            ) from error

    @property
    def headers(self) -> Mapping[str, Any]:
        """The headers."""
        headers = self.properties.get("headers")
        return headers if isinstance(headers, Mapping) else {}

    @property
    def group(self) -> str | None:
        """The group."""
        return self.properties.get("group")

    @property
    def codec(self) -> str:
        """The name of the body's codec."""
        if self._number < len(codecs.CODECS):
            return codecs.CODECS[self._number]
        return str(self.properties.get("codec", "bytes"))

    @property
    def body(self) -> Any:
        """The decoded body. Raises :class:`~shmq.ShmqError` if its codec cannot decode it."""
        return codecs.decode_body(self._raw, self._number, self.codec)

    @property
    def view(self) -> memoryview:
        """The body's bytes."""
        return memoryview(self._raw)

    @property
    def dead(self) -> DeadLetter | None:
        """Why it is a dead letter, whether still in its own queue or in the dead-letter queue."""
        if self._reason:
            return DeadLetter(
                reason=_REASONS[self._reason],
                queue=self._queue,
                deliveries=self.delivery_count,
                at=self._dead_at / 1e9,
                error=self.last_error,
            )
        properties = self.properties.get("dead")
        return dead_letter(properties) if properties else None

    @property
    def last_error(self) -> Failure | None:
        """The error of its last failed delivery."""
        return unpack_error(self.properties.get("error"))


def _convert_to_seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e9
