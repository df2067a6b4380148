"""Services that ask each other: one tells prices, another is asked for an offer and asks it.

After ``pip install shmq``, in three terminals; of each service any number may run:

    python app.py prices
    python app.py offers
    python app.py ask tea 3             # 3 tea: 12
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable

import shmq

PRICES = {"tea": 4, "jam": 6}
#: How long a reply is waited for, in seconds. Nobody needs a request after that: its ttl.
TIMEOUT = 5.0


def price(message: shmq.Message) -> int:
    """The price of an item. An error reaches the caller with its text."""
    item = str(message.body)
    if item not in PRICES:
        raise LookupError(f"there is no {item}: there are {', '.join(PRICES)}")
    return PRICES[item]


def offer(broker: shmq.Broker, message: shmq.Message) -> int:
    """What so many of an item cost. The inner wait is shorter than the caller's."""
    item, count = message.body["item"], int(message.body["count"])
    inner = TIMEOUT / 2
    try:
        each: int = broker.request("prices", item, inner, ttl=inner).body
    except shmq.RequestFailed as error:  # not the other service, but what it says
        raise LookupError(error.text) from error
    return each * count


def serve(broker: shmq.Broker, name: str, handler: Callable[[shmq.Message], int]) -> None:
    """Answer until Ctrl-C or SIGTERM; the request at work is answered first."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    queue = broker.ensure_queue(name)
    print(f"{name} are told", flush=True)
    print(f"{broker.serve(queue, handler, stop=stop)} requests were handled")


def ask(broker: shmq.Broker, item: str, count: int) -> int:
    """Ask for an offer; the exit code."""
    broker.ensure_queue("offers")
    try:
        reply = broker.request("offers", {"item": item, "count": count}, TIMEOUT, ttl=TIMEOUT)
    except shmq.NoReply:
        print(f"no answer within {TIMEOUT:g} s: is `app.py offers` running?", file=sys.stderr)
        return 1
    except shmq.RequestFailed as error:
        print(error.text, file=sys.stderr)
        return 1
    print(f"{count} {item}: {reply.body}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("prices")
    commands.add_parser("offers")
    asking = commands.add_parser("ask")
    asking.add_argument("item")
    asking.add_argument("count", type=int, nargs="?", default=1)
    given = parser.parse_args()
    with shmq.connect() as broker:
        broker.ensure_queue("prices")
        if given.command == "ask":
            return ask(broker, given.item, given.count)
        if given.command == "prices":
            serve(broker, "prices", price)
        else:
            serve(broker, "offers", lambda message: offer(broker, message))
    return 0


if __name__ == "__main__":
    sys.exit(main())
