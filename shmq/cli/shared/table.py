"""A table: drawn by rich on a terminal, and elsewhere as lines, since rich takes longest of all."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from rich.table import Table as RichTable
    from rich.text import Text

#: Text on one line, or a line for each text, of which the first is the main one.
Cell: TypeAlias = str | tuple[str, ...]

#: What is between two columns.
_GAP = "  "


@dataclasses.dataclass(slots=True)
class Table:
    """Columns and rows of text, which has no markup and no control characters."""

    columns: list[str]
    #: The columns that are aligned to the right.
    right: set[str]
    #: A line above the table.
    title: str | None = None
    #: How many columns at the end may be wrapped on a terminal.
    wrapped: int = 0
    rows: list[tuple[Cell, ...]] = dataclasses.field(default_factory=list)

    def add_row(self, *cells: Cell) -> None:
        """Add a row with a cell for each column."""
        self.rows.append(cells)

    def lines(self) -> Iterator[str]:
        """The lines of the table without a terminal: as wide as its cells are."""
        rows = [tuple(self.columns), *self.rows]
        split = [[(cell,) if isinstance(cell, str) else cell for cell in row] for row in rows]
        widths = [
            max(_measure(text) for cell in column for text in cell)
            for column in zip(*split, strict=True)
        ]
        right = [column in self.right for column in self.columns]
        if self.title is not None:
            yield self.title
        for row in split:
            for at in range(max(map(len, row))):
                texts = (cell[at] if at < len(cell) else "" for cell in row)
                yield _GAP.join(map(_align, texts, widths, right)).rstrip()

    def as_rich(self) -> RichTable:
        """The table for a terminal."""
        from rich import box  # noqa: PLC0415 - on a terminal alone
        from rich.table import Table as RichTable  # noqa: PLC0415

        made = RichTable(
            title=self.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
        )
        narrow = len(self.columns) - self.wrapped
        for at, column in enumerate(self.columns):
            side = "right" if column in self.right else "left"
            made.add_column(column, justify=side, no_wrap=at < narrow)  # type: ignore[arg-type]
        for row in self.rows:
            made.add_row(*map(_as_text, row))
        return made


def _measure(text: str) -> int:
    """The columns that the text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 - few names have wide characters

    return cell_len(text)


def _align(text: str, width: int, right: bool) -> str:
    space = " " * (width - _measure(text))
    return space + text if right else text + space


def _as_text(cell: Cell) -> Text:
    from rich.text import Text  # noqa: PLC0415 - on a terminal alone

    if isinstance(cell, str):
        return Text(cell)
    first, *rest = cell
    return Text("\n").join([Text(first), *(Text(text, style="dim") for text in rest)])
