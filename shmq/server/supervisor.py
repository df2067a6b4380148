"""The supervisor of a server: starts, watches, replaces, reloads and ends its processes."""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, Final

from shmq.client.local.broker import LocalBroker
from shmq.client.shared import durability
from shmq.errors import ShmqError
from shmq.host.namespace.namespace import Namespace
from shmq.host.supervision.audit import AuditFile
from shmq.host.supervision.child_process import (
    LOOK,
    ChildProcess,
    PipedChildProcess,
    WakeupPipe,
    kill_all,
)
from shmq.host.supervision.descriptors import raise_descriptor_limit
from shmq.host.supervision.signals import caught, ended_by
from shmq.server import worker
from shmq.server.config.settings import Settings, Source
from shmq.server.connection.connection import ConnectionCounts
from shmq.server.keeper import main as keep
from shmq.server.listener import listen, refuse, remove, url_of
from shmq.server.persistence_process import PersistenceProcess
from shmq.server.systemd import Manager, inherited_socket

log = logging.getLogger("shmq.server")

#: The longest pause before a worker that keeps dying is started again, in seconds: in the meantime
#: the connections that the kernel gives to its socket wait.
_LONGEST_PAUSE: Final = 2.0
#: How often processes may die before the server was first up.
_FALSE_STARTS: Final = 3
#: How much longer than the drain the processes may take to end, in seconds.
_GRACE: Final = 4.0
#: Descriptors of a process beside its connections: queues, semaphores, the interpreter's.
_OTHER_DESCRIPTORS: Final = 1024


class _WorkerProcess(PipedChildProcess):
    """One worker as its supervisor sees it, with its socket and the pipe to it."""

    def __init__(
        self,
        supervisor: Supervisor,
        listening: socket.socket,
        connection_counts: ConnectionCounts,
        row: int,
    ) -> None:
        self.ready = False
        self.reloading = False
        self._connection_counts = connection_counts
        self._row = row

        def arguments(pipe: Connection) -> tuple[Any, ...]:
            settings = supervisor.settings
            return (
                self.who,
                settings,
                listening,
                connection_counts,
                row,
                self.heartbeat,
                pipe,
                os.getpid(),
            )

        super().__init__(
            f"front end {row + 1}",
            worker.main,
            arguments,
            log,
            duplex=True,
            expected={0},
            longest_pause=_LONGEST_PAUSE,
        )

    def reap(self) -> int | None:
        code = super().reap()
        if code is not None:
            self._connection_counts.write(self._row, 0)
        return code

    def received(self, said: str) -> None:
        self.ready = self.ready or said == worker.READY
        self.reloading = self.reloading and said != worker.RELOADED

    def close_pipe(self) -> None:
        # The successor starts with the new settings.
        self.reloading = False
        super().close_pipe()

    def reload(self, settings: Settings) -> None:
        """Give the worker new settings."""
        if self.pipe is not None:
            try:
                self.pipe.send(settings)
                self.reloading = True
            except OSError:
                self.close_pipe()


class Supervisor:
    """Runs a server with the settings of its ``source``. For the main thread; `run` until `stop`.

    ``beside`` are other processes to start, watch and end; they get SIGHUP at a reload.

    Raises :class:`~shmq.InvalidOption` for invalid settings.
    """

    def __init__(self, source: Source, beside: Sequence[ChildProcess] = ()) -> None:
        self.settings = source.read()
        self._beside = beside
        self._source = source
        self._manager = Manager()
        self._inherited = inherited_socket()
        self._wakeup = WakeupPipe()
        self._connection_counts = ConnectionCounts.of(1)
        self._sockets: list[socket.socket] = []
        self._fronts: list[_WorkerProcess] = []
        self._children: list[ChildProcess] = []
        self._persistence: PersistenceProcess | None = None
        self._url = ""
        self._up = False
        self._false_starts = 0
        self._stopped = False
        self._reload_requested = False
        self._forced_by = 0
        self._reloading = False
        self._draining = False
        self._drain_until: float | None = None
        self._refusal: ShmqError | None = None
        self._alive_at = time.monotonic()

    def run(self) -> None:
        """Serve until `stop` is called, or SIGTERM or SIGINT comes; SIGHUP reloads.

        A second signal ends the processes at once, and raises KeyboardInterrupt or
        SystemExit, with the code that a shell expects. Raises
        :class:`~shmq.InvalidOption`, and :class:`~shmq.ShmqError` if listening fails, no worker
        can be started, or some did not end in time.
        """
        try:
            with caught(self._on_signal):
                self._open()
                while self._do_step():
                    self._sleep()
        finally:
            kill_all(self._children)
            if self._sockets and self._inherited is None:
                remove(self.settings)  # while it listens: nobody else has that path yet
            for each in self._sockets:
                each.close()
            self._wakeup.close()
            self._remove_namespace()
        if self._refusal is not None:
            raise self._refusal

    def _remove_namespace(self) -> None:
        """Remove the namespace's file and semaphores if it has no queue left.

        The server's processes end together, so each of them may leave that to another.
        """
        try:
            LocalBroker(self.settings.namespace).close()
        except (ShmqError, OSError) as error:
            log.warning("namespace %r is not removed: %s", self.settings.namespace, error)

    @property
    def failed_logins(self) -> int:
        """How many logins have failed since the server has started."""
        return self._connection_counts.failed_logins

    def stop(self) -> None:
        """Let `run` return when the connections have ended. For any thread."""
        self._stopped = True
        self._wakeup.give()

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGHUP:
            self._reload_requested = True
            self._wakeup.give()
            return
        if self._stopped:
            self._forced_by = number
        self.stop()

    def _open(self) -> None:
        settings = self.settings
        if settings.tls is not None:
            settings.tls.context()  # refuses unusable files before anything starts
        if settings.audit_log is not None:
            AuditFile(settings.audit_log).check()
        _raise_descriptors(settings)
        refuse(settings, self._inherited)
        if settings.persist:
            self._persistence = PersistenceProcess(lambda: self.settings, log)
            self._children = [self._persistence]
            self._manager.starting("recovering durable queues")
        else:  # so that the workers, which never wait, find what a writer recovers
            durability.bring_back_all(Namespace.of(settings.namespace))
        if self._persistence is None or self._persistence.recovered:
            self._start_accepting()

    def _start_accepting(self) -> None:
        """Accept connections, now that the queues are recovered."""
        settings = self.settings
        self._sockets = listen(settings, self._inherited)
        self._url = url_of(self._sockets[0], tls=settings.tls is not None)
        connection_counts = self._connection_counts = ConnectionCounts.of(settings.workers)
        self._fronts = [
            _WorkerProcess(self, s, connection_counts, row) for row, s in enumerate(self._sockets)
        ]
        keeper = ChildProcess(
            "keeper",
            keep,
            lambda: (settings.namespace, self.settings.level, keeper.heartbeat, os.getpid()),
            log,
            expected={0},
        )
        self._children += [*self._fronts, keeper, *self._beside]

    def _do_step(self) -> bool:
        """Do what is due; return whether to go on."""
        for front in self._fronts:
            front.receive()
        for child in self._children:
            self._restart_ended(child)
            if not self._draining:
                child.look(self.settings.limits.silence)
        if self._persistence is not None:
            self._watch_persistence(self._persistence)
        self._report()
        if self._reload_requested and not self._stopped:
            self._reload_requested = False
            self._reload()
        if self._stopped and not self._draining:
            self._drain()
        if self._forced_by:
            log.warning("second signal: the server ends at once")
            raise ended_by(self._forced_by)
        if self._drain_until is not None and time.monotonic() >= self._drain_until:
            self._kill_late()
        return not self._draining or any(child.process is not None for child in self._children)

    def _watch_persistence(self, persistence: PersistenceProcess) -> None:
        """Start the front ends after the recovery, and end the writer after the front ends."""
        persistence.receive()
        refusal, persistence.refusal = persistence.refusal, None
        if refusal is not None and persistence.begun:
            log.error("durable queues are not written: %s", refusal)
        elif refusal is not None:
            self._refusal = self._refusal or ShmqError(refusal)
            self._stopped = True
        if persistence.recovered and not self._fronts and not self._stopped:
            self._start_accepting()
            self._wakeup.give()
        if self._draining and all(child.process is None for child in self._list_others()):
            self._drain_until = None  # the writer may take its time: unwritten data would be lost
            persistence.drain()

    def _list_others(self) -> list[ChildProcess]:
        return [child for child in self._children if child is not self._persistence]

    def _kill_late(self) -> None:
        """Kill the processes that did not end in time, except the persistence process."""
        self._drain_until = None
        late = [child for child in self._list_others() if child.process is not None]
        if late:
            self._refusal = self._refusal or ShmqError(
                f"not ended within drain={self.settings.limits.drain} s, and killed: "
                f"{', '.join(child.who for child in late)}"
            )
        kill_all(late)
        self._wakeup.give()

    def _restart_ended(self, child: ChildProcess) -> None:
        code = child.reap()
        if code is not None and not self._draining:
            child.replace(code)
            self._false_starts += not self._up and child in {*self._fronts, self._persistence}
            if self._false_starts > _FALSE_STARTS:
                self._refusal = ShmqError(
                    f"processes died {self._false_starts} times before the server was up: the log "
                    f"says why"
                )
                self._stopped = True
        if child.due is not None and child.due <= time.monotonic() and not self._stopped:
            child.start()

    def _report(self) -> None:
        """Report to the log and the service manager that the server is up, or reloaded."""
        writes = self._persistence is None or self._persistence.begun
        if not self._up and writes and self._fronts and all(front.ready for front in self._fronts):
            self._up = True
            log.info(
                "listening on %s: namespace %r, workers: %d",
                self._url,
                self.settings.namespace,
                len(self._fronts),
            )
            self._manager.ready(f"listening on {self._url}")
        if self._reloading and not any(front.reloading for front in self._fronts):
            self._reloading = False
            log.info("settings reloaded")
            self._manager.ready(f"listening on {self._url}")

    def _reload(self) -> None:
        self._manager.reloading()
        try:
            fresh = self._source.read()
            if fresh.tls is not None:
                fresh.tls.context()
        except ShmqError as error:
            log.error("settings not reloaded: %s", error)
            self._manager.ready(f"listening on {self._url}")
            return
        self.settings, refused = self.settings.reloaded(fresh)
        if refused:
            log.warning("not reloaded, since these settings need a restart: %s", ", ".join(refused))
        logging.getLogger("shmq").setLevel(self.settings.level)
        for front in self._fronts:
            front.reload(self.settings)
        for child in self._beside:
            child.send(signal.SIGHUP)
        self._reloading = True
        self._wakeup.give()

    def _drain(self) -> None:
        self._draining = True
        self._manager.stopping()
        log.info("shutting down: waiting for open connections")
        for each in self._sockets:
            each.close()
        for child in self._list_others():
            child.drain()
        if self._persistence is not None and self._persistence.process is None:
            self._persistence.drain()
        self._wakeup.give()
        self._drain_until = time.monotonic() + self.settings.limits.drain + _GRACE

    def _sleep(self) -> None:
        """Sleep until a process ends or sends something, one has to be started, or a signal."""
        now = time.monotonic()
        times = [child.due for child in self._children if child.due is not None]
        if self._drain_until is not None:
            times.append(self._drain_until)
        if not self._draining:
            times.append(now + LOOK)
        if self._manager.interval is not None:
            if now >= self._alive_at:
                if all(child.is_well for child in self._children):
                    self._manager.alive()
                self._alive_at = now + self._manager.interval
            times.append(self._alive_at)
        timeout = max(0.0, min(times) - now) if times else None
        pipes = [front.pipe for front in self._fronts if front.pipe is not None]
        if self._persistence is not None and self._persistence.pipe is not None:
            pipes.append(self._persistence.pipe)
        ends = [child.process.sentinel for child in self._children if child.process is not None]
        wait([self._wakeup.fileno(), *pipes, *ends], timeout)
        self._wakeup.clear()


def _raise_descriptors(settings: Settings) -> None:
    """Raise the descriptor limit of each process to what its connections may need."""
    wanted = settings.limits.connections + _OTHER_DESCRIPTORS
    enough = raise_descriptor_limit(wanted)
    if enough < wanted:
        log.warning(
            "connections=%d may not be reached: a process may have %d descriptors (ulimit -Hn)",
            settings.limits.connections,
            enough,
        )
