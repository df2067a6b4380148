"""Who is let in, from which page, and what a console that only shows refuses."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import socket
import ssl
import stat
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

import shmq
from tests.support.certificates import WHY_NOT, Certificates
from tests.support.console import API, Console, console, write_tokens
from tests.support.shell import Shell
from tests.support.waiting import PATIENCE, eventually

READER = "reader" + "r" * 40
WRITER = "writer" + "w" * 40
TOKENS = {READER: {"consume": ["orders*"]}, WRITER: {"produce": ["orders*"], "admin": ["orders*"]}}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "", "[::2]"])
def test_a_name_that_was_made_to_point_here_is_refused(site: Console, host: str) -> None:
    reply = site.ask("GET", f"{API}/overview", headers={"Host": host})
    assert (reply.status, reply.code) in {(421, "wrong-host"), (400, "wrong-host")}


def test_the_usual_names_of_this_host_are_served(site: Console) -> None:
    for host in ("localhost", "127.0.0.1:9990", "[::1]:9990", "LOCALHOST"):
        assert site.ask("GET", f"{API}/overview", headers={"Host": host}).status == 200


def test_a_page_of_another_site_may_not_use_the_console(site: Console) -> None:
    for origin in ("http://evil.example", "null", "http://localhost:1"):
        reply = site.ask("GET", f"{API}/overview", headers={"Origin": origin})
        assert (reply.status, reply.code) == (403, "csrf")
    own = site.url.removesuffix("/")
    assert site.ask("GET", f"{API}/overview", headers={"Origin": own}).status == 200


def test_a_change_needs_the_header_that_no_foreign_page_can_send(
    site: Console, shop: shmq.Broker
) -> None:
    queue = shop.create_queue("orders")
    queue.put("x")
    reply = site.ask("POST", f"{API}/queues/orders/purge", {}, {"X-Shmq-CSRF": None})
    assert (reply.status, reply.code) == (403, "csrf")
    assert queue.qsize() == 1


@pytest.mark.parametrize(
    "path", ["/healthz", "/metrics", f"{API}/openapi.json", f"{API}/queues", "/", "/queues"]
)
def test_a_wrong_method_is_refused_with_the_right_ones(site: Console, path: str) -> None:
    reply = site.ask("PATCH", path)
    assert (reply.status, reply.code) == (405, "unknown-path")
    assert "GET" in reply.headers["allow"]
    assert reply.json["detail"].startswith(f"PATCH is not a method of {path}: use ")
    page = site.ask("PATCH", path, headers={"Accept": "text/html"})
    assert page.status == 405


def test_every_answer_forbids_scripts_of_others_and_frames(site: Console) -> None:
    for path in ("/healthz", f"{API}/overview", "/nothing", f"{API}/queues/none"):
        headers = site.ask("GET", path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"


def test_a_console_only_shows_unless_it_is_told_otherwise(place: str, shop: shmq.Broker) -> None:
    queue = shop.create_queue("orders")
    queue.put("x")
    with console(place, changes=False) as site:
        assert site.api("GET", "/queues/orders").status == 200
        for method, path, body in (
            ("POST", "/queues/orders/purge", {}),
            ("POST", "/queues/orders/messages", {"body": 1}),
            ("POST", "/queues/orders/lease", {}),
            ("PUT", "/queues/other", {}),
            ("PATCH", "/queues/orders", {"ttl": 9}),
            ("DELETE", "/queues/orders", None),
        ):
            reply = site.api(method, path, body)
            assert (reply.status, reply.code) == (403, "read-only"), path
    assert queue.qsize() == 1


def test_tokens_show_and_allow_what_they_allow_over_tcp(place: str, shop: shmq.Broker) -> None:
    shop.create_queue("orders").put("x")
    shop.create_queue("secret").put("x")
    with console(place, tokens=TOKENS) as site:
        reply = site.api("GET", "/overview")
        assert (reply.status, reply.code) == (401, "unauthorized")
        assert reply.headers["www-authenticate"].startswith("Bearer")
        assert site.ask("GET", "/healthz").status == 200
        assert site.ask("GET", "/metrics").status == 401
        site.headers |= bearer(READER)
        assert site.ask("GET", "/metrics").status == 200
        assert site.api("GET", "/queues/orders/messages").status == 200
        assert site.api("GET", "/queues/secret").code == "not-found"
        assert site.api("POST", "/queues/orders/messages", {"body": 1}).code == "denied"
        assert site.api("POST", "/queues/orders/purge", {}).code == "denied"
        listed = site.api("GET", "/queues").json["items"]
        assert {one["name"] for one in listed} == {"orders", "orders.dlq"}
        site.headers |= bearer(WRITER)
        site.headers.pop("X-Shmq-CSRF")  # no browser sends this header by itself
        assert site.api("GET", "/queues/orders/messages").code == "denied"
        assert site.api("POST", "/queues/orders/messages", {"body": 1}).status == 201
        assert site.api("POST", "/queues/orders/purge", {}).json == {"count": 2}
        assert site.api("PUT", "/queues/secret", {}).code == "not-found"
        site.headers |= bearer("wrong" * 10)
        assert site.api("GET", "/overview").status == 401
        site.headers |= bearer(READER)
        numbers = site.ask("GET", "/metrics").content.decode()
        assert re.search(r"shmq_console_failed_logins_total\{.*\} [1-9]", numbers), numbers[-900:]
        assert READER not in site.log
        assert "wrong" * 10 not in site.log


@pytest.mark.prove
def test_leases_belong_to_the_token_that_took_them(place: str, shop: shmq.Broker) -> None:
    shop.create_queue("orders").put("x")
    tokens = {READER: {"consume": ["*"]}, WRITER: {"consume": ["*"]}}
    with console(place, tokens=tokens) as site:
        site.headers |= bearer(READER)
        (leased,) = site.api("POST", "/queues/orders/lease", {}).json["items"]
        site.headers |= bearer(WRITER)
        done = site.api("POST", "/settle", {"receipts": [leased["receipt"]]}).json
        assert (done["settled"], done["refused"][0]["code"]) == (0, "lease-expired")
        site.headers |= bearer(READER)
        assert site.api("POST", "/settle", {"receipts": [leased["receipt"]]}).json["settled"] == 1


def test_a_public_address_wants_tokens_and_tls() -> None:
    refused = Shell("unused")("console", "--bind", "0.0.0.0:0", code=2)
    assert "without tokens and without TLS" in refused.error


@pytest.mark.prove
@pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
def test_the_cookie_of_a_login_over_tls_is_sent_over_tls_alone(place: str, tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    certificate, key = made.sign("console")
    config = write_tokens(tmp_path, {READER: {"consume": ["*"]}})
    with config.open("a") as more:
        more.write(f'[tls]\ncertificate = "{certificate}"\nkey = "{key}"\n')
    trusted = ssl.create_default_context(cafile=str(made.ca))
    with console(place, "--config", str(config)) as site:
        assert site.url.startswith("https://")
        where = urlsplit(site.url)
        connection = http.client.HTTPSConnection(
            str(where.hostname), where.port, timeout=PATIENCE, context=trusted
        )
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        with contextlib.closing(connection):
            connection.request("POST", "/login", urlencode({"token": READER}), form)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 303
            cookie, *flags = (answer.getheader("set-cookie") or "").split("; ")
            assert {"secure", "httponly", "samesite=strict"} <= {flag.lower() for flag in flags}
            connection.request("GET", f"{API}/overview", headers={"Cookie": cookie})
            assert connection.getresponse().status == 200


@pytest.mark.prove
def test_a_unix_socket_is_for_its_user_alone_and_removed_at_the_end(
    place: str, tmp_path: Path
) -> None:
    path = tmp_path / "console.sock"
    with console(place, "--bind", f"unix:{path}") as site:
        site.hears("console is at unix:")
        eventually(path.exists, "the socket is there")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        connection = http.client.HTTPConnection("localhost", timeout=PATIENCE)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(path))
        connection.request("GET", f"{API}/overview")
        assert connection.getresponse().status == 200
        connection.close()
        second = Shell(place)("console", "--bind", f"unix:{path}", code=2)
        assert "another process listens there" in second.error
        assert site.process.poll() is None
    assert not path.exists()


def test_a_prefix_is_the_path_behind_a_proxy(place: str) -> None:
    with console(place, "--prefix", "/shmq") as site:
        assert site.url.endswith("/shmq")
        assert site.api("GET", "/overview").status == 200


@pytest.mark.prove
def test_metrics_have_an_address_of_their_own(place: str) -> None:
    with console(place, "--metrics-bind", "127.0.0.1:0", tokens=TOKENS) as site:
        url = site.hears(r"http://\S+/metrics")
        host, _, port = url.removeprefix("http://").removesuffix("/metrics").partition(":")
        with contextlib.closing(
            http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
        ) as at:
            at.request("GET", "/metrics")
            answer = at.getresponse()
            assert (answer.status, b"# EOF" in answer.read()) == (200, True)
            at.request("GET", f"{API}/overview")
            assert at.getresponse().status == 404


def test_changes_and_refusals_are_audited_with_the_token_and_the_peer(
    place: str, shop: shmq.Broker
) -> None:
    shop.create_queue("orders").put("x")
    shop.create_queue("secret")
    with console(place, tokens=TOKENS) as site:
        site.headers |= bearer(WRITER)
        site.api("POST", "/queues/orders/purge", {})
        site.api("GET", "/queues/orders/messages")
        site.api("GET", "/queues/secret")
        site.ask("GET", "/queues/secret", headers={"Accept": "text/html"})
        site.headers |= bearer("w" * 40)
        site.api("GET", "/overview")
        for event in (
            'event=queue.purge name=orders outcome=ok who="token 1"',
            'event=right.refused name=orders outcome=denied who="token 1"',
            'event=right.refused name=secret outcome=not-found who="token 1"',
            "page=secret",
            "event=login.failed",
        ):
            site.hears(event)
        site.hears("event=queue.purge .* via=http .* messages=1\n")


@pytest.mark.prove
def test_the_audit_has_the_group_the_target_and_the_version(
    site: Console, shop: shmq.Broker
) -> None:
    shop.create_queue("orders")
    shop.create_exchange("events", "direct")
    shop.create_stream("clicks", 1).group("billing")
    bind, reset = "/exchanges/events/bind", "/streams/clicks/groups/billing/reset"
    binding = {"target": "orders", "key": "new"}
    for method, path, body, told in (
        ("POST", bind, binding, "target=orders key=new kind=queue changed=true"),
        ("POST", reset, {"to": "latest"}, "group=billing to=latest"),
        ("DELETE", "/streams/clicks/groups/billing", None, "group=billing"),
        ("POST", "/schemas/orders", {"schema": {}}, "version=1"),
        ("POST", "/streams/clicks/repartition", {"partitions": 2}, "partitions=2"),
    ):  # fmt: skip
        assert site.api(method, path, body).status in {200, 204}
        site.hears(f" {told}\n")


def test_the_log_is_json_and_the_audit_has_a_file_as_well(
    place: str, shop: shmq.Broker, tmp_path: Path
) -> None:
    file = tmp_path / "audit.jsonl"
    with console(place, "--log-format", "json", SHMQ_AUDIT_LOG=str(file)) as site:
        assert json.loads(site.log.splitlines()[0])["logger"] == "shmq.console"
        url = json.loads(site.log.splitlines()[0])["message"].split()[4].rstrip("/:")
        port = urlsplit(url).port
        assert port is not None
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        ) as at:
            at.request("DELETE", f"{API}/queues/none", headers=site.headers)
            assert at.getresponse().status == 404
        (event,) = map(json.loads, file.read_text().splitlines())
        assert (event["event"], event["outcome"]) == ("queue.delete", "not-found")
        assert json.loads(site.log.splitlines()[-1])["event"] == "queue.delete"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.prove
def test_tokens_are_read_again_at_sighup(place: str, tmp_path: Path) -> None:
    config = write_tokens(tmp_path, {READER: {"consume": ["*"]}})
    with console(place, "--config", str(config)) as site:
        site.headers |= bearer(WRITER)
        assert site.api("GET", "/overview").status == 401
        write_tokens(tmp_path, {WRITER: {"consume": ["*"]}})
        site.process.send_signal(signal.SIGHUP)
        site.hears("tokens reloaded")
        assert site.api("GET", "/overview").status == 200
        site.headers |= bearer(READER)
        assert site.api("GET", "/overview").status == 401
