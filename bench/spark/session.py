"""The Spark session of a run: one for all its contestants, as it takes seconds to start."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING, Any

from bench.compiled import ROOT
from bench.disk import folder
from bench.disk.writer import SHM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The cores of the driver and its executors, as the bars assume.
CORES = 2
MASTER = f"local[{CORES}]"
#: The JVM is driver and executors in one.
CONF = {"spark.driver.memory": "1g", "spark.log.level": "ERROR"}

#: The session, and whether it was running before.
_begun: list[tuple[SparkSession, bool]] = []


def missing() -> str | None:
    """Why measuring on Spark is impossible here; None if it is possible."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed (pip install 'shmq[spark]')"
    return folder.missing()


def begin() -> SparkSession:
    """The session, started at the first use."""
    if not _begun:
        from pyspark.sql import SparkSession

        import shmq.spark

        ran = SparkSession.getActiveSession() is not None
        # Spark's Python workers import the package, and the empty source, from here.
        before = [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *before])
        given: dict[str, Any] = {} if ran else {"master": MASTER, "conf": CONF}
        session = shmq.spark.session("bench", **given)
        from bench.spark.empty import EmptySource

        session.dataSource.register(EmptySource)
        _begun.append((session, ran))
    return _begun[0][0]


def end() -> None:
    """End the session if it was started here.

    Its Python workers may still be in the namespaces of the run, so their files are left until
    now.
    """
    while _begun:
        session, ran = _begun.pop()
        if not ran:
            session.stop()
        for path in SHM.glob(f"shmq@bench-{os.getpid()}-*"):
            path.unlink(missing_ok=True)
