"""Registers ``format("shmq")``: Spark imports each module ``pyspark_*`` that it can find.

Spark does so in every session, whether the format is used or not, so this imports nothing
but the class.
"""

from shmq.spark.source import ShmqSource as DefaultSource

__all__ = ["DefaultSource"]
