"""Where queries of Spark tell the console their pages: a table of the namespace."""

from __future__ import annotations

import urllib.parse
from typing import Any, Final

#: The table. Each value is the address of a page.
TABLE: Final = "spark.pages"

_LONGEST: Final = 2048


def key_of(kind: str, name: str, query: str) -> str:
    """The key for a query of the queue or stream; without ``query``, the prefix of all of them."""
    return f"{kind}/{name}/{query}"


def is_web_page(given: Any) -> bool:
    """Whether it is the address of a page that a browser may be sent to: http or https alone."""
    if not isinstance(given, str) or len(given) > _LONGEST or not given.isprintable():
        return False
    try:
        parts = urllib.parse.urlsplit(given)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and " " not in given
    except ValueError:
        return False
