"""A user's function on a DataFrame, by its name ``module:function``."""

from __future__ import annotations

import functools
import importlib
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shmq.errors import InvalidOption, ShmqError
from shmq.spark.shared.spark_error import describe_spark_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The packages of Spark, which call functions that run later.
_OF_SPARK: Final = frozenset({"pyspark", "py4j"})

Function = Callable[["DataFrame"], "DataFrame"]


def load(name: str) -> Function:
    """Import the function ``module:function``. Raises :class:`~shmq.InvalidOption`."""
    module_name, _, path = name.partition(":")
    try:
        module: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise _make_import_error(name, error) from error
        raise InvalidOption(
            f"function {name!r}: module {error.name!r} does not exist here or on the Python path: "
            f"start where it is, or set PYTHONPATH"
        ) from error
    except (Exception, SystemExit) as error:
        raise _make_import_error(name, error) from error
    try:
        found: Function = functools.reduce(getattr, path.split("."), module)
    except AttributeError as error:
        raise InvalidOption(
            f"function {name!r}: {error}; it must be defined at the top of the module"
        ) from error
    if not callable(found):
        raise InvalidOption(
            f"function {name!r} is of type {type(found).__name__}: name a function that takes "
            f"a DataFrame and returns one"
        )
    return found


def apply(name: str, rows: DataFrame) -> DataFrame:
    """The function's result for the rows.

    Raises :class:`~shmq.InvalidOption` if it is not a DataFrame, and :class:`~shmq.ShmqError`
    with the place of the failure if the function raises.
    """
    from pyspark.sql import DataFrame  # noqa: PLC0415 - heavy, and an extra

    function = load(name)
    try:
        made = function(rows)
    except Exception as error:
        last = _find_last_frame(error)
        raise ShmqError(
            f"function {name!r} failed: {type(error).__name__}: {describe_spark_error(error)} "
            f"({last.filename}:{last.lineno})"
        ) from error
    if not isinstance(made, DataFrame):
        raise InvalidOption(
            f"function {name!r} returned a {type(made).__name__}: it must return a DataFrame"
        )
    return made


def unchanged(rows: DataFrame) -> DataFrame:
    """The rows unchanged: the function that the template names."""
    return rows


def _find_last_frame(error: BaseException) -> traceback.FrameSummary:
    """Where it failed: the innermost frame outside Spark."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [each for each in frames if not _OF_SPARK.intersection(Path(each.filename).parts)]
    return (ours or frames)[-1]


def _make_import_error(name: str, error: BaseException) -> InvalidOption:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return InvalidOption(
        f"function {name!r}: its module cannot be imported: "
        f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})"
    )
