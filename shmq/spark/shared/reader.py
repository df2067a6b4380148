"""What readers of queues and of streams share: their fields, and when a batch begins."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from shmq.spark.shared import columns
from shmq.spark.shared.address import Address
from shmq.spark.shared.handles import Handles
from shmq.spark.shared.query_page import QueryPage
from shmq.spark.shared.shares import task_counts
from shmq.spark.shared.subscription import Subscription

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_Handles = TypeVar("_Handles", bound=Handles[Any])


class SourceReader:
    """A reader, as the options define it: made at the driver, and copied to the executors."""

    def __init__(
        self,
        address: Address,
        subscription: Subscription,
        schema: StructType,
        chosen: Mapping[str, Any],
    ) -> None:
        columns.check(schema)
        self._address = address
        self._subscription = subscription
        self._schema = schema
        self._chosen = dict(chosen)
        self._least: int | None = chosen["minPartitions"]
        self._size: int = chosen["maxBytesPerBatch"]
        self._strict: bool = chosen.get("failOnDataLoss", True)

    def _counts(self, sizes: Sequence[int]) -> list[int]:
        """Into how many tasks to cut each range of rows; zeros if ``minPartitions`` is not set."""
        return [0] * len(sizes) if self._least is None else task_counts(sizes, self._least)


class Trigger:
    """When a streaming read begins a batch, and the most rows of it, by Kafka's options."""

    def __init__(self, chosen: Mapping[str, Any]) -> None:
        self._most: int | None = chosen["maxOffsetsPerTrigger"]
        self._least: int | None = chosen["minOffsetsPerTrigger"]
        self._delay: float = chosen["maxTriggerDelay"]
        self._last = time.monotonic()
        #: Whether only what was there at the start is read (``availableNow``).
        self.all_now = False

    @property
    def limit(self) -> ReadLimit:
        """The limit of a batch; Spark passes ReadAllAvailable instead if it runs the query once."""
        if self._most is not None:
            return ReadMaxRows(self._most)
        return ReadAllAvailable() if self._least is None else ReadMinRows(self._least)

    def ready(self, backlog: int, limit: ReadLimit) -> bool:
        """Whether ``backlog`` is enough for a batch, or the last batch is too long ago."""
        if self._least is None or self.all_now or isinstance(limit, ReadAllAvailable):
            return True
        if backlog >= self._least:
            return True
        return time.monotonic() - self._last >= self._delay

    def begun(self) -> None:
        """Note that a batch begins."""
        self._last = time.monotonic()


def most_rows(limit: ReadLimit) -> int | None:
    """The most rows that a batch may have; None: all of them."""
    return limit.max_rows if isinstance(limit, ReadMaxRows) else None


class StreamingReader(
    SourceReader, DataSourceStreamReader, SupportsTriggerAvailableNow, Generic[_Handles]
):
    """A streaming read. Spark makes several readers, but asks one for all offsets of a query."""

    #: What decides at the driver what each batch has.
    HANDLES: type[_Handles]

    @functools.cached_property
    def _trigger(self) -> Trigger:
        return Trigger(self._chosen)

    @functools.cached_property
    def _page(self) -> QueryPage:
        return QueryPage(self._chosen["uiWebUrl"], self._subscription.thing)

    @functools.cached_property
    def _handles(self) -> _Handles:
        """Made at the first use: a reader that goes to the executors has none."""
        return self.HANDLES(self._address, self._subscription, self._chosen)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit from the options; Spark may ask for everything instead."""
        return self._trigger.limit

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on read only what is there now."""
        self._trigger.all_now = True

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """What waits to be read, for the query's progress."""
        return self._handles.report()

    def stop(self) -> None:
        """Detach."""
        if "_handles" in vars(self):
            self._handles.close()

    def _tell_page(self) -> None:
        """Tell the query's page in Spark's UI, if that is due."""
        self._page.tell(self._address, self._handles.names())
