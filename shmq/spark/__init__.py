"""The data pipeline on Spark: ``pip install 'shmq[spark]'``.

:func:`session` makes a session that is ready for it. In any session ``format("shmq")`` reads
and writes queues, and ``format("dmsq")`` reads the files of durable queues; docs/spark.md has
their options and columns. Importing this imports nothing of Spark.
"""

from shmq.spark.session import session

__all__ = ["session"]
