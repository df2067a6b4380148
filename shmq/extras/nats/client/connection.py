"""A connection to a NATS cluster: versions are checked, requests are bounded and repeated."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import ssl
import weakref
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from shmq.native import _clock as time

try:
    import nats
    import nats.errors
    from nats.aio.msg import Msg

    from shmq.extras.nats.client.client import Client
except ImportError as error:
    from shmq.errors import ShmqError

    raise ShmqError(
        "a URL that begins with nats:// or tls:// takes the client of NATS, which is not "
        "installed: pip install 'shmq[nats]'"
    ) from error

from shmq.client.remote.address import tls_context
from shmq.errors import (
    ConnectionLost,
    InvalidOption,
    MessageTooLarge,
    ShmqError,
    Unauthorized,
    Unsupported,
)
from shmq.extras.nats.client.address import ClusterTarget, netloc_of
from shmq.extras.nats.client.loop_thread import Begun, LoopThread
from shmq.extras.nats.client.version import OLDEST, parse_version
from shmq.native._core import reserve_standard

log = logging.getLogger("shmq")

#: How long one attempt of a request may take, in seconds; then it is sent again.
_ATTEMPT: Final = 5.0
#: The pause before a request is sent again, in seconds.
_PAUSE: Final = 0.1
#: How long a server may take to say its version, in seconds.
_GREETING: Final = 2.0
#: How long one server may take to connect, in seconds: the next one may answer at once.
_ONE_SERVER: Final = 2.0
#: How often a server that is stopped is checked for, in seconds; it is left after two of them.
_PING: Final = 2
_MOST_GREETING: Final = 1 << 16
#: Errors of JetStream: a message, or its headers, are larger than it takes.
_TOO_LARGE: Final = frozenset({10054, 10097})
#: Errors of JetStream that pass: no leader yet, a server is away, a first attempt is under way.
_PASSING: Final = frozenset({10004, 10005, 10007, 10008, 10009, 10118, 10119, 10158})

#: What says that a server is another one than the client trusts.
_STRANGER: Final = ssl.SSLCertVerificationError

#: How a server tells that it refuses a subject.
_DENIED: Final = re.compile(r"permissions violation for \w+ to \"([^\"]+)\"", re.IGNORECASE)
_MOST_DENIED: Final = 16

_T = TypeVar("_T")

#: Raises if what a request goes to is not there; otherwise the request waits for a leader.
CheckThere = Callable[[], Coroutine[Any, Any, object]]


class ApiError(ShmqError):
    """A refusal of JetStream, with the number that its documentation has."""

    def __init__(self, what: str, error: Mapping[str, Any]) -> None:
        self.number = int(error.get("err_code") or 0)
        self.code = int(error.get("code") or 0)
        super().__init__(f"{what}: {error.get('description', 'refused')} (error {self.number})")


def refused(what: str, error: Mapping[str, Any]) -> ShmqError:
    """The error of a refusal: MessageTooLarge for what is never taken, else an ApiError."""
    made = ApiError(what, error)
    return MessageTooLarge(str(made)) if made.number in _TOO_LARGE else made


def passes(error: Mapping[str, Any]) -> bool:
    """Whether the reason for which JetStream refuses passes.

    A server that has lost the lead, and does not know it until it proposes a message, answers 503
    without a number (nats-server, processClusteredInboundMsg).
    """
    number = error.get("err_code")
    return number in _PASSING or (number is None and error.get("code") == 503)


class ClusterConnection:
    """The connection of one broker or handle. The child of a fork reconnects.

    `run` waits in any thread, `arun` in a task of any loop; the methods that are coroutines run in
    the process's `LoopThread`.
    """

    def __init__(self, target: ClusterTarget) -> None:
        self.target = target
        self.namespace = target.address.namespace
        self.closed = False
        self._forget()
        _connections.add(self)

    def _forget(self) -> None:
        self._client: Client | None = None
        self._connecting: asyncio.Task[Client] | None = None
        self._too_old: str | None = None
        self._denied: dict[str, str] = {}
        self._process = os.getpid()

    @property
    def url(self) -> str:
        """The cluster's URL, without any secret."""
        return str(self.target.address)

    @property
    def where(self) -> str:
        """The place of a name, for error texts."""
        return f"in namespace {self.namespace!r} of {self.url}"

    @property
    def server(self) -> str:
        """The version of the server that it is connected to."""
        client = self._client
        return "" if client is None else f"nats-server {client.server_info.get('version', '?')}"

    @property
    def replicas(self) -> int:
        """How many servers keep each message."""
        if self.target.address.replicas is not None:
            return self.target.address.replicas
        return 3 if self._client is not None and self._client.server_info.get("cluster") else 1

    @property
    def max_payload(self) -> int:
        """The largest message that the server takes, in bytes."""
        return 1 << 20 if self._client is None else self._client.max_payload

    # ---- from other threads and loops ----

    def begin(self, begin: Callable[[Begun[_T]], None]) -> _T:
        """Begin something in the process's loop, and wait for its result."""
        try:
            return LoopThread.get().begin(begin)
        except nats.errors.Error as error:
            raise self._make_lost_error(error) from error

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run it in the process's loop, and wait for its result.

        Raises ConnectionLost for an error of the client of NATS.
        """
        try:
            return LoopThread.get().run(coroutine)
        except nats.errors.Error as error:
            raise self._make_lost_error(error) from error

    async def arun(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """`run` for a task of any loop."""
        try:
            return await LoopThread.get().arun(coroutine)
        except nats.errors.Error as error:
            raise self._make_lost_error(error) from error

    def _make_lost_error(self, error: nats.errors.Error) -> ConnectionLost:
        return ConnectionLost(f"cluster {self.url}: {type(error).__name__}: {error}")

    # ---- the connection ----

    @property
    def connected(self) -> Client | None:
        """The client, if it is there already."""
        if self.closed or self._too_old is not None or self._process != os.getpid():
            return None
        client = self._client
        return None if client is None or client.is_closed else client

    async def client(self) -> Client:
        """The client, connected. Raises ConnectionLost, Unauthorized and Unsupported."""
        if (connected := self.connected) is not None:
            return connected
        if self.closed:
            raise self.closed_error()
        if self._process != os.getpid():
            self._forget()
        if self._too_old is not None:
            raise Unsupported(self._too_old)
        if self._connecting is None:
            self._connecting = asyncio.ensure_future(self._connect())
            self._connecting.add_done_callback(self._on_connected)
        return await asyncio.shield(self._connecting)

    def _on_connected(self, task: asyncio.Task[Client]) -> None:
        self._connecting = None
        if not task.cancelled() and task.exception() is None:
            self._client = task.result()

    async def _connect(self) -> Client:
        target = self.target
        await self._check_versions(target.address.servers)
        client = Client()
        problems: list[BaseException] = []
        limit = asyncio.timeout(target.connect_timeout)

        async def note(problem: BaseException) -> None:
            problems.append(problem)
            del problems[:-8]
            if (denied := _DENIED.search(str(problem))) is not None:
                if len(self._denied) >= _MOST_DENIED:
                    self._denied.clear()
                self._denied[denied[1].lower()] = denied[0]
            log.debug("cluster %s: %s", self.url, problem)
            lasting = [one for one in problems if _is_refusal(one) or isinstance(one, _STRANGER)]
            if len(lasting) >= min(8, len(target.address.servers)):
                with contextlib.suppress(RuntimeError):  # it has connected since
                    limit.reschedule(asyncio.get_running_loop().time())

        try:
            async with limit:
                await client.connect(**self._make_arguments(note))
        except (TimeoutError, OSError, nats.errors.Error) as error:
            with contextlib.suppress(Exception):
                await client.close()
            raise self._make_unreachable([*problems, error]) from error
        except BaseException as error:
            await client.close()
            if target.address.credentials is None or not isinstance(error, Exception):
                raise
            raise InvalidOption(
                f"the credentials file {target.address.credentials!r} cannot be used: it must have "
                f"a NATS USER JWT and a USER NKEY SEED, as nsc writes it"
            ) from error
        known = set(target.address.servers)
        found = {(uri.hostname, uri.port) for uri in client.discovered_servers}
        try:
            await client.listen()
            self._check(client.server_info, "the server")
            await self._check_versions(
                [(str(host), int(port or 0)) for host, port in found if (host, port) not in known]
            )
        except BaseException:
            await client.close()
            raise
        return client

    def _make_arguments(self, note: Any) -> dict[str, Any]:
        target = self.target
        arguments: dict[str, Any] = {
            "servers": target.address.urls,
            "connect_timeout": min(target.connect_timeout, _ONE_SERVER),
            "reconnect_time_wait": 0.2,
            "max_reconnect_attempts": -1,
            "ping_interval": _PING,
            "error_cb": note,
            "reconnected_cb": self._on_reconnected,
            "name": f"shmq {os.getpid()}",
            "flusher_queue_size": 65536,
        }
        if target.address.tls:
            arguments["tls"] = tls_context(target.tls)
        if target.secret is not None:
            arguments |= {"user": target.secret.user, "password": target.secret.password}
        elif target.token is not None:
            arguments["token"] = target.token
        if target.address.credentials is not None:
            arguments["user_credentials"] = target.address.credentials
        return arguments

    async def _on_reconnected(self) -> None:
        client = self._client
        self._denied.clear()
        if client is not None:
            try:
                self._check(client.server_info, "the server that was reconnected to")
            except Unsupported as error:
                self._too_old = str(error)

    def _make_unreachable(self, problems: list[BaseException]) -> ShmqError:
        reasons = [str(problem) or type(problem).__name__ for problem in problems]
        if any(map(_is_refusal, problems)):
            return Unauthorized(
                f"cluster {self.url} refuses these credentials: give token=, USER:PASSWORD@ or "
                f"?credentials= as its operator says"
            )
        why = reasons[0] if len(reasons) > 1 else "no answer in time"
        return ConnectionLost(f"cannot connect to {self.url}: {why}; does a server run there?")

    # ---- versions ----

    async def _check_versions(self, servers: Any) -> None:
        """Look at the version of each server that can be reached. Raises Unsupported."""
        greetings = await asyncio.gather(*(_read_greeting(*server) for server in servers))
        for server, greeting in zip(servers, greetings, strict=True):
            if greeting is not None:
                self._check(greeting, netloc_of(*server))

    def _check(self, info: Mapping[str, Any], which: str) -> None:
        version = str(info.get("version", "?"))
        if _is_old(version):
            raise Unsupported(
                f"cluster {self.url}: {which} has version {version}, which would ignore delays, "
                f"ttls and batches silently: all servers need {OLDEST[0]}.{OLDEST[1]} or later"
            )
        if info.get("jetstream") is False:
            raise Unsupported(f"cluster {self.url}: {which} has JetStream disabled: enable it")

    # ---- requests ----

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        headers: dict[str, str] | None = None,
        *,
        attempt: float = _ATTEMPT,
        within: float | None = None,
        check_there: CheckThere | None = None,
        what: str = "",
    ) -> Msg:
        """Send a request that may be repeated until it is answered. Raises ConnectionLost.

        ``within`` seconds it is repeated (None: the request timeout), each ``attempt`` seconds.
        While nobody answers for the subject, which a server tells at once, ``check_there`` is
        called before each repetition, and may raise.
        """
        patience = self.target.request_timeout if within is None else within
        until = time.monotonic() + patience
        problem: BaseException | None = None
        while (left := until - time.monotonic()) > 0:
            client = await self._get_client(left)
            try:
                return await client.request(
                    subject, payload, timeout=min(attempt, left), headers=headers
                )
            except nats.errors.NoRespondersError as error:
                problem = error
                if check_there is not None:
                    await check_there()
            except nats.errors.MaxPayloadError as error:
                raise MessageTooLarge(
                    f"a message of {len(payload)} bytes does not fit into one of the cluster, "
                    f"which takes {client.max_payload} bytes (max_payload)"
                ) from error
            except (nats.errors.Error, OSError) as error:
                self._check_permitted(subject)
                problem = error
            await asyncio.sleep(min(_PAUSE, max(0.0, until - time.monotonic())))
        if self.closed:
            raise self.closed_error()
        raise ConnectionLost(
            f"{f'{what}: ' if what else ''}cluster {self.url} gave no answer within "
            f"{patience:.3g} s: {_describe_reason(problem)}"
        ) from problem

    def _check_permitted(self, subject: str) -> None:
        """Raise Unauthorized if the server has refused the subject, or what answers come to.

        It answers no request that it refuses: it tells it beside.
        """
        for refused, reason in self._denied.items():
            if refused == subject.lower() or refused.startswith("_inbox."):
                raise Unauthorized(
                    f"cluster {self.url} does not permit it with these credentials ({reason}): "
                    f"give others, or ask its operator for that right"
                )

    async def _get_client(self, left: float) -> Client:
        """The client; a lost cluster is connected to again for so long."""
        until = time.monotonic() + left
        first = self._client is None
        while True:
            try:
                return await self.client()
            except ConnectionLost:
                if first or time.monotonic() + _PAUSE >= until:
                    raise
                await asyncio.sleep(_PAUSE)

    async def api(
        self, verb: str, payload: Mapping[str, Any] | None = None, what: str = ""
    ) -> dict[str, Any]:
        """The answer of ``$JS.API.<verb>``. Raises ApiError for a refusal."""
        packed = b"" if payload is None else json.dumps(payload).encode()
        return await self._request_again(f"$JS.API.{verb}", packed, what=what, verb=verb)

    async def publish(
        self,
        subject: str,
        payload: bytes,
        headers: dict[str, str],
        *,
        what: str,
        check_there: CheckThere,
        within: float | None = None,
    ) -> dict[str, Any]:
        """Publish to a stream, until it is acknowledged. Give it a ``Nats-Msg-Id``.

        Raises ApiError for a refusal, ConnectionLost, and what ``check_there`` raises if no stream
        has the subject.
        """
        return await self._request_again(
            subject,
            payload,
            headers,
            within=within,
            attempt=2.0,
            check_there=check_there,
            what=what,
        )

    async def _request_again(
        self,
        subject: str,
        payload: bytes,
        headers: dict[str, str] | None = None,
        *,
        within: float | None = None,
        attempt: float = _ATTEMPT,
        check_there: CheckThere | None = None,
        what: str,
        verb: str = "",
    ) -> dict[str, Any]:
        """What JetStream answers to a request, which is repeated over errors that pass."""
        patience = self.target.request_timeout if within is None else within
        until = time.monotonic() + patience
        while True:
            answer = await self.request(
                subject,
                payload,
                headers,
                within=max(0.001, until - time.monotonic()),
                attempt=attempt,
                check_there=check_there,
                what=what,
            )
            found: dict[str, Any] = json.loads(answer.data)
            error = found.get("error")
            if error is None:
                return found
            refusal = refused(what or verb, error)
            if not passes(error):
                raise refusal
            if time.monotonic() + _PAUSE >= until:
                raise ConnectionLost(f"{refusal}, for {patience:g} s: see `shmq cluster doctor`")
            await asyncio.sleep(_PAUSE)

    # ---- the end ----

    def closed_error(self) -> ShmqError:
        """The error of a call on a closed handle."""
        return ShmqError(f"this handle of {self.url} is closed")

    def close(self) -> None:
        """End the connection. May be called again."""
        if self.closed:
            return
        self.closed = True
        client, self._client = self._client, None
        if client is not None and self._process == os.getpid():
            with contextlib.suppress(ShmqError, RuntimeError, nats.errors.Error):
                self.run(_wait_for_end(client))

    def _forget_after_fork(self) -> None:
        self._forget()


#: Of this process: the child of a fork forgets their sockets.
_connections: weakref.WeakSet[ClusterConnection] = weakref.WeakSet()


def _forget_connections() -> None:
    for connection in list(_connections):
        connection._forget_after_fork()


os.register_at_fork(after_in_child=_forget_connections)


async def _wait_for_end(client: Client) -> None:
    with contextlib.suppress(TimeoutError, nats.errors.Error, OSError):
        async with asyncio.timeout(2.0):
            await client.close()


def _describe_reason(problem: BaseException | None) -> str:
    """Why a request had no answer."""
    if isinstance(problem, nats.errors.NoRespondersError):
        return "no server leads what it was sent to"
    return type(problem).__name__ if problem else "it could not be connected to"


def _is_refusal(problem: BaseException) -> bool:
    """Whether a server refuses the credentials."""
    return any(word in str(problem) for word in ("uthorization", "uthentication"))


def _is_old(version: str) -> bool:
    """Whether a server of that version is too old, or tells none."""
    try:
        return parse_version(version) < OLDEST
    except ShmqError:
        return True


async def _read_greeting(host: str, port: int) -> dict[str, Any] | None:
    """What the server says of itself before anything else; None if it cannot be reached."""
    writer = None
    try:
        async with asyncio.timeout(_GREETING):
            reserve_standard()
            reader, writer = await asyncio.open_connection(host, port, limit=_MOST_GREETING)
            line = await reader.readline()
        kind, _, text = line.partition(b" ")
        found = json.loads(text) if kind == b"INFO" else None
        return found if isinstance(found, dict) else None
    except (OSError, ValueError, TimeoutError):
        return None
    finally:
        if writer is not None:
            writer.close()
