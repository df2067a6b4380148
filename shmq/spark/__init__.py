"""The data pipeline on Spark: ``pip install 'shmq[spark]'``.

:func:`session` makes a session that is ready for it, and :func:`register` makes one ready
that you have: in it ``format("shmq")`` reads and writes queues, and ``format("dmsq")`` reads the
files of durable queues; docs/spark.md has their options and columns. :func:`decode` makes columns
of bodies. Importing this imports nothing of Spark.
"""

from shmq.spark.decode import decode
from shmq.spark.session import register, session

__all__ = ["decode", "register", "session"]
