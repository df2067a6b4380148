"""What event streams send: a snapshot of everything, then the differences of each look.

Rows are made once a look, differences once a look, and both are encoded once for all subscribers
that may see the same. The newest differences are kept, so that a connection that was lost goes on
where it ended.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import fnmatch
import hashlib
import operator
import secrets
import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

import msgspec

import shmq
from shmq.extras.console.access import Caller
from shmq.extras.console.observer import ObserverThread
from shmq.host.diagnose.activity import Observation, QueueActivity, StreamActivity

#: The differences of so many looks are kept for a subscriber that comes again.
KEPT: Final = 60
#: The most events that wait for a subscriber; with one more it is dropped.
MOST_PENDING: Final = 2

Row = dict[str, Any]
#: By kind, ``"queues"``, ``"streams"``, ``"exchanges"`` or ``"host"``, and name.
Rows = dict[tuple[str, str], Row]
#: What changed in each row; None: it is gone.
Changes = dict[tuple[str, str], Row | None]

_KINDS: Final = {"queues": "queue", "streams": "stream", "exchanges": "exchange"}
_NUMBERS: Final = tuple(
    field.name for field in dataclasses.fields(shmq.QueueStats) if field.name != "name"
)
_read: Final = operator.attrgetter(*_NUMBERS)
_NO_NUMBERS: Final = dict.fromkeys(_NUMBERS)


def rows_of(found: Observation) -> Rows:
    """A row for each queue, stream and exchange, and one of the host.

    The columns of a queue are those of the list of queues.
    """
    rows: Rows = {("queues", one.name): _make_queue_row(one) for one in found.queues}
    rows |= {("streams", one.name): _make_stream_row(one) for one in found.streams}
    for one in found.exchanges:
        rows["exchanges", one.name] = {
            "kind": one.kind,
            "bindings": one.bindings,
            "alternate": one.alternate,
            "published": one.published,
            "unrouted": one.unrouted,
            "problem": one.problem,
        }
    if found.host is not None:
        rows["host", ""] = dataclasses.asdict(found.host)
    return rows


def _make_queue_row(queue: QueueActivity) -> Row:
    row: Row = dict(_NO_NUMBERS)
    if queue.stats is not None:
        row = dict(zip(_NUMBERS, _read(queue.stats), strict=True))
        for name in ("oldest_age", "rate_in", "rate_out"):
            row[name] = round(row[name], 3)
        if row["snapshot_age"] is not None:
            row["snapshot_age"] = round(row["snapshot_age"])
    row["identity"] = str(queue.identity)
    row["attached"] = sum(one.alive for one in queue.attachments)
    row["problem"] = queue.problem
    return row


def _make_stream_row(stream: StreamActivity) -> Row:
    return {
        "partitions": stream.partitions,
        "records": stream.records,
        "oldest_age": round(stream.oldest_age, 3),
        "rate_in": round(stream.rate_in, 3),
        "bytes": stream.bytes,
        "hot": list(stream.hot),
        "durability": stream.durability,
        "groups": {
            one.name: {"members": one.members, "records": one.records, "problem": one.problem}
            for one in stream.groups
        },
        "problem": stream.problem,
    }


def find_differences(before: Rows, after: Rows) -> Changes:
    """The values that changed in each row; the whole row of what is new or was recreated."""
    changed: Changes = dict.fromkeys(before.keys() - after.keys())
    for key, row in after.items():
        old = before.get(key)
        if old is None or old.get("identity") != row.get("identity"):
            changed[key] = row
        elif old != row:
            changed[key] = {name: value for name, value in row.items() if old[name] != value}
    return changed


def merge_changes(steps: list[Changes]) -> Changes:
    """The differences of several looks in a row as one."""
    found: Changes = {}
    for step in steps:
        for key, row in step.items():
            before = found.get(key)
            found[key] = row if row is None or before is None else {**before, **row}
    return found


class Subscriber:
    """One reader: the events that wait for it, and whether it was too slow.

    ``wake`` is called by any thread when there is something new.
    """

    def __init__(self, view: View, wake: Callable[[], None]) -> None:
        self.view = view
        self._wake = wake
        self._pending: collections.deque[bytes] = collections.deque()
        self.dropped = False

    def give(self, event: bytes) -> None:
        """Add an event; a subscriber that has not taken those before is dropped."""
        if self.dropped:
            return
        if len(self._pending) >= MOST_PENDING:
            self.dropped = True
            self._pending.clear()
        else:
            self._pending.append(event)
        self._wake()

    def take(self) -> bytes | None:
        """The next event, or None."""
        try:
            return self._pending.popleft()
        except IndexError:
            return None


class View:
    """What subscribers with the same rights and the same pattern see, encoded once for them all."""

    def __init__(self, caller: Caller, pattern: str | None, secret: str) -> None:
        self._caller = caller
        self._pattern = pattern
        self.subscribers: list[Subscriber] = []
        self._sees: dict[tuple[str, str], bool] = {}
        self._snapshot: tuple[int, bytes] | None = None
        identity = repr(self.key_of(caller, pattern)) + secret
        #: What the ids of its events begin with: a caller with other rights has others.
        self.id = hashlib.blake2s(identity.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @staticmethod
    def key_of(caller: Caller, pattern: str | None) -> Hashable:
        """What is equal for callers that see the same."""
        token = caller.token
        if token is None:
            return (None, pattern)
        return (tuple(token.produce), tuple(token.consume), tuple(token.admin), pattern)

    def snapshot(self, number: int, at: float, rows: Rows) -> bytes:
        """The event with all that is seen; the same bytes for all who ask at the same look."""
        if self._snapshot is None or self._snapshot[0] != number:
            self._snapshot = (number, self._encode_event("snapshot", number, at, rows))
        return self._snapshot[1]

    def changes(self, number: int, at: float, changed: Changes) -> bytes:
        """The event with the differences that are seen."""
        return self._encode_event("changes", number, at, changed)

    def _encode_event(
        self, kind: str, number: int, at: float, rows: Mapping[tuple[str, str], Row | None]
    ) -> bytes:
        data: dict[str, Any] = {"at": at}
        for key, row in rows.items():
            if self._can_show(key):
                if key[0] == "host":
                    data["host"] = row
                else:
                    data.setdefault(key[0], {})[key[1]] = self._cut(key[1], row)
        text = msgspec.json.encode(data)
        return b"event: %s\nid: %s-%d\ndata: %s\n\n" % (
            kind.encode(), self.id.encode(), number, text,
        )  # fmt: skip

    def _cut(self, name: str, row: Row | None) -> Row | None:
        """The row with the groups that the caller may look at; only those of streams have any."""
        if row is None or "groups" not in row or self._caller.token is None:
            return row
        groups = {
            group: found
            for group, found in row["groups"].items()
            if self._caller.sees_group(name, group)
        }
        return {**row, "groups": groups}

    def _can_show(self, key: tuple[str, str]) -> bool:
        found = self._sees.get(key)
        if found is None:
            if len(self._sees) > 100_000:  # of names that came and went
                self._sees.clear()
            found = self._sees[key] = self._can_see(*key)
        return found

    def _can_see(self, kind: str, name: str) -> bool:
        if kind == "host":
            return True
        pattern = self._pattern if kind == "queues" else None
        if pattern is not None and not fnmatch.fnmatchcase(name, pattern):
            return False
        return self._caller.sees(_KINDS[kind], name)


class Feed:
    """Follows the observer for all subscribers. Its methods may be called by any thread.

    It listens only as long as there are subscribers, and for a minute after the last.
    """

    def __init__(self, observer: ObserverThread) -> None:
        self._observer = observer
        self._lock = threading.Lock()
        self._secret = secrets.token_hex(8)
        self._views: dict[Hashable, View] = {}
        self._rows: Rows = {}
        self._at = 0.0
        #: The number of the newest look; 0: there was none.
        self._number = 0
        self._steps: collections.deque[Changes] = collections.deque(maxlen=KEPT)
        self._idle = 0
        self._unlisten: Callable[[], None] | None = None

    def subscribe(
        self, caller: Caller, pattern: str | None, last: str | None, wake: Callable[[], None]
    ) -> Subscriber:
        """A new subscriber; its first event, a snapshot or what it missed since ``last``, waits.

        Waits for the first look. Raises :class:`shmq.ConnectionLost` if there is none in time.
        """
        found = self._observer.latest()
        with self._lock:
            if self._number == 0:
                self._rows, self._at, self._number = rows_of(found), found.at, 1
            if self._unlisten is None:
                self._unlisten = self._observer.listen(self.look)
            view = self._get_view(caller, pattern)
            made = Subscriber(view, wake)
            made.give(self._make_first(view, last))
            view.subscribers.append(made)
            return made

    def _get_view(self, caller: Caller, pattern: str | None) -> View:
        key = View.key_of(caller, pattern)
        if key not in self._views:
            self._views[key] = View(caller, pattern, self._secret)
        return self._views[key]

    def _make_first(self, view: View, last: str | None) -> bytes:
        missed = self._find_missed(view, last) if last is not None else None
        if missed is None:
            return view.snapshot(self._number, self._at, self._rows)
        return view.changes(self._number, self._at, merge_changes(missed))

    def _find_missed(self, view: View, last: str) -> list[Changes] | None:
        """The differences since the event with that id; None if they are not known any more."""
        shown, _, number = last.partition("-")
        if shown != view.id or not (number.isascii() and number.isdigit() and len(number) < 19):
            return None
        count = self._number - int(number)
        if not 0 <= count <= len(self._steps):
            return None
        return list(self._steps)[len(self._steps) - count :]

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """End a subscription. Takes no lock: an event loop calls it."""
        with contextlib.suppress(ValueError):
            subscriber.view.subscribers.remove(subscriber)

    def look(self, found: Observation) -> None:
        """Send the differences to the last look to all subscribers."""
        rows = rows_of(found)
        with self._lock:
            changed = find_differences(self._rows, rows)
            self._rows, self._at = rows, found.at
            self._number += 1
            self._steps.append(changed)
            self._views = {key: view for key, view in self._views.items() if view.subscribers}
            for view in self._views.values():
                event = view.changes(self._number, found.at, changed)
                for subscriber in list(view.subscribers):
                    subscriber.give(event)
            self._idle = 0 if self._views else self._idle + 1
            if self._idle > KEPT:
                self._stop_listening()

    def _stop_listening(self) -> None:
        """Stop to listen, and forget; the next subscriber starts again."""
        if self._unlisten is not None:
            self._unlisten()
        self._unlisten, self._idle, self._rows = None, 0, {}
        self._steps.clear()
        self._number = 0
        self._secret = secrets.token_hex(8)
