"""``shmq serve --check``: what a start would refuse, without one."""

from __future__ import annotations

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
        ('[tls]\ncertificate = "none.pem"\n', "cannot be used"),
    ],
)
def test_wrong_settings_are_refused_as_at_a_start(
    shell: Shell, config: Path, text: str, why: str
) -> None:
    config.write_text(text)
    assert why in shell("serve", "--config", str(config), "--check", code=Code.USAGE).error
