"""Where a format finds its queues: makes a broker from options, on driver and executors."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Self

import shmq
from shmq.api.names import chosen_namespace, is_url
from shmq.errors import InvalidOption
from shmq.spark.shared import options
from shmq.spark.shared.options import ALWAYS, Option

#: The options of every use that say where the queues are.
OPTIONS: Final = (
    Option("url", options.text, None, ALWAYS),
    Option("token", options.text, None, ALWAYS),
    Option("tls", options.truth, None, ALWAYS),
    Option("tlsCa", options.text, None, ALWAYS),
    Option("tlsCertificate", options.text, None, ALWAYS),
    Option("tlsKey", options.text, None, ALWAYS),
    Option("connectTimeout", options.seconds(0.001, 1e6), 5.0, ALWAYS),
    Option("requestTimeout", options.seconds(0.001, 1e6), 30.0, ALWAYS),
)


#: The names of the TLS files in :func:`shmq.connect`, and the options that set them.
_FILES: Final = MappingProxyType({"ca": "tlsCa", "certificate": "tlsCertificate", "key": "tlsKey"})


@dataclasses.dataclass(frozen=True, slots=True)
class Address:
    """A namespace of this host, or a server and how to connect to it.

    The driver makes it; the driver's environment supplies what no option sets. It goes to the
    executors with the token in it, over Spark's own channels, as every task does.
    """

    url: str
    token: str | None = dataclasses.field(default=None, repr=False)
    tls: bool | Mapping[str, str] | None = None
    connect_timeout: float = 5.0
    request_timeout: float = 30.0

    @classmethod
    def of(cls, chosen: Mapping[str, Any]) -> Self:
        """The address from the options, else from the environment. Raises InvalidOption."""
        url = chosen["url"] or os.environ.get("SHMQ_URL") or chosen_namespace(None)
        files = {
            key: chosen[option] for key, option in _FILES.items() if chosen[option] is not None
        }
        if files and chosen["tls"] is False:
            raise InvalidOption(
                "the option tls=false refuses TLS, and tlsCa, … ask for it: leave one of them out"
            )
        token = chosen["token"]
        if is_url(url):
            token = token or os.environ.get("SHMQ_TOKEN") or None
        return cls(
            url, token, files or chosen["tls"], chosen["connectTimeout"], chosen["requestTimeout"]
        )

    def connect(self) -> shmq.Broker:
        """A broker, which the caller closes. Raises what :func:`shmq.connect` raises."""
        return shmq.connect(
            self.url,
            token=self.token,
            tls=self.tls,
            connect_timeout=self.connect_timeout,
            request_timeout=self.request_timeout,
        )
