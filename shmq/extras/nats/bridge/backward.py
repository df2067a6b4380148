"""From a queue of the cluster to a queue of this host, each message once.

A message is leased there, put here under the identity of its queue and its sequence number as its
dedupe id, and then acknowledged there: what a crash lets the bridge put again is dropped here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final

from shmq import api
from shmq.api.properties import PROPERTIES
from shmq.errors import ConnectionLost, InvalidOption, LeaseExpired, MessageTooLarge, NoSuchQueue
from shmq.extras.nats.bridge.config import WINDOW, Backward
from shmq.extras.nats.bridge.lane import Lane, queue_lag
from shmq.extras.nats.bridge.progress import Progress
from shmq.model.codec.codecs import CODECS

#: How long a full queue of this host may hold up a lease of the cluster, in seconds.
_ROOM: Final = 2.0
#: Properties that have had their effect there, and those that are converted.
_NOT_AS_IS: Final = {"delay", "deliver_at", "dedupe_id", "priority", "ttl", "codec", "confirm"}


class BackwardLane(Lane):
    """See the module."""

    def __init__(self, here: api.Broker, there: Callable[[], Any], route: Backward) -> None:
        super().__init__(Progress("backward", route.queue, route.to or route.queue))
        self._here, self._there = here, there
        self._route = route
        self._source: Any = None
        self._identity = 0
        self._target: api.Queue | None = None

    def open(self) -> None:
        """See Lane."""
        self._source = self._there().queue(self._route.queue)
        self._identity = self._source.identity
        self._target = _open_target(self._here, self._route.to or self._route.queue, self._source)

    def step(self, *, careful: bool, patience: float) -> bool:
        """See Lane."""
        self.tell_lag()
        messages = self._source.get_many(1 if careful else self._route.batch, patience)
        self.progress.is_connected(True)
        if messages:
            self._put(messages)
        else:
            self.tell_lag(again=True)
        return bool(messages)

    def is_drained(self) -> bool:
        """See Lane."""
        stats = self._source.stats()
        return not (stats.depth or stats.delayed or stats.in_flight)

    def lag(self) -> tuple[int, float]:
        """See Lane."""
        return queue_lag(self._source)

    @property
    def handles(self) -> Sequence[Any]:
        """See Lane."""
        return self._source, self._target

    def _put(self, messages: Sequence[api.Message]) -> None:
        """Put them in order. One that cannot be put goes back, with those after it."""
        assert self._target is not None
        repeated = refused = 0
        done: list[api.Message] = []
        waiting = list(messages)
        try:
            while waiting:
                message = waiting[0]
                try:
                    put = self._target.put(
                        _body_to_put(message),
                        timeout=_ROOM,
                        dedupe_id=f"{self._identity:016x}:{message.sequence}",
                        **_read_properties(message, self._target),
                    )
                    repeated += put.duplicate
                    done.append(message)
                except MessageTooLarge:
                    with contextlib.suppress(LeaseExpired):  # it is delivered again
                        message.reject()
                        refused += 1
                waiting.pop(0)
        finally:
            settled = self._source.ack_many(done) if done else []
            self.progress.took(len(done) - len(settled), repeated, refused)
            for message in waiting:
                with contextlib.suppress(LeaseExpired, ConnectionLost):
                    message.nack(0.0)


def _body_to_put(message: api.Message) -> Any:
    """What a put with the message's codec takes: encoded bytes if it encodes none."""
    return message.body if message.codec in CODECS else bytes(message.view)


def _read_properties(message: api.Message, target: api.Queue) -> dict[str, Any]:
    expires = message.properties.get("ttl")
    return {
        **{name: getattr(message, name) or None for name in PROPERTIES if name not in _NOT_AS_IS},
        "priority": min(message.priority, target.options.priorities - 1),
        "ttl": expires / 1000 if expires else None,
        "codec": message.codec,
    }


def _open_target(here: api.Broker, name: str, source: Any) -> api.Queue:
    """The queue of this host, made if there is none. Raises InvalidOption without a window."""
    try:
        queue = here.queue(name)
    except NoSuchQueue:
        priorities = source.options.priorities
        queue = here.ensure_queue(
            name,
            if_different="accept",
            allow_same_name=True,
            priorities=priorities,
            dedupe_window=WINDOW,
        )
    if not queue.options.dedupe_window:
        queue.close()
        raise InvalidOption(
            f"queue {name!r} of this host has no dedupe_window: what is put twice after a crash "
            f"would be there twice; make it with dedupe_window={WINDOW:g}"
        )
    return queue
