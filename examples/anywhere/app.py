"""The same application on one host, over TCP and on a cluster: only the URL says where.

After ``pip install shmq``, or ``pip install 'shmq[nats]'`` for a cluster:

    python app.py shop work                                    # a namespace of this host
    python app.py shmq://:TOKEN@broker:9999 work               # a server: `shmq serve`
    python app.py nats://a:4222,b:4222,c:4222/shop work        # a cluster of NATS JetStream

and in another terminal the same with ``order tea 3`` in place of ``work``. It uses what holds
everywhere: docs/integrate/cluster.md has the table.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import uuid

import shmq

TIMEOUT = 30.0


def orders(broker: shmq.Broker) -> shmq.Queue:
    """The queue. A cluster returns what a dead worker holds when its lease is over: a short one."""
    return broker.ensure_queue(
        "orders", visibility_timeout=10, max_deliveries=3, dedupe_window=300, priorities=1
    )


def order(queue: shmq.Queue, item: str, count: int) -> None:
    """Place an order, once: after a lost connection the same id is put again."""
    number = uuid.uuid4().hex
    for attempts_left in (2, 1, 0):
        try:
            queue.put({"item": item, "count": count}, timeout=TIMEOUT, dedupe_id=number)
        except shmq.ConnectionLost:
            if not attempts_left:
                raise
        else:
            print("ordered:", count, item, flush=True)
            return


def work(queue: shmq.Queue, idle: float | None) -> None:
    """Pack what is ordered, until nothing came for ``idle`` seconds."""
    for message in queue.consume(prefetch=1, timeout=idle):
        try:
            with message:
                print("packed:", message.body["count"], message.body["item"], flush=True)
        except shmq.LeaseExpired:  # too slow: somebody else packs it again
            print("not acknowledged in time", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url")
    commands = parser.add_subparsers(dest="command", required=True)
    ordering, working = commands.add_parser("order"), commands.add_parser("work")
    ordering.add_argument("item")
    ordering.add_argument("count", type=int, nargs="?", default=1)
    working.add_argument("--idle", type=float, help="end after so many seconds without an order")
    given = parser.parse_args()
    try:
        with shmq.connect(given.url) as broker, contextlib.suppress(KeyboardInterrupt):
            if given.command == "order":
                order(orders(broker), given.item, given.count)
            else:
                work(orders(broker), given.idle)
    except shmq.ShmqError as error:  # its text says what to do
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
