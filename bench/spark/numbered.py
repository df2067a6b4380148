"""Queues of numbered values, and the check that rows have each of them once and whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import shmq
from bench.disk.filled import arena
from bench.spark.figures import SIZE
from bench.spark.session import begin
from bench.stage import PATIENCE, Failed, Side, Stage, together

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Digits at the front of a value; the rest is the same in all values.
DIGITS = 10
FILLER = bytes(range(65, 91)) * 4
#: Messages of one put, and of one get.
AT_ONCE = 8192
#: How many keys there are.
KEYS = 10_000
#: A prime that folds a hash, so that no sum of a run overflows.
FOLD = 1_000_003


def value(number: int) -> bytes:
    """The value with that number."""
    return b"%0*d" % (DIGITS, number) + FILLER[: SIZE - DIGITS]


def key(number: int) -> str:
    """The key of the value with that number."""
    return f"key-{number % KEYS}"


def headers(number: int) -> dict[str, str | bytes]:
    """The two headers of the value with that number: a text, and bytes."""
    return {"kind": "frame", "number": number.to_bytes(8, "big")}


def queue_options(rows: int, *, adorned: bool = False) -> dict[str, Any]:
    """The options of a queue with room for that many values; ``adorned``: with key and headers."""
    return {
        "capacity": rows,
        "arena_bytes": arena(SIZE + 128 * adorned, rows),
        "overflow": "block",
        "dead_letter": None,
    }


def staging_options(rows: int, *, adorned: bool = False) -> dict[str, int]:
    """The options of a write that stages that many values at once."""
    return {"stagingBytes": queue_options(rows, adorned=adorned)["arena_bytes"]}


def staged_rows(numbers: range, *, adorned: bool) -> list[bytes | shmq.Row]:
    """The values with these numbers as a publisher stages them."""
    if not adorned:
        return [value(n) for n in numbers]
    return [(value(n), {"group": key(n), "headers": headers(n)}) for n in numbers]


def fill(namespace: str, queue: str, rows: int, *, adorned: bool = False) -> None:
    """Put that many values, in a separate process; ``adorned``: with key and headers."""
    _alone(_fill, namespace, queue, rows, adorned)


def drain(namespace: str, queue: str, rows: int) -> None:
    """Get all values; raises Failed unless the queue held each value once."""
    _alone(_drain, namespace, queue, rows)


def check(frame: DataFrame, rows: int) -> None:
    """Raise Failed unless the column ``value`` has each of that many values once."""
    from pyspark.sql import functions

    filler = functions.lit(FILLER[: SIZE - DIGITS])
    seen = frame.select(
        functions.substring("value", 1, DIGITS).cast("string").cast("long").alias("id"),
        (functions.substring("value", DIGITS + 1, SIZE) == filler).alias("whole"),
    )
    found, expected = _digest(seen), _digest(begin().range(rows).withColumn("whole", _true()))
    if found != expected:
        raise Failed(f"of {rows} rows came {found[0]}: {found} in place of {expected}")


def _digest(numbers: DataFrame) -> tuple[int, ...]:
    """The number of rows, the number of whole ones, and sums over their numbers."""
    from pyspark.sql import functions

    folded = functions.pmod(functions.xxhash64("id"), functions.lit(FOLD))
    (row,) = numbers.select(
        functions.count("id"),
        functions.count_if("whole"),
        functions.coalesce(functions.sum("id"), functions.lit(0)),
        functions.coalesce(functions.sum(folded), functions.lit(0)),
    ).collect()
    return tuple(row)


def _true() -> Any:
    from pyspark.sql import functions

    return functions.lit(True)


def _alone(act: Any, *given: Any) -> Any:
    (found,) = together([Side(act, *given, core=None)], PATIENCE * 5)
    return found


# ---- in separate processes ----


def _fill(stage: Stage, namespace: str, name: str, rows: int, adorned: bool) -> None:
    stage.meet()
    if adorned:
        _put_adorned(namespace, name, rows)
    else:
        put(namespace, name, rows)


def _put_adorned(namespace: str, name: str, rows: int) -> None:
    """Put values with keys and headers of their own, as a publisher of staged rows."""
    with shmq.connect(namespace) as broker:
        publisher = broker.queue(name).staged_publisher("bench")
        for batch, first in enumerate(range(0, rows, AT_ONCE)):
            numbers = range(first, min(rows, first + AT_ONCE))
            publisher.stage(batch, "part", staged_rows(numbers, adorned=True))
            publisher.commit_batch(batch, ["part"], timeout=PATIENCE)
        publisher.discard()


def put(namespace: str, name: str, rows: int) -> None:
    """Put that many values; waits while the queue is full."""
    with shmq.connect(namespace) as broker:
        queue = broker.queue(name)
        for first in range(0, rows, AT_ONCE):
            values = [value(number) for number in range(first, min(rows, first + AT_ONCE))]
            if queue.put_many(values, timeout=PATIENCE) != len(values):
                raise Failed("the queue had no room for what it holds")


def _drain(stage: Stage, namespace: str, name: str, rows: int) -> None:
    stage.meet()
    seen = bytearray(rows)
    filler = FILLER[: SIZE - DIGITS]
    with shmq.connect(namespace) as broker:
        queue = broker.queue(name)
        while messages := queue.get_many(AT_ONCE, block=False):
            for message in messages:
                body = message.body
                number = int(body[:DIGITS])
                if body[DIGITS:] != filler or number >= rows or seen[number]:
                    raise Failed(f"value {number} of {rows} came twice, or with other bytes")
                seen[number] = 1
            queue.ack_many(messages)
    if not all(seen):
        raise Failed(f"{rows - sum(seen)} values of {rows} did not come")
