"""Runs work on memory that may be damaged in a separate process.

A segment that is truncated under its mapping kills a process that reads it, and a lock whose
bytes are damaged looks like one that is held forever. Neither may prevent a check of the other
queues. A process works on one segment after another as long as they are sound: a fork for each
would take most of the time. After one that is not, the others get a new process.
"""

from __future__ import annotations

import collections
import contextlib
import faulthandler
import json
import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn, TypeVar

from shmq.errors import ShmqError
from shmq.native._core import reserve_standard

T = TypeVar("T")

#: The end of a result; alone, that of all results.
_END: Final = b"\n"


class ProbeTimeout(ShmqError):
    """The work did not end in time."""


class Crashed(ShmqError):
    """The process that did the work was killed by a signal, or failed."""


def run_each(
    work: Callable[[T], Any],
    items: Sequence[T],
    seconds: float,
    is_sound: Callable[[Any], bool] = lambda _: True,
) -> Iterator[Any]:
    """Call ``work`` with each of the ``items`` in forks of this process; its results must be JSON.

    Gives the results in the order of the items: in place of a result, a :class:`ProbeTimeout` if it
    takes longer than ``seconds``, or a :class:`Crashed`. The next item then gets another fork, and
    so it does after a result that is not ``is_sound``.
    """
    done = 0
    while done < len(items):
        with contextlib.closing(_Child(work, items[done:], is_sound)) as child:
            for result in child.results(seconds):
                done += 1
                yield result


class _Child:
    """A fork that works on the items until one is not sound."""

    def __init__(
        self, work: Callable[[T], Any], items: Sequence[T], is_sound: Callable[[Any], bool]
    ) -> None:
        reserve_standard()
        self._reader, writer = os.pipe()
        self._items = len(items)
        #: The lines that were read and not returned, and the beginning of the next.
        self._lines: collections.deque[bytes] = collections.deque()
        self._rest = b""
        self._pid = os.fork()
        if not self._pid:
            os.close(self._reader)
            _carry_out(work, items, is_sound, writer)
        os.close(writer)

    def results(self, seconds: float) -> Iterator[Any]:
        """The results of the items that it worked on: of one, or of more."""
        for _ in range(self._items):
            try:
                line = self._read_line(time.monotonic() + seconds)
            except TimeoutError:
                yield ProbeTimeout(f"it did not end within {seconds:g} s")
                return
            except EOFError:
                yield Crashed(f"the process that read it {self._describe_end()}")
                return
            if not line:
                return  # the last one was not sound
            reply = json.loads(line)
            if "failed" in reply:
                yield Crashed(reply["failed"].strip().splitlines()[-1])
            else:
                yield reply["done"]

    def _read_line(self, until: float) -> bytes:
        """The next line. Raises TimeoutError, and EOFError if the child has ended within it."""
        while not self._lines:
            if not select.select([self._reader], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError
            more = os.read(self._reader, 65536)
            if not more:
                raise EOFError
            *lines, self._rest = (self._rest + more).split(_END)
            self._lines.extend(lines)
        return self._lines.popleft()

    def _describe_end(self) -> str:
        code, self._pid = _reap(self._pid), 0
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"

    def close(self) -> None:
        """End it, if it has not ended."""
        os.close(self._reader)
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            _reap(self._pid)


def _carry_out(
    work: Callable[[T], Any], items: Sequence[T], is_sound: Callable[[Any], bool], writer: int
) -> NoReturn:
    """Run the work in the child, and exit."""
    faulthandler.disable()  # a bus error is an expected result
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError), open(writer, "wb") as pipe:
        for item in items:
            sound = False
            try:
                result = work(item)
                said, sound = json.dumps({"done": result}), is_sound(result)
            except BaseException:  # noqa: BLE001 - the parent gets it
                said = json.dumps({"failed": traceback.format_exc()})
            pipe.write(said.encode() + _END)
            pipe.flush()
            if not sound:
                break
        pipe.write(_END)
    os._exit(0)


def _reap(child: int) -> int:
    """The exit code of the child; negative: the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
