"""A console whose server has ended: what it saw last is not told as if it were now."""

from __future__ import annotations

import signal

from tests.support.browser import Page, open_page
from tests.support.console import console
from tests.support.server import serve
from tests.support.waiting import PATIENCE, eventually


def test_each_page_says_that_it_is_old_and_metrics_fail(namespace: str) -> None:
    with serve(namespace) as server, console(server.url) as site:
        assert site.ask("GET", "/readyz").status == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) == 0
        eventually(lambda: site.ask("GET", "/metrics").status == 502, "metrics fail")
        assert site.ask("GET", "/readyz").status == 503
        assert "nothing was seen for" in site.ask("GET", "/metrics").json["detail"]
        (finding,) = site.api("GET", "/overview").json["findings"]
        assert (finding["severity"], finding["code"]) == ("critical", "not-observed")
        for path in ("/", "/queues", "/host"):
            assert "nothing was seen for" in Page(open_page(site, path).content.decode()).text
