"""Exchanges and what is bound to them, as a drawing: where each box and each line stands."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from shmq.api.exchange import Binding, ExchangeSummary
from shmq.api.names import shown_name

_WIDTH: Final = 180
_HEIGHT: Final = 34
_COLUMN: Final = 330
#: Where a line bends, before its end.
_GAP: Final = 140
_ROW: Final = 52
_MARGIN: Final = 10
#: The most columns of exchanges: a circle of them has no end.
_COLUMNS: Final = 4
_NAME: Final = 22
_KEY: Final = 18

#: A kind and a name.
Place = tuple[str, str]


class Box(NamedTuple):
    """An exchange, a queue or a stream."""

    kind: str
    name: str
    #: The name as far as it fits.
    label: str
    x: int
    y: int
    #: Whether the message of a route test gets here.
    hit: bool


class Line(NamedTuple):
    """A binding, or the way to an alternate exchange."""

    path: str
    label: str
    x: int
    y: int
    alternate: bool


class Drawing(NamedTuple):
    """All boxes and lines, and the size of the whole."""

    width: int
    height: int
    box_width: int
    box_height: int
    boxes: list[Box]
    lines: list[Line]


def drawing_of(
    exchanges: Sequence[ExchangeSummary],
    bindings: Mapping[str, Sequence[Binding]],
    hit: Collection[Place] = (),
) -> Drawing:
    """The drawing: exchanges stand left of what they pass messages on to."""
    columns = _choose_columns(exchanges, bindings)
    places: dict[Place, tuple[int, int]] = {}
    rows: dict[str, int] = {}
    for place, column in columns.items():
        # Each exchange has a row of its own, so that no line runs behind another.
        kept = "exchange" if place[0] == "exchange" else "target"
        row = rows[kept] = rows.get(kept, -1) + 1
        places[place] = (_MARGIN + column * _COLUMN, _MARGIN + row * _ROW)
    boxes = [
        Box(kind, name, _shorten(shown_name(name), _NAME), x, y, (kind, name) in hit)
        for (kind, name), (x, y) in places.items()
    ]
    lines = [
        _make_line(places["exchange", name], places[one.kind, one.target], _make_label(one))
        for name, found in bindings.items()
        for one in found
        if (one.kind, one.target) in places
    ]
    lines = _separate_labels(lines)
    lines += [
        _make_line(
            places["exchange", one.name], places["exchange", one.alternate], "otherwise", True
        )
        for one in exchanges
        if one.alternate is not None and ("exchange", one.alternate) in places
    ]
    return Drawing(
        width=max((x for x, _ in places.values()), default=0) + _WIDTH + 2 * _MARGIN + 40,
        height=max((y for _, y in places.values()), default=0) + _HEIGHT + _MARGIN,
        box_width=_WIDTH,
        box_height=_HEIGHT,
        boxes=boxes,
        lines=lines,
    )


def _choose_columns(
    exchanges: Sequence[ExchangeSummary], bindings: Mapping[str, Sequence[Binding]]
) -> dict[Place, int]:
    """The column of each box: that of an exchange is right of those that lead to it."""
    depth = {one.name: 0 for one in exchanges}
    ways = [
        (name, one.target)
        for name, found in bindings.items()
        for one in found
        if one.kind == "exchange" and one.target in depth
    ]
    ways += [(one.name, one.alternate) for one in exchanges if one.alternate in depth]
    for _ in range(_COLUMNS):
        for source, target in ways:
            depth[target] = min(max(depth[target], depth[source] + 1), _COLUMNS - 1)
    found: dict[Place, int] = {("exchange", name): column for name, column in depth.items()}
    last = max(depth.values(), default=0) + 1
    for ones in bindings.values():
        for one in ones:
            if one.kind != "exchange":
                found.setdefault((one.kind, one.target), last)
    return found


def _make_line(
    start: tuple[int, int], end: tuple[int, int], label: str, alternate: bool = False
) -> Line:
    x1, y1 = start[0] + _WIDTH, start[1] + _HEIGHT // 2
    x2, y2 = end[0], end[1] + _HEIGHT // 2
    if end[0] <= start[0]:  # back, or to itself: around the right side
        x2 = end[0] + _WIDTH
        path = f"M{x1} {y1}C{x1 + 40} {y1} {x2 + 40} {y2} {x2} {y2}"
        return Line(path, label, max(x1, x2) + 4, (y1 + y2) // 2, alternate)
    bend = x2 - _GAP // 2
    path = f"M{x1} {y1}H{x2 - _GAP}C{bend} {y1} {bend} {y2} {x2} {y2}"
    return Line(path, label, x2 - 8, y2 - 5, alternate)


def _separate_labels(lines: list[Line]) -> list[Line]:
    """The same with the labels of one end above each other."""
    count: dict[tuple[int, int], int] = {}
    found = []
    for one in lines:
        above = count.get((one.x, one.y), 0)
        found.append(one._replace(y=one.y - 13 * above))
        count[one.x, one.y] = above + bool(one.label)
    return found


def _make_label(one: Binding) -> str:
    if one.headers:
        pairs = ", ".join(f"{key}={value}" for key, value in one.headers.items())
        return _shorten(f"{one.match}: {pairs}", _KEY)
    return _shorten(one.key, _KEY)


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
