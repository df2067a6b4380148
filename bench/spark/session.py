"""The Spark session of a run: one for all its contestants, as it takes seconds to start."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING

from bench.compiled import ROOT
from bench.disk import folder
from bench.disk.writer import SHM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The cores of the driver and its executors, as the bars assume.
MASTER = "local[2]"
#: The JVM is driver and executors in one.
CONF = {"spark.driver.memory": "1g", "spark.log.level": "ERROR"}

_begun: list[SparkSession] = []


def missing() -> str | None:
    """Why measuring on Spark is impossible here; None if it is possible."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed (pip install 'shmq[spark]')"
    return folder.missing()


def begin() -> SparkSession:
    """The session, started at the first use."""
    if not _begun:
        import shmq.spark

        # Spark's Python workers import the package, and the empty source, from here.
        before = [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *before])
        _begun.append(shmq.spark.session("bench", master=MASTER, conf=CONF))
        from bench.spark.empty import EmptySource

        _begun[0].dataSource.register(EmptySource)
    return _begun[0]


def end() -> None:
    """End the session if it was started.

    Its Python workers may still be in the namespaces of the run, so their files are left until
    now.
    """
    while _begun:
        _begun.pop().stop()
        for path in SHM.glob(f"shmq@bench-{os.getpid()}-*"):
            path.unlink(missing_ok=True)
