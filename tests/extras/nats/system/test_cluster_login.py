"""TLS, and the three ways to log in to a cluster, at a server that asks for them."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nkeys
import pytest

import shmq
from tests.support.certificates import WHY_NOT, Certificates
from tests.support.nats_server import NatsServer

REFUSED = "refuses these credentials"


@contextlib.contextmanager
def server(*config: str) -> Iterator[str]:
    """A server with these lines in its configuration; yields where it listens."""
    running = NatsServer(*config)
    try:
        running.start()
        yield f"127.0.0.1:{running.port}"
    finally:
        running.close()


def use(url: str, **options: Any) -> None:
    """Put a message, and take it."""
    with shmq.connect(url, **options) as broker:
        queue = broker.create_queue("q")
        queue.put("a")
        with queue.get(timeout=30) as message:
            assert message.body == "a"
        assert "secret" not in repr(broker) + repr(queue) + broker.namespace


def test_a_token_is_needed_where_the_server_asks_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHMQ_TOKEN", raising=False)
    with server('authorization { token: "secret-1" }') as at:
        with pytest.raises(shmq.Unauthorized, match=REFUSED):
            shmq.connect(f"nats://{at}/none")
        with pytest.raises(shmq.Unauthorized, match=REFUSED) as raised:
            shmq.connect(f"nats://{at}/wrong", token="secret-2")
        assert "secret-2" not in str(raised.value)
        use(f"nats://{at}/given", token="secret-1")
        monkeypatch.setenv("SHMQ_TOKEN", "secret-1")
        use(f"nats://{at}/environment")


def test_a_user_and_a_password_may_be_in_the_url() -> None:
    with server('authorization { user: "anna", password: "secret/1" }') as at:
        with pytest.raises(shmq.Unauthorized, match=REFUSED) as raised:
            shmq.connect(f"nats://anna:secret-2@{at}/wrong")
        assert "secret-2" not in str(raised.value)
        use(f"nats://anna:secret%2F1@{at}/right")


class Key:
    """A key of NATS: an operator's, an account's or a user's."""

    def __init__(self, kind: int) -> None:
        self.seed = nkeys.encode_seed(os.urandom(32), kind)
        self.pair = nkeys.from_seed(self.seed)
        self.name = self.pair.public_key.decode()

    def signed(self, subject: Key, kind: str, **claims: Any) -> str:
        """A token that says something of the subject, signed by this key."""
        made: dict[str, Any] = {"iat": 1_700_000_000, "iss": self.name, "sub": subject.name}
        made |= {"name": kind, "nats": {"type": kind, "version": 2, **claims}}
        made["jti"] = base64.b32encode(hashlib.sha256(json.dumps(made).encode()).digest()).decode()
        head = _encoded(json.dumps({"typ": "JWT", "alg": "ed25519-nkey"}).encode())
        text = f"{head}.{_encoded(json.dumps(made).encode())}"
        return f"{text}.{_encoded(self.pair.sign(text.encode()))}"


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def credentials(path: Path, account: Key) -> Path:
    """The credentials file of a new user of the account."""
    user = Key(nkeys.PREFIX_BYTE_USER)
    token = account.signed(user, "user", subs=-1, data=-1, payload=-1)
    parts = {"NATS USER JWT": token, "USER NKEY SEED": user.seed.decode()}
    path.write_text(
        "\n".join(
            f"-----BEGIN {name}-----\n{text}\n------END {name}------\n"
            for name, text in parts.items()
        )
    )
    return path


@pytest.fixture
def accounts() -> tuple[Key, list[str]]:
    """An account, and the configuration of a server whose operator knows it."""
    operator = Key(nkeys.PREFIX_BYTE_OPERATOR)
    account, system = Key(nkeys.PREFIX_BYTE_ACCOUNT), Key(nkeys.PREFIX_BYTE_ACCOUNT)
    every = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
    store = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)
    tokens = {
        account: operator.signed(account, "account", limits=every | store),
        system: operator.signed(system, "account", limits=every),
    }
    preloaded = "\n".join(f"{one.name}: {token}" for one, token in tokens.items())
    return account, [
        f"operator: {operator.signed(operator, 'operator', system_account=system.name)}",
        f"system_account: {system.name}",
        "resolver: MEMORY",
        f"resolver_preload {{\n{preloaded}\n}}",
    ]


def test_a_credentials_file_logs_in(
    accounts: tuple[Key, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account, config = accounts
    good = credentials(tmp_path / "good.creds", account)
    strange = credentials(tmp_path / "strange.creds", Key(nkeys.PREFIX_BYTE_ACCOUNT))
    with server(*config) as at:
        with pytest.raises(shmq.Unauthorized, match=REFUSED):
            shmq.connect(f"nats://{at}/none")
        with pytest.raises(shmq.Unauthorized, match=REFUSED):
            shmq.connect(f"nats://{at}/strange?credentials={strange}")
        use(f"nats://{at}/given?credentials={good}")
        monkeypatch.setenv("SHMQ_CREDENTIALS", str(good))
        use(f"nats://{at}/environment")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_text("nothing of a key"),
        lambda path: path.write_text(path.read_text().replace("SEED", "SEAD")),
        lambda path: path.write_bytes(b"\xff\xfe\x00"),
    ],
)
def test_a_credentials_file_that_is_none_is_refused(
    accounts: tuple[Key, list[str]], tmp_path: Path, spoil: Callable[[Path], Any]
) -> None:
    account, config = accounts
    path = credentials(tmp_path / "spoiled.creds", account)
    spoil(path)
    with server(*config) as at, pytest.raises(shmq.InvalidOption, match=r"spoiled\.creds"):
        shmq.connect(f"nats://{at}/x?credentials={path}")


@pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
def test_tls_is_checked_by_both_sides(tmp_path: Path) -> None:
    authority = Certificates(tmp_path)
    certificate, key = authority.sign("server")
    mine, my_key = authority.sign("client")
    files = f'cert_file: "{certificate}", key_file: "{key}", ca_file: "{authority.ca}"'
    with server(f"tls {{ {files}, verify: true }}") as at:
        with pytest.raises(shmq.ShmqError, match="certificate"):
            shmq.connect(f"tls://{at}/unknown", connect_timeout=30)
        with pytest.raises(shmq.ConnectionLost):
            shmq.connect(f"tls://{at}/nameless", tls=str(authority.ca), connect_timeout=1)
        with pytest.raises(shmq.ConnectionLost):
            shmq.connect(f"nats://{at}/plain", connect_timeout=1)
        files_of = {"ca": str(authority.ca), "certificate": str(mine), "key": str(my_key)}
        use(f"tls://{at}/both", tls=files_of)


@pytest.mark.parametrize(
    ("permissions", "told"),
    [
        ('publish: ["$JS.>"], subscribe: ["none"]', 'violation for subscription to "_inbox'),
        ('publish: ["none"], subscribe: ["_INBOX.>"]', "violation for publish to"),
    ],
)
def test_what_a_user_may_not_do_is_told_with_the_servers_reason(
    permissions: str, told: str
) -> None:
    """The server does not answer a request that it refuses."""
    user = f'{{ user: "anna", password: "x", permissions: {{ {permissions} }} }}'
    with (
        server(f"authorization {{ users: [ {user} ] }}") as at,
        pytest.raises(shmq.Unauthorized, match=told),
    ):
        shmq.connect(f"nats://anna:x@{at}/denied", request_timeout=600)
