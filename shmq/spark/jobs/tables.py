"""The tables that several jobs share: where rows come from, where they go, how the job runs."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from shmq.errors import InvalidOption
from shmq.spark.jobs import values
from shmq.spark.jobs.config import Key, Rest, Table

__all__ = ["AVAILABLE_NOW", "FORMATS", "SPARK", "STREAM_TOP", "queue", "rows"]

#: The trigger of a stream that ends when it has read everything that existed at its start.
AVAILABLE_NOW: Final = "available-now"

#: The formats that a table may name, with the module that checks their options; Spark checks
#: those of its own formats.
FORMATS: Final = MappingProxyType(
    {
        "shmq": "shmq.spark.format_dispatch",
        "dmsq": "shmq.spark.dmsq.options",
        "parquet": None,
    }
)

_trigger_time = values.seconds(0, 7 * 86400)


def _trigger(value: Any, folder: Path) -> str | float:
    """:data:`AVAILABLE_NOW`, or the seconds from the start of a batch to that of the next."""
    if value == AVAILABLE_NOW:
        return AVAILABLE_NOW
    try:
        return float(_trigger_time(value, folder))
    except ValueError as error:
        raise ValueError(f'"{AVAILABLE_NOW}", or {error}') from None


def _options(given: Mapping[str, Any], *_: Mapping[str, Any]) -> Mapping[str, str]:
    return {key: _option(key, value) for key, value in given.items()}


def _option(key: str, value: Any) -> str:
    try:
        return str(values.option(value, Path()))
    except ValueError as error:
        raise InvalidOption(f"{key} = {value!r:.80} must be {error}") from None


def _options_for(use: str) -> Rest:
    """A check of a format's options, the same as the format's own, before Spark is started."""

    def check(
        given: Mapping[str, Any], keys: Mapping[str, Any], place: Mapping[str, str]
    ) -> Mapping[str, str]:
        found = _options(given)
        form = keys.get("format", "shmq")
        path = keys.get("path")
        if form == "shmq" and "url" not in found:
            found = {**place, **found}
        known = FORMATS[form]
        if known is None:
            if path is None:
                raise InvalidOption(f"'path' is missing: the folder of the files in {form}")
            return found
        module = importlib.import_module(known)
        asked = {**found, "path": path} if path is not None else found
        module.check(asked, use if form == "shmq" else "batch")
        return found

    return check


def queue(
    name: str,
    about: str,
    *,
    use: str,
    optional: bool = False,
    begun: bool = False,
    example: str = "",
) -> Table:
    """A table of queues: the options of ``format("shmq")`` for that ``use``.

    The use is one of :data:`shmq.spark.shared.options.USES`. The job gets the options as
    ``options``.
    """
    return Table(
        name=name,
        about=about,
        optional=optional,
        begun=begun,
        rest=_options_for(use),
        examples=(example,) if example else (),
    )


def rows(
    name: str,
    about: str,
    *,
    use: str,
    formats: tuple[str, ...],
    keys: tuple[Key, ...] = (),
    optional: bool = False,
    example: str = "",
) -> Table:
    """A table of rows in one of the formats, with the format's options.

    The job gets ``format``, ``path`` (None for queues), ``options`` and the additional ``keys``.
    """
    return Table(
        name=name,
        about=about,
        keys=(
            Key(
                name="format",
                about=f"What holds the rows: {', '.join(formats)}.",
                check=values.one_of(*formats),
                default=formats[0],
            ),
            Key(
                name="path",
                about="The folder, of files.",
                check=values.path,
                required="shmq" not in formats,
                example="rows",
            ),
            *keys,
        ),
        optional=optional,
        rest=_options_for(use),
        examples=(example,) if example else (),
    )


SPARK: Final = Table(
    name="spark",
    about='Spark\'s own settings, as spark.executor.memory = "4g".',
    keys=(
        Key(
            name="master",
            about="The cluster, as spark://host:7077; this machine's cores without it.",
            check=values.master,
            example="local[*]",
        ),
        Key(
            name="log",
            about="The least that Spark logs to stderr: off, error, warn or info.",
            check=values.one_of("off", "error", "warn", "info"),
            default="off",
        ),
    ),
    rest=_options,
)

#: The top of a stream's file.
STREAM_TOP: Final = Table(
    name="",
    about="",
    keys=(
        Key(
            name="checkpoint",
            about="Where it remembers how far it is. One for each job, and never to be shared.",
            check=values.path,
            required=True,
            example="checkpoint",
        ),
        Key(
            name="trigger",
            about=f'How often a batch begins, as "10s"; "{AVAILABLE_NOW}": read what there is, '
            "and end.",
            check=_trigger,
            default=10.0,
            example="10s",
        ),
    ),
)
