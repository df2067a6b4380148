"""The site as it is built: nothing from elsewhere, every link, search, versions, the first page."""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest

import shmq
from tests.support.chromium import CHROMIUM, chromium
from tools.site.__main__ import list_versions
from tools.site.pages import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

#: What loads something, by element and attribute. A link that a reader follows loads nothing.
LOADS = {
    ("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("video", "src"),
    ("link", "href"), ("object", "data"), ("use", "href"), ("form", "action"), ("img", "srcset"),
}  # fmt: skip
ELSEWHERE = re.compile(r"(?:https?:)?//")


class Parsed(HTMLParser):
    """The names, the links and what is loaded of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.names.add(value)
            elif (tag, name) == ("a", "href") and value is not None:
                self.links.append(value)
            elif (tag, name) in LOADS and value is not None:
                self.loads.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built by a process that has no network, where the system allows that."""
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "tools.site", str(folder)]
    alone = ["unshare", "--map-root-user", "--net"]
    can = (
        shutil.which("unshare")
        and not subprocess.run([*alone, "true"], capture_output=True, check=False).returncode
    )
    subprocess.run(
        [*(alone if can else []), *build],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        timeout=600,
    )
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Parsed]:
    found = {path: Parsed(path.read_text()) for path in site.rglob("*.html")}
    assert len(found) > 90
    return found


def test_no_page_loads_anything_from_another_host(pages: dict[Path, Parsed]) -> None:
    for path, page in pages.items():
        assert not [load for load in page.loads if ELSEWHERE.match(load)], path


def test_no_style_and_no_script_names_another_host_to_load_from(site: Path) -> None:
    for path in site.rglob("*.css"):
        found = re.findall(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//[^)]*", path.read_text())
        assert not found, path
    # Names of XML, and in comments where a library comes from, load nothing.
    for path in site.rglob("*.js"):
        text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
        hosts = {urlsplit(url).hostname for url in re.findall(r"https?://[\w.-]+", text)}
        assert hosts <= {"www.w3.org", "fontawesome.com"}, path


def test_every_link_and_every_anchor_is_there(site: Path, pages: dict[Path, Parsed]) -> None:
    broken = []
    for path, page in pages.items():
        for link in {*page.links, *page.loads}:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            known = pages.get(target)
            if not target.is_relative_to(site) or not target.exists():
                broken.append(f"{path.relative_to(site)}: {link}")
            elif parts.fragment and known and unquote(parts.fragment) not in known.names:
                broken.append(f"{path.relative_to(site)}: {link} has no such place")
    assert broken == []


def test_every_page_of_the_documents_is_in_the_navigation(site: Path) -> None:
    first = (site / shmq.__version__ / "start/tutorial/index.html").read_text()
    docs = ROOT / "docs"
    for page in docs.rglob("*.md"):
        place = page.relative_to(docs).with_suffix("")
        if place.name not in {"README", "index"}:
            near = place.relative_to("start") if place.is_relative_to("start") else f"../{place}"
            assert f'href="../{near}/"' in first or place.name == "tutorial", place


def test_each_command_has_a_manual_page(site: Path) -> None:
    folder = site / shmq.__version__ / "man"
    written = {path.name for path in folder.glob("*.1")}
    assert {"shmq.1", "shmq-produce.1", "shmq-advise.1", "shmq-stream-read.1"} <= written
    assert ".SH OPTIONS" in (folder / "shmq-advise.1").read_text()
    # The same form as any manual page's.
    for path in folder.glob("*.1"):
        assert path.read_text().startswith(".TH"), path


# ---- in a browser ----

needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no chromium: apt-get install chromium"
)


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    # Another version beside it, so that there is something to choose from.
    shutil.copytree(site / shmq.__version__, site / "0.0.9")
    list_versions(site)
    handler = functools.partial(Quiet, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@contextlib.contextmanager
def visited(browser: Browser, address: str) -> Iterator[Page]:
    """A page that can reach the site alone; any other request, and any error, is a failure."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    other: list[str] = []
    page = context.new_page()
    page.on("pageerror", lambda error: other.append(str(error)))
    page.on("requestfailed", lambda request: other.append(request.url))

    def only_here(route: object) -> None:
        url = route.request.url  # type: ignore[attr-defined]
        if url.startswith((address, "data:", "blob:")):
            route.continue_()  # type: ignore[attr-defined]
        else:
            other.append(url)
            route.abort()  # type: ignore[attr-defined]

    context.route("**/*", only_here)
    try:
        yield page
        assert other == []
    finally:
        context.close()


@needs_browser
def test_the_first_page_fits_one_screen(browser: Browser, address: str, tmp_path: Path) -> None:
    with visited(browser, address) as page:
        page.goto(f"{address}/")
        page.wait_for_url(f"{address}/{shmq.__version__}/")
        page.wait_for_load_state("networkidle")
        for what in ("h1", "pre", "table", "p:last-of-type"):
            box = page.locator(f".first {what}").first.bounding_box()
            assert box is not None
            assert box["y"] >= 0 and box["y"] + box["height"] <= 800, what
            assert box["x"] >= 0 and box["x"] + box["width"] <= 1280, what
        page.screenshot(path=tmp_path / "first.png")
        assert (tmp_path / "first.png").stat().st_size > 10_000


@needs_browser
def test_search_finds_a_page_without_another_host(browser: Browser, address: str) -> None:
    with visited(browser, address) as page:
        page.goto(f"{address}/{shmq.__version__}/use/retries/")
        page.wait_for_load_state("networkidle")  # the script that listens for keys has begun
        page.keyboard.press("Control+k")
        page.keyboard.type("visibility_timeout", delay=20)
        page.get_by_role("option").first.click()
        page.wait_for_url(lambda url: "h=visibility_timeout" in url)
        assert "visibility_timeout" in page.locator("article").inner_text()


@needs_browser
def test_a_reader_goes_to_the_same_page_of_another_version(browser: Browser, address: str) -> None:
    with visited(browser, address) as page:
        page.goto(f"{address}/{shmq.__version__}/start/tutorial/")
        page.locator(".md-version__current").focus()
        page.locator(".md-version__link", has_text="0.0.9").click()
        page.wait_for_url(f"{address}/0.0.9/**")


@needs_browser
@pytest.mark.parametrize(
    "path", ["operate/console", "internals/performance", "start/choose-a-queue", "contents"]
)
def test_a_page_is_whole_in_a_browser(browser: Browser, address: str, path: str) -> None:
    with visited(browser, address) as page:
        page.goto(f"{address}/{shmq.__version__}/{path}/")
        page.wait_for_load_state("networkidle")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 1280
        images = "[...document.images].every(one => one.complete && one.naturalWidth > 0)"
        page.evaluate("document.querySelectorAll('img').forEach(one => one.loading = 'eager')")
        page.wait_for_function(images, timeout=30_000)
