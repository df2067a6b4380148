"""The configuration of a bridge: each error is one sentence that names the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from shmq.errors import InvalidOption
from shmq.extras.nats.bridge.config import Backward, Forward, Mirror, read
from tests.support.processes import ROOT

EXAMPLE = ROOT / "deploy/cluster/bridge.toml"


def test_the_example_of_deploy_is_valid() -> None:
    found = read(EXAMPLE)
    assert found.routes == (
        Forward(queue="orders"),
        Backward(queue="prices", to="prices-of-headquarters"),
        Mirror(stream="events", batch=512),
    )
    assert found.metrics == "127.0.0.1:9992"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("url = 1", "Expected `str`, got `int` - at `\\$.url`"),
        ("[[forward]]\nqueue = 'q'", "missing required field `url`"),
        ("url = 'nats://a'", "0 routes are given: give 1 to 256 of"),
        ("url = 'nats://a'\nurls = 'x'", "unknown field `urls`"),
        ("url = 'nats://a'\n[[forward]]\nqueue = 'q'\nqueues = 'x'", "unknown field `queues`"),
        ("url = 'shmq://a'\n[[forward]]\nqueue = 'q'", "begins with nats:// or tls://"),
        ("url = 'nats://a'\n[[forward]]\nqueue = ''", "name"),
        ("url = 'nats://a'\n[[forward]]\nqueue = 'q'\nbatch = 0", "batch = 0 must be 1 to 4096"),
        ("url = ", "it is not TOML"),
        (
            "url = 'nats://a'\n[[forward]]\nqueue = 'q'\n[[forward]]\nqueue = 'q'\nto = 'r'",
            "the queue 'q' has two routes",
        ),
        (
            "url = 'nats://a'\nforward = [{queue='q', to='r'}]\nbackward = [{queue='r', to='q'}]",
            "the queue 'q' is forwarded to 'r' and back",
        ),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text(text)
    with pytest.raises(InvalidOption, match=message) as caught:
        read(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"none\.toml: it cannot be read: No such file"):
        read(tmp_path / "none.toml")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    file.write_bytes(b"url = '\xff'")
    with pytest.raises(InvalidOption, match="it is not TOML"):
        read(file)
