"""One Spark session for the whole run, because it takes ten seconds to start, and its defaults."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.namespaces import own_namespace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]

# Also of the commands and programs that tests start.
os.environ["SPARK_CONF_DIR"] = str(Path(__file__).with_name("spark_conf"))


class _WithoutSpark(pytest.Module):
    def collect(self) -> list[pytest.Item]:
        pytest.skip("there is no pyspark: pip install 'shmq[spark]'", allow_module_level=True)


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    if importlib.util.find_spec("pyspark") is not None:
        return None
    return _WithoutSpark.from_parent(parent, path=module_path)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The shared session: two threads, a second try for each task, 1 GiB."""
    from shmq import spark as shmq_spark

    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        path = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))
        session = shmq_spark.session(
            "shmq's tests",
            master="local[2,2]",
            conf={
                "spark.driver.memory": "1g",
                "spark.sql.shuffle.partitions": 2,
                "spark.sql.warehouse.dir": folder / "warehouse",
                "spark.local.dir": folder / "local",
                "spark.log.level": "ERROR",
            },
        )
        yield session
        session.stop()


@pytest.fixture
def namespace() -> Iterator[str]:
    """A namespace for the test; Spark's Python workers stay in it until they end."""
    with own_namespace(inhabited=True) as name:
        yield name


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """The checkpoint folder of a test's stream."""
    return str(tmp_path / "checkpoint")
