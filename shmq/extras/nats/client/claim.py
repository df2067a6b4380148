"""Which delivery has a message of a queue of a cluster: one key each, compared before it is set.

Consumers of JetStream promise less. Their leader alone knows the time of a delivery, and confirms
``+WPI`` and ``-NAK`` before another server has them; a leader that was stopped goes on so until it
hears of the next one (nats-server, consumer.go, progressUpdate, processNak, checkPending). So they
may deliver a message again at any time. A key is changed only by a quorum that has its revision.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from shmq.extras.nats.client import names
from shmq.extras.nats.client.definitions import Definitions
from shmq.native import _clock as time

#: How long an error, and the number of uncounted deliveries, are kept, in seconds.
_NOTED: Final = 86_400


class Claim(NamedTuple):
    """What the key of a message says."""

    #: The number of the delivery that claimed the message last, among all of its consumer.
    delivery: int = 0
    #: The end of its lease, in ms since 1970; 0: the message was returned.
    until: int = 0
    #: How many deliveries were returned uncounted.
    uncounted: int = 0
    #: The error of the last failed delivery, as its map; None: there was none.
    error: dict[str, Any] | None = None
    #: Of the key; 0: there is none.
    revision: int = 0


class Claims:
    """The claims of the messages of one queue."""

    def __init__(self, definitions: Definitions, queue: str) -> None:
        self._definitions = definitions
        self._prefix = names.kv_key("claim", queue)

    async def get(self, sequence: int) -> Claim:
        """The claim of a message."""
        found = await self._definitions.get(f"{self._prefix}.{sequence}")
        if found is None:
            return Claim()
        known = {field: found.value.get(field) for field in Claim._fields[:3]}
        valid = {field: number for field, number in known.items() if isinstance(number, int)}
        error = found.value.get("error")
        return Claim(
            **valid, error=error if isinstance(error, dict) else None, revision=found.revision
        )

    async def count(self) -> int:
        """How many messages of the queue a delivery has now."""
        numbers = [int(key) async for key in self._definitions.keys_below(self._prefix)]
        now = time.time() * 1000
        return sum([(await self.get(number)).until > now for number in numbers])

    async def put(self, sequence: int, claim: Claim, wait: float) -> int | None:
        """Set it for ``wait`` seconds; its new revision, None if that is another one by now."""
        ttl = max(int(wait) + 2, _NOTED if claim.uncounted or claim.error else 0)
        value: dict[str, Any] = dict(zip(Claim._fields[:3], claim[:3], strict=True))
        if claim.error:
            value["error"] = claim.error
        key = f"{self._prefix}.{sequence}"
        return await self._definitions.put(key, value, claim.revision, ttl=ttl)
