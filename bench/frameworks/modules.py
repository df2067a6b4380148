"""Which modules of frameworks and peers are installed."""

from __future__ import annotations

import importlib.util


def absent(*modules: str) -> str | None:
    """Why what needs these modules cannot take part; None if all are installed."""
    missing = [name for name in modules if not _is_there(name)]
    if missing:
        return (
            f"no module {', '.join(missing)}: pip install "
            f"'.[bench,cachelib,celery,django,dramatiq,huey,taskiq]'"
        )
    return None


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of its package
        return False
