"""Takes the messages of a queue, and hands them to FastStream's handlers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Final

from faststream._internal.endpoint.publisher import PublisherProto
from faststream._internal.endpoint.subscriber import SubscriberSpecification
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.endpoint.subscriber.mixins import TasksMixin
from faststream._internal.endpoint.utils import process_msg
from faststream._internal.types import BrokerMiddleware
from faststream.message import StreamMessage

import shmq
from shmq.client.shared import loop_timer
from shmq.client.shared.blocking_calls import run_blocking
from shmq.extras.faststream.config import ShmqBrokerConfig, ShmqQueue, ShmqSubscriberConfig
from shmq.extras.faststream.failure_reply import FailureReplies
from shmq.extras.faststream.message import settle
from shmq.extras.faststream.parser import ShmqParser
from shmq.extras.faststream.publisher import ReplyPublisher

#: How long to wait before a queue that cannot be read is opened again, in seconds.
_PAUSE: Final = 1.0
#: How often a lease is extended during its time.
_EXTENSIONS: Final = 3


class ShmqSubscriber(TasksMixin):
    """Handles up to ``max_workers`` messages, or batches, of one queue at a time.

    One task waits for messages; each message is handled by a task of its own. While it is handled,
    its lease is extended. Messages that are leased ahead return uncounted when it stops.
    """

    _outer_config: ShmqBrokerConfig

    def __init__(
        self,
        config: ShmqSubscriberConfig,
        specification: SubscriberSpecification[Any, Any],
        calls: CallsCollection[Any],
    ) -> None:
        parser = ShmqParser(lambda: self._outer_config.waits)
        if config.batch is None:
            config.parser, config.decoder = parser.parse_message, parser.decode_message
        else:
            config.parser, config.decoder = parser.parse_batch, parser.decode_batch
        super().__init__(config, specification, calls)
        self._declared = config.queue
        self._prefetch = config.prefetch
        self._where = config.where
        self._batch = config.batch
        self._workers = config.max_workers
        self._handle: shmq.Queue | None = None
        self._lease = 0.0  # in seconds
        self._working: set[asyncio.Task[None]] = set()
        self._leased: dict[int, shmq.Message] = {}
        self._reader: asyncio.Task[Any] | None = None
        #: What the reader waits in.
        self._waiting: shmq.AsyncConsumer | None = None

    @property
    def queue(self) -> ShmqQueue:
        """The queue that it reads, with the prefixes of its routers."""
        return self._declared.named(self._outer_config.prefix)

    @property
    def takes_batches(self) -> bool:
        """Whether its handlers get lists."""
        return self._batch is not None

    @property
    def max_deliveries(self) -> int | None:
        """How often a message of its queue is delivered; None: without a limit."""
        return None if self._handle is None else self._handle.options.max_deliveries

    # ---- FastStream's hooks ----

    @property
    def _broker_middlewares(self) -> Sequence[BrokerMiddleware[Any]]:
        outer = self._outer_config.broker_middlewares
        if self._no_reply or not self._outer_config.reads:
            return outer
        return (FailureReplies(self, self._outer_config), *outer)

    def _make_response_publisher(self, message: StreamMessage[Any]) -> Iterable[PublisherProto]:
        return (ReplyPublisher(self._outer_config.producer, message),)

    def get_log_context(self, message: StreamMessage[Any] | None) -> dict[str, str]:
        """What the log says of a message."""
        return {"queue": self.queue.name, "message_id": getattr(message, "message_id", "")}

    async def start(self) -> None:
        """Make the queue if it does not exist, and begin to take its messages."""
        await super().start()
        self._post_start()
        if self.calls and self._outer_config.reads:
            await self._open_queue()
            self.add_task(self._read)
            self.add_task(self._extend)

    async def stop(self) -> None:
        """Take no more messages, and let those in hand come to their end in time."""
        self.running = False
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.wait([reader])  # what it leased ahead returns
        await super().stop()
        await self._end_tasks()
        handle, self._handle = self._handle, None
        if handle is not None:
            await run_blocking(handle.close)  # what is leased returns
        self._leased.clear()

    async def _end_tasks(self) -> None:
        """Cancel the handlers whose time has expired; one that asked for the end goes on."""
        late = self._working - {asyncio.current_task()}
        for task in late:
            task.cancel()
        if late:
            await loop_timer.wait(asyncio.gather(*late, return_exceptions=True), _PAUSE)

    async def get_one(self, *, timeout: float = 5.0) -> StreamMessage[Any] | None:
        """Take one message, which the caller settles; None if none came in time."""
        self._check_no_calls()
        queue = await self._open_queue()
        try:
            message: Any = await queue.aget(timeout, where=self._where)
        except shmq.Empty:
            return None
        return await self._parse(message if self._batch is None else [message])

    async def __aiter__(self) -> AsyncIterator[StreamMessage[Any]]:
        self._check_no_calls()
        queue = await self._open_queue()
        async with queue.aconsume(self._prefetch, where=self._where) as messages:
            async for message in messages:
                found: Any = message if self._batch is None else [message]
                parsed = await self._parse(found)
                assert parsed is not None
                yield parsed

    def _check_no_calls(self) -> None:
        assert not self.calls, (
            f"the subscriber of queue {self.queue.name!r} has handlers, which take its messages"
        )

    async def _parse(self, message: Any) -> StreamMessage[Any] | None:
        context = self._outer_config.context
        parser, decoder = self._get_parser_and_decoder()
        return await process_msg(
            msg=message,
            middlewares=(
                one(message, context=context) for one in self._outer_config.broker_middlewares
            ),
            parser=parser,
            decoder=decoder,
        )

    # ---- reading ----

    async def _open_queue(self) -> shmq.Queue:
        if self._handle is None:
            queues = self._outer_config.queues
            self._handle = await run_blocking(queues.open, self.queue, make=True)
            self._lease = self._handle.options.visibility_timeout
        return self._handle

    async def _read(self) -> None:
        """Hand out messages until it stops; a queue that is gone is opened again, or made."""
        self._reader = asyncio.current_task()
        while self.running:
            try:
                await self._read_queue(await self._open_queue())
            except (shmq.ShmqError, OSError, StopAsyncIteration) as error:
                self._log(logging.ERROR, f"the queue cannot be read: {error}")
                self._handle = None
                await loop_timer.sleep(_PAUSE)

    async def _read_queue(self, queue: shmq.Queue) -> None:
        free = asyncio.Semaphore(self._workers)
        async with queue.aconsume(self._prefetch, where=self._where) as messages:
            while True:
                await free.acquire()  # before a message is taken: none is in hand in the meantime
                self._waiting = messages
                found = [await anext(messages)]
                self._waiting = None
                if self._batch is not None:
                    found += await self._get_more(queue, self._batch - 1)
                self._leased.update((id(one), one) for one in found)
                task = asyncio.create_task(self._handle_messages(found, free))
                self._working.add(task)
                task.add_done_callback(self._working.discard)

    async def _get_more(self, queue: shmq.Queue, most: int) -> list[shmq.Message]:
        """The further messages of a batch that are there already."""
        if most == 0:
            return []
        take = functools.partial(queue.get_many, most, block=False, where=self._where)
        return await run_blocking(take) if self._outer_config.waits else take()

    async def _handle_messages(self, found: list[shmq.Message], free: asyncio.Semaphore) -> None:
        """Handle messages; those of a handler that is cancelled stay leased until it stops."""
        try:
            if self.running:
                await self.consume(found[0] if self._batch is None else found)
                for one in found:
                    self._leased.pop(id(one), None)
                self._flush()
        finally:
            free.release()

    def _flush(self) -> None:
        """Free what was acknowledged while the reader waits: the next of a group, and room.

        A reader that does not wait does it itself.
        """
        if self._waiting is not None:
            with contextlib.suppress(shmq.ShmqError):  # the next one tells
                self._waiting.flush()

    async def _extend(self) -> None:
        """Extend the leases of what is being handled."""
        while True:
            seconds = self._lease
            await loop_timer.sleep(seconds / _EXTENSIONS)
            for key, message in list(self._leased.items()):
                try:
                    if not message.settled:
                        deed = functools.partial(message.extend, seconds)
                        await settle(deed, self._outer_config.waits)
                except shmq.ShmqError as error:
                    self._leased.pop(key, None)
                    self._log(logging.WARNING, f"the lease of a message in hand has ended: {error}")
