"""The consumer of one queue: a dramatiq worker has one thread for it, and others that settle."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from dramatiq import Consumer, Message, MessageProxy
from dramatiq.errors import ConnectionClosed
from dramatiq.logging import get_logger

import shmq
from shmq.extras.frameworks.task_queues import give_back
from shmq.native import _clock as time

#: How many messages are leased by one call.
BATCH: Final = 64

#: How long a consumer that has no room may be silent, in seconds. A server closes a connection that
#: is silent for its idle limit, of minutes, and returns what was leased over it.
SILENCE: Final = 10.0

#: The errors after which a lease is over: the message is in its queue again, or gone with it.
LEASE_IS_OVER: Final = (shmq.LeaseExpired, shmq.ConnectionLost, shmq.QueueDeleted, shmq.NoSuchQueue)


class LeasedMessage(MessageProxy):
    """A message of dramatiq, and the leased message of shmq that it came in."""

    def __init__(self, message: Message[Any], leased: shmq.Message) -> None:
        super().__init__(message)
        self.leased = leased


class ShmqConsumer(Consumer):
    """Leases messages, at most ``prefetch`` that are not settled, and waits up to ``timeout`` ms.

    One thread iterates and closes. Any thread settles what the worker was given. ``find_error`` is
    called with each message, and with the error if it cannot be decoded.
    """

    def __init__(
        self,
        queue: shmq.Queue,
        prefetch: int,
        timeout: int,
        find_error: Callable[[shmq.Message, Exception | None], None],
    ) -> None:
        self.logger = get_logger(__name__, type(self))
        self._queue = queue
        self._find_error = find_error
        self._prefetch = prefetch
        self._timeout = timeout / 1000
        self._ahead: deque[shmq.Message] = deque()
        #: The receipts of what the worker has.
        self._held: set[int] = set()
        self._room = threading.Condition()
        self._spoke = time.monotonic()

    def __next__(self) -> MessageProxy | None:
        try:
            if not self._ahead:
                self._fill()
            return self._deliver_next() if self._ahead else None
        except shmq.ShmqError as error:
            raise ConnectionClosed(error) from error

    def _fill(self) -> None:
        """Lease as many as there is room for, waiting first for room and then for messages."""
        with self._room:
            if not self._room.wait_for(lambda: len(self._held) < self._prefetch, self._timeout):
                self._be_heard()
                return
            room = self._prefetch - len(self._held)
        self._ahead.extend(self._queue.get_many(min(room, BATCH), self._timeout))
        self._spoke = time.monotonic()

    def _be_heard(self) -> None:
        if time.monotonic() - self._spoke > SILENCE:
            self._queue.qsize()
            self._spoke = time.monotonic()

    def _deliver_next(self) -> MessageProxy | None:
        """The next message; None for one that cannot be decoded, which becomes a dead letter."""
        leased = self._ahead.popleft()
        try:
            message = Message.decode(leased.body)
        except LEASE_IS_OVER:
            return None
        except Exception as error:  # of any encoder, or it is not a map of a message
            self.logger.exception("Message %d is not of dramatiq: rejected.", leased.sequence)
            self._find_error(leased, error)
            leased.reject(error)
            return None
        self._find_error(leased, None)
        with self._room:
            self._held.add(leased.receipt)
        return LeasedMessage(message, leased)

    def ack(self, message: MessageProxy) -> None:
        """Remove the message from its queue."""
        if isinstance(message, LeasedMessage):
            self._settle(message, message.leased.ack)

    def nack(self, message: MessageProxy) -> None:
        """Make the message a dead letter."""
        if isinstance(message, LeasedMessage):
            error = message._exception
            self._settle(message, lambda: message.leased.reject(error))

    def _settle(self, message: LeasedMessage, settle: Callable[[], None]) -> None:
        """Settle the message; one whose lease is over is delivered again, and only logged.

        Raises ConnectionClosed, after which the worker tries again, if a lock was not to be had.
        """
        try:
            settle()
        except shmq.LockTimeout as error:
            raise ConnectionClosed(error) from error
        except LEASE_IS_OVER as error:
            self.logger.warning("Message %r is delivered again: %s", message.message_id, error)
        self._release([message.leased])

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        """Return messages that no worker thread has started; this delivery does not count."""
        leased = [each.leased for each in messages if isinstance(each, LeasedMessage)]
        self._return(leased)
        self._release(leased)

    def _release(self, messages: Iterable[shmq.Message]) -> None:
        with self._room:
            self._held.difference_update(message.receipt for message in messages)
            self._room.notify_all()

    def _return(self, messages: Iterable[shmq.Message]) -> None:
        try:
            give_back(self._queue, messages)
        except LEASE_IS_OVER:
            return
        except shmq.ShmqError as error:
            raise ConnectionClosed(error) from error

    def close(self) -> None:
        """Return what was not delivered, and close the queue, which returns the rest."""
        ahead, self._ahead = self._ahead, deque()
        try:
            self._return(ahead)
        finally:
            self._queue.close()
