"""Thumbnails by dramatiq over shmq: README.md says how to run it."""

from __future__ import annotations

import dramatiq
from dramatiq.rate_limits import ConcurrentRateLimiter
from dramatiq.results import Results

from shmq.extras.dramatiq import ShmqBroker, ShmqRateLimiterBackend, ShmqResultBackend

broker = ShmqBroker()  # where SHMQ_URL or SHMQ_NAMESPACE says
broker.add_middleware(Results(backend=ShmqResultBackend()))
dramatiq.set_broker(broker)

DISK = ConcurrentRateLimiter(ShmqRateLimiterBackend(), "disk", limit=2)


@dramatiq.actor(store_results=True, max_retries=3, min_backoff=100)
def thumbnail(picture: str, width: int) -> str:
    """Make a thumbnail, at most two at a time on all hosts."""
    with DISK.acquire():  # a third one is retried
        return f"{picture}@{width}"


if __name__ == "__main__":
    sent = [thumbnail.send(f"picture-{number}", 100) for number in range(20)]
    thumbnail.send_with_options(args=("later", 100), delay=2000)
    for message in sent:
        print(message.get_result(block=True, timeout=30_000))
