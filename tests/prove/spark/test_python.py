"""Spark's Python processes are of the Python that made the session, whatever the path has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.processes import ROOT

PROGRAM = """
from shmq import spark

session = spark.session("python", master="local[1]", conf={"spark.driver.memory": "512m"})
try:
    session.read.format("shmq").option("subscribe", "nothing").load().count()
except Exception as error:
    print("there is no queue 'nothing'" in str(error))
session.stop()
"""


def test_formats_are_found_though_the_paths_python3_knows_nothing_of_them(
    tmp_path: Path, namespace: str
) -> None:
    stranger = tmp_path / "python3"
    stranger.write_text("#!/bin/sh\nexit 1\n")
    stranger.chmod(0o700)
    without = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK")}

    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={
            **without,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "SHMQ_NAMESPACE": namespace,
        },
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout == "True\n", ran.stderr
