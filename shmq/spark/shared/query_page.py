"""A query's page in Spark's UI, which the console shows at the queues and streams that it reads."""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Iterable
from typing import Final

from shmq.api.query_pages import TABLE, is_web_page, key_of
from shmq.errors import ShmqError
from shmq.spark.shared.address import Address

_log = logging.getLogger("shmq.spark")

#: How long the console shows a page that is not renewed, and how often it is renewed, in seconds.
_TTL: Final = 600.0
_AGAIN: Final = 120.0

#: The page of Spark's UI that lists the queries of a session.
_QUERIES: Final = "/StreamingQuery/"


def address(given: str) -> str:
    """The address of Spark's UI, as ``spark.sparkContext.uiWebUrl``. Raises ValueError."""
    if not is_web_page(given.strip()):
        raise ValueError("an address such as http://host:4040, as spark.sparkContext.uiWebUrl")
    return given.strip().rstrip("/")


class QueryPage:
    """Tells the page of a query, through a table of the namespace, as long as the query lives."""

    def __init__(self, ui: str | None, kind: str) -> None:
        self._ui = ui
        self._kind = kind
        self._query = secrets.token_hex(8)
        self._told = -math.inf

    def tell(self, place: Address, names: Iterable[str]) -> None:
        """Tell it if that is due. It never fails: without the right to it, no page is shown."""
        now = time.monotonic()
        if self._ui is None or now - self._told < _AGAIN:
            return
        self._told = now
        pages = {key_of(self._kind, name, self._query): self._ui + _QUERIES for name in names}
        try:
            with place.connect() as broker, broker.ensure_table(TABLE) as table:
                table.set_many(pages, ttl=_TTL)
        except ShmqError as error:
            _log.info("the console does not show the page %s of the query: %s", self._ui, error)
