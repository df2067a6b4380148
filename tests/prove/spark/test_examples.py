"""The project under examples/ runs as it stands, with Spark's own command."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

import shmq
from tests.support.examples import command, printed
from tests.support.processes import environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("grpc_status", "zstandard", "yaml")),
    reason="there is no Spark Connect: pip install 'shmq[spark-pipelines]'",
)


def run(folder: Path, namespace: str) -> None:
    """Run the project once; its tables are in the folder."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ran = subprocess.run(
        ["sh", str(ROOT / "examples/pipelines/run.sh"), str(folder)],
        env={
            key: value
            for key, value in environment(
                PATH=path, SHMQ_NAMESPACE=namespace, DRIVER_MEMORY="768m"
            ).items()
            if key != "SPARK_CONF_DIR"
        },
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-5000:]


def test_the_project_of_declarative_pipelines_runs(
    spark: SparkSession, broker: shmq.Broker, namespace: str, tmp_path: Path
) -> None:
    flights = broker.create_queue("flights", max_deliveries=1)
    for number in range(20):
        carrier = "AA" if number else "BB"
        flights.put({"carrier": carrier, "delay": number}, codec="json")
    for _ in range(2):
        flights.get().reject()

    run(tmp_path, namespace)

    tables = tmp_path / "tables"
    archived = spark.read.parquet(str(tables / "archive"))
    assert archived.count() == archived.select("offset").distinct().count() == 18
    found = {
        row.carrier: row.flights
        for row in spark.read.parquet(str(tables / "statistics"))
        .groupBy("carrier")
        .agg({"flights": "sum"})
        .withColumnRenamed("sum(flights)", "flights")
        .collect()
    }
    assert found == {"AA": 18}
    kinds = spark.read.parquet(str(tables / "dead_letters")).collect()
    assert [(row["count"], row.dead_reason) for row in kinds] == [(2, "rejected")]
    assert flights.qsize() == 0
    assert broker.queue("flights.dlq").qsize() == 2


def test_the_pipeline_writes_each_order_into_parquet_once(
    broker: shmq.Broker, namespace: str, tmp_path: Path
) -> None:
    printed("parquet", namespace, "put", "--orders", "20", timeout=300)
    broker.queue("orders").put(b"no order")
    once = (str(tmp_path), "--once")
    with command("parquet", namespace, tmp_path / "log", "app.py", "run", *once) as running:
        assert running.process.wait(300) == 0, running.log()
        assert "replaced a statically registered data source" not in running.log()
    rows = duckdb.read_parquet(f"{tmp_path}/data/**/*.parquet")
    found = rows.filter("decode_problem IS NULL").order('"order"').fetchall()
    names = rows.columns
    assert [row[names.index("order")] for row in found] == list(range(20))
    assert rows.filter("decode_problem IS NOT NULL").count("*").fetchall() == [(1,)]
    assert broker.queue("orders").stats().acked == 21
