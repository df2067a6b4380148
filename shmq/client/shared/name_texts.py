"""The texts of hashed names, in a table of their namespace: so that every process can show them.

A name that `escape_name` has shortened does not contain its text. The broker that opens a handle by
such a name stores the text; brokers that open or list it in other processes read it. A text is
believed only if its escape is the name. What is not stored is shown as the name itself, so no error
of the table, such as a token without rights to it, fails an operation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from shmq.api.names import is_hashed, learn_texts, own_dead_letters, stem_of, unescape_name
from shmq.errors import ShmqError

if TYPE_CHECKING:
    from shmq import api

#: The table: a text by its name.
TABLE: Final = "name-texts"
#: The most bytes that it may take, and how long a text is stored after the name was opened last.
_MAX_BYTES: Final = 64 << 20
_TTL: Final = 366 * 86_400.0

_Named = TypeVar("_Named", bound=Any)


def share_name(broker: api.Broker, name: str) -> None:
    """Store the text of ``name``, if it is hashed; a process without the text learns it.

    The dead letters of a name that is not hashed may have one that is.
    """
    stem = stem_of(own_dead_letters(stem_of(name)))
    if not is_hashed(stem):
        return
    text = unescape_name(stem)
    if text == stem:
        learn_names(broker, [stem])
        return
    with (
        contextlib.suppress(ShmqError),
        broker.ensure_table(TABLE, max_bytes=_MAX_BYTES, if_different="accept") as table,
    ):
        table.set(stem, text, _TTL)


def learn_names(broker: api.Broker, names: Iterable[str]) -> None:
    """Let `unescape_name` reverse these names, as far as their texts are stored."""
    unknown = {stem_of(name) for name in names if is_hashed(name) and unescape_name(name) == name}
    if unknown:
        with contextlib.suppress(ShmqError), broker.table(TABLE) as table:
            learn_texts(text for text in table.get_many(unknown).values() if isinstance(text, str))


def with_texts(broker: api.Broker, found: list[_Named], field: str = "name") -> list[_Named]:
    """What a listing has found, after the process has learned the texts of its names."""
    learn_names(broker, (getattr(each, field) for each in found))
    return found
