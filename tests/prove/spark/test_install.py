"""The formats are there however shmq is installed, and from any directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import shmq
from shmq.storage.paths import snapshot_name
from tests.support.queue_files import Building, put

ROOT = Path(__file__).resolve().parents[3]

#: Hides shmq from all but a finder, as the editable installs of many tools do: it can be
#: imported, and is not in any folder in which Spark looks for formats.
FINDER = f"""
import importlib.util, sys

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "shmq":
            return None
        return importlib.util.spec_from_file_location(name, {str(ROOT / "shmq/__init__.py")!r})

sys.path[:] = [folder for folder in sys.path if folder != {str(ROOT)!r}]
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
live = spark.read.format("shmq").options(url=namespace, subscribe="orders").load()
kept = spark.read.format("dmsq").load(folder + "/kept")
print([bytes(row.value) for row in live.collect()], [row.offset for row in kept.collect()])
spark.stop()
"""


def outside(folder: Path, program: str, *arguments: str, path: str | None = None) -> str:
    """What the program prints that is run in the folder."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", program, *arguments]
    run = subprocess.run(
        command,
        cwd=folder,
        env=env if path is None else {**env, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_spark_finds_both_formats_of_an_editable_install_from_any_directory(
    tmp_path: Path,
) -> None:
    program = (
        "import pkgutil\n"
        "print(sorted(m.name for m in pkgutil.iter_modules() if m.name.startswith('pyspark_')))"
    )
    assert outside(tmp_path, program) == "['pyspark_dmsq', 'pyspark_shmq']\n"


def test_a_session_of_shmq_has_both_formats_where_spark_finds_neither(
    tmp_path: Path, namespace: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(FINDER)
    (tmp_path / "kept").mkdir()
    made = Building.snapshot(2).batch(put(1, b"1"), put(2, b"2")).close()
    (tmp_path / "kept" / snapshot_name("q")).write_bytes(bytes(made))
    with shmq.connect(namespace) as broker:
        broker.create_queue("orders").put(b"tea")
        printed = outside(tmp_path, READING, namespace, str(tmp_path), path=str(tmp_path))
        broker.delete_queue("orders")

    assert printed == "[b'tea'] [1, 2]\n"
