"""A cache of cachelib in a table, for Flask-Session and Flask-Caching: ``shmq[cachelib]``.

from shmq.extras.cachelib import ShmqCache

cache = ShmqCache("shmq:///cache")
"""

from shmq.extras.cachelib.cache import ShmqCache as ShmqCache
