"""An outbox: a row and the message about it are written in one transaction of the database.

A relay puts the messages into a durable queue. If it is killed between the put and the note that it
was done, the next one puts the message again with the same id, and the queue takes it once.

After ``pip install shmq``:

    python app.py order shop.db tea 3   # the order and its message, both or neither
    python app.py relay shop.db         # any number, until Ctrl-C
    shmq consume placed -n 1
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sqlite3
import time

import shmq

TIMEOUT = 10.0
TABLES = """
CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, item TEXT, count INTEGER);
CREATE TABLE IF NOT EXISTS outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT);
"""


def opened(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=TIMEOUT)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")  # a commit is on disk
    database.executescript(TABLES)
    return database


def order(database: sqlite3.Connection, item: str, count: int) -> int:
    """Place an order; its number."""
    with database:  # commits, or rolls back if anything raises
        made = database.execute("INSERT INTO orders (item, count) VALUES (?, ?)", (item, count))
        event = {"order": made.lastrowid, "item": item, "count": count}
        database.execute("INSERT INTO outbox (body) VALUES (?)", (json.dumps(event),))
    assert made.lastrowid is not None
    return made.lastrowid


def relay(database: sqlite3.Connection, placed: shmq.Queue) -> int:
    """Put what is in the outbox, in its order; how many messages that were."""
    rows = database.execute("SELECT id, body FROM outbox ORDER BY id LIMIT 100").fetchall()
    for number, body in rows:
        # On disk before the row goes. An exception, as Full, leaves the row for the next time.
        placed.put(json.loads(body), dedupe_id=f"outbox {number}", confirm="disk",
                   codec="json", timeout=TIMEOUT)  # fmt: skip
        with database:
            database.execute("DELETE FROM outbox WHERE id = ?", (number,))
    return len(rows)


def run(database: sqlite3.Connection, broker: shmq.Broker, *, once: bool) -> None:
    # The window is longer than any relay may be away between its put and its delete.
    placed = broker.ensure_queue("placed", durability="journal", dedupe_window=86400)
    while True:
        try:
            done = relay(database, placed)
        except (shmq.Full, shmq.NotConfirmed, shmq.NoSpace) as error:
            print(f"again in a second: {error}", flush=True)
            done = 0
        else:
            if done:
                print(f"put {done}", flush=True)
        if once and not done:
            return
        if not done:
            time.sleep(1.0)  # the outbox is looked at each second


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    ordering, relaying = commands.add_parser("order"), commands.add_parser("relay")
    for command in (ordering, relaying):
        command.add_argument("database")
    ordering.add_argument("item")
    ordering.add_argument("count", type=int)
    relaying.add_argument("--once", action="store_true", help="end when the outbox is empty")
    given = parser.parse_args()
    with contextlib.closing(opened(given.database)) as database:
        if given.command == "order":
            print("order", order(database, given.item, given.count))
            return
        with shmq.connect() as broker, contextlib.suppress(KeyboardInterrupt):
            run(database, broker, once=given.once)


if __name__ == "__main__":
    main()
