"""Tables without a terminal: the lines that rich would draw."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from shmq.cli.shared.table import Table

TEXT = st.text(st.sampled_from("ab 1é日本🦐-"), max_size=6).map(str.strip)
CELLS = TEXT | st.tuples(TEXT.filter(bool), TEXT.filter(bool))


def drawn_by_rich(made: Table) -> list[str]:
    rich = made.as_rich()
    rich.box = None
    console = Console(file=io.StringIO(), width=10_000, emoji=False, markup=False, highlight=False)
    with console.capture() as captured:
        console.print(rich)
    return [line.rstrip() for line in captured.get().splitlines()]


@given(
    columns=st.lists(TEXT.filter(bool), min_size=1, max_size=4, unique=True),
    data=st.data(),
    title=st.none() | st.just("A"),  # rich wraps a title that is wider than the table,
)
def test_the_lines_are_those_of_rich(
    columns: list[str], data: st.DataObject, title: str | None
) -> None:
    made = Table(columns, set(data.draw(st.lists(st.sampled_from(columns)))), title)
    for _ in range(data.draw(st.integers(1, 4))):
        made.add_row(*(data.draw(CELLS) for _ in columns))
    assert list(made.lines()) == drawn_by_rich(made)
