"""Takes the pictures of the console's pages in docs/operate/console, over a few invented flights.

``python tools/screenshots.py [FOLDER]``; it needs Debian's chromium.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import shmq  # noqa: E402
from tests.support.browser import FLIGHTS, fill, open_page  # noqa: E402
from tests.support.chromium import CHROMIUM, chromium  # noqa: E402
from tests.support.console import Console, console  # noqa: E402
from tests.support.waiting import eventually  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser

#: The name of each picture, its page, and the colours that the reader prefers.
PICTURES: Final[tuple[tuple[str, str, Literal["light", "dark"]], ...]] = (
    ("overview", "/", "light"),
    ("overview-dark", "/", "dark"),
    ("queues", "/queues", "light"),
    ("queue", "/queues/departures", "light"),
    ("messages", "/queues/arrivals/messages?where=header.airport+%3D+%27LGA%27", "light"),
    ("letters", "/dead-letters", "light"),
    ("redrive", "/queues/arrivals.dlq/redrive?where=reason+%3D+%27rejected%27", "light"),
    ("streams", "/streams/positions", "light"),
    ("exchanges", "/exchanges?exchange=flights&key=ua.ewr", "light"),
    ("locks", "/locks", "light"),
    ("host", "/host", "light"),
    ("advice", "/advice?rate=20&peak_rate=100&work_p50=0.2&work_p99=2&producers=request", "light"),
)

_NAMESPACE: Final = "airport"
#: How long flights come in before the pictures are taken, in seconds.
_SECONDS: Final = 20
#: The largest picture, in bytes.
_MOST: Final = 130_000


def traffic(broker: shmq.Broker, seen: threading.Event, stop: threading.Event) -> None:
    """Let flights depart, faster and slower, so that there are rates to be drawn."""
    departures = broker.queue("departures")
    for tick in itertools.count():
        if stop.wait(0.25):
            return
        if tick == _SECONDS * 4:
            seen.set()
        rising = 4 + 3 * (tick // 8 % 3)
        for number in range(rising):
            carrier, airport, flight, _ = FLIGHTS[number % len(FLIGHTS)]
            departures.put({"carrier": carrier, "from": airport, "flight": flight})
        for message in departures.get_many(max(rising - 1, 1), timeout=0):
            message.ack()


def take(browser: Browser, site: Console, folder: Path) -> None:
    """Take each picture."""
    for name, path, colours in PICTURES:
        context = browser.new_context(viewport={"width": 1100, "height": 760}, color_scheme=colours)
        page = context.new_page()
        page.goto(site.url + path, wait_until="load")
        if page.locator("[data-history]").count():
            page.wait_for_selector(".plot canvas")
        target = folder / f"{name}.png"
        page.screenshot(path=target)
        context.close()
        if target.stat().st_size > _MOST:
            raise SystemExit(f"{target} has {target.stat().st_size} bytes: {_MOST} at most")


@contextlib.contextmanager
def airport() -> Iterator[shmq.Broker]:
    """An empty namespace whose name is readable in the pictures; all in it is deleted."""
    with shmq.connect(_NAMESPACE) as broker:
        if broker.queue_names():
            raise SystemExit(f"the namespace {_NAMESPACE!r} has queues: delete them first")
        try:
            yield broker
        finally:
            for name in reversed(broker.queue_names()):
                broker.delete_queue(name)
            for exchange in broker.list_exchanges():
                broker.delete_exchange(exchange.name)
            for stream in broker.list_streams():
                broker.delete_stream(stream.name)


@contextlib.contextmanager
def departing(broker: shmq.Broker) -> Iterator[None]:
    """Flights depart while the block runs, and have for a while when it begins."""
    seen, stop = threading.Event(), threading.Event()
    thread = threading.Thread(target=traffic, args=(broker, seen, stop))
    thread.start()
    try:
        seen.wait(2 * _SECONDS)
        yield
    finally:
        stop.set()
        thread.join()


def main() -> None:
    """Take all pictures."""
    if CHROMIUM is None:
        raise SystemExit("there is no chromium: apt-get install chromium")
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/operate/console"
    folder.mkdir(parents=True, exist_ok=True)
    with airport() as broker:
        held = fill(broker)
        with (
            console(_NAMESPACE) as site,
            departing(broker),
            broker.lock("runway-22L"),
            broker.semaphore("gates", 4) as gates,
            gates,
            chromium() as browser,
        ):
            eventually(lambda: open_page(site, "/queues/arrivals").status == 200, "it was seen")
            take(browser, site, folder)
        for message in held:
            message.ack()


if __name__ == "__main__":
    main()
