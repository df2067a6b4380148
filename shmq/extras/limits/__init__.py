"""A storage of ``limits`` in a table, for slowapi and Flask-Limiter: ``shmq[limits]``.

limits finds a storage by its URL once its module was imported:

    import shmq.extras.limits

    storage = limits.storage.storage_from_string("shmq://")
"""

from shmq.extras.limits.storage import AsyncShmqStorage as AsyncShmqStorage
from shmq.extras.limits.storage import ShmqStorage as ShmqStorage
