"""The options of ``format("dmsq")``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from shmq.spark.shared import columns, options
from shmq.spark.shared.options import BATCH, Option, Use

#: The states of a message in a file: a lease does not survive.
STATES: Final = ("ready", "delayed", "dying")

#: The columns of the skipped places.
SKIPPED: Final = "topic string, file string, offset bigint, bytes bigint, what string"


def mode(given: str) -> str:
    """One of those modes of Spark's own readers that make sense for files of messages."""
    return str(options.one_of("FAILFAST", "DROPMALFORMED")(given.upper()))


_NUMBER: Final = options.whole(0, (1 << 63) - 1)

#: Every option of ``format("dmsq")``; docs/integrate/spark.md has the same table.
OPTIONS: Final = (
    Option("path", options.text, None, BATCH),
    Option("queue", options.names, None, BATCH),
    Option("queuePattern", options.pattern, None, BATCH),
    Option("columns", options.several_of(*columns.NAMES, columns.ALL), None, BATCH),
    Option("includeHeaders", options.truth, False, BATCH),
    Option("states", options.several_of(*STATES), STATES, BATCH),
    Option("startingSequence", _NUMBER, None, BATCH),
    Option("endingSequence", _NUMBER, None, BATCH),
    Option("startingTimestamp", options.moment, None, BATCH),
    Option("endingTimestamp", options.moment, None, BATCH),
    Option("mode", mode, "FAILFAST", BATCH),
    Option("rows", options.one_of("messages", "skipped"), "messages", BATCH),
    Option("minPartitions", options.whole(1, 10_000), None, BATCH),
    Option("maxBytesPerBatch", options.size(1 << 10, 1 << 30), 4 << 20, BATCH),
)

#: Options of other formats that users may try here, by lower-case name, with the reason.
REFUSED: Final = MappingProxyType(
    {
        "paths": "it reads one directory: union several reads",
        "subscribe": "name the queues as .option('queue', NAMES)",
        "subscribepattern": "say it as .option('queuePattern', PATTERN)",
        "startingoffsets": "say it as .option('startingSequence', NUMBER)",
        "endingoffsets": "say it as .option('endingSequence', NUMBER)",
        "recursivefilelookup": "it reads one directory, without those in it",
        "url": "files are read without the broker: leave it out",
    }
)


def check(given: Mapping[str, str], use: Use) -> None:
    """Raise InvalidOption for options that the format does not have."""
    options.parse(OPTIONS, given, use, form="dmsq", refused=REFUSED)
