"""The two queues of the job."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import shmq
from shmq.demo.errors import DemoError

__all__ = ["FLIGHTS", "PATIENCE", "RESULTS", "made"]

#: One message per flight, from the producers to the consumers.
FLIGHTS: Final = "flights"
#: One message per batch of flights added up, from the consumers to the ledger.
RESULTS: Final = "results"
#: How long a put waits for space before it gives up, in seconds.
PATIENCE: Final = 60.0

# Nothing may be dropped: a full queue makes its producers wait, and a message comes
# back as often as it must. A dead consumer's leases return at once, so the timeout is
# only for one that hangs, and is long enough never to catch one that is merely slow.
_KEEP: Final[dict[str, Any]] = {
    "overflow": "block",
    "max_deliveries": None,
    "dead_letter": None,
    "visibility_timeout": 600.0,
}
_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    # A flight's body and its group are under 30 bytes: twice the 64 that each takes.
    FLIGHTS: {"capacity": 32_768, "arena_bytes": 4 << 20, **_KEEP},
    # Short, so that the consumers stay close to what is counted.
    RESULTS: {"capacity": 32, "arena_bytes": 1 << 20, **_KEEP},
}


@contextlib.contextmanager
def made(broker: shmq.Broker) -> Iterator[tuple[shmq.Queue, shmq.Queue]]:
    """The queues of flights and of results, deleted at the end.

    Raises :class:`DemoError` if the namespace has a queue of such a name.
    """
    taken = {queue.name for queue in broker.list_queues()} & _OPTIONS.keys()
    if taken:
        raise DemoError(
            f"the namespace {broker.namespace!r} has a queue {min(taken)!r} already: "
            "choose another with --namespace"
        )
    try:
        yield (
            broker.create_queue(FLIGHTS, **_OPTIONS[FLIGHTS]),
            broker.create_queue(RESULTS, **_OPTIONS[RESULTS]),
        )
    finally:
        for name in _OPTIONS:
            with contextlib.suppress(shmq.NoSuchQueue):
                broker.delete_queue(name)
