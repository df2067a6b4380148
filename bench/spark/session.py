"""The Spark session of a run: one for all its contestants, as it takes seconds to begin."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING

from bench.compiled import ROOT
from bench.disk import folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The cores of the driver and its executors, as the bars have it.
MASTER = "local[2]"
#: The JVM is driver and executors in one.
CONF = {"spark.driver.memory": "1g"}

_begun: list[SparkSession] = []


def missing() -> str | None:
    """Why nothing can be measured on Spark here; None: it can."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed (pip install 'shmq[spark]')"
    return folder.missing()


def begin() -> SparkSession:
    """The session, begun when it is first asked for."""
    if not _begun:
        import shmq.spark

        # Spark's Python workers import the package, and the empty source, from here.
        before = [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *before])
        _begun.append(shmq.spark.session("bench", master=MASTER, conf=CONF))
    return _begun[0]


def end() -> None:
    """End it, if it was begun."""
    while _begun:
        _begun.pop().stop()
