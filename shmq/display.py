"""How objects look in a notebook and in a terminal: names and values, nothing asked of a queue."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from shmq.lazy_imports import late_imports

#: The longest value that is shown, in characters, and the most of a sequence.
_LONGEST = 120
_MOST = 10


def as_html(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """A table of names and values, each escaped and cut."""
    with late_imports:
        import html  # noqa: PLC0415 - for notebooks alone

    cells = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(_shorten(value))}</td></tr>"
        for name, value in rows
    )
    return f"<table><caption>{html.escape(title)}</caption>{cells}</table>"


def sample(values: Iterable[object]) -> Iterator[tuple[str, object]]:
    """The first few of them, by their number."""
    for number, value in enumerate(itertools.islice(values, _MOST)):
        yield str(number), value


def _shorten(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"


class Displayed:
    """A class that says in ``__rich_repr__`` what it shows, from what it knows already."""

    __slots__ = ()

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:
        """Name and value of each row: see rich."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """See IPython."""
        return as_html(type(self).__name__, self.__rich_repr__())
