"""Waiting for the answers to puts that must be on disk, which may take long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from shmq import errors
from shmq.client.ports.steps import Steps
from shmq.native import _clock as time
from shmq.native import _core
from shmq.protocol.messages.queue import QueueState
from shmq.protocol.messages.stream import StreamInfo
from shmq.protocol.opcodes import Status, Type

#: How long to wait for an answer before asking the server what delays it, in seconds.
_PATIENCE: Final = 1.0


#: The requests whose answers describe the journal, and what an answer says about its disk.
_LOOK: Final = {"queue": Type.STATS, "stream": Type.STREAM_INFO}
_ERROR: Final[dict[str, Callable[[_core.Answer], str | None]]] = {
    "queue": lambda answer: QueueState.unpack(answer).stats.journal_error,
    "stream": lambda answer: StreamInfo.unpack(answer).journal_error,
}


def confirmed(
    queue: Any, wire: _core.Wire, answer: _core.Answer, until: float | None
) -> Steps[None]:
    """Wait until the answer has come, or is lost. Raises NotConfirmed at ``until`` (monotonic).

    While the server lives, and the disk works, it may take any time.
    """
    connection = queue.connection
    try:
        while not (yield connection.waiting(wire, answer, _pause(until))):
            _check_time(queue, until)
            asked = wire.request(_LOOK[connection.kind], True, b"")
            yield connection.answering(wire, asked, connection.target.request_timeout)
            if not answer.is_ready:
                _check_disk(queue, asked)
    except BaseException:
        wire.forget(answer)
        raise


def _pause(until: float | None) -> float:
    return _PATIENCE if until is None else max(0.0, min(_PATIENCE, until - time.monotonic()))


def _check_time(queue: Any, until: float | None) -> None:
    if until is not None and time.monotonic() >= until:
        raise _not_confirmed(
            queue,
            "it was not there within the timeout: wait longer, or see that a persistence writer "
            "runs (`shmq serve` or `shmq persist`)",
        )


def _check_disk(queue: Any, asked: _core.Answer) -> None:
    """Raise NotConfirmed if the server says that the disk of the journal fails."""
    if not asked.done or asked.status != Status.OK:
        return
    error = _ERROR[queue.connection.kind](asked)
    if error is not None:
        raise _not_confirmed(
            queue, f"the disk of its journal fails: {error}; what is there is written once it works"
        )


def _not_confirmed(queue: Any, why: str) -> errors.NotConfirmed:
    return errors.NotConfirmed(
        f"what was put to {queue.connection.what} is not known to be on disk, and the server has "
        f"not said that it took it: {why}",
        taken=0,
    )
