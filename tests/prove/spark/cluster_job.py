"""A driver on a cluster, as a team would start it: ``python -m tests.prove.spark.cluster_job``.

It looks into a queue, streams it to Parquet, and writes the Parquet back into another queue, all
over TCP. What the look saw is printed as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import shmq.spark


def main(given: dict[str, Any]) -> None:
    """Do the work that ``given`` says, over the connection that it says."""
    folder, options = Path(given["folder"]), given["options"]
    spark = shmq.spark.session("cluster", master=given["master"], conf=given["conf"])
    try:
        source = spark.read.format("shmq").options(**options).option("subscribe", given["source"])
        frame = source.options(minPartitions=4, columns="all").load()
        rows = frame.select("offset", "value", "delivery_count").collect()
        seen = {row.offset: bytes(row.value).decode() for row in rows}
        print(json.dumps({"rows": len(rows), "values": sorted(seen.values())}), flush=True)

        query = (
            spark.readStream.format("shmq")
            .options(**options)
            .option("subscribe", given["source"])
            .option("maxOffsetsPerTrigger", len(rows) // given["batches"])
            .option("minPartitions", 4)
            .load()
            .writeStream.format("parquet")
            .option("path", str(folder / "rows"))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

        archived = spark.read.parquet(str(folder / "rows")).select("value", "key")
        archived.repartition(4).write.format("shmq").options(**options).option(
            "topic", given["target"]
        ).mode("append").save()
    finally:
        spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
