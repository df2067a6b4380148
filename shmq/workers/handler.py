"""A handler by its name: ``module:function``, as every process imports it."""

from __future__ import annotations

import functools
import importlib
import sys
import traceback
from collections.abc import Callable
from typing import Any

from shmq.api import Message
from shmq.errors import InvalidOption

__all__ = ["Handler", "load", "name_of"]

#: Takes a message; its result is ignored. May be a coroutine function.
Handler = Callable[[Message], object]


def load(name: str) -> Any:
    """Import ``module:name``. Raises :class:`~shmq.InvalidOption` if it is no callable."""
    module_name, _, path = name.partition(":")
    if not (module_name and path):
        raise InvalidOption(
            f"handler {name!r} is not of the form module:function, such as app.orders:handle"
        )
    module = _imported(name, module_name)
    try:
        found = functools.reduce(getattr, path.split("."), module)
    except AttributeError as error:
        raise InvalidOption(
            f"handler {name!r}: {error}; it must be defined at the top of the module"
        ) from error
    if not callable(found):
        raise InvalidOption(
            f"handler {name!r} is of type {type(found).__name__}: name a function that takes "
            f"a message"
        )
    return found


def name_of(handler: Any) -> str:
    """The name under which other processes find the handler.

    Raises :class:`~shmq.InvalidOption` for one that only this process has: a lambda, a nested
    function, or one typed in at a prompt.
    """
    name = f"{handler.__module__}:{handler.__qualname__}"
    if "<" in name:
        raise InvalidOption(
            f"handler {name!r} cannot be imported by the processes that are to call it: define "
            f"it at the top of a module"
        )
    if handler.__module__ == "__main__" and not hasattr(sys.modules["__main__"], "__file__"):
        raise InvalidOption(
            f"handler {name!r} is in no file, so the processes that are to call it cannot "
            f"import it: write the program to one"
        )
    return name


def _imported(name: str, module_name: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise _no_import(name, module_name, error) from error
        raise InvalidOption(
            f"handler {name!r}: there is no module {error.name!r} here or on the Python path: "
            f"start where it is, or set PYTHONPATH"
        ) from error
    except (Exception, SystemExit) as error:
        raise _no_import(name, module_name, error) from error


def _no_import(name: str, module_name: str, error: BaseException) -> InvalidOption:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return InvalidOption(
        f"handler {name!r}: module {module_name!r} cannot be imported: "
        f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})"
    )
