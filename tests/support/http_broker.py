"""A client of the console's HTTP API with the contract's methods, for the conformance tests.

It has what HTTP offers of brokers, queues, messages, exchanges and schemas. A program needs no
such client: the API is for programs in any language.
"""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self

import httpx
import msgpack

import shmq
from shmq.api.message import DeadLetter, Failure
from shmq.api.options import QueueOptions
from shmq.api.properties import TEXTS
from shmq.model.failure import pack_error, unpack_error

#: The longest wait that one request asks for, in seconds.
_SLICE = 5.0
_LINES = 5000
_NOUNS: dict[str, type[shmq.ShmqError]] = {
    "queues": shmq.NoSuchQueue,
    "exchanges": shmq.NoSuchExchange,
    "streams": shmq.NoSuchStream,
    "schemas": shmq.NoSuchQueue,
}
_EXISTS: dict[str, type[shmq.ShmqError]] = {
    "queues": shmq.QueueExists,
    "exchanges": shmq.ExchangeExists,
    "streams": shmq.StreamExists,
}
_CODES: dict[str, type[shmq.ShmqError]] = {
    "deleted": shmq.QueueDeleted,
    "lease-expired": shmq.LeaseExpired,
    "full": shmq.Full,
    "too-large": shmq.MessageTooLarge,
    "schema": shmq.SchemaError,
    "unroutable": shmq.Unroutable,
    "no-space": shmq.NoSpace,
    "locked": shmq.LockTimeout,
    "unsupported": shmq.Unsupported,
    "shutting-down": shmq.ShuttingDown,
}


class Invalid(shmq.InvalidOption, shmq.InvalidName, TypeError):
    """What HTTP refuses with ``invalid``: one code for a wrong value, name or type."""


class Put(NamedTuple):
    """The result of a put."""

    sequence: int
    duplicate: bool


class _Api:
    """Requests, and the errors that their problem details tell."""

    def __init__(self, url: str) -> None:
        self.client = httpx.Client(
            base_url=url + "/api/v1/",
            headers={"X-Shmq-CSRF": "1"},
            timeout=60,
            verify=False,  # noqa: S501 - there is no TLS, and its settings take 50 ms to be read
            trust_env=False,
            limits=httpx.Limits(max_connections=None),
        )

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        if body is not None:
            more["content"] = json.dumps(body).encode()
            more["headers"] = {"Content-Type": "application/json", **more.get("headers", {})}
        if self.client.is_closed:
            raise shmq.ShmqError("this broker is closed")
        answer = self.client.request(method, path, **more)
        if answer.is_success:
            is_json = answer.headers.get("content-type", "").startswith("application/json")
            return answer.json() if is_json and answer.content else answer.content
        raise error_of(path, answer.json())


def error_of(path: str, problem: Mapping[str, Any]) -> shmq.ShmqError:
    """The error that a problem tells, with what the problem adds as ``more``."""
    noun, code = path.partition("/")[0], problem["code"]
    kind: type[shmq.ShmqError] = shmq.ServerError
    if code == "not-found":
        kind = _NOUNS.get(noun, shmq.NoSuchQueue)
    elif code == "exists":
        kind = _EXISTS.get(noun, shmq.QueueExists)
    elif code == "invalid":
        kind = Invalid
    else:
        kind = _CODES.get(code, kind)
    error = kind(problem["detail"])
    if code == "already-settled":
        how, ago = re.findall(r"settled by (\w+)\(\) ([0-9.]+) s ago", problem["detail"])[0]
        error = shmq.AlreadySettled(problem["detail"], how, float(ago))
    error.more = problem  # type: ignore[attr-defined]
    return error


def _part(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"name={name!r} must be a str")
    if not name or "/" in name:
        raise Invalid(f"{name!r} is not a name")
    return httpx.URL("http://h/").copy_with(path="/" + name).raw_path.decode()[1:]


def _encoded(body: Any) -> dict[str, Any]:
    """The body, its encoding and its codec, as a message of the API has them."""
    if isinstance(body, str):
        return {"body": body, "encoding": "text"}
    if isinstance(body, bytes | bytearray | memoryview):
        return {"body": base64.b64encode(bytes(body)).decode(), "encoding": "base64"}
    return {"body": body, "codec": "msgpack"}


def _message(body: Any, **properties: Any) -> dict[str, Any]:
    given = {name: value for name, value in properties.items() if value is not None}
    for name, value in given.items():
        if isinstance(value, dt.timedelta):
            given[name] = f"{value.total_seconds():f}s"
        elif isinstance(value, dt.datetime):
            given[name] = value.isoformat()
    return _encoded(body) | given


def _text_of(error: Any) -> Any:
    """The error as HTTP takes it: an object, or a text."""
    if not isinstance(error, BaseException | Failure):
        return error
    kept = unpack_error(msgpack.unpackb(pack_error(error)))
    assert kept is not None
    text = kept.text if isinstance(error, Failure) else str(error)
    return {"type": kept.type, "text": text, "trace": kept.trace}


def failure(row: dict[str, Any] | None) -> Failure | None:
    return None if row is None else Failure(**row)


def dead_letter(row: dict[str, Any] | None) -> DeadLetter | None:
    return None if row is None else DeadLetter(**{**row, "error": failure(row["error"])})


class HttpMessage:
    """One message, as an answer had it."""

    def __init__(self, queue: HttpQueue, row: dict[str, Any]) -> None:
        self._queue = queue
        self._row = row
        self.settled = False
        self.sequence = row["sequence"]
        self.headers = row["headers"]
        self.codec = row["codec"]
        self.priority = row["priority"]
        for name in TEXTS:
            setattr(self, name, row[name])
        self.delivery_count = row["deliveries"]
        self.receipt = row["receipt"]
        self.dead = dead_letter(row["dead"])
        self.last_error = failure(row["last_error"])

    @property
    def body(self) -> Any:
        value, encoding = self._row["body"], self._row["encoding"]
        if encoding == "base64":
            return base64.b64decode(value)
        return value.encode() if self.codec == "bytes" else value

    def _settle(self, how: str, **more: Any) -> None:
        if self.receipt is None:
            raise shmq.LeaseExpired("it is not leased")
        self._queue.settle(self.receipt, how, **more)
        self.settled = how != "extend"

    def ack(self) -> None:
        self._settle("ack")

    def nack(self, delay: float | None = None, *, counted: bool = True, error: Any = None) -> None:
        self._settle("nack", delay=delay, counted=counted, error=_text_of(error))

    def reject(self, reason: Any = None) -> None:
        self._settle("reject", error=_text_of(reason))

    def extend(self, seconds: float) -> None:
        self._settle("extend", seconds=seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if not self.settled:
            if kind is None:
                self.ack()
            else:
                self.nack(error=error)


class HttpQueue:
    """A queue; what this handle leases is of a session of its own."""

    def __init__(self, api: _Api, row: dict[str, Any]) -> None:
        self._api = api
        self.name = row["name"]
        self.identity = int(row["identity"])
        self.options = QueueOptions.for_queue(self.name, row["options"])
        self._path = f"queues/{_part(self.name)}"
        self._session: str | None = None

    def _ask(self, method: str, path: str = "", body: Any = None, **more: Any) -> Any:
        try:
            return self._api.ask(method, self._path + path, body, **more)
        except shmq.NoSuchQueue as error:
            raise shmq.QueueDeleted(str(error)) from error

    # ---- put ----

    def _until(self, block: bool | None, timeout: float | None) -> float:
        """When a put gives up, by the monotonic clock."""
        if block is None:
            block = timeout is not None or self.options.overflow == "block"
        if not block:
            return 0.0
        return float("inf") if timeout is None else time.monotonic() + timeout

    def put(
        self, body: Any, block: bool | None = None, timeout: float | None = None, **properties: Any
    ) -> Put:
        until = self._until(block, timeout)
        message = _message(body, **properties)
        while True:
            left = min(max(until - time.monotonic(), 0.0), _SLICE)
            try:
                found = self._ask("POST", "/messages", message, params={"timeout": left})
            except shmq.Full:
                if until <= time.monotonic():
                    raise
            else:
                return Put(found["sequences"][0], found["duplicates"] > 0)

    def put_nowait(self, body: Any, **properties: Any) -> Put:
        return self.put(body, False, **properties)

    def put_many(
        self,
        bodies: Iterable[Any],
        block: bool | None = None,
        timeout: float | None = None,
        **properties: Any,
    ) -> int:
        if isinstance(bodies, str | bytes | Mapping):
            raise TypeError("give a list of bodies")
        until = self._until(block, timeout)
        lines = [json.dumps(_message(body, **properties)) for body in bodies]
        count = 0
        while count < len(lines):
            left = min(max(until - time.monotonic(), 0.0), _SLICE)
            try:
                self._ask(
                    "POST",
                    "/messages",
                    params={"timeout": left},
                    content="\n".join(lines[count : count + _LINES]).encode(),
                    headers={"Content-Type": "application/x-ndjson"},
                )
            except shmq.Full as error:
                count += int(error.more["taken"])  # type: ignore[attr-defined]
                if until <= time.monotonic():
                    return count
            else:
                count += len(lines[count : count + _LINES])
        return count

    # ---- get and settle ----

    def get_many(
        self,
        max: int,
        timeout: float | None = None,
        *,
        block: bool = True,
        where: str | None = None,
    ) -> list[HttpMessage]:
        until = float("inf") if timeout is None else time.monotonic() + timeout
        while True:
            left = min(until - time.monotonic(), _SLICE) if block else 0.0
            found = self._lease(max, left if left > 0 else 0.0, where)
            if found or not block or until <= time.monotonic():
                return found

    def _lease(self, most: int, wait: float, where: str | None) -> list[HttpMessage]:
        asked = {"max": min(most, 1000), "wait": wait, "where": where, "session": self._session}
        try:
            found = self._ask("POST", "/lease", asked)
        except shmq.LeaseExpired:  # the session has ended: the next lease begins another
            asked["session"] = None
            found = self._ask("POST", "/lease", asked)
        if self._session is None or asked["session"] is None:
            self._session = self._session or found["session"]
        return [HttpMessage(self, row) for row in found["items"]]

    def get(
        self, block: bool = True, timeout: float | None = None, *, where: str | None = None
    ) -> HttpMessage:
        found = self.get_many(1, timeout, block=block, where=where)
        if not found:
            raise shmq.Empty(f"queue {self.name!r} had no message in time")
        return found[0]

    def get_nowait(self, *, where: str | None = None) -> HttpMessage:
        return self.get(False, where=where)

    @contextlib.contextmanager
    def consume(
        self,
        prefetch: int = 64,
        timeout: float | None = None,
        *,
        block: bool = True,
        where: str | None = None,
    ) -> Iterator[Iterator[HttpMessage]]:
        """Messages one after the other: HTTP has no call that gives back what was not used."""

        def messages() -> Iterator[HttpMessage]:
            while found := self.get_many(1, timeout, block=block, where=where):
                yield found[0]

        yield messages()

    def settle(self, receipt: Any, how: str, **more: Any) -> None:
        asked = {"receipts": [str(receipt)], "how": how, **more}
        for one in self._api.ask("POST", "settle", asked)["refused"]:
            raise error_of("queues", one)

    def ack(self, receipt: Any) -> None:
        self.settle(receipt, "ack")

    def nack(
        self, receipt: Any, delay: float | None = None, *, counted: bool = True, error: Any = None
    ) -> None:
        self.settle(receipt, "nack", delay=delay, counted=counted, error=_text_of(error))

    def reject(self, receipt: Any, reason: Any = None) -> None:
        self.settle(receipt, "reject", error=_text_of(reason))

    def extend(self, receipt: Any, seconds: float) -> None:
        self.settle(receipt, "extend", seconds=seconds)

    def ack_many(self, messages: Iterable[Any]) -> list[Any]:
        given = [getattr(one, "receipt", one) for one in messages]
        shown = {str(receipt): receipt for receipt in given}
        refused: list[Any] = []
        for begin in range(0, len(given), 1000):
            piece = [str(one) for one in given[begin : begin + 1000]]
            answer = self._api.ask("POST", "settle", {"receipts": piece, "how": "ack"})
            refused += [shown[one["receipt"]] for one in answer["refused"]]
        return refused

    # ---- what it has ----

    def peek(self, limit: int = 10, *, where: str | None = None) -> list[HttpMessage]:
        more = {"where": where} if where is not None else {}
        found = self._ask("GET", "/messages", params={"limit": limit, **more})
        return [HttpMessage(self, row) for row in found["items"]]

    def purge(self) -> int:
        return int(self._ask("POST", "/purge", {})["count"])

    def redrive(self, limit: int | None = None, *, where: str | None = None) -> int:
        return int(self._ask("POST", "/redrive", {"limit": limit, "where": where})["count"])

    def stats(self) -> shmq.QueueStats:
        return shmq.QueueStats(**self._ask("GET")["stats"])

    def qsize(self) -> int:
        return self.stats().depth

    def empty(self) -> bool:
        return self.qsize() == 0

    def full(self) -> bool:
        stats = self.stats()
        return stats.depth + stats.delayed + stats.in_flight >= stats.capacity

    def close(self) -> None:
        if self._session is not None:
            shown, self._session = self._session, None
            self._api.ask("POST", "sessions/end", {"session": shown})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()


class HttpExchange:
    """An exchange."""

    def __init__(self, api: _Api, row: dict[str, Any]) -> None:
        self._api = api
        self.name, self.kind, self.alternate = row["name"], row["kind"], row["alternate"]
        self._path = f"exchanges/{_part(self.name)}"

    def bind(self, target: str, key: str = "", **more: Any) -> bool:
        asked = {"target": target, "key": key, **more}
        return bool(self._api.ask("POST", f"{self._path}/bind", asked)["changed"])

    def unbind(self, target: str, key: str = "", **more: Any) -> bool:
        asked = {"target": target, "key": key, **more}
        return bool(self._api.ask("POST", f"{self._path}/unbind", asked)["changed"])

    def publish(self, body: Any, key: str = "", **properties: Any) -> shmq.Published:
        message = {**_message(body, **properties), "key": key}
        found = self._api.ask("POST", f"{self._path}/publish", message)
        return shmq.Published(found["delivered"], found["duplicates"])

    def stats(self) -> shmq.ExchangeStats:
        row = self._api.ask("GET", self._path)
        return shmq.ExchangeStats(published=row["published"], unrouted=row["unrouted"])

    def close(self) -> None:
        """Nothing is open."""


class HttpBroker:
    """The queues and exchanges that a console at ``url`` shows."""

    def __init__(self, url: str) -> None:
        self._api = _Api(url)
        self._queues: list[HttpQueue] = []

    def _queue(self, row: dict[str, Any]) -> HttpQueue:
        self._queues.append(HttpQueue(self._api, row))
        return self._queues[-1]

    def create_queue(self, name: str, **options: Any) -> HttpQueue:
        return self._queue(self._api.ask("PUT", f"queues/{_part(name)}", options))

    def queue(self, name: str) -> HttpQueue:
        return self._queue(self._api.ask("GET", f"queues/{_part(name)}"))

    def ensure_queue(self, name: str, **options: Any) -> HttpQueue:
        try:
            return self.queue(name)
        except shmq.NoSuchQueue:
            return self.create_queue(name, **options)

    def delete_queue(self, name: str) -> None:
        self._api.ask("DELETE", f"queues/{_part(name)}")

    def create_exchange(
        self, name: str, kind: str = "direct", alternate: str | None = None
    ) -> HttpExchange:
        asked = {"kind": kind, "alternate": alternate}
        return HttpExchange(self._api, self._api.ask("PUT", f"exchanges/{_part(name)}", asked))

    def exchange(self, name: str) -> HttpExchange:
        return HttpExchange(self._api, self._api.ask("GET", f"exchanges/{_part(name)}"))

    def delete_exchange(self, name: str) -> None:
        self._api.ask("DELETE", f"exchanges/{_part(name)}")

    def close(self) -> None:
        if not self._api.client.is_closed:
            for queue in self._queues:
                queue.close()
            self._api.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()
