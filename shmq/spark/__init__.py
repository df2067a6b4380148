"""The data pipeline on Spark: ``pip install 'shmq[spark]'``.

:func:`session` makes a session with both formats; :func:`register` adds them to a session that
you made. ``format("shmq")`` reads and writes queues and streams, and ``format("dmsq")`` reads
the files of durable queues; docs/spark.md has their options and columns. :func:`decode` turns
bodies into columns. Importing this package imports nothing of Spark.
"""

from shmq.spark.decode import decode
from shmq.spark.session import register, session

__all__ = ["decode", "register", "session"]
