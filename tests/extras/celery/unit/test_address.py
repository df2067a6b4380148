"""Which namespace or server the URL of a broker means."""

from __future__ import annotations

from typing import Any

import pytest

import shmq

pytest.importorskip("celery", reason="the package celery (the extra 'celery') is not installed")

from shmq.extras.celery.address import Address


def address(
    host: str | None = None,
    port: int | None = None,
    path: str | None = None,
    user: str | None = None,
    password: Any = None,
    ssl: Any = None,
) -> Address:
    return Address.of(host, port, path, user, password, ssl)


@pytest.mark.parametrize("host", [None, "", "localhost"])
def test_a_url_without_a_name_means_the_default_namespace(host: str | None) -> None:
    assert address(host, path="/").target is None


def test_a_host_without_a_port_is_a_namespace_and_so_is_a_path() -> None:
    assert address("jobs").target == "jobs"
    assert address(None, path="/Jobs").target == "Jobs"


def test_a_host_with_a_port_is_a_server_with_the_password_as_its_token() -> None:
    assert address("host", 1234, password="s3cret") == Address("shmq://host:1234", "s3cret")
    assert address("::1", 1234).target == "shmq://[::1]:1234"
    assert address("host", 1, password=lambda: "again").token == "again"


def test_tls_needs_no_port_and_takes_the_settings_of_celery() -> None:
    assert address("host", ssl=True) == Address("shmqs://host:9999", None, True)
    files = {"ca_certs": "/ca", "certfile": "/crt", "keyfile": "/key", "cert_reqs": "CERT_REQUIRED"}
    assert address("host", 1, ssl=files).tls == {"ca": "/ca", "certificate": "/crt", "key": "/key"}
    assert address("host", 1, ssl={"ssl_ca_certs": "/ca"}).tls == {"ca": "/ca"}


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"host": "jobs", "path": "/others"}, "two namespaces"),
        ({"host": "host", "port": 1, "path": "/jobs"}, "leave the path out"),
        ({"host": "host", "port": 1, "user": "me"}, ":TOKEN@"),
        ({"host": "host", "port": 1, "ssl": {"cert_reqs": "CERT_NONE"}}, "trust any server"),
    ],
)
def test_a_url_that_means_nothing_is_refused(parts: dict[str, Any], why: str) -> None:
    with pytest.raises(shmq.InvalidOption, match=why):
        address(**parts)


def test_an_address_does_not_show_its_token() -> None:
    assert "s3cret" not in repr(address("host", 1234, password="s3cret"))
