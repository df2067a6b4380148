"""Results of tasks in a table of shmq, each until its time has expired."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Final
from urllib.parse import parse_qsl, urlsplit

from celery import exceptions, states
from celery.backends.base import KeyValueStoreBackend
from kombu.exceptions import EncodeError
from kombu.utils.compat import detect_environment
from kombu.utils.encoding import bytes_to_str
from kombu.utils.url import url_to_parts

import shmq
from shmq.extras.celery.address import Address
from shmq.model.table.entry import check_ttl
from shmq.native import _clock as time

log = logging.getLogger("shmq")

#: The table, unless the URL names one.
_TABLE: Final = "celery-results"
_CONNECT_TIMEOUT: Final = 5.0
_REQUEST_TIMEOUT: Final = 10.0
#: The first pause between two looks at a result, and how many results make it a second.
_PAUSE: Final = 0.01
_MANY: Final = 100_000
#: The ends of a chord's keys: each task that has ended, how many have, how many must, how often one
#: has ended again, which one calls the body, the body was called.
_PART: Final = ".part."
_COUNT: Final = ".count"
_SIZE: Final = ".size"
_AGAIN: Final = ".again"
_CALLER: Final = ".caller"
_DONE: Final = ".done"


class ResultNotStored(EncodeError):
    """The task has ended, but its result or its error is too large, or has no room.

    Celery stores this one instead: the task has failed.
    """


class Backend(KeyValueStoreBackend):
    """``result_backend="shmq://…"``: URLs of brokers, and ``?durability=disk&table=NAME``."""

    key_t = bytes_to_str
    implements_incr = True
    supports_autoexpire = True
    supports_failure_expires = True
    supports_native_join = True
    supports_result_compression = True

    _safe_to_retry: ClassVar[tuple[type[Exception], ...]] = (
        *(shmq.ConnectionLost, shmq.LockTimeout, shmq.NoSpace, shmq.ShuttingDown),
    )

    def __init__(self, app: Any, url: str | None = None, **more: Any) -> None:
        super().__init__(app, url=url, **more)
        self._address, self._options = _read(url or "shmq://")
        self._pid = 0
        self._opened: Any = None
        failure_expires = self.app.conf.get("result_failure_expires")
        self._failure_expires = (
            self.expires if failure_expires is None else self.prepare_expires(failure_expires)
        )
        _check_expires("result_expires", self.expires)
        _check_expires("result_failure_expires", self._failure_expires)

    def __reduce__(self, args: Any = (), kwargs: Any = None) -> Any:
        return super().__reduce__(args, {**(kwargs or {}), "url": self.url})

    @property
    def table(self) -> Any:
        """The table; a child of a fork opens its own. Raises what :func:`shmq.connect` raises."""
        if self._pid != os.getpid():
            broker = self._address.connect(_CONNECT_TIMEOUT, _REQUEST_TIMEOUT)
            self._opened = broker.ensure_table(**self._options)
            self._pid = os.getpid()
        return self._opened

    def exception_safe_to_retry(self, exc: BaseException) -> bool:
        """Whether the operation may succeed later."""
        return isinstance(exc, self._safe_to_retry)

    # ---- the store ----

    def get(self, key: str) -> Any:
        """The value of the key, or None."""
        return self.table.get(key)

    def mget(self, keys: Iterable[str]) -> dict[str, Any]:
        """The values of those keys that are there."""
        found: dict[str, Any] = self.table.get_many(keys)
        return found

    def set(self, key: str, value: Any) -> None:
        """Set the value, for as long as ``result_expires`` says."""
        self.table.set(key, value, self.expires or None)

    def _store_result(
        self,
        task_id: str,
        result: Any,
        state: str,
        traceback: Any = None,
        request: Any = None,
        **more: Any,
    ) -> Any:
        """Store a state. Of an error that cannot be stored, the reason is stored in its place.

        Raises `ResultNotStored` for a result that cannot be.
        """
        try:
            return super()._store_result(task_id, result, state, traceback, request, **more)
        except (shmq.MessageTooLarge, shmq.NoSpace) as error:
            if isinstance(error, shmq.NoSpace) and self.always_retry:
                raise
            refused = ResultNotStored(f"{state} of task {task_id} cannot be stored: {error}")
            if state not in states.EXCEPTION_STATES:
                raise refused from error
            log.error("%s", refused)
            reason = self.encode_result(refused, state)
            return super()._store_result(task_id, reason, state, **more)

    def _set_with_state(self, key: str, value: Any, state: str) -> None:
        failed = state in states.EXCEPTION_STATES and state in states.READY_STATES
        self.table.set(key, value, (self._failure_expires if failed else self.expires) or None)

    def delete(self, key: str) -> None:
        """Delete the key, if it is there."""
        self.table.delete(key)

    def incr(self, key: str) -> int:
        """Add 1 to the integer of the key, and return it."""
        return int(self.table.increment(key))

    def expire(self, key: str, value: float | None) -> bool:
        """Give the key another time to live; 0 or None: for ever."""
        return bool(self.table.expire(key, value or None))

    # ---- chords: a counter of the tasks that have ended, and a key for each of them ----

    @property
    def _chord_ttl(self) -> float | None:
        return getattr(self, "chord_expires", self.expires) or None  # Celery 5.6 has no such time

    def set_chord_size(self, group_id: str, chord_size: int) -> None:
        """Set how many tasks must end: Celery knows it before it sends the last of them."""
        key = self.get_key_for_chord(group_id, _SIZE)
        self.table.set(key, chord_size, self._chord_ttl)

    def _apply_chord_incr(self, header_result_args: Any, body: Any, **more: Any) -> None:
        super()._apply_chord_incr(header_result_args, body, **more)
        self.table.delete(self.get_key_for_chord(header_result_args[0], _DONE))

    def on_chord_part_return(self, request: Any, state: str, result: Any, **more: Any) -> None:
        """Count a task of a chord that has ended; the last one calls the chord's body.

        A task that is delivered again may end again, and counts once. The process may have been
        killed before it had counted the task, or called the body, so such a task looks for the
        keys of all: the counter lacks at most as many tasks as have ended again.
        """
        group, expires = request.group, self._chord_ttl
        if not group or self.table.get(self.get_key_for_chord(group, _DONE)):
            return
        task = f"{request.id}.{request.group_index}"
        part = self.get_key_for_chord(group, f"{_PART}{task}")
        count, size, again = (self.get_key_for_chord(group, key) for key in (_COUNT, _SIZE, _AGAIN))
        if self.table.add(part, 1, expires):
            counted = self.table.increment(count, ttl=expires)
            found = self.table.get_many([size, again])
            missing = found.get(size, 0) - counted
            is_last = missing == 0
            if 0 < missing <= found.get(again, 0):
                is_last = self._count_parts(group) == found[size]
        elif self.table.get(self.get_key_for_group(group)) is None:
            return  # the body was called
        else:
            self.table.increment(again, ttl=expires)  # before the look: the others look from now on
            is_last = self._count_parts(group) == self.table.get(size)
        if not is_last:
            # The task that ends last reads all results, so they stay until then.
            for key in (self.get_key_for_group(group), self.get_key_for_task(request.id)):
                self.expire(key, getattr(self, "_chord_result_expires", self.expires))
            return
        caller = self.get_key_for_chord(group, _CALLER)
        if not self.table.add(caller, task, expires):
            if self.table.get(caller) != task:
                return
            self.delete(self.get_key_for_chord(group))  # it was killed after Celery had counted it
        request.chord = {**request.chord, "chord_size": 1}  # Celery counts this one alone
        super().on_chord_part_return(request, state, result, **more)
        self.table.set(self.get_key_for_chord(group, _DONE), 1, expires)
        self._forget_parts(group)

    def _count_parts(self, group: str) -> int:
        prefix, count, after = self.get_key_for_chord(group, _PART), 0, ""
        while parts := self.table.keys(prefix, after=after):
            count, after = count + len(parts), parts[-1]
        return count

    def _forget_parts(self, group: str) -> None:
        prefix = self.get_key_for_chord(group, _PART)
        while parts := self.table.keys(prefix):
            self.table.delete(*parts)
        self.table.delete(
            *(self.get_key_for_chord(group, key) for key in (_SIZE, _COUNT, _AGAIN, _CALLER))
        )

    # ---- waiting ----

    def wait_for(
        self,
        task_id: str,
        timeout: float | None = None,
        interval: float | None = 0.5,
        no_ack: bool = True,
        on_interval: Callable[[], Any] | None = None,
    ) -> Any:
        """Wait for the result of a task. Raises celery's TimeoutError."""
        self._ensure_not_eager()
        until = None if timeout is None else time.monotonic() + timeout
        interval = max(interval or 0.0, _PAUSE)
        pause = _PAUSE
        while True:
            meta = self.get_task_meta(task_id)
            if on_interval and meta["status"] != states.SUCCESS:
                on_interval()  # if a parent has failed, this raises its error
            if meta["status"] in states.READY_STATES:
                return meta
            left = interval if until is None else until - time.monotonic()
            if left <= 0:
                raise exceptions.TimeoutError("The operation timed out.")
            if meta["status"] == states.PENDING and detect_environment() == "default":
                self.table.wait(self.get_key_for_task(task_id), min(left, interval))
            else:  # it has started: the key is there, and its value changes
                time.sleep(min(pause, left, interval))
                pause *= 2

    def get_many(
        self, task_ids: Any, *, interval: float | None = 0.5, **more: Any
    ) -> Iterator[Any]:
        """The results of many tasks as they come, with shorter pauses than the ``interval``."""
        ids = set(task_ids)
        pause = min(max(interval or 0.0, _PAUSE), max(_PAUSE, len(ids) / _MANY))
        yield from super().get_many(ids, interval=pause, **more)


def _check_expires(name: str, seconds: Any) -> None:
    """Raise ImproperlyConfigured for a time that no result can be stored for."""
    try:
        check_ttl(seconds or None)
    except (shmq.InvalidOption, TypeError) as error:
        raise exceptions.ImproperlyConfigured(f"{name}: {error}") from error


def _read(url: str) -> tuple[Address, dict[str, Any]]:
    """What a URL says: where to connect, and the options of the table."""
    parts = url_to_parts(url)
    given = dict(parse_qsl(urlsplit(url).query))
    options = {"name": given.pop("table", _TABLE), "durability": given.pop("durability", "memory")}
    ssl = {name: given.pop(name) for name in list(given) if name.startswith("ssl_")}
    if given:
        raise exceptions.ImproperlyConfigured(
            f"result_backend knows no {', '.join(sorted(given))}: a URL may have durability, "
            f"table, ssl_ca_certs, ssl_certfile and ssl_keyfile"
        )
    try:
        address = Address.of(
            parts.hostname,
            parts.port,
            parts.path,
            parts.username,
            parts.password,
            ssl or parts.scheme == "shmqs",
        )
    except shmq.InvalidOption as error:
        raise exceptions.ImproperlyConfigured(f"result_backend: {error}") from error
    return address, options
