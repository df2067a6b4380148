"""A stream's end where nothing is left half done: once the batch at hand is committed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["stop_after_batch"]

#: How often the batch at hand is looked at, in seconds.
_GLANCE: Final = 0.02


def stop_after_batch(query: StreamingQuery) -> None:
    """Let the query finish the batch at hand and begin no other, and wait until it has ended.

    ``query.stop()`` alone would interrupt it: the batch is planned then and not committed,
    its messages go back to their queue, and others may take them. So the query is first told
    that it is over, as its ``stop`` does, which it looks at between batches; what is
    interrupted then is its sleep until the next one.
    """
    _tell_it_is_over(query)
    while query.isActive and query.status["isTriggerActive"]:
        time.sleep(_GLANCE)
    query.stop()


def _tell_it_is_over(query: StreamingQuery) -> None:
    execution: Any = query._jsq.streamingQuery()
    package = execution.getClass().getPackageName()
    loader = execution.getClass().getClassLoader()
    ended = loader.loadClass(f"{package}.TERMINATED$").getField("MODULE$").get(None)
    execution.state().set(ended)
