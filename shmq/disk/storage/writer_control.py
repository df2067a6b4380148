"""The control socket of the running writer, for commands that need snapshots or a consistent cut.

It is in the data directory, which only the user, or the group, may enter. Requests and answers are
lines of JSON; the descriptors of a cut's files go with their lines. The connection ends after the
last answer, or earlier if the writer ends.

request ``{"do": "snapshot", "queues": [NAME, …]}``: a line ``{"queue": NAME, "error": null}``
for each, once it is durable, or with what went wrong.

request ``{"do": "cut", "queues": [NAME, …], "streams": [NAME, …]}``: a line
``{"kind": KIND, "queue": NAME, "name": FILE, "bytes": N}`` for each file, with its descriptor,
and a last line ``{"error": null}``. KIND is ``queue``, ``stream``, or ``file`` for a file that
belongs to neither.

request ``{"do": "define", "queues": []}``: a line ``{"error": null}`` once the current exchanges
and schemas are on disk, or with what went wrong.

request ``{"do": "end", "queues": []}``: a line ``{"error": null}`` from a writer that was started
automatically, which then ends; another writer answers with an error.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from shmq.api.names import check_name
from shmq.disk.storage.paths import SOCKET, UNFINISHED_SOCKET
from shmq.errors import InvalidName, ShmqError
from shmq.native import _clock as time
from shmq.native._core import reserve_standard
from shmq.native.descriptors import open_file
from shmq.native.directories import new_file_mode
from shmq.native.lock_holder import Holder

log = logging.getLogger("shmq")

_MOST: Final = 1 << 20
#: How often a process whose answer takes long is looked at, and how long it may stand still, in
#: seconds.
_LOOK: Final = 1.0
_STOPPED: Final = 5.0
#: How soon requests are accepted again after a failure, in seconds.
_BREATH: Final = 0.5


@dataclass(frozen=True, slots=True)
class CutFile:
    """A file of a cut, of which the first ``bytes`` bytes count. The holder closes it."""

    #: What it belongs to, and the name of that: a "queue", a "stream", or a "file" of its own.
    kind: str
    queue: str
    #: Its path, below the data directory.
    name: str
    bytes: int
    descriptor: int


class WriterEnding(ShmqError):
    """The writer ends before it has done what was asked: the next one must be asked again."""

    def __init__(self) -> None:
        super().__init__("the writer is ending: ask the next one")


class Source(Protocol):
    """What the control socket needs of the writer; each method may raise `WriterEnding`."""

    def snapshot(self, name: str, timeout: float | None = None) -> None:
        """Return once a snapshot newer than this call is durable. Raises ShmqError."""

    def cut(self, queues: list[str], streams: list[str]) -> list[CutFile]:
        """The files of these at one moment, and the other files. Raises ShmqError."""

    def define(self) -> None:
        """Return once exchanges and schemas are on disk. Raises ShmqError and OSError."""

    def give_way(self) -> None:
        """End soon, so that another writer can begin. Raises ShmqError."""


@contextlib.contextmanager
def _open_address(directory: Path, name: str = SOCKET) -> Iterator[str]:
    """A short address of the socket, for a directory path of any length: unix(7), sun_path."""
    opened = open_file(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{opened}/{name}"
    finally:
        os.close(opened)


class Control:
    """Answers requests for the ``source``, in its own threads, until it is closed."""

    def __init__(self, directory: Path, source: Source) -> None:
        self._source = source
        self._closed = False
        self._path = directory / SOCKET
        new = directory / UNFINISHED_SOCKET
        new.unlink(missing_ok=True)  # left by a writer that died: there is only one
        reserve_standard()
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o777 & ~new_file_mode(os.fspath(new)))
        try:
            with _open_address(directory, UNFINISHED_SOCKET) as address:
                self._listening.bind(address)
            self._listening.listen(64)
            new.replace(self._path)
        except BaseException:
            self._listening.close()
            new.unlink(missing_ok=True)
            raise
        finally:
            os.umask(before)
        threading.Thread(target=self._serve, name="control", daemon=True).start()

    def close(self) -> None:
        """Accept no more requests."""
        self._closed = True
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                reserve_standard()
                way, _ = self._listening.accept()
            except OSError as error:
                if self._closed:
                    return
                log.warning("cannot accept a request to the writer now: %s", error)
                time.sleep(_BREATH)  # probably for lack of descriptors
                continue
            threading.Thread(target=self._answer, args=(way,), daemon=True).start()

    def _answer(self, way: socket.socket) -> None:
        with way, contextlib.suppress(ConnectionError, ShmqError):  # it has gone, or stands still
            try:
                asked = json.loads(next(_read_lines(way)))
                do = str(asked["do"])
                names = [check_name(name) for name in asked["queues"]]
                streams = [check_name(name, "stream") for name in asked.get("streams", [])]
            except InvalidName as error:
                _send(way, {"error": str(error)})
                return
            except (StopIteration, ValueError, KeyError, TypeError, RecursionError):
                _send(way, {"error": "the writer does not know the request"})
                return
            match do:
                case "snapshot":
                    for name in names:
                        _send(way, {"queue": name, "error": _try(self._source.snapshot, name)})
                case "cut":
                    self._cut(way, names, streams)
                case "define":
                    _send(way, {"error": _try(self._source.define)})
                case "end":
                    _send(way, {"error": _try(self._source.give_way)})
                case _:
                    _send(way, {"error": "the writer does not know the request"})

    def _cut(self, way: socket.socket, names: list[str], streams: list[str]) -> None:
        files: list[CutFile] = []
        error = _try(lambda: files.extend(self._source.cut(names, streams)))
        try:
            for file in files:
                said: dict[str, Any] = {"kind": file.kind, "queue": file.queue}
                said |= {"name": file.name, "bytes": file.bytes}
                socket.send_fds(way, [_pack_line(said)], [file.descriptor])
            _send(way, {"error": error})
        finally:
            for file in files:
                os.close(file.descriptor)


def _try(work: Callable[..., object], *arguments: object) -> str | None:
    """The text of the error; None if there was none. Raises WriterEnding."""
    try:
        work(*arguments)
    except WriterEnding:
        raise
    except (ShmqError, OSError) as error:
        return str(error)
    return None


def ask_for_snapshots(
    directory: Path, queues: list[str], timeout: float | None = None
) -> Iterator[tuple[str, str | None]]:
    """Ask the directory's writer for snapshots of these; yields each with its error or None.

    Raises ShmqError if no writer exists, or if it ends before it has answered, and OSError if an
    answer takes longer than ``timeout`` seconds.
    """
    left = list(queues)
    with _request(directory, "snapshot", queues, timeout=timeout) as way:
        for line in _read_lines(way):
            said = json.loads(line)
            if "queue" not in said:
                raise ShmqError(said["error"])
            left.remove(said["queue"])
            yield said["queue"], said["error"]
    if left:
        raise ShmqError(f"the writer ended before it had written {', '.join(left)}: ask again")


def ask_for_cut(directory: Path, queues: list[str], streams: list[str]) -> list[CutFile]:
    """The files of a consistent cut; the caller closes the descriptors. Raises ShmqError."""
    files: list[CutFile] = []
    try:
        with _request(directory, "cut", queues, streams) as way:
            for said, descriptor in _read_with_files(way):
                if descriptor is not None:
                    kind, what = said["kind"], said["queue"]
                    files.append(CutFile(kind, what, said["name"], said["bytes"], descriptor))
                elif said["error"] is None:
                    return files
                else:
                    raise ShmqError(said["error"])
        raise ShmqError("the writer ended before it answered: ask again")
    except BaseException:
        for file in files:
            os.close(file.descriptor)
        raise


def ask_to_end(directory: Path, timeout: float) -> None:
    """Ask the directory's writer to end, if it was started automatically.

    Raises ShmqError and OSError if it does not answer within ``timeout`` seconds.
    """
    with _request(directory, "end", [], timeout=timeout) as way:
        for line in _read_lines(way):
            if (error := json.loads(line)["error"]) is not None:
                raise ShmqError(error)


def ask_to_define(directory: Path, timeout: float) -> str | None:
    """Ask the writer to write exchanges and schemas; returns the error's text, or None.

    Raises ShmqError and OSError if it does not answer within ``timeout`` seconds.
    """
    with _request(directory, "define", [], timeout=timeout) as way:
        for line in _read_lines(way):
            reason: str | None = json.loads(line)["error"]
            return reason
    raise ShmqError("the writer ended before it had written them: ask again")


def _read_with_files(way: socket.socket) -> Iterator[tuple[dict[str, Any], int | None]]:
    """The lines, each with the descriptor that arrived with it.

    The kernel does not join bytes with different descriptors, but it may join bytes without a
    descriptor to the bytes before them.
    """
    rest = b""
    while True:
        _await_answer(way)
        reserve_standard()
        raw, descriptors, *_ = socket.recv_fds(way, 4096, 1, socket.MSG_CMSG_CLOEXEC)
        if not raw:
            return
        *lines, rest = (rest + raw).split(b"\n")
        for at, line in enumerate(lines):
            yield json.loads(line), descriptors[0] if descriptors and at == 0 else None


@contextlib.contextmanager
def _request(
    directory: Path,
    do: str,
    queues: list[str],
    streams: Sequence[str] = (),
    timeout: float | None = None,
) -> Iterator[socket.socket]:
    reserve_standard()
    way = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    way.settimeout(timeout)
    with way:
        try:
            with _open_address(directory) as address:
                way.connect(address)
        except OSError as error:
            raise ShmqError(
                f"{directory} has no writer ({error.strerror}): start shmq serve or shmq persist"
            ) from error
        _send(way, {"do": do, "queues": queues, "streams": list(streams)})
        yield way


def _send(way: socket.socket, what: dict[str, Any]) -> None:
    way.sendall(_pack_line(what))


def _pack_line(what: dict[str, Any]) -> bytes:
    return json.dumps(what).encode() + b"\n"


def _read_lines(way: socket.socket) -> Iterator[bytes]:
    """The lines that arrive, until the other side ends."""
    rest = b""
    while len(rest) < _MOST:
        _await_answer(way)
        raw = way.recv(4096)
        if not raw:
            return
        *lines, rest = (rest + raw).split(b"\n")
        yield from lines


def _await_answer(way: socket.socket) -> None:
    """Return once the other side has answered, or the socket's time is over.

    Raises ShmqError if the process there is stopped and the socket has no time.
    """
    if way.gettimeout() is not None:
        return
    poller = select.poll()
    poller.register(way, select.POLLIN)
    pid, *_ = struct.unpack("3i", way.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    still_since = math.inf
    while not poller.poll(_LOOK * 1000):
        writer = Holder.of(pid)
        still_since = min(still_since, time.monotonic()) if writer.stands_still else math.inf
        if time.monotonic() - still_since >= _STOPPED:
            raise ShmqError(
                f"the writer, PID {pid}, does not answer: it is {writer.state}; {writer.remedy}"
            )
