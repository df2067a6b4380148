"""The first row of a fresh session: of a stream, and of Spark's own range."""

from __future__ import annotations

import subprocess
import sys

import shmq
from bench.compiled import ROOT
from bench.machine import now
from bench.row import Role
from bench.scratch import scratch
from bench.spark.contestant import OnSpark
from bench.spark.figures import FIRST
from bench.spark.session import MASTER
from bench.stage import Failed

#: The longest that a session may take to give a row, in seconds.
PATIENCE = 180

#: A session of its own, and its first row.
SCRIPT = """
import sys
import shmq.spark
spark = shmq.spark.session("bench", master=sys.argv[1], conf={"spark.log.level": "ERROR"})
frame = spark.range(1)
if len(sys.argv) > 2:
    frame = spark.read.format("shmq").options(url=sys.argv[2], subscribe="s", kind="stream").load()
print(len(frame.take(1)))
spark.stop()
"""


class FirstRow(OnSpark):
    """A process that starts Spark, and reads the first record of a stream."""

    label = 'format("shmq"), the first row'
    note = "from the start of the process; the JVM's start included"

    def work(self) -> dict[str, float]:
        """See :class:`bench.spark.contestant.OnSpark`."""
        with scratch() as broker:
            stream = broker.create_stream("s", 1)
            stream.append_many([b"row"] * 10)
            return {FIRST.key: taken(broker)}

    def _turn(self) -> dict[str, float]:
        return self.work()


class FirstOfRange(FirstRow):
    """The same process, which reads the only row of ``range(1)``."""

    label = "Spark's range(1)"
    role: Role = "harness"

    def work(self) -> dict[str, float]:
        """See :class:`bench.spark.contestant.OnSpark`."""
        return {FIRST.key: taken(None)}


def taken(broker: shmq.Broker | None) -> float:
    """The milliseconds of a process until it has ended, with its row."""
    given = [MASTER] if broker is None else [MASTER, broker.namespace]
    begun = now()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *given],
        capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT, check=False,
    )  # fmt: skip
    if done.returncode or done.stdout.strip() != "1":
        raise Failed(f"a fresh session gave no row: {done.stderr[-500:]}")
    return (now() - begun) / 1e6
