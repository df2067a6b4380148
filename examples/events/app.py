"""Events for three groups: each reads all of them, in the order of a key, at its own pace.

After ``pip install shmq``, in as many terminals as you like:

    python app.py read billing          # and ``mail``, ``audit``; two of one group share the work
    python app.py publish --orders 20
    shmq stream groups orders           # how far each group is behind
"""

from __future__ import annotations

import argparse
import contextlib
from typing import Any

import shmq

GROUPS = ("billing", "mail", "audit")


def orders(broker: shmq.Broker) -> shmq.Stream:
    """The stream; what a group has not read stays, and a full stream holds up the publisher."""
    return broker.ensure_stream("orders", partitions=4, overflow="block")


def publish(stream: shmq.Stream, count: int) -> None:
    for number in range(count):
        customer = f"customer-{number % 5}"
        event = {"order": number, "customer": customer, "price": 10 + number}
        stream.append(event, key=customer, timeout=30)  # Full if a group is stuck for so long


def handle(group: str, event: dict[str, Any]) -> str:
    """What a group does with an event. It may see one twice, if it is killed before a commit."""
    if group == "billing":
        return f"{event['customer']} owes {event['price']}"
    if group == "mail":
        return f"to {event['customer']}: your order {event['order']}"
    return f"order {event['order']} was placed"


def read(stream: shmq.Stream, group: str, idle: float | None) -> None:
    """Handle what comes, until there was nothing for ``idle`` seconds."""
    with stream.group(group).join() as member:
        while True:
            batches = member.poll(limit=100, timeout=idle or 5.0)  # a sign of life, too
            if not batches and idle:
                return
            for records in batches:
                for record in records:
                    print(handle(group, record.body), flush=True)
            try:
                member.commit()  # after the work
            except shmq.MemberFenced:  # we were away too long: another member repeats these
                print("another member has these partitions now", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("publish").add_argument("--orders", type=int, default=20)
    reading = commands.add_parser("read")
    reading.add_argument("group", choices=GROUPS)
    reading.add_argument("--idle", type=float, help="end after so many seconds without an event")
    given = parser.parse_args()
    with shmq.connect() as broker, contextlib.suppress(KeyboardInterrupt):
        stream = orders(broker)
        for name in GROUPS:  # before the first event, so that the stream keeps it for each
            stream.group(name)
        if given.command == "publish":
            publish(stream, given.orders)
        else:
            read(stream, given.group, given.idle)


if __name__ == "__main__":
    main()
