"""The hint of an error at an unknown name: "did you mean 'orders'?"."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable

from shmq.errors import NotFound
from shmq.lazy_imports import late_imports

#: How many known names are compared: more would take longer than listing them.
_MOST = 2_000

#: What uses a thing of each kind: the methods of a broker, and the commands.
_USES = {
    "queue": "queue(), or `shmq produce` and `shmq consume`",
    "stream": "stream(), or `shmq stream append` and `shmq stream read`",
    "exchange": "exchange(), or `shmq publish`",
    "table": "table(), or `shmq table get` and `shmq table set`",
    "lock": "lock() or semaphore(), or `shmq locks`",
}


def suggest(name: object, known: Iterable[str], otherwise: str | None = None) -> str:
    """Return a hint at the known name that is closest to ``name``, in upper or lower case.

    Without a close one it is ``otherwise``; None: the known names.
    """
    names = {one.casefold(): one for one in itertools.islice(known, _MOST)}
    near: list[str] = []
    with contextlib.suppress(ImportError, OSError):  # no file descriptor may be free
        with late_imports:
            import difflib  # noqa: PLC0415 - for errors alone

        near = difflib.get_close_matches(str(name).casefold(), names, n=1)
    if near:
        return f"did you mean {names[near[0]]!r}?"
    return f"known are {', '.join(names.values()) or 'none'}" if otherwise is None else otherwise


def name_other(kind: str, advice: str | None = None) -> str:
    """Return the hint that the name is of another ``kind``: to use that, or the ``advice``."""
    article = "an" if kind[0] in "aeiou" else "a"
    return f"{article} {kind} has this name: {advice or f'use {_USES[kind]}'}."


def suggest_known(
    error: NotFound,
    name: str,
    list_names: Callable[[], Iterable[str]],
    find_other: Callable[[], str] = str,
) -> None:
    """Let the text of the error hint at the closest of the listed names, if they can be listed.

    ``find_other`` returns the hint that something of another kind has the name, which is better.
    """

    def find_hint() -> str:
        with contextlib.suppress(Exception):
            if hint := find_other():
                return hint
            return suggest(name, (one for one in list_names() if one != name), "")
        return ""

    error.name = name
    error.find_hint = find_hint
