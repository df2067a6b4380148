"""Registers ``format("dmsq")``: Spark imports each module ``pyspark_*`` that it can find.

Spark does so in every session, whether the format is used or not, so this imports nothing
but the class.
"""

from shmq.spark.dmsq.source import DmsqSource as DefaultSource

__all__ = ["DefaultSource"]
