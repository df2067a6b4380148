"""The drawing of exchanges."""

from __future__ import annotations

from shmq.api.exchange import Binding, ExchangeSummary
from shmq.extras.console.pages.drawing import drawing_of


def exchange(name: str, alternate: str | None = None) -> ExchangeSummary:
    return ExchangeSummary(name=name, kind="topic", alternate=alternate, bindings=0)


def test_an_exchange_stands_left_of_what_it_passes_messages_on_to() -> None:
    bindings = {"a": [Binding("b", "exchange", "x.#"), Binding("q", "queue", "y")], "b": []}
    found = drawing_of([exchange("a"), exchange("b")], bindings, [("queue", "q")])
    places = {one.name: one for one in found.boxes}
    assert places["a"].x < places["b"].x < places["q"].x
    assert places["a"].y < places["b"].y
    assert [one.name for one in found.boxes if one.hit] == ["q"]
    assert [one.label for one in found.lines] == ["x.#", "y"]
    assert all(one.x < found.width and one.y < found.height for one in found.boxes)


def test_a_circle_of_exchanges_has_an_end() -> None:
    bindings = {
        "a": [Binding("b", "exchange", "x")],
        "b": [Binding("a", "exchange", "x"), Binding("b", "exchange", "x")],
    }
    found = drawing_of([exchange("a", "b"), exchange("b", "a")], bindings)
    assert len(found.boxes) == 2
    assert len(found.lines) == 5
    assert sum(one.alternate for one in found.lines) == 2


def test_labels_at_one_end_stand_above_each_other() -> None:
    bindings = {"a": [Binding("q", "queue", "x"), Binding("q", "queue", "y" * 40)]}
    found = drawing_of([exchange("a")], bindings)
    first, second = found.lines
    assert first.x == second.x and first.y != second.y
    assert second.label.endswith("…")


def test_nothing_is_a_drawing_too() -> None:
    assert drawing_of([], {}).boxes == []
