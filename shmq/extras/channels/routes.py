"""The exchange of a channel layer, which has a binding for each group and each process."""

from __future__ import annotations

from typing import Final

import shmq
from shmq.extras.channels.envelope import Envelope, Kind
from shmq.extras.frameworks.task_queues import Connection
from shmq.fork_safe import new_lock

_FULL: Final = (shmq.Full, shmq.NoSpace)


class Routes:
    """Sends envelopes to processes: by group, by inbox, or to all.

    The exchange is created at its first use, and again if it was deleted: then every process is
    asked to bind its groups again, and until it has, envelopes go to all inboxes.
    """

    def __init__(self, connection: Connection, prefix: str) -> None:
        self._connection = connection
        self._name = shmq.escape_name(f"{prefix}.groups")
        self._inboxes = f"{prefix}.inbox."
        self._lock = new_lock()
        self._opened: shmq.Exchange | None = None

    def inbox_name(self, token: str) -> str:
        """The name of the queue of the process with this token."""
        return shmq.escape_name(self._inboxes + token)

    def inbox_key(self, token: str) -> str:
        """The key of the binding of that queue: no group has a ``!`` in its name."""
        return f"!{token}"

    @property
    def is_open(self) -> bool:
        """Whether the exchange is open, so that a publish does not open it."""
        return self._opened is not None

    @property
    def exchange(self) -> shmq.Exchange:
        """The exchange."""
        with self._lock:
            if self._opened is None:
                self._opened = self._open()
            return self._opened

    def _open(self) -> shmq.Exchange:
        broker = self._connection.broker
        try:
            return broker.exchange(self._name)
        except shmq.NoSuchExchange:
            exchange = broker.ensure_exchange(self._name, "direct")
            self.send_to_all(Envelope(Kind.BIND, "", b"").pack())
            return exchange

    def forget(self) -> None:
        """Open the exchange again at its next use."""
        with self._lock:
            self._opened = None

    def publish(self, body: bytes, key: str, ttl: float) -> shmq.Published:
        """Publish to the queues that are bound with this key. Raises PublishRefused."""
        try:
            return self.exchange.publish(body, key, False, mandatory=False, ttl=ttl)
        except shmq.NoSuchExchange:
            self.forget()
            _ = self.exchange
            return shmq.Published(delivered=self.send_to_all(body, ttl))

    def bind(self, queue: str, key: str) -> None:
        """Bind a queue. Raises NoSuchQueue."""
        try:
            self.exchange.bind(queue, key)
        except shmq.NoSuchExchange:
            self.forget()
            self.exchange.bind(queue, key)

    def unbind(self, queue: str, key: str) -> None:
        """Remove a binding."""
        try:
            self.exchange.unbind(queue, key)
        except shmq.NoSuchExchange:
            self.forget()

    def send(self, token: str, envelope: Envelope) -> bool:
        """Put an envelope into the inbox of a process; False if there is none, or it is full."""
        return self._put(self.inbox_name(token), envelope.pack())

    def send_to_all(self, body: bytes, ttl: float | None = None) -> int:
        """Put an envelope into every inbox; how many have taken it."""
        return sum(self._put(name, body, ttl) for name in self._list_inboxes())

    def delete_dead(self) -> None:
        """Delete the inboxes of processes that have ended, which opening them does."""
        for name in self._list_inboxes():
            try:
                self._connection.broker.put_target(name).close()
            except shmq.NoSuchQueue:
                continue

    def _list_inboxes(self) -> list[str]:
        names = self._connection.broker.queue_names()
        return [name for name in names if name.startswith(self._inboxes)]

    def _put(self, inbox: str, body: bytes, ttl: float | None = None) -> bool:
        try:
            # Not closed: over TCP the handle of this process's own inbox is its owner's.
            self._connection.broker.put_target(inbox).put(body, False, ttl=ttl)
        except (shmq.NoSuchQueue, shmq.QueueDeleted, *_FULL):
            return False
        return True

    def delete(self) -> None:
        """Delete the exchange, and so all groups."""
        self.forget()
        try:
            self._connection.broker.delete_exchange(self._name)
        except shmq.NoSuchExchange:
            return
