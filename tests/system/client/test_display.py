"""How handles look in a notebook and in a terminal: escaped, and without a look at the queue."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

import shmq
from tests.support.namespaces import own_namespace
from tests.support.server import serve

EVIL = "<script>alert(1)</script>"


def printed(value: object) -> str:
    out = io.StringIO()
    Console(file=out, width=200).print(value)
    return out.getvalue()


def test_what_is_shown_of_local_handles(monkeypatch: pytest.MonkeyPatch) -> None:
    with own_namespace() as namespace, shmq.connect(namespace) as broker:
        queue = broker.create_queue("jobs", dead_letter=None)
        queue.put(EVIL)
        queue.put("x" * 500)
        batch = queue.get_batch(2)
        stats = queue.stats()
        assert f"<td>{namespace}</td>" in broker._repr_html_()
        assert "&lt;script&gt;" in batch._repr_html_()
        assert "<script>" not in batch._repr_html_()
        assert "(500 characters)" in batch._repr_html_()
        assert "<tr><th>in_flight</th><td>2</td></tr>" in stats._repr_html_()
        assert "in_flight=2" in printed(stats)
        assert "'jobs'" in printed(queue)
        batch.ack()
        queue.close()
        broker.delete_queue("jobs")
        # Neither a closed queue nor one that is deleted is looked at.
        assert "<tr><th>closed</th><td>True</td></tr>" in queue._repr_html_()


def test_what_is_shown_of_columns() -> None:
    with own_namespace() as namespace, shmq.connect(namespace) as broker:
        queue = broker.create_queue("jobs", dead_letter=None)
        queue.put_many(["a", "b"])
        columns, _ = queue.bulk().read_columns(0)
        assert "<tr><th>messages</th><td>2</td></tr>" in columns._repr_html_()


def test_a_remote_handle_is_shown_while_its_server_is_gone() -> None:
    with own_namespace() as namespace, serve(namespace) as server:
        broker = shmq.connect(server.url)
        queue = broker.create_queue("jobs", dead_letter=None)
        queue.put(EVIL)
        with queue.get_batch(1) as batch:
            assert "&lt;script&gt;" in batch._repr_html_()
        assert server.stops() == 0
        assert server.url in broker._repr_html_()
        assert server.url in queue._repr_html_()
        broker.close()
        assert server.url in printed(broker)
