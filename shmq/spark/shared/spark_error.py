"""The cause in the text of an error that Spark raises."""

from __future__ import annotations

import re
from typing import Final

_STATE: Final = re.compile(r" *SQLSTATE: \w+;?")


def describe_spark_error(error: BaseException) -> str:
    """Return the first line of an error that has any text, or the name of its class.

    The text of an error in SQL begins with an empty line; a query plan or the SQL follows.
    """
    lines = (_STATE.sub("", line).strip(" ;") for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)
