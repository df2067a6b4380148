"""What a write to streams is to do: where, in which columns, and how."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from shmq.api.names import check_name
from shmq.errors import InvalidOption, NoSuchStream
from shmq.spark.shared import sink_columns
from shmq.spark.shared.address import Address
from shmq.spark.shared.sink_columns import SinkColumns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from shmq.api.options import Confirm

__all__ = ["StreamSink"]


@dataclasses.dataclass(frozen=True, slots=True)
class StreamSink:
    """A write as its options and columns have it; it goes to every task.

    Spark makes one at the driver for each write, and for each micro-batch.
    """

    address: Address
    #: The stream of every row; None: the column says it.
    topic: str | None
    columns: SinkColumns
    #: How long an append waits for room, or for the disk, in seconds; None: without limit.
    timeout: float | None
    #: Which confirmation is waited for; None: the one that the stream was made with.
    confirm: Confirm | None
    #: The publisher's name where no option has one: nobody else has it.
    run: str
    #: Who publishes, and which batch, as the options say.
    publisher: str | None
    batch: int | None

    @classmethod
    def of(cls, chosen: Mapping[str, Any], schema: StructType) -> Self:
        """What the options and the columns say.

        Raises :class:`~shmq.InvalidOption`, and :class:`~shmq.InvalidName` for what can name
        no stream.
        """
        topic = chosen["topic"] and check_name(chosen["topic"])
        if chosen["batch"] is not None and chosen["publisher"] is None:
            raise InvalidOption(
                f"the option batch={chosen['batch']} counts the batches of a publisher: give "
                f".option('publisher', NAME), too"
            )
        return cls(
            Address.of(chosen),
            topic,
            SinkColumns.of(schema, topic, sink_columns.OF_STREAMS, "stream"),
            chosen["publishTimeout"],
            chosen["confirm"],
            secrets.token_hex(8),
            chosen["publisher"],
            chosen["batch"],
        )

    def check(self) -> None:
        """See at the driver whether it can be done, as far as that can be known there.

        Raises :class:`~shmq.NoSuchStream`, and what :func:`shmq.connect` raises.
        """
        with self.address.connect() as broker:
            if self.topic is None:
                return
            try:
                broker.stream(self.topic).close()
            except NoSuchStream as error:
                raise NoSuchStream(
                    f"{error}; a write makes no streams: shmq stream create {self.topic}"
                ) from None
