"""The window of unacknowledged messages of a channel, and how each of them is settled."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any, NamedTuple

from kombu.transport import virtual

import shmq

log = logging.getLogger("shmq")


class DeliveriesExhausted(Exception):
    """The task came back from each of its ``max_deliveries`` deliveries, and is a dead letter."""


class Lease(NamedTuple):
    """A leased message by its delivery tag, with the queue and the process that leased it."""

    tag: int
    queue: shmq.Queue
    message: shmq.Message
    pid: int

    def give_back(self) -> None:
        """Return the message to its place in the queue; this delivery does not count."""
        self.message.nack(counted=False)


class QoS(virtual.QoS):
    """Settles messages at once, by the lease that each delivery tag stands for.

    A message whose lease is over is delivered again by its queue, whatever is done here: its
    connection to a server was lost, or it was taken away by an operator.
    """

    def __init__(self, channel: Any, prefetch_count: int = 0) -> None:
        super().__init__(channel, prefetch_count)
        self._leases: dict[int, Lease] = {}

    def hold(self, lease: Lease) -> None:
        """Remember a lease until it is settled."""
        self._leases[lease.tag] = lease

    def can_consume(self) -> bool:
        """Whether another message may be leased."""
        return not self.prefetch_count or len(self._leases) < self.prefetch_count

    def limit_fetch(self, most: int) -> int:
        """How many of ``most`` messages may be leased now."""
        window: int = self.prefetch_count or most + len(self._leases)
        return min(most, window - len(self._leases))

    def give_back(self, delivery_tag: int) -> None:
        """Return a message that was not delivered to its place; this delivery does not count."""
        self._settle(delivery_tag, "give_back")

    def ack(self, delivery_tag: int) -> None:
        """Acknowledge the message."""
        self._settle(delivery_tag, "ack")

    def reject(self, delivery_tag: int, requeue: bool = False) -> None:
        """Make the message a dead letter, or return it to its queue.

        A returned message has been delivered: its next delivery says so (``redelivered``), and a
        task that kills its process each time ends as a dead letter. It keeps why its task has
        failed, or else the exception that is being handled.
        """
        self._settle(delivery_tag, "nack" if requeue else "reject")

    def _find_error(self, delivery_tag: int) -> shmq.Failure | BaseException | None:
        return getattr(self._delivered.get(delivery_tag), "failure", None) or sys.exception()

    def restore_unacked(self) -> list[Any]:
        """Return all unsettled messages to their places; these deliveries do not count."""
        self._flush()
        failed: shmq.ShmqError | None = None
        for delivery_tag in list(self._delivered):
            try:
                self._settle(delivery_tag, "give_back")
            except shmq.ShmqError as error:  # that of one queue: the others return theirs
                failed = error
        self._flush()
        if failed is not None:
            raise failed
        return []

    def _settle(self, delivery_tag: int, how: str) -> None:
        """Settle a delivery and make room in the window; a second time does nothing.

        After a LockTimeout it is not settled: it may be settled again, or else it is returned with
        the rest.
        """
        lease = self._leases.pop(delivery_tag, None)
        if lease is None or lease.pid != os.getpid():
            self._dirty.add(delivery_tag)  # the parent of this forked child settles it
            return
        try:
            self._carry_out(delivery_tag, lease, how)
        except (shmq.LeaseExpired, shmq.QueueDeleted) as error:
            log.warning("%s: the message is not settled by its %s", error, how)
        finally:
            if delivery_tag not in self._leases:
                self._dirty.add(delivery_tag)
                self.channel.connection.settled.set()

    def _carry_out(self, delivery_tag: int, lease: Lease, how: str) -> None:
        try:
            if how == "give_back":
                lease.give_back()
            elif how == "nack":
                lease.message.nack(0, error=self._find_error(delivery_tag))
            elif how == "reject":
                lease.message.reject(self._find_error(delivery_tag))
            else:
                lease.message.ack()
        except shmq.LockTimeout:
            self._leases[delivery_tag] = lease
            self._delivered.setdefault(delivery_tag)  # one that needs no acknowledgement
            raise
        if how == "nack":
            self._report_exhausted(delivery_tag, lease)
        elif how == "ack":
            self.channel.connection.on_ack()

    def _report_exhausted(self, delivery_tag: int, lease: Lease) -> None:
        """Report the failure of a returned message whose queue has made it a dead letter."""
        message, most = self._delivered.get(delivery_tag), lease.queue.options.max_deliveries
        if message is not None and most is not None and lease.message.delivery_count >= most:
            self.channel.connection.task_failed(
                message, DeliveriesExhausted(f"it was delivered {most} times and never finished")
            )
