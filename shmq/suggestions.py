"""The hint of an error at an unknown name: "did you mean 'orders'?"."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from shmq.lazy_imports import late_imports


def suggest(name: object, known: Iterable[str], otherwise: str | None = None) -> str:
    """Return a hint at the known name that is closest to ``name``, in upper or lower case.

    Without a close one it is ``otherwise``; None: the known names.
    """
    names = {one.casefold(): one for one in known}
    near: list[str] = []
    with contextlib.suppress(ImportError, OSError):  # no file descriptor may be free
        with late_imports:
            import difflib  # noqa: PLC0415 - for errors alone

        near = difflib.get_close_matches(str(name).casefold(), names, n=1)
    if near:
        return f"did you mean {names[near[0]]!r}?"
    return f"known are {', '.join(names.values()) or 'none'}" if otherwise is None else otherwise
