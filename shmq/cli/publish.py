"""``shmq publish``: publish messages to an exchange."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import click

import shmq
from shmq.api.options import Confirm
from shmq.cli.exchange import exchange_argument
from shmq.cli.shared import params
from shmq.cli.shared.batch_put import CODECS, decode
from shmq.cli.shared.flags import connected, json_flag
from shmq.cli.shared.input_lines import open_lines
from shmq.cli.shared.output import counted, show, show_json
from shmq.cli.shared.stop_signal import Stop

__all__ = ["publish"]

#: The longest line, in bytes; what a queue takes, it says itself.
_LONGEST = 1 << 30


@click.command(short_help="Publish messages to an exchange.")
@exchange_argument
@click.option(
    "-k", "--key", type=params.text, default="", metavar="KEY", help="By what they are routed."
)
@click.option("-m", "--message", "messages", multiple=True, metavar="TEXT", help="Publish TEXT.")
@click.option("--file", "path", metavar="FILE", help="Publish each line of FILE; - is stdin.")
@click.option(
    "--priority", type=params.priority, metavar="N|low|normal|high",
    help="Higher is served first [the middle one].",
)  # fmt: skip
@click.option("--group", type=params.text, metavar="NAME", help="In order, one in flight a group.")
@click.option(
    "--header", "headers", type=params.header, multiple=True, metavar="KEY=VALUE",
    help="A header; may be repeated.",
)  # fmt: skip
@click.option("--delay", type=params.seconds, metavar="TIME", help="Visible only after TIME.")
@click.option("--ttl", type=params.seconds, metavar="TIME", help="Not delivered after TIME.")
@click.option(
    "--dedupe-id", type=params.text, metavar="ID", help="Put the message once in the window."
)
@click.option(
    "--codec", type=click.Choice(CODECS), default="text", show_default=True,
    help="What the messages are; all but text and bytes are given as JSON.",
)  # fmt: skip
@click.option(
    "--block/--no-block", default=None, help="Wait while a queue is full [as its overflow says]."
)
@click.option("--timeout", type=params.seconds, metavar="TIME", help="Wait for space at most TIME.")
@click.option(
    "--confirm", type=click.Choice(["memory", "disk"]),
    help="Where the messages are when it says that they were put [as each queue's option says].",
)  # fmt: skip
@json_flag
@connected
def publish(
    broker: shmq.Broker,
    /,
    name: str,
    key: str,
    messages: tuple[str, ...],
    path: str | None,
    headers: tuple[tuple[str, str], ...],
    dedupe_id: str | None,
    codec: str,
    block: bool | None,
    timeout: float | None,
    confirm: Confirm | None,
    as_json: bool,
    **properties: Any,
) -> None:
    """Publish messages, given as flags or lines, to an exchange.

    Each -m TEXT is a message, or else each line of FILE or of standard input. It says how
    many copies were put into queues.
    """
    if messages and path is not None:
        raise click.UsageError("-m and --file exclude each other: drop one")
    if dedupe_id is not None and len(messages) != 1:
        raise click.UsageError("--dedupe-id names one message: give exactly one -m TEXT")
    properties |= {"codec": codec, "headers": dict(headers) or None, "confirm": confirm}
    with broker.exchange(name) as exchange, Stop() as stop:
        publishing = _Publishing(exchange, key, block, timeout, properties)
        try:
            if len(messages) == 1:
                with stop.interruptible():
                    publishing.one(os.fsencode(messages[0]), dedupe_id)
                return
            lines = [[os.fsencode(text) for text in messages]] if messages else None
            for batch in lines or open_lines(path, _LONGEST):
                with stop.interruptible():
                    publishing.many(batch)
        finally:
            publishing.report(as_json)


class _Publishing:
    """Publishes what texts stand for, and counts."""

    def __init__(
        self,
        exchange: shmq.Exchange,
        key: str,
        block: bool | None,
        timeout: float | None,
        properties: dict[str, Any],
    ) -> None:
        self._exchange = exchange
        self._how = (key, block, timeout)
        self._properties = properties
        self._seen = 0
        self._delivered = 0
        self._duplicates = 0

    def one(self, text: bytes, dedupe_id: str | None) -> None:
        """Publish one message."""
        body = self._body(text)
        self._count(
            lambda: self._exchange.publish(
                body, *self._how, dedupe_id=dedupe_id, **self._properties
            )
        )

    def many(self, texts: list[bytes]) -> None:
        """Publish some messages."""
        bodies = [self._body(text) for text in texts]
        self._count(lambda: self._exchange.publish_many(bodies, *self._how, **self._properties))

    def _count(self, publish: Callable[[], shmq.Published]) -> None:
        try:
            self._add(publish())
        except shmq.PublishRefused as error:
            self._add(error)
            raise

    def _add(self, told: shmq.Published | shmq.PublishRefused) -> None:
        self._delivered += told.delivered
        self._duplicates += told.duplicates

    def _body(self, text: bytes) -> Any:
        self._seen += 1
        try:
            return decode(text, self._properties["codec"])
        except ValueError as error:
            raise click.ClickException(f"message {self._seen}: {error}") from None

    def report(self, as_json: bool) -> None:
        """Say how many copies were put."""
        name, put = self._exchange.name, counted(self._delivered, "message")
        if as_json:
            told = {"delivered": self._delivered, "duplicates": self._duplicates}
            show_json({"exchange": name, **told})
        elif self._duplicates:
            show(f"{put} put by exchange {name!r}, {self._duplicates} known already")
        else:
            show(f"{put} put by exchange {name!r}")
