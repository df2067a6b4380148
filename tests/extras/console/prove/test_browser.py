"""The pages in a real browser: for everyone, on every screen, and with nothing from elsewhere."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import pytest

import shmq
from shmq.server.config.tokens import make_token
from tests.support.browser import HOSTILE, PAGES, fill, open_page
from tests.support.chromium import CHROMIUM, chromium
from tests.support.console import Console, console
from tests.support.lock_holder import holding
from tests.support.namespaces import own_namespace
from tests.support.processes import is_stopped
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [
    pytest.mark.prove,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: apt-get install chromium"),
]

#: The place of what has the focus, among all that can be followed, pressed or filled in.
_FOCUSED = (
    "[...document.querySelectorAll('a[href], button, input')].indexOf(document.activeElement)"
)

#: A screen, and the colours that its user prefers.
SCREENS = [(1280, "light"), (1280, "dark"), (320, "light")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    with own_namespace() as name:
        yield name


class Failing:
    """A consumer whose handler fails, until the block ends; another queue has one message."""

    def __init__(self, broker: shmq.Broker) -> None:
        self._mail = broker.create_queue("mail", max_deliveries=2, capacity=100_000)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)
        broker.create_queue("invoices").put({"invoice": 1})
        orders = broker.create_queue("orders")
        orders.put_many([{"order": number} for number in range(40)])
        for message in orders.get_many(3, timeout=0):
            message.ack()

    def _work(self) -> None:
        while not self._stop.wait(0.05):
            self._mail.put_many([{"to": "ann@example.org", "subject": "Your order"}] * 3)
            for place, message in enumerate(self._mail.get_many(5, timeout=0)):
                if place == 4:
                    message.ack()
                else:
                    message.nack(error=ValueError("SMTP <refused> by relay.example.org:25"))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture(scope="module")
def failing() -> Iterator[Console]:
    with (
        own_namespace() as name,
        shmq.connect(name) as broker,
        Failing(broker),
        console(name) as site,
    ):
        eventually(
            lambda: b"Newest error" in open_page(site, "/queues/mail").content,
            "its errors are seen",
        )
        yield site


@pytest.fixture(scope="module")
def airport(namespace: str) -> Iterator[Console]:
    with shmq.connect(namespace) as broker:
        held = fill(broker)
        with console(namespace, "--prefix", "/ops") as site:
            eventually(lambda: open_page(site, "/queues/arrivals").status == 200, "it was observed")
            yield site
        for message in held:
            message.ack()


class Watched:
    """A page with what went wrong in it."""

    def __init__(self, page: Page, host: str) -> None:
        self.page = page
        self.problems: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: self._asked(request.url, host))

    def _said(self, message: Any) -> None:
        if message.type in {"error", "warning"}:
            self.problems.append(f"{message.text} at {message.location}")

    def _asked(self, url: str, host: str) -> None:
        if urlsplit(url).netloc != host and not url.startswith("data:"):
            self.problems.append(f"a request to {url}")


@contextlib.contextmanager
def opened(browser: Browser, site: Console, path: str, **how: Any) -> Iterator[Watched]:
    """A page in a browser of its own; nothing may have gone wrong in it at the end."""
    context = browser.new_context(**how)
    try:
        watched = Watched(context.new_page(), urlsplit(site.url).netloc)
        watched.page.goto(site.url + path, wait_until="load")
        yield watched
        assert watched.problems == [], path
    finally:
        context.close()


def screen(width: int, colours: str) -> dict[str, Any]:
    return {"viewport": {"width": width, "height": 800}, "color_scheme": colours}


def top_of(page: Page, text: str) -> float:
    """Where the first visible element with ``text`` begins, in pixels from the top.

    An update of the page replaces elements, and one that was just found may have no box any more.
    """
    boxes: list[Any] = []

    def found() -> bool:
        boxes.append(page.locator(f"main >> text={text} >> visible=true").first.bounding_box())
        return boxes[-1] is not None

    eventually(found, f"the page shows {text!r}")
    return float(boxes[-1]["y"])


@pytest.mark.parametrize(("width", "colours"), SCREENS)
def test_no_page_has_a_barrier_or_scrolls_sideways(
    browser: Browser, airport: Console, width: int, colours: str
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    axe, barriers = Axe(), []
    for path in (*PAGES, "/queues/nowhere"):
        context = browser.new_context(**screen(width, colours))
        page = context.new_page()
        page.goto(airport.url + path, wait_until="load")
        found = axe.run(page)
        if found.violations_count:
            barriers.append(f"{path}: {found.generate_report()}")
        if page.evaluate("document.documentElement.scrollWidth") > width:
            barriers.append(f"{path} scrolls sideways")
        context.close()
    assert barriers == [], "\n".join(barriers)


@pytest.mark.parametrize(("width", "colours"), [*SCREENS[:2], (360, "light"), (360, "dark")])
@pytest.mark.parametrize("path", ["/", "/queues", "/queues/mail", "/dead-letters"])
def test_the_first_screen_says_which_queue_fails_and_why(
    browser: Browser, failing: Console, tmp_path: Path, path: str, width: int, colours: str
) -> None:
    with opened(browser, failing, path, **screen(width, colours)) as watched:
        page = watched.page
        if path == "/queues/mail":
            page.wait_for_selector(".plot canvas")
        shot = f"{path.strip('/').replace('/', '-') or 'overview'}-{width}-{colours}.png"
        page.screenshot(path=Path(os.environ.get("SHMQ_SCREENSHOTS", tmp_path)) / shot)
        for text in ("mail", "ValueError: SMTP <refused>"):
            assert top_of(page, text) < 800, text


@pytest.fixture(scope="module")
def locked() -> Iterator[tuple[Console, int]]:
    """A console over locks, and the pid of the holder of one, which is stopped."""
    with (
        own_namespace() as name,
        shmq.connect(name) as broker,
        holding(name, "nightly-report") as pid,
        console(name) as site,
    ):
        lock, licences = broker.lock("nightly-report"), broker.semaphore("licences", 4)
        broker.lock("customer-4711").acquire()
        with licences, licences:
            waiting = threading.Thread(target=lock.acquire)
            waiting.start()
            eventually(lambda: len(lock.waiters()) == 1, "it waits")
            os.kill(pid, signal.SIGSTOP)
            eventually(lambda: is_stopped(pid), "it is stopped")
            yield site, pid
            os.kill(pid, signal.SIGKILL)
            waiting.join()


@pytest.mark.parametrize(("width", "colours"), [*SCREENS[:2], (360, "light"), (360, "dark")])
def test_the_first_screen_says_which_lock_has_a_stopped_holder(
    browser: Browser, locked: tuple[Console, int], tmp_path: Path, width: int, colours: str
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    site, pid = locked
    with opened(browser, site, "/locks", **screen(width, colours)) as watched:
        page = watched.page
        shot = f"locks-{width}-{colours}.png"
        page.screenshot(path=Path(os.environ.get("SHMQ_SCREENSHOTS", tmp_path)) / shot)
        for text in ("nightly-report is held by a process that is stopped", f"{pid}"):
            assert top_of(page, text) < 800, text
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()


def test_no_page_asks_another_host_or_makes_an_error(browser: Browser, airport: Console) -> None:
    for path in PAGES:
        with opened(browser, airport, path) as watched:
            assert watched.page.title().endswith("shmq")


def test_without_scripts_each_page_says_the_same(browser: Browser, airport: Console) -> None:
    for path in PAGES:
        words = []
        for scripts in (True, False):
            with opened(browser, airport, path, java_script_enabled=scripts) as watched:
                words.append(
                    {
                        text.strip()
                        for text in watched.page.locator(
                            "h1, h2, thead th, dt, label"
                        ).all_inner_texts()
                    }
                )
        assert words[0] >= words[1] and words[1], path


def test_the_keyboard_reaches_every_link_and_shows_where_it_is(
    browser: Browser, airport: Console
) -> None:
    for path in PAGES:
        with opened(browser, airport, path) as watched:
            page = watched.page
            wanted = page.locator("a[href]:visible, button:visible, input:visible").count()
            others = "select:visible, textarea:visible, summary:visible, [tabindex='0']:visible"
            page.keyboard.press("Tab")
            assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
            reached = set()
            for _ in range(wanted + page.locator(others).count() + 3):
                reached.add(page.evaluate(_FOCUSED))
                page.keyboard.press("Tab")
            reached.discard(-1)
            assert len(reached) >= wanted, path


def test_the_rates_are_drawn(browser: Browser, airport: Console) -> None:
    with opened(browser, airport, "/queues/arrivals") as watched:
        watched.page.wait_for_selector(".plot canvas")


def test_what_changes_on_a_page_is_of_one_reading(browser: Browser, failing: Console) -> None:
    def read(page: Page) -> dict[str, Any]:
        found: dict[str, Any] = page.evaluate(
            """() => {
              const all = (kind) => Array.from(
                document.querySelectorAll(kind), (one) => one.textContent);
              const text = (one) => document.querySelector(one).textContent;
              return {
                seen: text("#seen time").slice(11, 19),
                tiles: all("#rates-now dd"),
                dead: text("#numbers .bad dd").trim(),
                findings: text("#findings"),
                legend: all(".u-legend .u-value"),
              };
            }"""
        )
        return found

    with opened(browser, failing, "/queues/mail", **screen(1280, "light")) as watched:
        page = watched.page
        page.wait_for_selector(".u-legend .u-value >> text=:")
        seen = set()
        for _ in range(3):
            found = read(page)
            seen.add(found["seen"])
            clock, *rates = found["legend"]
            assert clock == found["seen"]
            for tile, rate in zip(found["tiles"], rates, strict=True):
                assert float(tile.replace(",", "")) == pytest.approx(float(rate), abs=0.6)
            assert f"{found['dead']} dead letter" in found["findings"]
            page.wait_for_function(
                "at => document.querySelector('#seen time').textContent.slice(11, 19) !== at",
                arg=found["seen"],
            )
        assert len(seen) == 3


def test_a_page_that_is_not_updated_says_so(browser: Browser, failing: Console) -> None:
    with opened(browser, failing, "/queues/mail", **screen(1280, "light")) as watched:
        page = watched.page
        page.evaluate("getSelection().selectAllChildren(document.querySelector('#numbers'))")
        page.wait_for_selector("#seen:has-text('not updated: text is selected')")
        page.evaluate("getSelection().removeAllRanges()")
        page.wait_for_selector("#seen:not(:has-text('not updated'))")


def test_numbers_change_while_the_page_is_open(
    browser: Browser, airport: Console, namespace: str
) -> None:
    with opened(browser, airport, "/queues") as watched, shmq.connect(namespace) as broker:
        queue = broker.create_queue("fresh")
        watched.page.wait_for_selector("text=fresh", timeout=20_000)
        queue.close()


def test_a_message_opens_on_click(browser: Browser, failing: Console) -> None:
    with opened(
        browser, failing, "/queues/mail.dlq/messages", java_script_enabled=False
    ) as watched:
        first = watched.page.locator(".message").first
        assert not first.locator("pre").first.is_visible()
        first.locator("summary").first.click()
        first.locator("pre").last.wait_for(state="visible")
        assert "ann@example.org" in first.inner_text()


def test_a_body_runs_no_script(browser: Browser, airport: Console, namespace: str) -> None:
    with shmq.connect(namespace) as broker:
        broker.create_queue("hostile").put(HOSTILE, headers={"x": HOSTILE})
        with opened(browser, airport, "/queues/hostile/messages") as watched:
            assert watched.page.locator(".message img, .message script").count() == 0


def test_a_message_is_put_and_a_queue_purged_and_deleted(
    browser: Browser, airport: Console, namespace: str
) -> None:
    with shmq.connect(namespace) as broker:
        queue = broker.create_queue("driven")
        with opened(browser, airport, "/queues/driven/put", java_script_enabled=False) as watched:
            page = watched.page
            page.fill("textarea", '{"flight": 1545}')
            page.click("text=Show what would be put")
            assert queue.qsize() == 0
            page.click("text=Put the message")
            page.wait_for_selector("[role=status]:has-text('was put')")
            assert queue.qsize() == 1
            for verb, label, done in (
                ("Purge", "Remove 1 message", queue.empty),
                ("Delete", "Delete the queue", lambda: "driven" not in broker.queue_names()),
            ):
                page.goto(f"{airport.url}/queues/driven")
                page.click(f".actions >> text={verb}")
                page.click(f"button >> text={label}")
                eventually(done, label)  # the click may end before the answer


def test_dead_letters_are_sent_back(browser: Browser, airport: Console, namespace: str) -> None:
    with shmq.connect(namespace) as broker:
        queue = broker.create_queue("lost")
        queue.put(b"1")
        queue.get(timeout=0).reject()
        eventually(lambda: broker.queue("lost.dlq").qsize() == 1, "a dead letter")
        eventually(lambda: b"lost.dlq" in open_page(airport, "/dead-letters").content, "it is seen")
        with opened(browser, airport, "/dead-letters?queue=lost.dlq") as watched:
            watched.page.click("text=Count and send back")
            watched.page.click("button >> text=Send back 1 dead letter")
            eventually(lambda: queue.qsize() == 1, "it is sent back")


def test_one_logs_in_and_out(browser: Browser, namespace: str) -> None:
    token = make_token()
    with (
        console(namespace, tokens={token: {"consume": ["*"]}}) as site,
        opened(browser, site, "/queues", **screen(320, "light")) as watched,
    ):
        from axe_playwright_python.sync_playwright import Axe

        page = watched.page
        assert Axe().run(page).violations_count == 0
        page.fill("#token", token)
        page.keyboard.press("Enter")
        page.wait_for_selector("h1:has-text('Queues')")
        page.click("text=Log out")
        page.wait_for_selector("h1:has-text('Log in')")
