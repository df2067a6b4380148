"""The layer of shmq in place of those of channels_redis, whose tests import it."""

from __future__ import annotations

import os
from typing import Any

from shmq.extras.channels import ShmqChannelLayer


class RedisChannelLayer(ShmqChannelLayer):
    """It takes the addresses of servers, and has nothing that belongs to an event loop."""

    def __init__(self, hosts: object = None, **options: Any) -> None:
        super().__init__(os.environ["SHMQ_SUITE_TARGET"], **options)

    async def close_pools(self) -> None:
        pass


RedisPubSubChannelLayer = RedisChannelLayer
