"""One request for a page: who sent it, what it asks for, and the table of all pages."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import anyio.from_thread
import msgspec

import shmq
from shmq.api.query_pages import TABLE, is_web_page, key_of
from shmq.errors import ShmqError
from shmq.extras.console.access import Caller
from shmq.extras.console.api.operation import OPERATIONS, Call, Operation
from shmq.extras.console.api.routes import answer_call
from shmq.extras.console.context import Console
from shmq.extras.console.problem import Problem
from shmq.host.diagnose.activity import Observation, QueueActivity
from shmq.protocol.opcodes import Right

#: The longest expression of a form, in characters.
MOST_WHERE: Final = 4096
#: The most digits of a number: those of 2^64.
_MOST_DIGITS: Final = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Visit:
    """A request for a page. Its handler runs in a thread."""

    console: Console
    caller: Caller
    #: The names in the path.
    path: Mapping[str, str]
    query: Mapping[str, str]
    #: The fields of a form that was sent; empty for a GET.
    form: Mapping[str, str]
    #: What the forms of the page must send back.
    csrf: str = dataclasses.field(repr=False)

    @functools.cached_property
    def latest(self) -> Observation:
        """What was observed last: the same for all parts of the page."""
        return self.console.observer.latest()

    @property
    def seen(self) -> float | None:
        """When that was; None if the page shows nothing of it."""
        return self.latest.at if "latest" in vars(self) else None

    def __getitem__(self, name: str) -> str:
        """A name in the path."""
        return self.path[name]

    # ---- what was asked for ----

    def text(self, name: str, most: int = MOST_WHERE) -> str | None:
        """A field of the query; None if it is empty. Raises Problem for one that is too long."""
        given = self.query.get(name, "").strip()
        if len(given) > most:
            raise Problem.invalid(f"{name} has more than {most} characters")
        return given or None

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number of the query. Raises Problem for one out of its range."""
        given = self.query.get(name, "").strip()
        if not given:
            return default
        plain = given.isascii() and given.isdigit() and len(given) <= _MOST_DIGITS
        if not (plain and least <= int(given) <= most):
            raise Problem.invalid(
                f"{name}={given[:40]!r} is not a whole number from {least} to {most}"
            )
        return int(given)

    # ---- rights ----

    def need(self, right: Right, kind: str, name: str) -> None:
        """Raise Problem 403 without the right, 404 where even the name is not shown."""
        self._call({}, None).need(right, kind, name)

    def see(self, kind: str, name: str) -> None:
        """Raise Problem 404 where the name is not shown."""
        self._call({}, None).see(kind, name)

    def reads(self, name: str) -> bool:
        """Whether the caller may see what is in the queue's messages."""
        return self.caller.may(Right.CONSUME, "queue", name)

    def changes(self, right: Right, kind: str, name: str) -> bool:
        """Whether forms that need the right are shown."""
        return self.console.settings.allow_changes and self.caller.may(right, kind, name)

    def queue(self, name: str) -> QueueActivity | None:
        """What the queue did at the last look; None: it was not there."""
        return next((one for one in self.latest.queues if one.name == name), None)

    # ---- operations of the API ----

    def ask(self, operation: str, /, **given: Any) -> Any:
        """What the reading operation of the API answers."""
        row = _find_operation(operation)
        assert not row.changes
        return row.handler(self.call(operation, **given))

    def call(self, operation: str, /, **given: Any) -> Call:
        """The call of an operation about what the page shows."""
        made = self._call(given, None, _find_operation(operation))
        return dataclasses.replace(made, observation=self.latest)

    def perform(self, operation: str, /, body: Any = None, **given: Any) -> Any:
        """Do a changing operation of the API, as a request for it does; its decoded answer."""
        row = _find_operation(operation)
        if row.body is not None and row.body is not bytes:
            body = msgspec.convert(body, row.body)
        response = anyio.from_thread.run(answer_call, row, self._call(given, body, row))
        return msgspec.json.decode(response.body) if response.body else None

    def _call(self, given: Mapping[str, Any], body: Any, row: Operation | None = None) -> Call:
        defaults = {one.name: one.default for one in row.parameters} if row is not None else {}
        return Call(
            console=self.console, caller=self.caller, given={**defaults, **given}, body=body
        )


def _find_operation(name: str) -> Operation:
    return next(one for one in OPERATIONS if one.name == name)


@dataclasses.dataclass(frozen=True, slots=True)
class Shown:
    """A template with its values."""

    template: str
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Redirect:
    """Go to another page after a change; ``path`` is without the prefix."""

    path: str


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """One page: its path, and the function that answers it."""

    method: Literal["GET", "POST"]
    path: str
    handler: Callable[[Visit], Shown | Redirect]


#: Every page and every form that is sent.
PAGES: Final[list[Page]] = []

#: The subjects of the pages; each module registers its own when it is imported.
_MODULES: Final = (
    "overview", "queues", "messages", "dead_letters", "streams", "exchanges", "locks", "advice",
    "changes",
)  # fmt: skip


def load_pages() -> None:
    """Register all pages. The operations of the API must have been loaded."""
    for name in _MODULES:
        importlib.import_module(f"shmq.extras.console.pages.{name}")


Handler = Callable[[Visit], Shown | Redirect]


def page(path: str, method: Literal["GET", "POST"] = "GET") -> Callable[[Handler], Handler]:
    """Make the decorated function the handler of a page, or of a form that is sent by POST."""

    def register(handler: Handler) -> Handler:
        PAGES.append(Page(method, path, handler))
        return handler

    return register


#: The most pages that are shown of one queue or stream.
_MOST_QUERY_PAGES: Final = 20


def query_pages(broker: shmq.Broker, kind: Literal["queue", "stream"], name: str) -> list[str]:
    """The addresses of the pages; none where they cannot be read, as they are only shown."""
    try:
        if TABLE not in broker.list_tables():
            return []
        with broker.table(TABLE) as table:
            pages = table.get_many(table.keys(key_of(kind, name, ""), _MOST_QUERY_PAGES))
    except ShmqError:
        return []
    return sorted({url for url in pages.values() if is_web_page(url)})
