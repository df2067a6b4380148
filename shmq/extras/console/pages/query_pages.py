"""The pages, in Spark's UI, of the queries that read a queue or a stream."""

from __future__ import annotations

from typing import Final, Literal

import shmq
from shmq.api.query_pages import TABLE, is_web_page, key_of
from shmq.errors import ShmqError

#: The most pages that are shown of one queue or stream.
_MOST: Final = 20


def query_pages(broker: shmq.Broker, kind: Literal["queue", "stream"], name: str) -> list[str]:
    """The addresses of the pages; none where they cannot be read, as they are only shown."""
    try:
        if TABLE not in broker.list_tables():
            return []
        with broker.table(TABLE) as table:
            pages = table.get_many(table.keys(key_of(kind, name, ""), _MOST))
    except ShmqError:
        return []
    return sorted({url for url in pages.values() if is_web_page(url)})
