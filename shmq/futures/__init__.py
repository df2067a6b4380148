"""A process pool that survives its workers, with the behaviour of concurrent.futures.

>>> from shmq.futures import ProcessPoolExecutor
>>> with ProcessPoolExecutor(2) as pool:
...     pool.submit(pow, 2, 10).result()
1024
"""

from shmq.futures.executor import ProcessPoolExecutor

__all__ = ["ProcessPoolExecutor"]
