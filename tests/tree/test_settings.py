"""The JSON schema of serve.toml is that of the code, and takes what the code takes."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import shmq
from shmq.server.config.settings import Source
from tools import settings

ROOT = Path(__file__).resolve().parents[2]
HASH = "sha256:" + "0b" * 32


def test_the_schema_is_current() -> None:
    assert settings.FILE.read_text() == settings.made(), "make options"


def accepts(table: dict[str, Any]) -> bool:
    schema = json.loads(settings.made())
    jsonschema.Draft7Validator.check_schema(schema)
    return bool(jsonschema.Draft7Validator(schema).is_valid(table))


def reads(text: str, folder: Path) -> bool:
    config = folder / "serve.toml"
    config.touch(0o600)
    config.write_text(text)
    try:
        Source(config).read()
    except shmq.InvalidOption:
        return False
    return True


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("", True),
        ("port = 0\nworkers = 2", True),
        ("port = 65536", False),
        ("workers = 0", False),
        ('log_level = "loud"', False),
        ("prot = 1", False),
        ("persist = 1", False),
        ("[limits]\nidle = 1.5\n[limits.token]\nqueues = 0", True),
        ("[limits]\nidle = 0", False),
        ("[limits.namespace]\nqueues = -1", False),
        ('[tls]\nkey = "a"', False),
        (f'[[tokens]]\nname = "a"\nhash = "{HASH}"\nproduce = ["*"]', True),
        ('[[tokens]]\nname = "a"', False),
        ('[[tokens]]\nname = "a"\nhash = "b"', False),
        (f'[[tokens]]\nname = "a"\nhash = "{HASH}"\nproduce = "*"', False),
        (f'[[tokens]]\nname = "a"\nhash = "{HASH}"\ncredential = "b"', False),
    ],
)
def test_the_schema_takes_what_the_server_takes(text: str, right: bool, tmp_path: Path) -> None:
    assert accepts(tomllib.loads(text)) is reads(text, tmp_path) is right


def test_the_example_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "deploy/serve.toml").read_text()
    assert text.startswith("#:schema ./serve.schema.json\n")
    (tmp_path / "shop").write_text("t" * 40)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert accepts(tomllib.loads(text))
    assert reads(text, tmp_path)
