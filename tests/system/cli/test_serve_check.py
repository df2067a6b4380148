"""``shmq serve --check``: what a start would refuse, without one."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from shmq.cli.shared.exit_codes import Code
from tests.support.shell import Shell


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "serve.toml"
    path.touch(0o600)
    return path


def test_right_settings_are_said_in_a_line(shell: Shell, config: Path) -> None:
    config.write_text("port = 1234\n")
    ran = shell("serve", "--config", str(config), "--check")
    assert ran.lines == [f"{config}: fine: 127.0.0.1 port 1234, no tokens, no TLS"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("prot = 1\n", "did you mean 'port'?"),
        ('bind = "0.0.0.0"\n', "without tokens and TLS"),
        ('bind = "unix:socket"\n', "bind='unix:socket' must be unix: and an absolute path"),
        ('bind = "unix:/nonexistent/shmq/s"\n', "there is no folder '/nonexistent/shmq'; create"),
        (f'bind = "unix:/tmp/{"x" * 103}"\n', "an absolute path of at most 107 bytes"),
        ('[tls]\ncertificate = "none.pem"\n', "cannot be used"),
    ],
)
def test_wrong_settings_are_refused_as_at_a_start(
    shell: Shell, config: Path, text: str, why: str
) -> None:
    config.write_text(text)
    assert why in shell("serve", "--config", str(config), "--check", code=Code.USAGE).error


@pytest.mark.prove
@pytest.mark.parametrize(
    ("flag", "value", "why"),
    [
        ("--console", "http://x:0", "invalid address 'http://x:0'"),
        ("--metrics", "[::1", "invalid address '[::1'"),
        ("--console", "192.0.2.1:0", "insecure"),
    ],
)
def test_the_addresses_beside_the_server_are_refused_as_at_a_start(
    shell: Shell, flag: str, value: str, why: str
) -> None:
    pytest.importorskip("starlette")
    checked = shell("serve", "--port", "0", flag, value, "--check", code=Code.USAGE).error
    assert why in checked
    assert shell("serve", "--port", "0", flag, value, code=Code.USAGE).error == checked
    assert shell("serve", flag, "127.0.0.1:0", "--check").lines


def test_an_address_of_another_host_is_refused_as_at_a_start(shell: Shell, config: Path) -> None:
    config.write_text('bind = "192.0.2.1"\ninsecure = true\n')
    ran = shell("serve", "--config", str(config), "--check", code=Code.REFUSED)
    assert "cannot listen on 192.0.2.1 port" in ran.error


def test_an_address_at_which_a_server_listens_is_fine(shell: Shell, config: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config.write_text(f"port = {port}\n")
        ran = shell("serve", "--config", str(config), "--check")
    assert ran.lines == [f"{config}: fine: 127.0.0.1 port {port}, no tokens, no TLS"]
