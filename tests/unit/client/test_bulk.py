"""What very many messages at a time load."""

from __future__ import annotations

import subprocess
import sys

import shmq

_READS = """
import sys, shmq
with shmq.connect(sys.argv[1]) as broker, broker.queue("orders") as queue:
    columns, _ = queue.bulk().read_columns(0)
    assert columns.count == 1
    assert "sqlite3" not in sys.modules, "loaded by a read"
    queue.bulk().take_over("query")
    assert "sqlite3" in sys.modules
"""


def test_sqlite_is_loaded_for_runs_in_a_name_alone(broker: shmq.Broker) -> None:
    broker.create_queue("orders", durability="journal").put(b"1")
    subprocess.run([sys.executable, "-c", _READS, broker.namespace], check=True)
