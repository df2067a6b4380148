"""What a page holds, read as a browser without scripts reads it; and invented data to show."""

from __future__ import annotations

import html.parser
from typing import Any
from urllib.parse import urlencode

import shmq
from tests.support.console import Console, Reply

#: What must be a text wherever it is shown.
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\u202e'\"&"

#: Each page, over what `fill` makes.
PAGES = (
    "/",
    "/queues",
    "/queues/arrivals",
    "/queues/arrivals/messages",
    "/queues/arrivals/put",
    "/queues/arrivals/alter",
    "/queues/arrivals/purge",
    "/queues/arrivals/delete",
    "/queues/arrivals/redrive",
    "/dead-letters",
    "/streams",
    "/streams/positions",
    "/exchanges?exchange=flights&key=ua.ewr",
    "/exchanges/flights",
    "/locks",
    "/host",
    "/advice?rate=100&order=key&survives=machine",
)

#: A few of the demo's flights.
FLIGHTS = (
    ("UA", "EWR", 1545, 11),
    ("UA", "LGA", 1714, 20),
    ("AA", "JFK", 1141, 33),
    ("B6", "JFK", 725, -18),
    ("DL", "LGA", 461, -25),
)


def fill(broker: shmq.Broker) -> list[shmq.Message]:
    """Queues with messages, dead letters, a stream with a group, and exchanges."""
    arrivals = broker.create_queue("arrivals", visibility_timeout=3600.0, max_deliveries=1)
    broker.create_queue("departures")
    for carrier, airport, number, delay in FLIGHTS * 3:
        body = {"carrier": carrier, "from": airport, "flight": number, "delay": delay}
        arrivals.put(body, headers={"airport": airport}, group=carrier)
    for place, message in enumerate(arrivals.get_many(3, timeout=0)):
        message.reject() if place else message.nack()
    _streams(broker)
    _exchanges(broker)
    return list(arrivals.get_many(2, timeout=0))


def _streams(broker: shmq.Broker) -> None:
    positions = broker.create_stream("positions", 2)
    group = positions.group("map", start="earliest")
    with group.join("tower") as member:
        for carrier, airport, number, _ in FLIGHTS:
            positions.append(f"{number} from {airport}", key=carrier)
        member.poll(limit=2, timeout=1.0)
        member.commit()


def _exchanges(broker: shmq.Broker) -> None:
    late = broker.create_exchange("unmatched", "fanout")
    late.bind("departures")
    flights = broker.create_exchange("flights", "topic", alternate="unmatched")
    flights.bind("arrivals", key="*.ewr")
    flights.bind("departures", key="ua.#")


class Page(html.parser.HTMLParser):
    """The links, forms and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._parts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._parts.append(" ")

    def handle_endtag(self, tag: str) -> None:
        self._parts.append(" ")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        self._parts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self._parts).split())

    @property
    def links(self) -> list[str]:
        """Where the page leads to, and what it loads."""
        return [
            value
            for tag, found in self.tags
            for name in ("href", "src", "action")
            if (value := found.get(name)) is not None and (tag, name) != ("link", "data:,")
        ]

    def fields(self, action: str) -> dict[str, str]:
        """The fields of the form that is sent there, as they are filled in."""
        inside, found = False, {}
        for tag, given in self.tags:
            if tag == "form":
                inside = given.get("action") == action
            if inside and tag == "input" and (name := given.get("name")) is not None:
                found[name] = given.get("value") or ""
        return found


def open_page(site: Console, path: str, cookie: str | None = None) -> Reply:
    """What a browser gets."""
    return site.ask("GET", path, headers={"Accept": "text/html", "Cookie": cookie})


def form_of(site: Console, path: str, cookie: str | None = None) -> dict[str, str]:
    """The fields of the form on a page that is sent to the page itself."""
    found = open_page(site, path, cookie)
    assert found.status == 200, found
    prefix = site.url.partition("//")[2].partition("/")[1:]
    action = "".join(prefix) + path.partition("?")[0]
    return Page(found.content.decode()).fields(action)


def send(site: Console, path: str, cookie: str | None = None, **fields: Any) -> Reply:
    """Send a form as a browser does."""
    return site.ask(
        "POST",
        path,
        urlencode(fields).encode(),
        {
            "Accept": "text/html",
            "Content-Type": "application/x-www-form-urlencoded",
            "Cookie": cookie,
            "X-Shmq-CSRF": None,
        },
    )
