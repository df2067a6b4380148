"""The jobs of ``shmq pipeline`` as declarative datasets: each names its inputs, Spark runs it.

``flights`` is a queue of JSON such as ``{"carrier": "AA", "delay": 17}``.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()


def queue(name: str) -> dict[str, str]:
    """The options of ``format("shmq")`` for a queue at the pipeline's address."""
    url = spark.conf.get("spark.flights.url") or ""
    return {"url": url, "subscribe": name, "columns": "all", "includeHeaders": "true"}


@dp.table(partition_cols=["date"])
def archive() -> DataFrame:
    """Every message of the queue, once: it is acknowledged after it is stored here."""
    rows = spark.readStream.format("shmq").options(**queue("flights")).load()
    return rows.withColumn("date", f.to_date("timestamp"))


@dp.table
def decoded() -> DataFrame:
    """The flights as columns; these are null for a body that is not such JSON."""
    fields = f.from_json(f.col("value").cast("string"), "carrier string, delay double")
    rows = spark.readStream.table("archive")
    return rows.select("topic", "offset", "timestamp", "value", fields.alias("flight"))


@dp.materialized_view
def statistics() -> DataFrame:
    """Counts, sizes and delays per carrier and minute."""
    rows = spark.read.table("decoded").where("flight.carrier is not null")
    return rows.groupBy(f.window("timestamp", "1 minute"), "flight.carrier").agg(
        f.count("*").alias("flights"),
        f.sum(f.octet_length("value")).alias("bytes"),
        f.avg("flight.delay").alias("delay"),
    )


@dp.materialized_view
def hot() -> DataFrame:
    """The carriers with more than three times the mean rate of their minute."""
    rows = spark.read.table("statistics")
    mean = rows.groupBy("window").agg(f.avg("flights").alias("mean"))
    return rows.join(mean, "window").where("flights > 3 * mean")


@dp.materialized_view
def dead_letters() -> DataFrame:
    """The dead letters by kind; they stay in their queue.

    Grouping by shape needs Python functions over batches, which a dataset cannot use; for that
    see ``shmq pipeline triage``.
    """
    letters = spark.read.format("shmq").options(**queue("flights.dlq")).load()
    return letters.groupBy("dead_reason", "dead_queue", "codec").agg(
        f.count("*").alias("count"),
        f.min("dead_at").alias("first"),
        f.max("dead_at").alias("last"),
        f.min(f.col("value").cast("string")).alias("sample"),
    )
