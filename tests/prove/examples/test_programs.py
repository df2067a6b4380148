"""The programs that people start from do what their first lines say, and end cleanly."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import shmq
from tests.support.examples import EXAMPLES, command, printed
from tests.support.processes import environment
from tests.support.server import fixed_port, serve
from tests.support.waiting import PATIENCE, eventually
from tests.support.writer_process import running_writer

# ---- 1: a web application ----


class _Statuses(urllib.request.HTTPErrorProcessor):
    """Each answer is an answer, whatever its status."""

    def http_response(self, _: Any, response: Any) -> Any:
        return response


def opened(request: urllib.request.Request) -> Any:
    """The answer to the request."""
    return urllib.request.build_opener(_Statuses).open(request, timeout=PATIENCE)


def asked(url: str, body: object = None) -> tuple[int, Any]:
    """The status and the JSON of an answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with opened(request) as answer:
        return answer.status, json.load(answer)


def test_the_web_application_hands_its_work_to_workers(
    namespace: str, broker: shmq.Broker, tmp_path: Path
) -> None:
    broker.create_queue("thumbnails", capacity=2)
    port = str(fixed_port())
    pages = f"http://127.0.0.1:{port}/thumbnails"
    uvicorn = ("-m", "uvicorn", "app:app", "--port", port)
    with command("web", namespace, tmp_path / "web", *uvicorn) as web:
        web.says("Uvicorn running")
        order = {"picture": "tea.png", "width": 100}
        status, first = asked(pages, order)
        assert (status, asked(f"{pages}/{first['id']}")[1]) == (202, {"state": "waiting"})
        _, second = asked(pages, {"picture": "tea.txt", "width": 100})
        assert asked(pages, {"picture": "tea.png", "width": 0})[0] == 422
        assert asked(pages, order) == (503, {"detail": "too much to do"})
        assert len(broker.table("thumbnails.results")) == 2
        assert asked(f"{pages}/none")[0] == 404
        work = ("-m", "shmq.cli", "worker", "app:shrink", "-q", "thumbnails")
        with command("web", namespace, tmp_path / "work", *work) as worker:
            found = broker.table("thumbnails.results")

            def state(order: dict[str, Any]) -> object:
                return (found.get(order["id"]) or {}).get("state")

            eventually(lambda: state(first) == "done", "it is done")
            assert asked(f"{pages}/{first['id']}")[1]["thumbnail"] == "tea-100.png"
            eventually(lambda: state(second) == "failed", "it is refused")
            dead = broker.queue("thumbnails.dlq")
            eventually(lambda: dead.qsize() == 1, "what is not a picture is a dead letter")
            assert worker.ends() == 0, worker.log()
        assert web.ends(signal.SIGINT) == 0, web.log()


# ---- 2: frames ----


def test_frames_go_from_the_camera_to_a_viewer(namespace: str, tmp_path: Path) -> None:
    with command("frames", namespace, tmp_path / "log", "app.py", "viewer") as viewer:
        assert printed("frames", namespace, "camera", "--frames", "3", "--rate", "100") == []
        viewer.says("frame 2: 2.0")
        assert viewer.ends(signal.SIGINT) == 0, viewer.log()
        assert viewer.log().splitlines() == [f"frame {n}: {n}.0" for n in range(3)]


# ---- 3: a scraper ----


class _Site(BaseHTTPRequestHandler):
    """/tea is there, /busy is at the second request, and nothing else."""

    asked: Counter[str]

    def do_GET(self) -> None:
        self.asked[self.path] += 1
        if self.path == "/busy" and self.asked[self.path] == 1:
            self.send_response(429)
            self.send_header("Retry-After", "0")
        else:
            self.send_response(200 if self.path in {"/tea", "/busy"} else 404)
        self.end_headers()
        self.wfile.write(b"the page")

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def site() -> Iterator[str]:
    _Site.asked = Counter()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(PATIENCE)


def test_the_scraper_asks_a_busy_host_again_and_gives_up_what_is_not_there(
    namespace: str, broker: shmq.Broker, site: str, tmp_path: Path
) -> None:
    addresses = [f"{site}/{name}" for name in ("tea", "busy", "none")]
    assert len(printed("scraper", namespace, *addresses)) == 3
    assert printed("scraper", namespace, addresses[0]) == [f"known already: {addresses[0]}"]
    assert "give a URL" in printed("scraper", namespace, "file:///etc/passwd", code=1)[0]
    work = ("-m", "shmq.cli", "worker", "app:scrape")
    with command("scraper", namespace, tmp_path / "log", *work, PAUSE="0.01") as worker:
        urls = broker.queue("urls")
        eventually(lambda: urls.stats().acked + urls.stats().dead_lettered == 3, "all are settled")
        assert worker.ends() == 0, worker.log()
    pages = broker.queue("pages").get_many(10, timeout=PATIENCE)
    assert sorted(page.headers["url"] for page in pages) == sorted(addresses[:2])
    assert [letter.body for letter in broker.queue("urls.dlq").get_many(10)] == [addresses[2]]
    assert _Site.asked == {"/tea": 1, "/busy": 2, "/none": 1}


# ---- 4: events ----


def test_each_of_three_groups_reads_every_event(namespace: str, tmp_path: Path) -> None:
    with command("events", namespace, tmp_path / "log", "app.py", "read", "mail") as mail:
        assert printed("events", namespace, "publish", "--orders", "7") == []
        mail.says("your order", 7)
        assert mail.ends(signal.SIGINT) == 0, mail.log()
    assert printed("events", namespace, "read", "mail", "--idle", "0.2") == []
    owed = printed("events", namespace, "read", "billing", "--idle", "0.2")
    assert sorted(owed) == sorted(f"customer-{n % 5} owes {10 + n}" for n in range(7))
    assert len(printed("events", namespace, "read", "audit", "--idle", "0.2")) == 7


# ---- 5: requests ----


def test_a_service_asks_another_and_its_errors_reach_who_asked(
    namespace: str, tmp_path: Path
) -> None:
    with (
        command("quotes", namespace, tmp_path / "prices", "app.py", "prices") as prices,
        command("quotes", namespace, tmp_path / "offers", "app.py", "offers") as offers,
    ):
        prices.says("are told")
        offers.says("are told")
        assert printed("quotes", namespace, "ask", "tea", "3") == ["3 tea: 12"]
        assert printed("quotes", namespace, "ask", "gold", code=1) == [
            "there is no gold: there are tea, jam"
        ]
        assert (prices.ends(), offers.ends(signal.SIGINT)) == (0, 0), offers.log()
        assert "2 requests were handled" in prices.log()


# ---- 6: an outbox ----


def test_what_the_outbox_has_is_put_once(
    namespace: str, broker: shmq.Broker, tmp_path: Path
) -> None:
    database = str(tmp_path / "shop.db")
    broker.create_queue("placed", durability="journal", dedupe_window=3600)
    with running_writer(namespace):
        assert printed("outbox", namespace, "order", database, "tea", "3") == ["order 1"]
        placed = broker.queue("placed")
        # A relay that was killed between the put and its note of it.
        event = {"order": 1, "item": "tea", "count": 3}
        placed.put(event, dedupe_id="outbox 1", codec="json")
        assert printed("outbox", namespace, "order", database, "jam", "1") == ["order 2"]
        assert printed("outbox", namespace, "relay", database, "--once") == ["put 2"]
        assert printed("outbox", namespace, "relay", database, "--once") == []
        with command("outbox", namespace, tmp_path / "log", "app.py", "relay", database) as relay:
            assert printed("outbox", namespace, "order", database, "jam", "2") == ["order 3"]
            relay.says("put 1")
            assert relay.ends(signal.SIGINT) == 0, relay.log()
        found = [message.body for message in placed.get_many(10)]
        assert [body["order"] for body in found] == [1, 2, 3]


# ---- a Flask application ----


def test_the_flask_application_takes_a_mail_once_and_a_worker_sends_it(
    namespace: str, broker: shmq.Broker, tmp_path: Path
) -> None:
    port = fixed_port()
    pages = ("-m", "flask", "run", "--port", str(port))
    work = ("-m", "shmq.cli", "worker", "app:send", "-q", "mails")

    def posted(**form: str) -> int:
        body = urllib.parse.urlencode(form).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/mails", body)
        request.add_header("Idempotency-Key", form["to"])
        with opened(request) as answer:
            return int(answer.status)

    with command("flask", namespace, tmp_path / "web", *pages, FLASK_SHMQ=namespace) as web:
        web.says("Running on")
        statuses = [posted(to="anna@host", text="Hello") for _ in range(2)]
        assert [*statuses, posted(to="nobody", text="?"), posted(to="x")] == [202, 200, 202, 400]
        with command("flask", namespace, tmp_path / "work", *work) as worker:
            worker.says("to anna@host: Hello")
            mails = broker.queue("mails")
            eventually(lambda: mails.stats().dead_lettered == 1, "no address: a dead letter")
            assert worker.ends() == 0, worker.log()
            assert mails.stats().acked == 1
        assert web.ends(signal.SIGINT) == 0, web.log()


# ---- a pool of processes ----


def test_a_picture_that_kills_its_worker_fails_alone(namespace: str, tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    ours, theirs = pty.openpty()
    drawing = ("app.py", "draw", str(folder), "--count", "12", "--killer")
    app = subprocess.Popen(
        [sys.executable, *drawing],
        cwd=EXAMPLES / "images",
        env=environment(SHMQ_NAMESPACE=namespace, TERM="xterm"),
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    with os.fdopen(ours, "rb", 0) as terminal, contextlib.suppress(OSError):  # it has ended
        while part := terminal.read(1 << 16):
            shown += part
    assert app.wait(PATIENCE) == 0, shown
    assert b"100%" in shown

    (folder / "text.png").write_text("not a picture")
    shrinking = ("app.py", "shrink", str(folder))
    with command("images", namespace, tmp_path / "log", *shrinking) as shrink:
        assert shrink.process.wait(PATIENCE) == 1, shrink.log()
        lines = shrink.log().splitlines()
    (killed,) = [line for line in lines if line.startswith("killer.png")]
    assert re.fullmatch(r"killer.png: process \d+ died, signal 9, exit code None", killed)
    (unknown,) = [line for line in lines if line.startswith("text.png")]
    assert "cannot identify image file" in unknown
    names = {f"picture-{number}.png" for number in range(12)}
    assert set(lines) == {killed, unknown} | {f"{name}: 128 x 96" for name in names}
    assert {path.name for path in (folder / "thumbnails").iterdir()} == names
    with Image.open(folder / "thumbnails/picture-7.png") as image:
        assert (image.size, image.getpixel((5, 5))) == ((128, 96), (7, 7, 7))


# ---- 8: a program in C ----


def test_a_program_in_c_counts_the_words_of_texts_from_python(
    namespace: str, broker: shmq.Broker, tmp_path: Path
) -> None:
    counter = tmp_path / "counter"
    source = EXAMPLES / "foreign/counter.c"
    build = ["cc", "-Wall", "-Wextra", "-Werror", "-O2", "-o", str(counter), str(source)]
    subprocess.run(build, check=True, timeout=PATIENCE)
    with (
        serve(namespace) as server,
        command("foreign", namespace, tmp_path / "log", "app.py", "one cup of tea", "") as app,
    ):
        worker = subprocess.Popen([counter, str(server.port)])
        try:
            assert app.process.wait(PATIENCE) == 0, app.log()
            assert app.log().splitlines() == ["4: one cup of tea", "0: "]
            worker.terminate()
            assert worker.wait(PATIENCE) == 0
        finally:
            worker.kill()
            worker.wait()
    assert broker.queue("texts").stats().acked == 2
