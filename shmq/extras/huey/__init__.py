"""Huey over shmq: the extra ``shmq[huey]``.

from shmq.extras.huey import ShmqHuey

huey = ShmqHuey("my-app")
"""

from shmq.extras.huey.huey import ShmqHuey
from shmq.extras.huey.storage import ShmqStorage

__all__ = ["ShmqHuey", "ShmqStorage"]
