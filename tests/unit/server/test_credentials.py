"""Tokens from the credentials of a service."""

from __future__ import annotations

from pathlib import Path

import pytest

import shmq
from shmq.server.config.credentials import with_hash
from shmq.server.config.settings import Source
from shmq.server.config.tokens import AccessList, make_token


def test_a_token_may_be_a_credential_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = make_token()
    (tmp_path / "shop").write_text(token + "\n")
    config = tmp_path / "serve.toml"
    config.touch(0o600)
    config.write_text('[[tokens]]\nname = "shop"\ncredential = "shop"\nproduce = ["*"]\n')
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))

    found = AccessList(Source(config).read().tokens).find(token)

    assert found is not None
    assert found.name == "shop"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("none", "cannot be read: No such file"),
        ("../shop", "must be the name of a file"),
        ("", "must be the name of a file"),
        ("binary", "is not ASCII"),
        ("short", "can be guessed"),
    ],
)
def test_a_credential_that_holds_no_token_is_refused_without_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, why: str
) -> None:
    (tmp_path / "short").write_text("abc")
    (tmp_path / "binary").write_bytes(b"\xff" * 40)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    with pytest.raises(shmq.InvalidOption, match=why) as refused:
        with_hash({"name": "a", "credential": name})
    assert "abc" not in str(refused.value)


def test_a_credential_outside_of_a_service_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    with pytest.raises(shmq.InvalidOption, match="LoadCredential=shop:/PATH"):
        with_hash({"name": "a", "credential": "shop"})


def test_a_hash_and_a_credential_are_one_too_many() -> None:
    with pytest.raises(shmq.InvalidOption, match="not both"):
        with_hash({"name": "a", "credential": "shop", "hash": "sha256:"})
