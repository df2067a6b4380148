"""Answers that come later: a FETCH that waits for records, an APPEND that waits for the disk."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from shmq.client.local.stream import LocalStream
from shmq.errors import DamagedFile, NotConfirmed, ShmqError
from shmq.native._core import Session
from shmq.protocol.messages.stream import Fetch, FetchedPart
from shmq.protocol.opcodes import Status
from shmq.protocol.status import Refusal, refusal_of

log = logging.getLogger("shmq.server")

#: The size limit of one answer in bytes; its first entry may exceed it.
_MOST: Final = 4 << 20


class FetchHandler:
    """The FETCHes that wait, one task each."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Task[None], tuple[Session, LocalStream, int]] = {}

    def begin(self, session: Session, stream: LocalStream, asked: Fetch) -> bytes | None:
        """The answer; None: it follows later. Raises Refusal, InvalidOption, ShmqError."""
        found = _find(stream, asked)
        if found or asked.wait == 0:
            return found
        if not session.delay():
            raise Refusal(
                Status.BAD_REQUEST, "too many requests of this connection wait: use another one too"
            )
        task = asyncio.get_running_loop().create_task(
            self._serve(session, session.asked, stream, asked)
        )
        self._waiting[task] = session, stream, session.asked
        task.add_done_callback(self._over)
        return None

    def has(self, stream: LocalStream) -> bool:
        """Whether a FETCH waits for the stream."""
        return any(stream is each for _, each, _ in self._waiting.values())

    def leave(self, session: Session) -> None:
        """End the waits of a connection that is gone."""
        for task, (whose, _, _) in list(self._waiting.items()):
            if whose is session:
                task.cancel()

    def drain(self) -> None:
        """End all waits, with SHUTTING_DOWN."""
        for task, (session, _, asked) in list(self._waiting.items()):
            task.cancel()
            session.answer_late(asked, Status.SHUTTING_DOWN, b"")

    def close(self) -> None:
        """End all waits, without answers."""
        for task in list(self._waiting):
            task.cancel()

    async def _serve(
        self, session: Session, asked: int, stream: LocalStream, wanted: Fetch
    ) -> None:
        status, payload = Status.OK, b""
        try:
            if await stream.abeyond_any(dict(wanted.places), wanted.wait):
                payload = _find(stream, wanted)
        except ShmqError as error:
            gone = stream.control.deleted  # its handle may have been closed for that
            status, payload = (Status.NO_QUEUE, b"") if gone else refusal_of(error)
        session.answer_late(asked, status, payload)

    def _over(self, task: asyncio.Task[None]) -> None:
        session, _, asked = self._waiting.pop(task)
        if task.cancelled() or task.exception() is None:
            return
        log.error("internal error", exc_info=task.exception())
        session.answer_late(asked, Status.INTERNAL, b"")


def _find(stream: LocalStream, asked: Fetch) -> bytes:
    """The partitions with entries from the asked offsets on, or with entries filtered out.

    The partitions after a damaged one are not read. Raises its DamagedFile if the partitions
    before it have nothing.
    """
    parts: list[bytes] = []
    left = min(asked.size, _MOST)
    for partition, offset in asked.places:
        if left <= 0:
            break
        try:
            raw, following = _read_entries(stream, asked, partition, offset, left)
        except DamagedFile:
            if parts:
                break
            raise
        if following > offset:
            parts.append(FetchedPart(partition, following, stream.latest(partition), raw).pack())
            left -= len(raw)
    return b"".join(parts)


def _read_entries(
    stream: LocalStream, asked: Fetch, partition: int, offset: int, most: int
) -> tuple[bytes, int]:
    """The entries from the offset on, and the offset after them and those filtered out."""
    if asked.where is None:
        return stream.read_raw(partition, offset, asked.most, max_bytes=most)
    found: Any = stream.read(partition, offset, asked.most, max_bytes=most, where=asked.where)
    return found.sealed(stream.identity & 0xFFFFFFFF), found.next_offset


#: How soon a disk that fails is looked at again, in seconds.
_BAD_DISK: Final = 0.02
#: How soon after the append the disk is first looked at, in seconds; doubled each time.
_FIRST_PAUSE: Final = 0.0005


class DurableAppends:
    """The answers that wait for a disk, one task each."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Task[None], LocalStream] = {}

    def durable_reply(
        self,
        session: Session,
        stream: LocalStream,
        behind: tuple[int, int],
        status: Status,
        payload: bytes,
    ) -> None:
        """Answer once everything before that offset of the partition is on disk."""
        ticket = session.durable_reply()
        task = asyncio.get_running_loop().create_task(
            _keep(session, ticket, stream, behind, status, payload)
        )
        self._waiting[task] = stream
        task.add_done_callback(self._over)

    def has(self, stream: LocalStream) -> bool:
        """Whether an answer waits for the stream's disk."""
        return any(stream is each for each in self._waiting.values())

    def close(self) -> None:
        """Stop waiting; nothing more is answered."""
        for task in list(self._waiting):
            task.cancel()

    def _over(self, task: asyncio.Task[None]) -> None:
        del self._waiting[task]
        if not task.cancelled() and task.exception() is not None:
            log.error("internal error", exc_info=task.exception())


async def _keep(
    session: Session,
    ticket: int,
    stream: LocalStream,
    behind: tuple[int, int],
    status: Status,
    payload: bytes,
) -> None:
    try:
        await _wait_synced(stream, *behind)
    except ShmqError as error:
        status, payload = refusal_of(error)
    session.keep(ticket, status, payload)


async def _wait_synced(stream: LocalStream, partition: int, offset: int) -> None:
    """Return once the partition is on disk up to the offset, however often that fails before."""
    log = stream.logs[partition]
    pause = _FIRST_PAUSE
    while offset:
        try:
            if log.wait_synced(offset, 0.0):
                return
        except NotConfirmed:
            pause = _BAD_DISK
        if pause == _BAD_DISK:
            stream.await_writer()
        await asyncio.sleep(pause)
        pause = min(pause * 2, _BAD_DISK)
