"""The data pipeline on Spark: ``pip install 'shmq[spark]'``.

:func:`session` makes a session with both formats; :func:`register` adds them to a session that
you made. ``format("shmq")`` reads and writes queues and streams, and ``format("dmsq")`` reads
the files of durable queues; docs/integrate/spark.md has their options and columns. :func:`decode`
turns bodies into columns. Importing this package imports nothing of Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmq.errors import InvalidOption
from shmq.spark.session import register, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["decode", "register", "session"]

_CODECS = ("message", "json", "msgpack")
_BAD = ("fail", "drop", "keep")


def decode(
    rows: DataFrame,
    schema: str,
    *,
    codec: str = "message",
    into: str | None = None,
    bad: str = "fail",
) -> DataFrame:
    """The ``rows`` with the fields of their ``value`` as columns, typed by ``schema``.

    The schema is SQL DDL, as ``"id BIGINT NOT NULL, at TIMESTAMP"``. ``codec`` is ``json``,
    ``msgpack``, or ``message``: the codec that the column ``codec`` names for each row. With
    ``into`` the fields are in a struct of that name. ``bad`` says what happens to a body that
    does not match the schema: ``fail`` raises an error at an action that names the message;
    ``drop`` leaves the row out; ``keep`` makes its fields null and puts the reason into a
    column ``decode_problem``. Raises :class:`~shmq.InvalidOption`.
    """
    for name, value, allowed in (("codec", codec, _CODECS), ("bad", bad, _BAD)):
        if value not in allowed:
            raise InvalidOption(f"{name}={value!r} must be one of {', '.join(allowed)}")
    from shmq.spark.shared import body_columns  # noqa: PLC0415 - heavy, and an extra

    table = {"schema": schema, "codec": codec, "into": into, "bad": bad}
    found = body_columns.tagged(rows, table)
    return found if bad == "keep" else body_columns.without_bad(found)
