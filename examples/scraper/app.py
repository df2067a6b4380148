"""A scraper: each host is asked at a polite rate, and again later if it is busy.

In this folder, after ``pip install shmq``:

    python app.py http://localhost:8000/a http://localhost:8000/b   # adds URLs
    shmq worker app:scrape              # until Ctrl-C; any number, also on other hosts (SHMQ_URL)
    shmq peek pages                     # what was fetched
    shmq peek urls.dlq                  # what is not there, or was tried five times
"""

from __future__ import annotations

import functools
import os
import sys
import time
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import shmq

#: The seconds from one request to a host to the next.
PAUSE = float(os.environ.get("PAUSE", "1"))
#: The longest wait for a host's next byte, or for room in a queue, in seconds.
TIMEOUT = 10.0
#: The largest page, in bytes.
LARGEST = 1 << 20
#: Answers after which the same request may succeed later.
BUSY = {408, 425, 429, 500, 502, 503, 504}

broker = shmq.connect()


@functools.cache
def urls() -> shmq.Queue:
    """What is to be fetched: each URL once a day."""
    return broker.ensure_queue(
        "urls",
        if_different="alter",
        dedupe_window=86400,
        max_deliveries=5,
        retry_delay=1,
        retry_delay_max=300,
    )


@functools.cache
def pages() -> shmq.Queue:
    """What was fetched."""
    return broker.ensure_queue("pages", arena_bytes=256 << 20, dedupe_window=86400)


def add(address: str) -> None:
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise SystemExit(f"{address}: give a URL that begins with http:// or https://")
    # One message of a group is in work at a time, by any worker: one request to a host.
    put = urls().put(address, group=parts.netloc, dedupe_id=address, timeout=TIMEOUT)
    print("known already:" if put.duplicate else "added:", address)


def fetch(address: str) -> bytes:
    """The page. Raises Retry if it may be there later, Reject if it will not."""
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT) as answer:  # http, as `add` says
            page: bytes = answer.read(LARGEST + 1)
    except urllib.error.HTTPError as error:
        if error.code not in BUSY:
            raise shmq.Reject(f"{address}: {error.code} {error.reason}") from error
        after = error.headers.get("Retry-After", "")  # None: the queue's delay, which doubles
        raise shmq.Retry(min(int(after), 3600) if after.isdecimal() else None) from error
    except OSError as error:  # no connection, or no answer in time
        raise shmq.Retry from error
    if len(page) > LARGEST:
        raise shmq.Reject(f"{address}: more than {LARGEST} bytes")
    return page


@shmq.worker("urls", processes=4, timeout=60)
def scrape(message: shmq.Message) -> None:
    """Fetch one page; a page that was put before a kill is not put again."""
    begun = time.monotonic()
    try:
        page = fetch(message.body)
        headers = {"url": message.body}
        pages().put(page, timeout=TIMEOUT, headers=headers, dedupe_id=message.body)
    except shmq.Full:
        raise shmq.Retry from None  # nobody takes the pages
    finally:  # its group, the host, waits meanwhile
        time.sleep(max(0.0, begun + PAUSE - time.monotonic()))


if __name__ == "__main__":
    for given in sys.argv[1:]:
        add(given)
