"""APPENDs that are answered once their records are on disk."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from shmq.client.local.stream import LocalStream
from shmq.errors import NotConfirmed, ShmqError
from shmq.native._core import Session
from shmq.protocol.opcodes import Status
from shmq.protocol.status import refusal_of

__all__ = ["DurableAppends"]

log = logging.getLogger("shmq.server")

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
            log.error("a fault of this server", exc_info=task.exception())


async def _keep(
    session: Session,
    ticket: int,
    stream: LocalStream,
    behind: tuple[int, int],
    status: Status,
    payload: bytes,
) -> None:
    try:
        await _synced(stream, *behind)
    except ShmqError as error:
        status, payload = refusal_of(error)
    session.keep(ticket, status, payload)


async def _synced(stream: LocalStream, partition: int, offset: int) -> None:
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
