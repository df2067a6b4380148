"""The definition of a write: target, columns and options."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from shmq.api.names import check_name
from shmq.errors import InvalidOption, NoSuchQueue
from shmq.spark.shared.address import Address
from shmq.spark.shared.sink_columns import SinkColumns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["STAGING_BYTES", "Sink"]

#: The most memory for the parts of a batch until they are published, in bytes.
STAGING_BYTES = 256 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Sink:
    """A write as its options and columns define it; every task gets a copy.

    It is made at the driver for each write, and for each micro-batch.
    """

    address: Address
    #: The queue of every row; None: a column names it.
    topic: str | None
    columns: SinkColumns
    staged: bool
    staging_bytes: int
    #: How long publishing or a put waits for room, in seconds; None: without limit.
    timeout: float | None
    #: The unique prefix of the names of the parts that its tasks stage.
    run: str
    #: The publisher and the batch that the options name.
    publisher: str | None
    batch: int | None

    @classmethod
    def of(cls, chosen: Mapping[str, Any], schema: StructType) -> Self:
        """The write that the options and columns define.

        Raises :class:`~shmq.InvalidOption`, and :class:`~shmq.InvalidName` for an invalid
        queue name.
        """
        topic = _topic(chosen)
        if not chosen["staged"]:
            _check_unstaged(chosen)
        if chosen["batch"] is not None and chosen["publisher"] is None:
            raise InvalidOption(
                f"the option batch={chosen['batch']} counts the batches of a publisher: give "
                f".option('publisher', NAME), too"
            )
        return cls(
            Address.of(chosen),
            topic,
            SinkColumns.of(schema, topic),
            chosen["staged"],
            chosen["stagingBytes"] or STAGING_BYTES,
            chosen["publishTimeout"],
            secrets.token_hex(8),
            chosen["publisher"],
            chosen["batch"],
        )

    def check(self) -> None:
        """Check, as far as possible at the driver, that the write can succeed.

        Raises :class:`~shmq.NoSuchQueue`, and what :func:`shmq.connect` raises.
        """
        with self.address.connect() as broker:
            if self.topic is None:
                return
            try:
                broker.queue(self.topic).close()
            except NoSuchQueue as error:
                raise NoSuchQueue(
                    f"{error}; a write makes no queues: shmq create -q {self.topic}"
                ) from None


def _topic(chosen: Mapping[str, Any]) -> str | None:
    topic, queue = chosen["topic"], chosen["queue"]
    if topic is not None and queue is not None and topic != queue:
        raise InvalidOption(
            f"the options topic={topic!r} and queue={queue!r} mean the same: give one of them"
        )
    name = topic or queue
    return None if name is None else check_name(name)


def _check_unstaged(chosen: Mapping[str, Any]) -> None:
    for name in ("stagingBytes", "publisher", "batch"):
        if chosen[name] is not None:
            raise InvalidOption(
                f"the option {name}={chosen[name]} is for rows that are staged, and staged=false "
                f"puts them straight into the queue: leave one of them out"
            )
