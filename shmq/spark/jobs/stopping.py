"""A stream's end where nothing is left half done: once the batch at hand is committed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["stop_after_batch"]

#: How often the batch at hand is looked at, in seconds; far longer than the query takes from
#: finding that it goes on to saying that a batch has begun.
_GLANCE: Final = 0.05


def stop_after_batch(query: StreamingQuery) -> None:
    """Let the query finish the batch at hand and begin no other, and wait until it has ended.

    ``query.stop()`` alone would interrupt it: the batch is planned then and not committed,
    its messages go back to their queue, and others may take them. So the query is first told
    that it is over, as its ``stop`` does, which it looks at between batches; what is
    interrupted then is its sleep until the next one.
    """
    execution: Any = query._jsq.streamingQuery()
    _tell_it_is_over(execution)
    time.sleep(_GLANCE)
    while execution.queryExecutionThread().isAlive() and query.status["isTriggerActive"]:
        time.sleep(_GLANCE)
    query.stop()


def _tell_it_is_over(execution: Any) -> None:
    package = execution.getClass().getPackageName()
    loader = execution.getClass().getClassLoader()
    ended = loader.loadClass(f"{package}.TERMINATED$").getField("MODULE$").get(None)
    execution.state().set(ended)
