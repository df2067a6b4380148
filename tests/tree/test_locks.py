"""Locks of what a program uses: a forked child must not wait for a thread of its parent."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: Locks that `shmq.fork_safe` does not create, and why a child needs none of it.
OTHERS = {
    "shmq/client/local/waiting/guardian.py": "a fork ends its thread; a child has no guardians",
    "shmq/extras/nats/client/flight.py": "recreated in the child",
    "shmq/extras/nats/client/loop_thread.py": "of one call, in whose thread no child goes on",
    "shmq/client/remote/ack_flusher.py": "recreated in the child",
    "shmq/client/remote/connect.py": "of a connection of the parent, which the child replaces",
    "shmq/client/shared/reply_inbox.py": "of a reply queue of the parent, which the child replaces",
    "shmq/client/shared/rpc_client.py": "recreated in the child",
    "shmq/client/shared/rpc_server.py": "of a call that serves, in whose thread no child goes on",
    "shmq/extras/celery/transport.py": "of a connection, which a child replaces",
    "shmq/extras/dramatiq/consumer.py": "of a worker's thread, in which no child goes on",
    "shmq/mp/mutex.py": "recreated in the child",
    "shmq/host/namespace/data_directory.py": "of a writer, which does not fork",
    "shmq/model/table/database.py": "a fork waits for it",
}
KINDS = {"Lock", "RLock", "Condition", "Event", "Semaphore", "BoundedSemaphore", "Barrier"}
FOLDERS = (
    "client",
    "disk/storage",
    "extras/celery",
    "extras/django",
    "extras/dramatiq",
    "extras/faststream",
    "extras/frameworks",
    "extras/nats/client",
    "extras/taskiq",
    "host/namespace",
    "model",
    "mp",
)


def creates_locks(path: Path) -> bool:
    """Whether the module creates a lock; a cached property has one until Python 3.11."""
    text = path.read_text()
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    return "@functools.cached_property" in text or any(
        not call.args and ast.unparse(call.func).removeprefix("threading.") in KINDS
        for call in calls
    )


def test_the_locks_of_handles_are_renewed_in_a_child() -> None:
    found = {
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in (ROOT / "shmq" / folder).rglob("*.py")
        if creates_locks(path)
    }
    assert found == OTHERS.keys()
