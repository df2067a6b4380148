"""The packages of an extra, where a command needs them."""

from __future__ import annotations

import importlib.util

from shmq.errors import ShmqError


def check_extra(what: str, extra: str, packages: tuple[str, ...]) -> None:
    """Raise :class:`~shmq.ShmqError` if one of the ``packages`` is not installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ShmqError(f"{what} needs {', '.join(missing)}: pip install 'shmq[{extra}]'")
