"""The monitors of NATS servers: what each says over HTTP of itself and of its streams."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from typing import Any, Final

from shmq.errors import InvalidOption, ShmqError
from shmq.model.codec.strict_json import decode_json
from shmq.native._core import reserve_standard

#: How long one answer may take, in seconds, and how long it may be, in bytes.
_PATIENCE: Final = 3.0
_LONGEST: Final = 64 << 20


def ask(monitor: str, page: str, **query: str | int) -> dict[str, Any]:
    """A page of a monitor such as ``http://host:8222``. Raises ShmqError if it says nothing."""
    try:
        parts = urllib.parse.urlsplit(monitor)
        is_page = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        is_page = False
    if not is_page:
        raise InvalidOption(f"{monitor!r} is not a monitor: write for example http://host:8222")
    url = f"{monitor.rstrip('/')}/{page}"
    if query:
        url += "?" + urllib.parse.urlencode(query)
    try:
        reserve_standard()
        with urllib.request.urlopen(url, timeout=_PATIENCE) as answer:
            said = decode_json(answer.read(_LONGEST))
    except urllib.error.HTTPError as error:
        raise ShmqError(f"{url} answered {error.code}") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        cause = getattr(error, "reason", error)
        reason = getattr(cause, "strerror", None) or cause
        raise ShmqError(f"{url} does not answer: {reason}") from error
    if not isinstance(said, dict):
        raise ShmqError(f"{url} answered no object of JSON")
    return said


def is_healthy(monitor: str) -> bool:
    """Whether the server says that it, its JetStream and its streams can be used."""
    try:
        return ask(monitor, "healthz").get("status") == "ok"
    except ShmqError:
        return False


def meta_leader(monitors: Iterable[str]) -> str | None:
    """The name of the server that leads the cluster, of the first monitor that knows it."""
    for said in _iterate_answers(monitors, "jsz"):
        leader = (said.get("meta_cluster") or {}).get("leader")
        if leader:
            return str(leader)
    return None


def leader_of(monitors: Iterable[str], stream: str) -> str | None:
    """The name of the server that leads a stream, of the first monitor that knows it."""
    for said in _iterate_answers(monitors, "jsz", streams=1, accounts=1):
        for one in streams_of(said):
            leader = (one.get("cluster") or {}).get("leader")
            if one.get("name") == stream and leader:
                return str(leader)
    return None


def streams_of(said: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The streams of all accounts in an answer of ``jsz``."""
    for account in said.get("account_details") or ():
        yield from account.get("stream_detail") or ()


def _iterate_answers(monitors: Iterable[str], page: str, **query: int) -> Iterator[dict[str, Any]]:
    for monitor in monitors:
        try:
            yield ask(monitor, page, **query)
        except ShmqError:
            continue
