"""The table of operations: what a request must look like, who may send it, and what answers it.

Each handler is a plain function that is called in a thread, with checked parameters and a decoded
body. Routes and the OpenAPI page are both made from the table.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar

import msgspec

import shmq
from shmq.errors import NoSuchExchange, NoSuchQueue, NoSuchStream, NotFound
from shmq.extras.console.access import Caller
from shmq.extras.console.context import Console
from shmq.extras.console.problem import Problem, text_of
from shmq.host.diagnose.activity import Observation
from shmq.protocol.opcodes import Right
from shmq.suggestions import name_other, suggest_known

_MISSING: Final = {"queue": NoSuchQueue, "stream": NoSuchStream, "exchange": NoSuchExchange}

Kind = Literal["string", "integer", "number", "boolean"]

#: What the headers begin with that are attributes of a CloudEvent, in lower case.
EVENT_PREFIX: Final = "ce-"


@dataclasses.dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of the query, or of the path, with its type and range."""

    name: str
    kind: Kind = "string"
    text: str = ""
    default: Any = None
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    place: Literal["query", "header", "path"] = "query"
    #: Whether a request without it is refused.
    required: bool = False

    def read(self, given: str) -> Any:
        """The value. Raises :class:`Problem` with the range for one that does not fit."""
        value = self._convert(given)
        if self.choices and value not in self.choices:
            raise self._make_error(given, f"be one of {', '.join(self.choices)}")
        if self.kind == "string":
            if self.least is not None and len(value) < self.least:
                raise self._make_error(given, f"have at least {self.least:.0f} characters")
            if self.most is not None and len(value) > self.most:
                raise self._make_error(given, f"have at most {self.most:.0f} characters")
            return value
        if self.least is not None and value < self.least:
            raise self._make_error(given, f"be at least {self.least:g}")
        if self.most is not None and value > self.most:
            raise self._make_error(given, f"be at most {self.most:g}")
        return value

    def _convert(self, given: str) -> Any:
        if self.kind == "boolean":
            if given not in {"true", "false"}:
                raise self._make_error(given, "be true or false")
            return given == "true"
        if self.kind == "string":
            return given
        try:
            value = int(given) if self.kind == "integer" else float(given)
        except ValueError:
            raise self._make_error(
                given, "be an integer" if self.kind == "integer" else "be a number"
            ) from None
        if math.isnan(value):
            raise self._make_error(given, "be a number")
        return value

    def _make_error(self, given: str, rule: str) -> Problem:
        return Problem.invalid(f"{self.name} must {rule}, not {given[:80]!r}")

    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        found: dict[str, Any] = {"type": self.kind}
        least, most = (
            ("minLength", "maxLength") if self.kind == "string" else ("minimum", "maximum")
        )
        limits = {least: self.least, most: self.most}
        found |= {key: value for key, value in limits.items() if value is not None}
        if self.choices:
            found["enum"] = list(self.choices)
        if self.default is not None:
            found["default"] = self.default
        return found


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request: who sent it, and what it asks for."""

    console: Console
    caller: Caller
    #: The parts of the path and the parameters of the query, by name; each has its default.
    given: Mapping[str, Any]
    #: The decoded body; None: the operation takes none. Raw bytes where the operation says so.
    body: Any = None
    #: The headers of the request, with names in lower case.
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: The observation that a page shows; None: the newest.
    observation: Observation | None = None

    @property
    def latest(self) -> Observation:
        """What was observed last."""
        return self.observation or self.console.observer.latest()

    def __getitem__(self, name: str) -> Any:
        """A part of the path or a parameter of the query."""
        return self.given[name]

    def need(self, right: Right, kind: str, name: str, group: str | None = None) -> None:
        """Raise Problem 403 without the right; 404 where the caller may not even see the name."""
        if self.caller.may(right, kind, name, group):
            return
        self.see(kind, name)
        label = f"{name}/{group}" if group else name
        raise Problem(
            403,
            "denied",
            f"token {self.caller.name!r} has no right to {right.name.lower()} {label!r}",
        )

    def see(self, kind: str, name: str) -> None:
        """Raise Problem 404 where the caller may not see the name."""
        if not self.caller.sees(kind, name):
            problem = self.not_found(_MISSING[kind](f"{kind} {name!r} does not exist", name))
            problem.refuses_right = True
            raise problem

    def not_found(self, error: NotFound) -> Problem:
        """The Problem 404 of the error; it suggests no name but one that the caller may see."""
        shown = type(error)(text_of(error))
        suggest_known(
            shown,
            error.name,
            lambda: self._list_visible(error.kind),
            lambda: self._find_other(error.name, error.kind),
        )
        return Problem(404, "not-found", str(shown))

    def _find_other(self, name: str, kind: str) -> str:
        """The hint that something of another kind has the name; "" if the caller sees none."""
        for other in _MISSING:
            if other != kind and name in self._list_visible(other):
                return name_other(other, f"see GET /api/v1/{other}s/{name}")
        return ""

    def _list_visible(self, kind: str) -> Iterator[str]:
        """The names of that kind that the caller may see, by the newest observation."""
        found: Sequence[Any] = getattr(self.latest, f"{kind}s", ())
        return (one.name for one in found if self.caller.sees(kind, one.name))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a handler answers where its value alone does not say all."""

    value: Any = None
    status: int = 200
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: The body as is, of ``media``, in place of a value.
    content: bytes | None = None
    media: str = "application/json"


def download(content: bytes, number: int) -> Answer:
    """The bytes of a body as a file, never as a page: they are whatever their producer wrote."""
    return Answer(
        content=content,
        media="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="{number}.bin"'},
    )


def ensure(
    name: str,
    options: Mapping[str, Any],
    open_: Callable[[str], _T],
    create: Callable[..., _T],
    error: type[NotFound],
) -> tuple[_T, int]:
    """Open what has the name, or create it with the options; and the status of the answer."""
    try:
        return open_(name), 200
    except error:
        return create(name, **options), 201


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of the API."""

    method: str
    #: Below /api/v1, with ``{name}`` for its parts.
    path: str
    #: The operationId, which is the handler's name.
    name: str
    summary: str
    handler: Callable[[Call], Any]
    parameters: tuple[Parameter, ...] = ()
    #: The type of the body, a msgspec Struct; None: there is none; bytes: read as is.
    body: Any = None
    #: The type of each value in a body that is read as is, for the page.
    schema: Any = None
    #: The media types that the body may have.
    media: tuple[str, ...] = ("application/json",)
    #: Whether the body may be the data of a CloudEvent, of any media type, with headers ``ce-*``.
    events: bool = False
    #: The type of the answer.
    answer: Any = None
    status: int = 200
    #: Other statuses of success, with the same answer.
    also: tuple[int, ...] = ()
    #: The other statuses it answers with, beside those of every operation.
    refusals: tuple[int, ...] = ()
    tag: str = ""
    #: Whether it changes something, which --allow-changes must allow.
    changes: bool = False
    #: Whether it may wait long, so that the threads of others are not taken.
    waits: bool = False
    #: The event that is written to the audit trail; None: none is.
    audit: str | None = None


def view_as(kind: type[_T], source: object) -> _T:
    """The fields that a view of that kind has of an object."""
    return msgspec.convert(source, kind, from_attributes=True)


#: Every operation, in the order of the page.
OPERATIONS: Final[list[Operation]] = []

#: The nouns of the API; each module registers its operations when it is imported.
_MODULES: Final = (
    "overview", "queues", "messages", "leases", "streams", "records", "groups", "exchanges",
    "locks", "schemas",
)  # fmt: skip


def load_operations() -> None:
    """Register all operations."""
    for name in _MODULES:
        importlib.import_module(f"shmq.extras.console.api.{name}")


Handler = Callable[[Call], Any]


def operation(
    method: str, path: str, *parameters: Parameter, **row: Any
) -> Callable[[Handler], Handler]:
    """Make the decorated function the handler of an operation; its docstring is the summary."""

    def register(handler: Handler) -> Handler:
        summary = (handler.__doc__ or "").strip().partition("\n")[0]
        OPERATIONS.append(
            Operation(
                method=method,
                path=path,
                name=handler.__name__,
                summary=summary,
                handler=handler,
                parameters=parameters,
                changes=row.pop("changes", method != "GET"),
                **row,
            )
        )
        return handler

    return register


#: The longest wait of one request, in seconds.
LONGEST: Final = 20
#: How long one wait lasts before the console looks whether it ends, in seconds.
SLICE: Final = 0.5

_T = TypeVar("_T")


class Wait:
    """The time that one request has for all that it puts; ``seconds`` is what it asks for.

    With 0 it waits for no room, and for the disk as long as a request may.
    """

    def __init__(self, call: Call, seconds: float) -> None:
        self._ending = call.console.ending
        self._blocks = seconds > 0
        self._until = time.monotonic() + (seconds or LONGEST)

    def put(self, work: Callable[..., _T], *given: Any, disk: bool, **more: Any) -> _T:
        """What ``work`` returns; it takes ``block`` and ``timeout`` besides what is given.

        It is called again while a wait for room lasts, but once if it waits for the ``disk``.
        Raises what ``work`` raises.
        """
        while True:
            left = max(self._until - time.monotonic(), 0.0)
            last = disk or not self._blocks or left <= SLICE or self._ending.is_set()
            try:
                block, timeout = self._blocks and left > 0, left if last else SLICE
                return work(*given, block=block, timeout=timeout, **more)
            except shmq.Full:
                if last:
                    raise
