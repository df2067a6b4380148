"""The definition of a write to streams: target, columns and options."""

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
    """A write as its options and columns define it; every task gets a copy.

    It is made at the driver for each write, and for each micro-batch.
    """

    address: Address
    #: The stream of every row; None: a column names it.
    topic: str | None
    columns: SinkColumns
    #: How long an append waits for room or for the disk, in seconds; None: without limit.
    timeout: float | None
    #: Which confirmation to wait for; None: the stream's own default.
    confirm: Confirm | None
    #: A unique name for the publisher if no option sets one.
    run: str
    #: The publisher and the batch that the options name.
    publisher: str | None
    batch: int | None

    @classmethod
    def of(cls, chosen: Mapping[str, Any], schema: StructType) -> Self:
        """The write that the options and columns define.

        Raises :class:`~shmq.InvalidOption`, and :class:`~shmq.InvalidName` for an invalid
        stream name.
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
        """Check, as far as possible at the driver, that the write can succeed.

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
