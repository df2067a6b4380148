"""Lists in pages: rows by key, the ones that an expression selects, the columns asked for."""

from __future__ import annotations

import functools
import heapq
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from shmq.extras.console.api.operation import Call, Parameter
from shmq.extras.console.problem import Problem
from shmq.model.expression.parse import Asked, Expression, Field

#: The most rows of one page.
MOST_ROWS: Final = 1000
_TERMS: Final = 64

#: The parameters of each list.
PAGE: Final = (
    Parameter("limit", "integer", "rows in the answer", 100, 1, MOST_ROWS),
    Parameter("after", "string", "`next` of the page before", None, most=255),
    Parameter("where", "string", "an expression over the columns: depth > 100", None, most=4096),
    Parameter("columns", "string", "names, by commas; all without", None, most=1024),
)


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a list."""

    items: list[dict[str, Any]]
    #: What ``after`` of the next page is; null at the end.
    next: str | None = None


def item_name(row: Mapping[str, Any]) -> str:
    """The key of a row: its name."""
    name: str = row["name"]
    return name


class Table:
    """The columns of a list: name to kind, ``text``, ``number``, ``bytes`` or ``seconds``."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        self.columns = columns
        fields = {
            name: Field(name, kind, functools.partial(_read, name))  # type: ignore[arg-type]
            for name, kind in columns.items()
        }
        self._where = type("RowWhere", (Expression,), {"_fields": fields, "_asked": Asked})

    def page(
        self, call: Call, names: Iterable[str], row: Callable[[str], dict[str, Any] | None]
    ) -> Page:
        """The page that the call asks for: the rows after its key, in order of their names.

        ``row`` makes the row of a name; None: it is not shown.
        """
        where = self._where(call["where"], _TERMS) if call["where"] is not None else None
        wanted = self._select(call["columns"])
        after, limit = call["after"], call["limit"]
        found: list[dict[str, Any]] = []
        for name in sorted(names):
            if after is not None and name <= after:
                continue
            made = row(name)
            if made is None or (where is not None and not where.matches(made)):
                continue
            if len(found) == limit:
                return Page(items=_cut(found, wanted), next=item_name(found[-1]))
            found.append(made)
        return Page(items=_cut(found, wanted))

    def largest(self, call: Call, rows: Iterable[dict[str, Any]], column: str, limit: int) -> Page:
        """The rows with the largest values of a column; such a list has one page."""
        if column not in self.columns:
            raise Problem.invalid(f"sort={column[:80]!r} is none of {', '.join(self.columns)}")
        where = self._where(call["where"], _TERMS) if call["where"] is not None else None
        chosen = (one for one in rows if where is None or where.matches(one))
        read = operator.itemgetter(column)
        best = heapq.nsmallest(
            limit, chosen, key=lambda one: (_make_descending(read(one)), one["name"])
        )
        return Page(items=_cut(best, self._select(call["columns"])))

    def _select(self, columns: str | None) -> list[str] | None:
        if columns is None:
            return None
        wanted = [one.strip() for one in columns.split(",") if one.strip()]
        for one in wanted:
            if one not in self.columns:
                raise Problem.invalid(f"columns: {one[:80]!r} is none of {', '.join(self.columns)}")
        return ["name", *(one for one in wanted if one != "name")]


def _read(name: str, asked: Asked) -> Any:
    value = asked.what[name]
    return value if isinstance(value, int | float | str) or value is None else str(value)


def _make_descending(value: Any) -> Any:
    """A key that sorts numbers from the largest, and texts from the first."""
    return (0, -value) if isinstance(value, int | float) else (1, str(value))


def _cut(rows: list[dict[str, Any]], wanted: list[str] | None) -> list[dict[str, Any]]:
    return rows if wanted is None else [{name: row[name] for name in wanted} for row in rows]
