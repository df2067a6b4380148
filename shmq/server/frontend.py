"""A front-end worker's event loop: connects clients to the engine, and the engine to queues."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import struct
from collections.abc import Callable
from typing import Any, Final

from shmq.client.local.broker import LocalBroker
from shmq.client.local.queue import LocalQueue
from shmq.client.local.waiting.loop_waits import wait_for
from shmq.client.shared import durable_wait
from shmq.errors import ShmqError
from shmq.host.namespace.namespace import Namespace
from shmq.host.supervision.login_failures import source_of
from shmq.native import _core
from shmq.native._core import reserve_standard
from shmq.server.config.settings import Limits, Settings
from shmq.server.config.tokens import AccessList
from shmq.server.connection.connection import Connection, ConnectionCounts, PlainConnection
from shmq.server.connection.peer import Peer, RateLimitedLog
from shmq.server.connection.tls_connection import TlsConnection
from shmq.server.handlers.requests import Control
from shmq.server.handlers.side_threads import SideThreads

log = logging.getLogger("shmq.server")

#: Connections accepted in one turn, so that the open ones need not wait for all new ones.
_ACCEPTED_AT_ONCE: Final = 64
#: How long accepting pauses after a lack of descriptors or memory, in seconds.
_ACCEPT_PAUSE: Final = 0.2
#: How often the loop looks for stalled connections and for waits that are over, in seconds.
_ROUND: Final = 1.0
#: How long a draining server answers a connection without leases, in seconds.
_ANSWERING: Final = 1.0
#: How often a draining server looks for connections without leases, and how soon the end of
#: connections ends their waits, in seconds.
_LOOK: Final = 0.05
#: How soon a journal whose disk fails is looked at again, in seconds.
_BAD_DISK: Final = 0.1

#: TCP keepalive for peers that vanish: seconds of silence, seconds between probes, probes.
_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))


class FrontEnd:
    """Serves the connections of one listening socket. For one event loop.

    ``row`` is this worker's row in the ``connection_counts``.
    """

    def __init__(
        self,
        settings: Settings,
        listening: socket.socket,
        connection_counts: ConnectionCounts,
        row: int,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._listening = listening
        self._connection_counts = connection_counts
        self._row = row
        self._tls = None if settings.tls is None else settings.tls.context()
        self._limited_log = RateLimitedLog(log)
        self._connections: set[Connection] = set()
        self._with_output: set[_core.Session] = set()
        self._waiting: dict[tuple[LocalQueue, int], asyncio.Task[None]] = {}
        self._confirming: dict[LocalQueue, asyncio.Task[None]] = {}
        self._timer = self._loop.call_later(0, self._tick)
        self._round_at = 0.0
        #: Called in each round of the loop's timer, at least once a second.
        self.beat: Callable[[], None] = lambda: None
        self._draining = False
        self._ending_waits = False
        self._end_from = self._end_all_from = 0.0
        self._ended = self._loop.create_future()
        self._namespace = Namespace.chosen(settings.namespace)
        self._broker = LocalBroker(settings.namespace)
        self._broker.suggests = False
        self._side_threads = SideThreads(self._loop, log)
        self._control = Control(
            self._broker,
            AccessList(settings.tokens),
            self._wait,
            self._wait_filtered,
            self._confirm,
            self._schedule_output,
            self._wake_earlier,
            self._side_threads,
            settings.limits,
        )
        self._front = _core.Engine(self._control, **_name_limits(settings))
        self._control.attached = self._front.attached
        self._control.login_failed = lambda: connection_counts.login_failed(row)

    @property
    def limits(self) -> Limits:
        """The limits that are in force."""
        return self._settings.limits

    async def run(self) -> None:
        """Serve until `drain` is called, and the connections have ended or its time has expired."""
        self._loop.add_reader(self._listening.fileno(), self._accept)
        try:
            await self._ended
        finally:
            self._timer.cancel()
            for connection in list(self._connections):
                connection.close()
            waiting = [*self._waiting.values(), *self._confirming.values()]
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            self._front.close()
            self._control.streams.close()
            self._side_threads.close()
            self._broker.close()

    def drain(self) -> None:
        """Accept no more connections, begin nothing new, and end.

        Waiting requests are answered. Leased messages may still be settled for half the time of
        the drain.
        """
        if self._draining:
            return
        self._draining = True
        log.info("draining %d connections", len(self._connections))
        self._loop.remove_reader(self._listening.fileno())
        self._listening.close()
        self._front.drain()
        self._control.streams.drain()
        limit = self._settings.limits.drain
        self._end_from = self._loop.time() + min(_ANSWERING, limit / 4)
        self._end_all_from = self._loop.time() + limit / 2
        self._loop.call_later(limit, self._end)
        self._loop.call_soon(self._end_drained)

    def reload(self, settings: Settings) -> None:
        """Go on with these settings.

        A connection whose token is missing or has changed is closed: its rights are different
        now, and the client may connect again.
        """
        tls = None if settings.tls is None else settings.tls.context()
        self._settings, self._tls = settings, tls
        self._control.access_list = AccessList(settings.tokens)
        self._control.quotas.limits = settings.limits
        self._front.set_limits(**_name_limits(settings))
        for connection in list(self._connections):
            peer: Peer = connection.session.context
            if peer.token is not None and peer.token not in settings.tokens:
                log.info("%s: connection closed: token %r has changed", peer, peer.token.name)
                connection.end()

    # ---- connections ----

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                reserve_standard()
                sock, address = self._listening.accept()
            except BlockingIOError:
                return
            except ConnectionError:  # the peer closed before it was accepted
                continue
            except OSError as error:
                self._pause_accepting(error)
                return
            self._admit(sock, address)

    def _admit(self, sock: socket.socket, address: Any) -> None:
        who, source = _describe_client(sock, address)
        limit = self._settings.limits.connections
        if self._connection_counts.total() >= limit:
            sock.close()
            self._limited_log.warning("%s: connection refused: connections=%d are open", who, limit)
            return
        try:
            sock.setblocking(False)
            if sock.family != socket.AF_UNIX:
                _set_tcp_options(sock)
        except OSError:
            sock.close()
            return
        peer = Peer(who, source)
        log.debug("%s: connected", peer)
        session = self._front.session(peer)
        peer.connection = self._make_connection(sock, session)
        peer.connection.left = self._control.left
        self._connections.add(peer.connection)
        self._connection_counts.write(self._row, len(self._connections))

    def _make_connection(self, sock: socket.socket, session: _core.Session) -> Connection:
        if self._tls is None:
            return PlainConnection(self._loop, sock, session, self._on_closed)
        limit = self._settings.limits.handshake
        return TlsConnection(self._loop, sock, session, self._on_closed, self._tls, limit)

    def _on_closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        peer: Peer = connection.session.context
        peer.connection = None  # ends the reference cycle
        log.debug("%s: disconnected", peer)
        self._with_output.discard(connection.session)
        self._connection_counts.write(self._row, len(self._connections))
        self._end_waits_soon()
        self._end_if_empty()

    def _end_waits_soon(self) -> None:
        """End the waits of closed connections soon, once for all that close together."""
        if self._waiting and not self._ending_waits:
            self._ending_waits = True
            self._loop.call_later(_LOOK, self._end_unneeded_waits)

    def _pause_accepting(self, error: OSError) -> None:
        """Pause accepting for lack of descriptors or memory; the kernel queues the others."""
        if error.errno not in {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}:
            raise error
        self._limited_log.warning("cannot accept a connection now: %s", error.strerror)
        self._loop.remove_reader(self._listening.fileno())
        self._loop.call_later(_ACCEPT_PAUSE, self._resume_accepting)

    def _resume_accepting(self) -> None:
        if not self._draining:
            self._loop.add_reader(self._listening.fileno(), self._accept)

    # ---- called by the engine ----

    def _schedule_output(self, session: _core.Session) -> None:
        """Have the session's output sent, once the engine has returned."""
        if not self._with_output:
            self._loop.call_soon(self._send_all)
        self._with_output.add(session)

    def _send_all(self) -> None:
        sessions, self._with_output = self._with_output, set()
        for session in sessions:
            peer: Peer = session.context
            if peer.connection is not None:
                peer.connection.send_output()

    def _wait(self, queue: LocalQueue) -> None:
        self._begin_waiting(queue, _core.EVENT_NOT_EMPTY)

    def _wait_filtered(self, queue: LocalQueue) -> None:
        self._begin_waiting(queue, _core.EVENT_ARRIVED)

    def _begin_waiting(self, queue: LocalQueue, event: int) -> None:
        if (queue, event) not in self._waiting:
            self._waiting[queue, event] = self._loop.create_task(self._serve(queue, event))

    async def _serve(self, queue: LocalQueue, event: int) -> None:
        """Serve the waiting requests of a queue until none is left."""
        try:
            await wait_for(queue.namespace, queue, event, lambda: self._attempt(queue, event), None)
        except ShmqError as error:
            log.info("queue %s: its waiting requests are refused: %s", queue.name, error)
            self._front.forget(queue)
        finally:
            if self._waiting.get((queue, event)) is asyncio.current_task():
                del self._waiting[queue, event]

    def _attempt(self, queue: LocalQueue, event: int) -> bool | None:
        serve = self._front.serve_filtered if event == _core.EVENT_ARRIVED else self._front.serve
        return None if serve(queue) else True

    def _confirm(self, queue: LocalQueue) -> None:
        if queue not in self._confirming:
            self._confirming[queue] = self._loop.create_task(self._answer_from_disk(queue))

    async def _answer_from_disk(self, queue: LocalQueue) -> None:
        """Answer the puts that the queue's journal has on disk, until none is left to answer."""
        try:
            while True:
                beyond = queue.journal.synced + 1
                if not self._front.confirmed(queue):
                    # A put that waits for the disk from now on starts a new task.
                    return
                if not await durable_wait.synced(queue, beyond, None):
                    await asyncio.sleep(_BAD_DISK)
        except ShmqError as error:
            log.error("queue %s: its requests for the disk are refused: %s", queue.name, error)
            self._front.forget(queue)
        finally:
            del self._confirming[queue]

    # ---- time ----

    def _wake_earlier(self) -> None:
        """Keep time again, once the engine has returned."""
        self._timer.cancel()
        self._timer = self._loop.call_later(0, self._tick)

    def _tick(self) -> None:
        """Let the engine do what is due, and do the regular checks every `_ROUND`."""
        self._timer.cancel()
        self.beat()
        pause = _ROUND
        try:
            pause = min(self._front.tick(), _ROUND)
            if self._loop.time() >= self._round_at:
                self._round_at = self._loop.time() + _ROUND
                self._check_connections()
        except Exception:
            log.exception("internal error; the server continues")
        finally:
            self._timer = self._loop.call_later(pause, self._tick)

    def _check_connections(self) -> None:
        self._end_unneeded_waits()
        self._close_stalled()
        if self._namespace.processes.outlived_memory() and not self._ended.done():
            log.error(
                "the files of namespace %r in %s were removed: this worker ends, and another one "
                "takes its place",
                *(self._namespace.name, self._namespace.folder),
            )
            self._end()

    def _end_unneeded_waits(self) -> None:
        """End the waits for queues without waiting requests, so that their counts are right."""
        self._ending_waits = False
        for (queue, event), task in list(self._waiting.items()):
            if self._attempt(queue, event):
                # A request that waits from now on starts a new task.
                self._waiting.pop((queue, event), None)
                task.cancel()

    def _close_stalled(self) -> None:
        limit = self._settings.limits.frame
        before = self._loop.time() - limit
        for connection in [
            each for each in self._connections if (each.stalled_since or before) < before
        ]:
            self._limited_log.warning(
                "%s: connection closed: the peer read nothing for frame=%s s",
                connection.session.context,
                limit,
            )
            connection.close()

    # ---- the end ----

    def _end_drained(self) -> None:
        """End the connections without open messages, and after half the drain the others, too."""
        now = self._loop.time()
        if now >= self._end_from:
            for connection in list(self._connections):
                session = connection.session
                if not (session.unsettled or session.promised) or now >= self._end_all_from:
                    connection.end()
        self._end_if_empty()
        self._loop.call_later(_LOOK, self._end_drained)

    def _end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def _end_if_empty(self) -> None:
        if self._draining and not self._connections:
            self._end()


def _name_limits(settings: Settings) -> dict[str, Any]:
    """The limits as the engine names them."""
    limits = settings.limits
    return {
        "max_frame": limits.max_frame,
        "token_required": bool(settings.tokens),
        "most_unsettled": limits.unsettled_messages,
        "most_unsettled_bytes": limits.unsettled_bytes,
        "handshake": limits.handshake,
        "idle": limits.idle,
        "frame_time": limits.frame,
    }


def _set_tcp_options(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _describe_client(sock: socket.socket, address: Any) -> tuple[str, str]:
    """What is said of the client, and what its failed logins are counted for."""
    if sock.family != socket.AF_UNIX:
        return f"{address[0]}:{address[1]}", source_of(address[0])
    pid, *_ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return f"unix:pid={pid}", "unix"
