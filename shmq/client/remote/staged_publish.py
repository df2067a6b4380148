"""Rows that are staged for a queue of a server, and committed to it batch by batch."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, Final

from shmq import api, errors
from shmq.api.bulk import check_batch, check_part, check_publisher
from shmq.api.options import STAGING_BYTES
from shmq.client.handles.put import encode
from shmq.client.shared.backoff import RoomBackoff
from shmq.model.codec.codecs import pack_properties, unpack_properties
from shmq.native import _clock as time
from shmq.native import _core
from shmq.protocol.messages.staging import Publish, Published, Stage, Staged, StagedState, StageRow
from shmq.protocol.opcodes import Type

#: The most bytes of a STAGE request beside its rows: a name, and the map.
_BESIDE: Final = 1024


class RemoteStagedPublisher(api.StagedPublisher):
    """Implements :class:`shmq.api.StagedPublisher`."""

    def __init__(self, queue: Any, publisher: str) -> None:
        self._queue = queue
        self._publisher = check_publisher(publisher)

    @property
    def name(self) -> str:
        return self._publisher

    def stage(
        self,
        batch: int,
        part: str,
        rows: Sequence[api.Row] | api.Rows,
        *,
        staging_bytes: int = STAGING_BYTES,
    ) -> None:
        queue = self._queue
        asked = Stage(self._publisher, check_batch(batch), check_part(part), staging_bytes)
        items = _from_columns(rows) if isinstance(rows, api.Rows) else _from_rows(queue, rows)
        for body, meta in items:
            queue.port.check_size(body, meta)
        for some in _frames(items, queue.port.frame() - _BESIDE):
            queue.port.ask(Type.STAGE, asked.pack_with_rows(some))

    def commit_batch(
        self, batch: int, parts: Sequence[str], *, timeout: float | None = None
    ) -> int:
        timeout = _core.check_timeout(timeout)
        until = None if timeout is None else time.monotonic() + timeout
        parts = [check_part(part) for part in parts]
        asked = Publish(self._publisher, check_batch(batch), parts).pack()
        backoff = RoomBackoff()
        rows = 0
        while True:
            published = Published.unpack(self._queue.port.ask(Type.PUBLISH, asked))
            rows += published.rows
            if published.left is None:
                return rows
            if published.rows:
                backoff = RoomBackoff()
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise errors.Full(published.left)
            if not published.rows:
                time.sleep(backoff.pause(left))

    def sealed(self) -> int | None:
        return self._ask("sealed").sealed

    def sweep(self, keep: str | None = None) -> int:
        return self._ask("sweep", keep).removed

    def discard(self) -> None:
        self._ask("discard")

    def _ask(self, action: str, keep: str | None = None) -> StagedState:
        """The state of the staging queue at the server, after the action."""
        asked = Staged(self._publisher, action, keep).pack()
        return StagedState.unpack(self._queue.port.ask(Type.STAGED, asked))


def _from_rows(queue: Any, rows: Sequence[api.Row]) -> list[StageRow]:
    items: list[StageRow] = []
    for row in rows:
        if type(row) is bytes:
            items.append((row, b""))
            continue
        body, properties = row if isinstance(row, tuple) else (row, {})
        if isinstance(body, str):
            raise TypeError("a row's body must be bytes or another buffer, not str: encode it")
        if "deliver_at" in properties:
            raise TypeError("a row takes no deliver_at: its delay counts from the publishing")
        body = body if isinstance(body, bytes) else bytes(memoryview(body))
        meta, buffer = encode(body, queue.options.priorities, properties, encoded=True)
        items.append((buffer, meta or b""))
    return items


def _from_columns(rows: api.Rows) -> list[StageRow]:
    alike = b"" if rows.codec is None else pack_properties({"codec": rows.codec})
    return [(body, _with_codec(meta, rows.codec) if meta else alike) for body, meta in rows.pairs()]


@functools.lru_cache(4096)
def _with_codec(meta: bytes, codec: str | None) -> bytes:
    """The properties with a codec, unless there is none, or they name one."""
    if codec is None:
        return meta
    properties = unpack_properties(meta)
    return meta if "codec" in properties else pack_properties({**properties, "codec": codec})


def _frames(items: list[StageRow], most: int) -> Iterator[list[StageRow]]:
    """The rows, as many at once as fit into a frame; without rows, one empty frame."""
    some: list[StageRow] = []
    size = 0
    for item in items:
        bytes_ = len(item[0]) + len(item[1]) + 8
        if some and size + bytes_ > most:
            yield some
            some, size = [], 0
        some.append(item)
        size += bytes_
    if some or not items:
        yield some
