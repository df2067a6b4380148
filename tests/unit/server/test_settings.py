"""The configuration: where settings come from, and which are refused."""

from __future__ import annotations

import dataclasses
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq.server import listener
from shmq.server.config.settings import Limits, Quota, Settings, Source
from shmq.server.config.tls import Tls
from shmq.server.config.tokens import Token, hash_of
from shmq.server.listener import listen

HASH = hash_of("t" * 40)

EVERYTHING = f"""
bind = "::1"
port = 4321
workers = 3
namespace = "shop"
log_level = "debug"
log_format = "json"
audit_log = "audit.jsonl"
insecure = true
persist = true
data_dir = "data"

[limits]
connections = 5
max_frame = 65536
unsettled_messages = 7
unsettled_bytes = 8192
handshake = 1
idle = 2.5
frame = 3
drain = 6

[limits.namespace]
queues = 10
streams = 9
groups = 8
bytes = 7

[limits.token]
queues = 0

[tls]
certificate = "server.crt"
key = "/keys/server.key"
client_ca = "ca.crt"

[[tokens]]
name = "billing"
hash = "{HASH}"
produce = ["orders*"]
"""


def config(folder: Path, text: str) -> Path:
    path = folder / "serve.toml"
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def test_every_setting_can_stand_in_the_file(tmp_path: Path) -> None:
    settings = Source(config(tmp_path, EVERYTHING)).read()

    assert settings == Settings(
        bind="::1",
        port=4321,
        workers=3,
        namespace="shop",
        log_level="debug",
        log_format="json",
        audit_log=tmp_path / "audit.jsonl",
        insecure=True,
        persist=True,
        data_dir=tmp_path / "data",
        limits=Limits(
            connections=5,
            max_frame=65536,
            unsettled_messages=7,
            unsettled_bytes=8192,
            handshake=1,
            idle=2.5,
            frame=3,
            drain=6,
            namespace=Quota(queues=10, streams=9, groups=8, bytes=7),
            token=Quota(queues=0),
        ),
        tls=Tls(
            certificate=tmp_path / "server.crt",
            key=Path("/keys/server.key"),
            client_ca=tmp_path / "ca.crt",
        ),
        tokens=(Token(name="billing", hash=HASH, produce=("orders*",)),),
    )
    defaults = Settings()
    assert all(
        getattr(settings, field.name) != getattr(defaults, field.name)
        for field in dataclasses.fields(Settings)
        if field.name != "persist"
    )


def test_the_command_line_goes_over_the_file(tmp_path: Path) -> None:
    settings = Source(config(tmp_path, "port = 1\nworkers = 2"), {"port": 5}).read()

    assert (settings.port, settings.workers) == (5, 2)


def test_what_is_wrong_in_the_file_is_told_though_the_command_line_goes_over_it(
    tmp_path: Path,
) -> None:
    path = config(tmp_path, "namespace = 'a b'")

    with pytest.raises(shmq.ShmqError, match="invalid namespace name 'a b'") as refusal:
        Source(path, {"namespace": "good"}).read()

    assert str(path) in str(refusal.value)


def test_what_is_wrong_on_the_command_line_is_not_said_of_the_file(tmp_path: Path) -> None:
    path = config(tmp_path, "workers = 2")

    with pytest.raises(shmq.InvalidOption, match="workers=1000 is out of range") as refusal:
        Source(path, {"workers": 1000}).read()

    assert str(path) not in str(refusal.value)


def test_without_a_file_there_are_the_defaults() -> None:
    settings = Source().read()

    assert (settings.bind, settings.port) == ("127.0.0.1", 9999)
    assert settings.namespace == f"default-{os.geteuid()}"
    assert settings.limits == Limits()
    assert 1 <= settings.workers <= 4


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("prot = 1", r"unknown key 'prot': did you mean 'port'\?"),
        ("[limits]\nconections = 1", r"unknown key 'conections' in \[limits\]: .*'connections'"),
        ("[tls]\nkey = 'k'", r"'certificate' is missing in \[tls\]"),
        ("[[tokens]]\nname = 'a'", r"'hash' is missing in \[\[tokens\]\]"),
        ("[tokens]\nname = 'a'", r"\[\[tokens\]\]"),
        ("limits = 5", "limits must be a table"),
        ("port = 70000", "port=70000 is out of range"),
        ("port = 'http'", "port='http' must be an int"),
        ("bind = 5", "bind=5 must be an address"),
        ("workers = 0", "workers=0 is out of range"),
        ("namespace = 'a b'", "invalid namespace name 'a b'"),
        ("log_level = 'loud'", "log_level='loud' must be one of"),
        ("insecure = 1", "insecure=1 must be true or false"),
        ("[limits]\nidle = 0", "idle=0 s is out of range"),
        ("[limits]\nmax_frame = 1", "max_frame=1 is out of range"),
        ("[limits]\ntoken = 5", "limits.token must be a table"),
        ("[limits.token]\nqueus = 5", r"unknown key 'queus' in \[limits.token\]: .*'queues'"),
        ("[limits.token]\nbytes = -1", "bytes=-1 must be 0 or more"),
        ("[limits.namespace]\ngroups = 'a'", "groups='a' must be an int"),
        ("[tls]\ncertificate = 5", "certificate=5 must be a path"),
        ("data_dir = ''", "data_dir='' is not a directory"),
        ("data_dir = 5", "data_dir=5 must be a directory"),
        ("persist = 'no'", "persist='no' must be true or false"),
        ("persist = false\ndata_dir = 'here'", "nothing would be written there; drop one"),
        ("port = ", "it is not TOML"),
        (f"[[tokens]]\nname='a'\nhash='{HASH}'\n" * 2, "two tokens have the name 'a'"),
    ],
)
def test_what_is_wrong_in_the_file_is_told_with_its_name(
    tmp_path: Path, text: str, told: str
) -> None:
    path = config(tmp_path, text)

    with pytest.raises(shmq.InvalidOption, match=told) as refusal:
        Source(path).read()

    assert str(path) in str(refusal.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(shmq.InvalidOption, match="cannot be read: No such file"):
        Source(tmp_path / "none.toml").read()


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = config(tmp_path, "port = 1")
    path.chmod(mode)

    with pytest.raises(shmq.InvalidOption) as refusal:
        Source(path).read()

    assert f"{path}: the configuration has mode {mode:04o}, so others may write it" in str(
        refusal.value
    )
    assert str(refusal.value).endswith(f"chmod 600 {path}")


@pytest.mark.parametrize("text", ["port = 1", EVERYTHING])
def test_a_file_may_be_read_by_others_as_it_has_only_hashes(tmp_path: Path, text: str) -> None:
    path = config(tmp_path, text)
    path.chmod(0o644)

    assert Source(path).read().port


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = config(tmp_path, "port = 1")
    os.chown(path, 1, -1)

    with pytest.raises(shmq.InvalidOption, match="belongs to user 1, neither to user 0 nor"):
        Source(path).read()


def test_a_reload_takes_over_what_can_change_and_names_the_rest() -> None:
    token = Token(name="a", hash=HASH)
    running = Settings(port=1, workers=1, tokens=(token,))
    fresh = Settings(
        port=2,
        workers=1,
        log_level="debug",
        limits=Limits(idle=1.0),
        tokens=(token, Token(name="b", hash=hash_of("b" * 40))),
    )

    merged, refused = running.reloaded(fresh)

    assert refused == ["port"]
    assert merged == dataclasses.replace(fresh, port=1)


@pytest.mark.parametrize(
    "change", [{"tls": Tls(certificate=Path("c"))}, {"tokens": (Token(name="a", hash=HASH),)}]
)
def test_a_reload_neither_adds_nor_removes_authentication(change: dict[str, Any]) -> None:
    with_it, without = Settings(**change), Settings()

    assert with_it.reloaded(without) == (with_it, [*change])
    assert without.reloaded(with_it) == (without, [*change])


# --- where it listens ------------------------------------------------------------------


@pytest.mark.parametrize("bind", ["0.0.0.0", "::"])
@pytest.mark.parametrize(
    ("more", "wanting"),
    [
        ({}, "tokens and TLS"),
        ({"tokens": (Token(name="a", hash=HASH),)}, "without TLS"),
        ({"tls": Tls(certificate=Path("c"))}, "without tokens"),
    ],
)
def test_a_bind_beyond_this_host_without_a_token_or_tls_is_refused(
    bind: str, more: dict[str, Any], wanting: str
) -> None:
    with pytest.raises(shmq.InvalidOption, match=wanting):
        listen(Settings(bind=bind, port=0, **more))


@pytest.mark.parametrize(
    "more",
    [
        {"insecure": True},
        {"tokens": (Token(name="a", hash=HASH),), "tls": Tls(certificate=Path("c"))},
    ],
)
def test_a_bind_beyond_this_host_is_possible(more: dict[str, Any]) -> None:
    for each in listen(Settings(bind="0.0.0.0", port=0, workers=2, **more)):
        with each:
            assert each.getsockname()[0] == "0.0.0.0"


@pytest.mark.parametrize("bind", ["127.0.0.1", "127.8.9.10", "localhost", "::1"])
def test_on_this_host_nothing_is_asked_for_and_the_workers_share_a_port(bind: str) -> None:
    opened = listen(Settings(bind=bind, port=0, workers=3))
    try:
        assert len({each.getsockname() for each in opened}) == 1
        assert opened[0].getsockname()[1] > 0
    finally:
        for each in opened:
            each.close()


def test_what_is_no_address_is_refused() -> None:
    with pytest.raises(shmq.InvalidOption, match="bind='no host' is not an address"):
        listen(Settings(bind="no host", port=0))
    with pytest.raises(shmq.ShmqError, match=r"cannot listen on 192\.0\.2\.1"):
        listen(Settings(bind="192.0.2.1", port=0, insecure=True))


def test_a_port_that_another_server_listens_on_is_refused_and_not_shared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shmq.server.listener.PATIENCE", 0.0)
    (first,) = listen(Settings(port=0, workers=1))
    with first:
        port = first.getsockname()[1]
        with pytest.raises(shmq.ShmqError, match=f"port {port}: Address already in use: stop"):
            listen(Settings(port=port, workers=1))


@pytest.mark.parametrize("how", ["a port", "a path"])
def test_of_two_servers_that_start_at_once_one_is_refused(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one starts when the first has found that nobody listens, and does not yet."""
    kept = socket.socket()  # keeps the port from others, and lets those listen who share it
    for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        kept.setsockopt(socket.SOL_SOCKET, option, 1)
    kept.bind(("127.0.0.1", 0))
    port = kept.getsockname()[1]
    settings = Settings(
        bind=f"unix:{tmp_path}/s" if how == "a path" else "127.0.0.1", port=port, workers=1
    )
    name = "_bound_to_path" if how == "a path" else "_open_sockets"
    binds = getattr(listener, name)
    opened: list[socket.socket] = []
    refused: list[Exception] = []

    def start() -> None:
        try:
            opened.extend(listen(settings))
        except shmq.ShmqError as error:
            refused.append(error)

    other = threading.Thread(target=start)

    def bind_late(*arguments: Any) -> Any:
        if not other.ident:
            other.start()
            other.join(0.5)  # without the lock it listens meanwhile
        return binds(*arguments)

    monkeypatch.setattr(listener, name, bind_late)
    monkeypatch.setattr(listener, "PATIENCE", 1.0)
    start()
    other.join(30)
    for each in (*opened, kept):
        each.close()
    assert len(opened) == len(refused) == 1
    assert "cannot listen on" in str(refused[0])


def test_a_server_that_is_stopped_while_it_starts_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmq.server.listener.PATIENCE", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (
        listener._starting_on_port(port),
        pytest.raises(shmq.ShmqError, match=f"port {port}: another server has been starting"),
    ):
        listen(Settings(port=port, workers=1))
