"""The traced methods of each contract: their spans, and where the headers are."""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from shmq.api.contract import unwrapped
from shmq.extras.otel.context import MOST_LINKS, link_of
from shmq.extras.otel.operation import Operation
from shmq.extras.otel.telemetry import identify, link_received, received_one
from shmq.native import _stream

#: A `shmq.extras.otel.proxy.Traced`.
Traced = Any


class Call:
    """The arguments of a call; those given by position or by name are found by their index."""

    __slots__ = ("given", "named", "names")

    def __init__(self, names: list[str], given: tuple[Any, ...], named: dict[str, Any]) -> None:
        self.names = names
        self.given = list(given)
        self.named = named

    def __getitem__(self, index: int) -> Any:
        if index < len(self.given):
            return self.given[index]
        return self.named.get(self.names[index])

    def __setitem__(self, index: int, value: Any) -> None:
        if index < len(self.given):
            self.given[index] = value
        elif self.names[index] in self.named:
            self.named[self.names[index]] = value


#: Notes the result of a call in its operation.
Note = Callable[[Operation, Any], None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A method without a span: it takes a proxy for its target, or returns one."""

    #: The contract of the returned handle, or of each of the returned ones. Empty: the result is
    #: returned as is.
    opens: str = ""
    #: The place of the returned handle.
    place: Literal["same", "named", "group"] = "same"
    #: The index of an argument that names the destination of the operation, or is its handle.
    target: int | None = None

    def start(self, proxy: Traced, call: Call) -> Any:
        """The operation of a call, whose arguments it may replace. None: it has none."""
        self.replace_target(proxy, call)
        return None

    def end(self, proxy: Traced, operation: Any, done: Any) -> Any:
        """Finish the operation of a call that has returned; returns the result for the caller."""
        del operation
        return self.opened(proxy, done)

    def replace_target(self, proxy: Traced, call: Call) -> Any:
        """The place of the target, in place of whose proxy the call gets the handle."""
        if self.target is None:
            return proxy.trace_place
        target = call[self.target]
        call[self.target] = unwrapped(target)
        return proxy.trace_place.at(str(getattr(target, "name", target)))

    def opened(self, proxy: Traced, done: Any) -> Any:
        """The result with proxies of its handles."""
        if not self.opens:
            return done
        if isinstance(done, list):
            return [proxy.trace_open(self.opens, each) for each in done]
        place = proxy.trace_place
        if self.place != "same":
            place = place.at(done.name) if self.place == "named" else place.within(done.name)
        return proxy.trace_open(self.opens, done, place)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Own(Row):
    """A method that the contract implements with its other methods, which are traced."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Itself(Row):
    """A method that returns the proxy: it is its own iterator."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Through(Row):
    """A method whose handle wraps that of another traced method with the same arguments."""

    method: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Spanned(Row):
    """A method with a span."""

    #: What the span says of the result.
    note: Note | None = None

    def end(self, proxy: Traced, operation: Any, done: Any) -> Any:
        if self.note is not None:
            self.note(operation, done)
        proxy.trace_finish(operation)
        return self.opened(proxy, done)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Send(Spanned):
    """A method that sends messages. Its span is of the call alone."""

    name: str = "send"
    #: Where the headers are: one map for all bodies, one for each, or none, as the bodies are
    #: encoded already.
    headers: Literal["one", "each", "encoded"] = "one"
    #: The index of the argument that holds many bodies.
    bodies: int | None = None

    def start(self, proxy: Traced, call: Call) -> Any:
        given = call.named.get("headers")
        if self.headers == "each":
            assert self.bodies is not None
            _stream.check_many(call[self.bodies])
            if not hasattr(call[self.bodies], "__len__"):
                call[self.bodies] = list(call[self.bodies])
            _stream.check_each("headers", given, len(call[self.bodies]))
        place = self.replace_target(proxy, call)
        if self.headers == "encoded":
            sending = proxy.trace_telemetry.send_encoded(place)
            sending.in_partition(call.named.get("partition"))
            return sending
        sending = proxy.trace_telemetry.send(
            place, given if self.headers == "one" else None, self.name
        )
        if self.bodies is not None:
            sending.batch(operator.length_hint(call[self.bodies]))
        if self.headers == "one":
            call.named["headers"] = sending.headers(given)
        else:
            sending.in_partition(call.named.get("partition"))
            each = [None] * sending.count if given is None else list(given)
            for one in each[:MOST_LINKS]:
                sending.link(link_of(one))
            call.named["headers"] = [sending.headers(one) for one in each]
        return sending


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lend(Send):
    """A method that returns a loan. Its span lasts until the commit."""

    def end(self, proxy: Traced, operation: Any, done: Any) -> Any:
        loan = self.opened(proxy, done)
        loan.trace_sending = operation
        return loan


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Receive(Spanned):
    """A method that receives messages, or records."""

    #: The index of the argument that names a partition.
    partition: int | None = None

    def start(self, proxy: Traced, call: Call) -> Any:
        receiving = proxy.trace_telemetry.receive(proxy.trace_place)
        if self.partition is not None:
            receiving.in_partition(call[self.partition])
        return receiving


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settle(Spanned):
    """A method that settles messages."""

    name: str
    #: The messages or receipts: the proxy's own message, the first argument, each item of it, the
    #: arguments after the target, or none.
    what: Literal["itself", "first", "each", "rest", "none"] = "none"

    def start(self, proxy: Traced, call: Call) -> Any:
        place = self.replace_target(proxy, call)
        settled = self._settled(proxy, call)
        known = [each for each in settled if hasattr(each, "headers")]
        settling = proxy.trace_telemetry.settle(place, self.name, *known)
        if self.what == "each":
            settling.attributes.pop("messaging.message.id", None)
            settling.batch(len(settled))
        return settling

    def _settled(self, proxy: Traced, call: Call) -> list[Any]:
        """The messages or receipts without their proxies, which the call gets, too."""
        if self.what == "itself":
            return [proxy.__wrapped__]
        if self.what == "first":
            call[0] = unwrapped(call[0])
            return [call[0]]
        if self.what == "each":
            call[0] = [unwrapped(each) for each in call[0]]
            return list(call[0])
        if self.what == "rest":
            call.given[1:] = map(unwrapped, call.given[1:])
            return call.given[1:]
        return []


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Commit(Settle):
    """A commit of a member's offsets in a transaction: its place is the member's."""

    name: str = "commit"

    def replace_target(self, proxy: Traced, call: Call) -> Any:
        member = call[0]
        call[0] = unwrapped(member)
        return getattr(member, "trace_place", proxy.trace_place)


# ---- what a span says of the result ----


def _reply(operation: Operation, done: Any) -> None:
    # The span lasts until the reply, and links to it.
    operation.link(link_of(done.headers))


def _count_block(operation: Operation, done: Any) -> None:
    operation.batch(done.count)


def _count_bare(operation: Operation, done: Any) -> None:
    # Its messages have no headers, so its span has no links.
    operation.batch(len(done))


def _link_received(operation: Operation, done: Any) -> None:
    operation.batch(len(done))
    link_received(operation, done)


def _count_polled(operation: Operation, done: Any) -> None:
    operation.batch(sum(map(len, done)))
    link_received(operation, itertools.chain.from_iterable(done))


# ---- the table ----

_OWN: Final = Own()
_SEND: Final = Send(note=identify)
_NEXT: Final = Receive(note=received_one)
_GET: Final = Receive(note=received_one, opens="Message")
_SHARED: Final = Receive(note=received_one, opens="SharedRecord")
_BARE: Final = Receive(note=_count_bare)
_POLL: Final = Receive(note=_count_polled)
_REQUEST: Final = Send(name="request", target=0, note=_reply)
_QUEUE: Final = Row(opens="Queue", place="named")
_EXCHANGE: Final = Row(opens="Exchange", place="named")
_STREAM: Final = Row(opens="Stream", place="named")

_MESSAGE: Final = {name: Settle(name=name, what="itself") for name in ("ack", "nack", "reject")}
_ASYNC: Final = {"__aenter__": _OWN, "__aexit__": _OWN}
_ITER: Final = {"__iter__": Itself()}
_AITER: Final = {"__aiter__": Itself()}

#: The rows by the name of the contract in `shmq.api`, and by method. A method that is not here is
#: that of the wrapped handle.
TABLE: Final[Mapping[str, Mapping[str, Row]]] = {
    "Broker": {
        "create_queue": _QUEUE,
        "queue": _QUEUE,
        "put_target": _QUEUE,
        "ensure_queue": _QUEUE,
        "create_exchange": _EXCHANGE,
        "exchange": _EXCHANGE,
        "ensure_exchange": _EXCHANGE,
        "create_stream": _STREAM,
        "stream": _STREAM,
        "ensure_stream": _STREAM,
        "subscribe": _OWN,
        "asubscribe": Row(opens="AsyncSubscription", place="named"),
        "transaction": Row(opens="Transaction"),
        "request": _REQUEST,
        "arequest": _REQUEST,
    },
    "Queue": {
        "put": _SEND,
        "put_nowait": _OWN,
        "aput": _SEND,
        "put_many": Send(bodies=0, note=Operation.batch),
        "put_packed": _SEND,
        "loan": Lend(opens="Loan"),
        "pipeline": Row(opens="Pipeline"),
        "get": _GET,
        "get_nowait": _OWN,
        "aget": _GET,
        "get_many": Receive(note=_link_received, opens="Message"),
        "get_batch": _BARE,
        "get_packed": _BARE,
        "consume": Row(opens="Consumer"),
        "bodies": Through(method="consume", opens="Bodies"),
        "aconsume": Row(opens="AsyncConsumer"),
        "abodies": Through(method="aconsume", opens="AsyncBodies"),
        "ack_many": Settle(name="ack", what="each"),
        "ack": Settle(name="ack", what="first"),
        "nack": Settle(name="nack", what="first"),
        "reject": Settle(name="reject", what="first"),
        "extend": Row(target=0),
    },
    "Message": _MESSAGE,
    "Loan": {},
    "Pipeline": {"put": Send()},
    "Consumer": {**_ITER, "__next__": _GET},
    "AsyncConsumer": {**_AITER, **_ASYNC, "__anext__": _GET},
    "Bodies": _ITER,
    "AsyncBodies": {**_AITER, "__aenter__": _OWN},
    "Exchange": {
        # All copies of a message have one context.
        "publish": Send(name="publish"),
        "publish_many": Send(name="publish", bodies=0),
    },
    "Stream": {
        "append": Send(name="append", note=identify),
        "append_many": Send(name="append", headers="each", bodies=0),
        "append_block": Send(headers="encoded", note=_count_block),
        "loan": Lend(name="append", opens="RecordLoan"),
        "producer": Row(opens="Producer"),
        "read": Receive(note=_link_received, partition=0),
        "reader": Row(opens="Reader"),
        "areader": Row(opens="AsyncReader"),
        "subscribe": Row(opens="Subscription"),
        "asubscribe": Row(opens="AsyncSubscription"),
        "group": Row(opens="Group", place="group"),
        "share": Row(opens="Share", place="group"),
    },
    "RecordLoan": {},
    "Producer": {"send": Send(note=Operation.in_partition)},
    "Reader": {**_ITER, "__next__": _NEXT, "poll": _POLL},
    "AsyncReader": {**_AITER, **_ASYNC, "__anext__": _NEXT},
    "Subscription": {**_ITER, "__next__": _NEXT, "poll": Receive(note=_link_received)},
    "AsyncSubscription": {**_AITER, "__aexit__": _OWN, "__anext__": _NEXT},
    "Group": {"join": Row(opens="Member")},
    "Member": {**_ITER, "__next__": _NEXT, "poll": _POLL, "commit": Settle(name="commit")},
    "Share": {
        "get": _SHARED,
        "get_many": Receive(note=_link_received, opens="SharedRecord"),
        "consume": Row(opens="Iterator"),
        "ack_many": Settle(name="ack", what="each"),
    },
    "SharedRecord": _MESSAGE,
    #: The records of a share group, one by one.
    "Iterator": {**_ITER, "__next__": _SHARED},
    "Transaction": {
        "put": Send(target=0),
        "append": Send(name="append", target=0),
        "append_many": Send(name="append", target=0, headers="each", bodies=1),
        "commit": Commit(),
        "ack": Settle(name="ack", target=0, what="rest"),
        "__enter__": _OWN,
        "__exit__": _OWN,
    },
}
