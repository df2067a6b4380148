"""Huey over shmq: the extra ``shmq[huey]``.

from shmq.extras.huey import ShmqHuey

huey = ShmqHuey("my-app")
"""

from shmq.extras.huey.huey import ShmqHuey as ShmqHuey
from shmq.extras.huey.storage import ShmqStorage as ShmqStorage
