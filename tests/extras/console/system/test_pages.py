"""The pages, as they come over HTTP: what they show, to whom, and what their forms do."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

import shmq
from shmq.api.query_pages import TABLE, key_of
from shmq.extras.console.api.queues import MOST_COUNTED
from shmq.extras.console.errors import group_errors
from shmq.extras.console.pages import endpoints
from shmq.server.config.tokens import make_token
from shmq.workers.ledger import Ledger
from shmq.workers.schedule import Schedule
from tests.support.browser import HOSTILE, PAGES, Page, fill, form_of, open_page, send
from tests.support.console import Console, console
from tests.support.namespaces import own_namespace
from tests.support.stopped import SHM, locks_of_queue
from tests.support.waiting import PATIENCE, eventually

STATIC = Path(endpoints.__file__).with_name("static")


def seen(site: Console, path: str) -> str:
    """The text of a page, once the console has seen what it is about."""
    found: list[str] = []

    def there() -> bool:
        answer = open_page(site, path)
        found[:] = [Page(answer.content.decode()).text]
        return answer.status == 200

    eventually(there, f"{path} is there")
    return found[0]


@pytest.fixture(scope="module")
def airport() -> Iterator[Console]:
    """A console under a prefix, over flights."""
    with own_namespace() as name, shmq.connect(name) as broker:
        held = fill(broker)
        with console(name, "--prefix", "/ops") as site:
            seen(site, "/queues/arrivals")
            yield site
        for message in held:
            message.ack()


# ---- what they show ----


@pytest.mark.parametrize("path", PAGES)
def test_each_page_is_whole_and_leads_nowhere_else(airport: Console, path: str) -> None:
    answer = open_page(airport, path)
    text = answer.content.decode()
    assert answer.status == 200, text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    page = Page(text)
    assert [link for link in page.links if not link.startswith(("/ops/", "#", "data:,"))] == []
    assert [tag for tag, given in page.tags if "style" in given or tag == "style"] == []
    assert [given for tag, given in page.tags if tag == "script" and "src" not in given] == []
    assert not [name for _, given in page.tags for name in given if name.startswith("on")]


def test_every_link_of_a_page_leads_to_a_page(airport: Console) -> None:
    links = {
        link for path in PAGES for link in Page(open_page(airport, path).content.decode()).links
    }
    for link in sorted(links):
        if link.startswith("/ops/") and not link.endswith("/logout"):
            assert open_page(airport, link.removeprefix("/ops")).status == 200, link


def test_the_overview_says_what_is_wrong(airport: Console) -> None:
    text = seen(airport, "/")
    assert "Messages waiting" in text
    assert "dead letters of 'arrivals'" in text


def test_a_queue_shows_who_is_attached_and_who_holds_what(airport: Console) -> None:
    text = seen(airport, "/queues/arrivals")
    assert "python" in text or "pytest" in text
    assert "Leased messages message holder pid time left" in text
    assert "visibility_timeout 3600.0" in text


def test_the_list_of_queues_takes_an_expression(airport: Console) -> None:
    found = Page(
        open_page(airport, "/queues?where=depth+%3E+1+and+name+%3D+%27arrivals%27").content.decode()
    )
    rows = [link for link in found.links if link.startswith("/ops/queues/")]
    assert rows == ["/ops/queues/arrivals"]


def test_a_queue_and_its_dead_letters_share_one_row(airport: Console) -> None:
    def rows(path: str) -> list[str]:
        found = Page(open_page(airport, path).content.decode())
        return [link for link in found.links if link.startswith("/ops/queues/")]

    assert rows("/queues") == ["/ops/queues/arrivals", "/ops/queues/departures"]
    assert rows("/queues?sort=dead_letters") == ["/ops/queues/arrivals", "/ops/queues/departures"]
    assert rows("/queues?where=dead_letters+%3E+2") == ["/ops/queues/arrivals"]
    assert "/ops/queues/arrivals.dlq" in rows("/queues?where=depth+%3E+0")
    assert (
        "/ops/dead-letters?queue=arrivals.dlq"
        in Page(open_page(airport, "/queues").content.decode()).links
    )


def test_the_list_of_queues_says_why_messages_failed(site: Console, shop: shmq.Broker) -> None:
    queue = shop.create_queue("mail", max_deliveries=1)
    queue.put("hello")
    queue.get().nack(error=ValueError("refused <b>"))
    eventually(
        lambda: "Newest error of mail: ValueError: refused <b>" in seen(site, "/queues"),
        "the list has the error",
    )


def test_a_queue_with_a_schedule_shows_its_runs(site: Console, shop: shmq.Broker) -> None:
    queue = shop.create_queue("reports")
    assert "Schedule" not in seen(site, "/queues/reports")
    schedule = Schedule(cron="0 6 * * *", timezone="Europe/Berlin")
    with contextlib.closing(Ledger(shop, queue)) as ledger:
        ledger.declare(schedule, "app:nightly", 0)
        ledger.note(5 * 3_600_000, 5 * 3_600_000, skipped=True)
    text = seen(site, "/queues/reports")
    for part in (
        "Schedule times 0 6 * * * time zone Europe/Berlin next run 1970-01-02 05:00:00",
        ", overdue last run 1970-01-01 05:00:00",
        "outcome skipped missed runs run once handler app:nightly",
    ):
        assert part in text
    shop.delete_table("schedules::memory")


@pytest.mark.parametrize(
    ("path", "status", "what"),
    [
        ("/queues?where=depth+is+high", 400, "where"),
        ("/queues?sort=beauty", 400, "beauty"),
        ("/queues/nowhere", 404, "nowhere"),
        ("/queues/arrivals/messages?limit=0", 400, "limit='0'"),
        ("/queues/arrivals/messages?limit=00000000000000000001999", 400, "limit="),
        (f"/queues/arrivals/messages?put={'0' * 20}{'9' * 5000}", 400, "put="),
        ("/queues/arrivals/messages?as=picture", 400, "picture"),
        ("/streams/nowhere", 404, "nowhere"),
        ("/exchanges?exchange=nowhere", 404, "nowhere"),
        ("/exchanges/nowhere", 404, "nowhere"),
        ("/exchanges?exchange=flights&headers=%5B", 400, "headers"),
        ("/nowhere", 404, "/nowhere"),
    ],
)
def test_a_refusal_is_a_page_with_a_way_back(
    airport: Console, path: str, status: int, what: str
) -> None:
    answer = open_page(airport, path)
    page = Page(answer.content.decode())
    assert answer.status == status
    assert what in page.text
    assert {"/ops/", "/ops/queues", "/ops/dead-letters"} <= set(page.links)
    assert "shmq test-" in page.text, "the namespace"


def test_what_cannot_be_used_has_a_page_that_says_why() -> None:
    with own_namespace(debris=True) as name, shmq.connect(name) as broker:
        broker.create_queue("torn").close()
        broker.create_stream("torn", 1, allow_same_name=True).close()
        broker.create_queue("locked").close()
        for file in (f"shmq@{name}@torn", f"log.shmq@{name}@torn@0"):
            with (SHM / file).open("r+b") as opened:
                opened.write(b"\xff" * 4096)
        with locks_of_queue(name, "locked")["gets"].held_by_stopped(), console(name) as site:
            for path, why in (
                ("/queues/torn", "is damaged"),
                ("/streams/torn", "is damaged"),
                ("/queues/locked", "(stopped)"),
                ("/queues/torn/delete", "is damaged"),
            ):
                assert why in seen(site, path), path


def test_dead_letters_are_grouped_by_reason_and_source(airport: Console) -> None:
    text = seen(airport, "/dead-letters")
    assert "rejected arrivals none reported 2" in text
    assert "max_deliveries arrivals none reported 1" in text


def test_dead_letters_are_grouped_by_error_and_sent_back_by_it() -> None:
    odd = "it's <b>refused</b> \x1b[31m"
    with own_namespace() as name, shmq.connect(name) as broker:
        queue = broker.create_queue("mail")
        for reason in (ValueError(odd), ValueError(odd), "no such user"):
            queue.put("x")
            queue.get_nowait().reject(reason)
        with console(name) as site:
            text = seen(site, "/dead-letters")
            shown_odd = odd.replace("\x1b", "\\x1b")
            assert f"rejected mail ValueError: {shown_odd} 2" in text
            assert "rejected mail no such user 1" in text
            groups = {one.error: one for one in group_errors(broker.queue("mail.dlq").peek(3))}
            where = groups[f"ValueError: {odd}"].where or ""
            shown = seen(site, f"/queues/mail.dlq/messages?where={quote(where)}")
            assert "2 of 3 messages waiting" in shown
            assert f"error ValueError: {shown_odd}" in shown

            path = f"/queues/mail.dlq/redrive?where={quote(where)}"
            asked = seen(site, path)
            assert "2 dead letters of mail.dlq would go back" in asked
            assert "Send back 2 dead letters" in asked
            assert queue.qsize() == 0
            assert send(site, "/queues/mail.dlq/redrive", **form_of(site, path)).status == 303
            assert (queue.qsize(), broker.queue("mail.dlq").qsize()) == (2, 1)


def test_the_page_of_a_failing_queue_says_why() -> None:
    odd = "SMTP <b>refused</b> \x1b[31m\u202e"
    with own_namespace() as name, shmq.connect(name) as broker, console(name) as site:
        queue = broker.create_queue("mail", max_deliveries=60_000, retry_delay=0.0)
        seen(site, "/queues/mail")
        queue.put_many(["x"] * 2)
        found: list[str] = []

        def told() -> bool:
            message = queue.get(timeout=PATIENCE)
            message.nack(error=ValueError(odd)) if rejected else message.reject(odd)
            rejected.append(message.sequence)
            found.append(open_page(site, "/queues/mail").content.decode())
            text = Page(found[-1]).text
            return all(
                one in text
                for one in (
                    "'mail' fails 100% of its deliveries",
                    "1 dead letter of 'mail' in 'mail.dlq'",
                    f"Newest error: {shown_odd}",
                    f"rejected mail {shown_odd} 1",
                    f"to be delivered again ValueError: {shown_odd}",
                )
            )

        rejected: list[int] = []
        shown_odd = "SMTP <b>refused</b> \\x1b[31m\\u202e"
        eventually(told, "the findings and the errors")
        text = Page(found[-1]).text
        assert text.index("fails 100%") < text.index("In per second") < text.index("Errors")
        for raw in ("<b>refused", "\x1b", "\u202e"):
            assert raw not in found[-1]
        assert "Newest error: " in Page(open_page(site, "/").content.decode()).text


def test_a_stream_shows_the_lag_of_its_groups(airport: Console) -> None:
    assert "lag of map" in seen(airport, "/streams/positions")


@pytest.mark.prove
def test_the_page_of_a_query_is_a_link_if_a_browser_may_be_sent_there() -> None:
    page = "http://driver:4040/StreamingQuery/"
    with own_namespace() as name, shmq.connect(name) as broker, console(name) as site:
        broker.create_queue("orders", dead_letter=None)
        broker.create_stream("clicks").close()
        with broker.ensure_table(TABLE) as table:
            for kind, which in (("queue", "orders"), ("stream", "clicks"), ("queue", "other")):
                table.set(key_of(kind, which, "1"), page)
                table.set(key_of(kind, which, "2"), "javascript:alert(1)")
                table.set(key_of(kind, which, "3"), f'{page}?"><b>')
                table.set(key_of(kind, which, "4"), 17)
        for path in ("/queues/orders", "/streams/clicks"):
            seen(site, path)
            answer = open_page(site, path)
            links = Page(answer.content.decode()).links
            assert page in links
            assert f'{page}?"><b>' in links
            assert "javascript:alert(1)" not in links
            assert b"<b>" not in answer.content
        broker.delete_table(TABLE)
        broker.delete_stream("clicks")


def test_an_exchange_shows_its_kind_its_bindings_and_its_alternate(airport: Console) -> None:
    text = seen(airport, "/exchanges/flights")
    assert "Kind topic Bindings 2" in text
    assert "goes to exchange unmatched" in text
    assert "flights topic *.ewr queue arrivals flights topic ua.# queue departures" in text
    assert "flights topic what matches nothing exchange unmatched" in text
    assert "It gets messages from exchange flights" in seen(airport, "/exchanges/unmatched")


def test_the_route_of_a_message_is_told_and_nothing_is_put(airport: Console) -> None:
    text = seen(airport, "/exchanges?exchange=flights&key=ua.ewr")
    assert "From flights it goes to queue arrivals , queue departures" in text
    assert "goes to queue departures" in seen(airport, "/exchanges?exchange=flights&key=xx.yyy")


# ---- bodies ----


def test_a_body_a_header_and_a_group_are_texts_and_never_markup(
    site: Console, shop: shmq.Broker
) -> None:
    queue = shop.create_queue("hostile")
    queue.put(HOSTILE, headers={"what": HOSTILE}, group="<b>")
    text = open_page(site, "/queues/hostile/messages").content.decode()
    assert "<script>alert" not in text
    assert "onerror=alert(1)&gt;" in text
    assert "\u202e" not in text
    assert HOSTILE.replace("\u202e", "\\u202e") in "".join(Page(text).texts)


def test_messages_are_a_table_of_thirty_whose_rows_open(site: Console, shop: shmq.Broker) -> None:
    shop.create_queue("many").put_many([f"body {n}" for n in range(31)])
    page = Page(open_page(site, "/queues/many/messages").content.decode())
    assert "30 of 31 messages waiting" in page.text
    assert "message size deliveries priority body" in page.text
    shown = [given for tag, given in page.tags if tag == "details"]
    assert len(shown) == 30 and not [one for one in shown if "open" in one]
    found = open_page(site, "/queues/many/messages?where=sequence+%3D+7").content.decode()
    assert [given for tag, given in Page(found).tags if tag == "details"] == [{"open": None}]


def test_a_body_is_shown_as_json_text_or_hex_and_cut(site: Console, shop: shmq.Broker) -> None:
    queue = shop.create_queue("bodies")
    queue.put({"flight": 1545}, codec="json")
    queue.put(b"\xff\x00", codec="bytes")
    queue.put("x" * 5000)
    shown = "".join(Page(open_page(site, "/queues/bodies/messages").content.decode()).texts)
    assert '"flight": 1545' in shown
    assert "000000  ff 00" in shown
    assert "Cut at 4 KiB" in shown
    assert "x" * 4096 in shown and "x" * 4097 not in shown
    hexes = "".join(Page(open_page(site, "/queues/bodies/messages?as=hex").content.decode()).texts)
    assert "78 78 78" in hexes


# ---- changes ----


def test_a_message_is_put_once_it_was_confirmed(site: Console, shop: shmq.Broker) -> None:
    queue = shop.create_queue("orders")
    fields = form_of(site, "/queues/orders/put")
    fields |= {"body": '{"a": 1}', "encoding": "json", "headers": '{"x": "<b>"}', "priority": "2"}
    asked = send(site, "/queues/orders/put", **fields)
    assert asked.status == 200, asked
    assert queue.qsize() == 0
    confirmed = Page(asked.content.decode()).fields("/queues/orders/put")
    done = send(site, "/queues/orders/put", **confirmed)
    assert done.status == 303, done
    message = queue.get(timeout=0)
    assert (message.body, dict(message.headers), message.priority) == ({"a": 1}, {"x": "<b>"}, 2)
    assert done.headers["location"] == f"/queues/orders/messages?put={message.sequence}"
    message.ack()


def test_a_form_that_is_wrong_comes_back_with_what_was_written(
    site: Console, shop: shmq.Broker
) -> None:
    shop.create_queue("orders")
    fields = form_of(site, "/queues/orders/put") | {"body": "{", "encoding": "json"}
    answer = send(site, "/queues/orders/put", **fields)
    text = answer.content.decode()
    assert "body: it is not JSON" in Page(text).text
    assert '<textarea id="body" name="body" rows="8" spellcheck="false">{</textarea>' in text


def test_a_purge_says_how_many_first(site: Console, shop: shmq.Broker) -> None:
    queue = shop.create_queue("orders")
    queue.put_many([b"1", b"2"])
    asked = seen(site, "/queues/orders/purge")
    assert "2 waiting messages" in asked
    assert queue.qsize() == 2
    fields = form_of(site, "/queues/orders/purge")
    assert send(site, "/queues/orders/purge", **fields).status == 303
    assert queue.qsize() == 0


def test_dead_letters_are_counted_and_then_sent_back(site: Console, shop: shmq.Broker) -> None:
    queue = shop.create_queue("orders")
    queue.put_many([b"1", b"2"])
    for message in queue.get_many(2, timeout=0):
        message.reject()
    eventually(lambda: shop.queue("orders.dlq").qsize() == 2, "two dead letters")
    path = "/queues/orders.dlq/redrive?where=reason+%3D+%27rejected%27"
    assert "2 dead letters of orders.dlq would go back" in seen(site, path)
    fields = form_of(site, path)
    assert send(site, "/queues/orders.dlq/redrive", **fields).status == 303
    assert queue.qsize() == 2


@pytest.mark.prove
def test_a_count_of_dead_letters_that_ends_early_says_so(site: Console, shop: shmq.Broker) -> None:
    letters = shop.create_queue("letters", dead_letter=None, capacity=1 << 17)
    letters.put_many([b""] * (MOST_COUNTED + 1))
    text = seen(site, "/queues/letters/redrive?where=sequence+%3E+0")
    assert "More than 100,000 dead letters of letters would go back" in text
    assert "The count ends at the first 100,000; the redrive does not." in text
    assert "Send back more than 100,000 dead letters" in text
    counted = site.api("GET", "/queues/letters/redrive", where="sequence > 1").json
    assert counted == {"count": MOST_COUNTED, "more": False}


ALTER = "/queues/orders/alter"


def test_options_are_altered_once_the_differences_were_confirmed(
    site: Console, shop: shmq.Broker
) -> None:
    queue = shop.create_queue("orders")
    before = queue.options.as_dict()
    text = seen(site, ALTER)
    assert "priorities: 3 the queue's memory is laid out for it" in text
    assert "expires: none only a queue created with it counts its consumers" in text
    fields = form_of(site, ALTER)
    assert (fields["max_deliveries"], fields["visibility_timeout"]) == ("5", "30")
    assert (fields["ttl"], "priorities" in fields) == ("none", False)

    given = {"max_deliveries": "9", "ttl": "5m", "visibility_timeout": "30s", "error_bytes": "0"}
    asked = Page(send(site, ALTER, **fields | given).content.decode())
    assert "max_deliveries changes from 5 to 9." in asked.text
    assert "error_bytes changes from 4,096 to 0. ttl changes from none to 300.0." in asked.text
    assert "Alter 3 options" in asked.text and asked.text.count(" changes from ") == 3
    assert queue.options.as_dict() == before

    done = send(site, ALTER, **asked.fields(ALTER))
    assert (done.status, done.headers["location"]) == (303, "/queues/orders")
    altered = {"max_deliveries": 9, "ttl": 300.0, "error_bytes": 0}
    assert queue.options.as_dict() == {**before, **altered}
    eventually(lambda: "max_deliveries 9" in seen(site, "/queues/orders"), "the page shows it")


def test_only_what_the_user_changed_is_altered(site: Console, shop: shmq.Broker) -> None:
    queue = shop.create_queue("orders")
    fields = form_of(site, ALTER) | {"max_deliveries": "9", "ttl": "60"}
    shop.alter_queue("orders", ttl=60, retry_delay=7)
    asked = Page(send(site, ALTER, **fields).content.decode())
    assert "max_deliveries changes from 5 to 9." in asked.text
    assert asked.text.count(" changes from ") == 1
    shop.alter_queue("orders", overflow="block")
    assert send(site, ALTER, **asked.fields(ALTER)).status == 303
    found = queue.options
    assert (found.max_deliveries, found.ttl) == (9, 60)
    assert (found.retry_delay, found.overflow) == (7, "block")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("max_deliveries", "0"),
        ("max_deliveries", "-1"),
        ("max_deliveries", "9.5"),
        ("max_deliveries", "\u0669"),
        ("max_deliveries", "9" * 1_000_000),
        ("ttl", "0"),
        ("ttl", "soon \x1b[31m\u202e<b>"),
        ("visibility_timeout", "none"),
        ("visibility_timeout", ""),
        ("max_message_bytes", "1 TiB"),
        ("overflow", "<script>" * 10_000),
        ("confirm", "disk"),
        ("capacity", "0"),
        ("arena_bytes", "1 TiB"),
        ("priorities", "10"),
        ("auto_delete", "yes"),
        ("dead_letter", "others"),
        ("expires", "60"),
    ],
    ids=lambda value: value[:20].encode("unicode_escape").decode(),
)
def test_a_wrong_option_is_named_and_what_was_typed_stays(
    site: Console, shop: shmq.Broker, key: str, text: str
) -> None:
    queue = shop.create_queue("orders")
    before = queue.options
    for step in ("", "alter"):
        fields = form_of(site, ALTER) | {"retry_delay": "7m", key: text, "step": step}
        content = send(site, ALTER, **fields).content.decode()
        page = Page(content)
        (problem,) = (given for _, given in page.tags if given.get("id") == "problem")
        assert problem["role"] == "alert"
        said = content.partition('id="problem">')[2].partition("</p>")[0]
        assert key in said and len(said) < 2000
        assert not {"\x1b", "\u202e"} & set(said) and "<" not in said
        kept = page.fields(ALTER)
        assert kept["retry_delay"] == "7m" and kept["was.retry_delay"] == "1"
        assert key not in kept or kept[key] == text
    assert queue.options == before


def test_options_that_are_the_same_leave_nothing_to_do(site: Console, shop: shmq.Broker) -> None:
    shop.create_queue("orders")
    asked = send(site, ALTER, **form_of(site, ALTER) | {"ttl": " None "}).content.decode()
    assert "has these options already" in asked and "There is nothing to do." in asked


def test_another_queue_is_not_altered_by_an_old_page(site: Console, shop: shmq.Broker) -> None:
    shop.create_queue("orders")
    stale = form_of(site, ALTER) | {"max_deliveries": "9"}
    confirmed = Page(send(site, ALTER, **stale).content.decode()).fields(ALTER)
    shop.delete_queue("orders")
    shop.create_queue("orders")
    for fields in (stale, confirmed):
        assert send(site, ALTER, **fields).status == 409
    assert send(site, ALTER, **form_of(site, ALTER) | {"csrf": "no"}).status == 403
    assert shop.queue("orders").options.max_deliveries == 5


def test_a_queue_is_deleted_unless_it_was_made_anew_meanwhile(
    site: Console, shop: shmq.Broker
) -> None:
    shop.create_queue("orders")
    stale = form_of(site, "/queues/orders/delete")
    shop.delete_queue("orders")
    shop.create_queue("orders")
    assert send(site, "/queues/orders/delete", **stale).status == 409
    fields = form_of(site, "/queues/orders/delete")
    assert send(site, "/queues/orders/delete", **fields).status == 303
    assert "orders" not in shop.queue_names()


def test_a_form_without_the_secret_of_the_page_changes_nothing(
    site: Console, shop: shmq.Broker
) -> None:
    queue = shop.create_queue("orders")
    queue.put(b"1")
    identity = str(queue.identity)
    for csrf in ("", "1", "ü"):
        answer = send(site, "/queues/orders/purge", identity=identity, csrf=csrf)
        assert answer.status == 403, answer
    assert queue.qsize() == 1


def test_what_is_no_form_is_refused(site: Console, shop: shmq.Broker) -> None:
    shop.create_queue("orders")
    answer = site.ask("POST", "/queues/orders/purge", {"csrf": "1"}, {"Accept": "text/html"})
    assert answer.status == 415
    fields = {f"f{n}": "1" for n in range(40)}
    assert send(site, "/queues/orders/purge", **fields).status == 400


def test_without_allow_changes_no_form_is_shown_and_none_is_taken() -> None:
    with own_namespace() as name, shmq.connect(name) as broker:
        queue = broker.create_queue("orders")
        queue.put(b"1")
        with console(name, changes=False) as site:
            text = open_page(site, "/queues/orders")
            assert "read-only" in Page(text.content.decode()).text
            assert not [link for link in Page(text.content.decode()).links if "purge" in link]
            for path in ("purge", "delete", "put", "redrive", "alter"):
                assert open_page(site, f"/queues/orders/{path}").status == 403
                assert send(site, f"/queues/orders/{path}", csrf="1").status == 403
        assert queue.qsize() == 1


# ---- login ----


def test_a_login_gives_a_session_with_the_rights_of_its_token() -> None:
    token, weak = make_token(), make_token()
    tokens = {token: {"consume": ["*"], "admin": ["*"]}, weak: {"produce": ["orders"]}}
    with own_namespace() as name, shmq.connect(name) as broker:
        broker.create_queue("orders").put(b"secret")
        broker.create_queue("private")
        with console(name, "--prefix", "/ops", tokens=tokens) as site:
            _sessions(site, token, weak)


def _sessions(site: Console, token: str, weak: str) -> None:
    stranger = Page(open_page(site, "/nowhere").content.decode())
    assert "/ops/queues" not in stranger.links and "shmq test-" not in stranger.text
    asked = open_page(site, "/queues")
    assert (asked.status, asked.headers["location"]) == (303, "/ops/login?next=/ops/queues")
    assert "not accepted" in Page(send(site, "/login", token="wrong").content.decode()).text

    answer = send(site, "/login", token=token, next="/ops/queues")
    assert (answer.status, answer.headers["location"]) == (303, "/ops/queues")
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "Path=/ops", "SameSite=strict"} <= {
        one.strip() for one in cookie.split(";")
    }
    strong = cookie.partition(";")[0]
    assert "Log out" in Page(open_page(site, "/", strong).content.decode()).text
    assert open_page(site, "/queues/orders/messages", strong).status == 200

    for foreign in ("//evil.example/", "https://evil.example/", "/other", "/ops/\\evil"):
        went = send(site, "/login", token=weak, next=foreign)
        assert went.headers["location"] == "/ops/", foreign
    low = went.headers["set-cookie"].partition(";")[0]
    listed = Page(open_page(site, "/queues", low).content.decode()).text
    assert "orders" in listed and "private" not in listed
    assert open_page(site, "/queues/orders/messages", low).status == 403
    assert open_page(site, "/queues/orders/purge", low).status == 403
    assert open_page(site, "/queues/orders/alter", low).status == 403
    assert send(site, "/queues/orders/alter", low, csrf=csrf_of(site, low)).status == 403
    assert open_page(site, "/queues/private", low).status == 404

    csrf = csrf_of(site, strong)
    assert send(site, "/logout", strong, csrf="wrong").status == 403
    assert send(site, "/logout", strong, csrf=csrf).status == 303
    assert open_page(site, "/queues", strong).status == 303


def csrf_of(site: Console, cookie: str) -> str:
    """What the forms of the session send back, of the console under `/ops`."""
    page = Page(open_page(site, "/", cookie).content.decode())
    return page.fields("/ops/logout")["csrf"]


# ---- files ----


def test_the_files_of_others_are_what_they_were_published_as() -> None:
    published = {
        "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
        "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
        "uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    }
    found = {name: hashlib.sha256((STATIC / name).read_bytes()).hexdigest() for name in published}
    assert found == published


def test_no_file_outside_the_folder_is_given(site: Console) -> None:
    for path in (
        "/static/../rendering.py",
        "/static/%2e%2e/rendering.py",
        "/static/",
        "/static/no",
    ):
        assert open_page(site, path).status == 404, path
    assert open_page(site, "/static/console.css").headers["content-type"].startswith("text/css")


@pytest.mark.prove
@pytest.mark.parametrize("page", ["/", "/queues", "/queues/{}", "/queues/{}/put", "/host"])
def test_a_name_of_another_system_is_shown_as_its_text(page: str) -> None:
    text = "<b>celery@host/a</b>"
    queue = shmq.escape_name(text)
    with own_namespace() as name, shmq.connect(name) as broker, console(name) as site:
        broker.create_queue(queue, dead_letter=None).put(b"x")
        path = f"/queues/{quote(queue)}"
        seen(site, path)
        content = open_page(site, page.format(quote(queue))).content.decode()
    assert text in Page(content).text
    assert text not in content
    assert queue not in Page(content).text
    if page != "/queues/{}":
        assert path in Page(content).links


def test_the_messages_of_another_clients_exclusive_queue_are_not_read(
    site: Console, shop: shmq.Broker
) -> None:
    mine = shop.create_queue("mine", exclusive=True)
    mine.put("x")
    mine.get().nack(0, error="why")

    assert "mine" in seen(site, "/queues/mine")
    assert "mine" in seen(site, "/")
    mine.close()
