"""``shmq serve`` and ``shmq token``: what the flags say, and over what."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest

from shmq.cli.shared.exit_codes import Code
from shmq.server.config.tokens import hash_of
from tests.support.shell import Shell, ended


def listening(running: subprocess.Popen[bytes]) -> str:
    """The line that says where it listens; what it says before that is passed over."""
    assert running.stderr is not None
    for line in running.stderr:
        if b"listening on" in line:
            return line.decode()
    raise AssertionError(f"it ended with code {running.wait()}")


@pytest.mark.prove
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_stop(shell: Shell, number: int) -> None:
    running = shell.start("serve", "--port", "0", "--workers", "1", stdout=subprocess.PIPE)

    line = listening(running)
    running.send_signal(number)

    assert re.search(rf"shmq://127\.0\.0\.1:\d+: namespace '{shell.namespace}', workers: 1", line)
    ran = ended(running)
    assert (ran.code, ran.out) == (0, b"")


@pytest.mark.prove
def test_the_flags_go_over_the_file(shell: Shell, tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    config.touch(mode=0o600)
    config.write_text("port = 1\nworkers = 3\nbind = '127.0.0.7'\nnamespace = 'elsewhere'\n")

    running = shell.start("serve", "-c", str(config), "-p", "0", "-w", "2", "-l", "info")

    line = listening(running)
    running.send_signal(signal.SIGTERM)
    assert "shmq://127.0.0.7:" in line
    assert f"namespace '{shell.namespace}', workers: 2" in line
    assert ended(running).code == 0


@pytest.mark.prove
def test_its_own_namespace_flag_goes_over_the_commands(shell: Shell) -> None:
    command = ("-n", "not-this", "serve", "-n", shell.namespace, "-p", "0", "-w", "1")
    running = shell.start(*command)

    line = listening(running)
    running.send_signal(signal.SIGTERM)
    assert f"namespace '{shell.namespace}'" in line
    assert ended(running).code == 0


@pytest.mark.prove
@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--bind", "0.0.0.0"), "without tokens and TLS"),
        (("--data-dir", "README.md"), "is a file"),
        (("--config", "none.toml"), "none.toml: it cannot be read: No such file"),
        (("--port", "70000"), "--port"),
        (("--workers", "0"), "--workers"),
        (("--log-level", "loud"), "--log-level"),
        (("--namespace", "a b"), "invalid namespace name 'a b'"),
    ],
)
def test_what_cannot_be_is_wrong_usage(shell: Shell, flags: tuple[str, str], told: str) -> None:
    assert told in shell("serve", *flags, code=Code.USAGE).error


def test_a_token_comes_with_the_hash_that_the_server_keeps(shell: Shell) -> None:
    made = shell("token", "--json").json

    assert hash_of(made["token"]) == made["hash"]
    (token, hashed) = (line.split()[1] for line in shell("token").lines)
    assert hash_of(token) == hashed
    assert token != made["token"]


def test_the_hash_of_a_token_of_ones_own(shell: Shell) -> None:
    own = b"5f2b8c0d9e3a47f1b6c8d2e4f0a19b73"

    assert shell("token", "--hash", stdin=own + b"\n").text == f"{hash_of(own.decode())}\n"
    assert shell("token", "--hash", "--json", stdin=own).json == {"hash": hash_of(own.decode())}


def test_a_token_that_can_be_guessed_is_refused(shell: Shell) -> None:
    refusal = shell("token", "--hash", stdin=b"password\n", code=Code.USAGE).error

    assert "8 characters can be guessed" in refusal
    assert "password" not in refusal
