"""``shmq request``: ask a queue's server, and print its reply."""

from __future__ import annotations

import os

import click

import shmq
from shmq.cli.shared import params, render
from shmq.cli.shared.batch_put import CODECS, decode
from shmq.cli.shared.flags import connected, json_flag, queue_name
from shmq.cli.shared.output import show, show_json
from shmq.cli.shared.stop_signal import Stop

__all__ = ["request"]


@click.command(short_help="Ask a queue's server, and print its reply.")
@queue_name()
@click.option("-m", "--message", "text", metavar="TEXT", required=True, help="Ask TEXT.")
@click.option(
    "--header", "headers", type=params.header, multiple=True, metavar="KEY=VALUE",
    help="A header; may be repeated.",
)  # fmt: skip
@click.option(
    "--codec", type=click.Choice(CODECS), default="text", show_default=True,
    help="What the request is; all but text and bytes are given as JSON.",
)  # fmt: skip
@click.option(
    "--timeout", type=params.seconds, default="10s", metavar="TIME", show_default=True,
    help="How long the reply may take.",
)  # fmt: skip
@json_flag
@connected
def request(
    broker: shmq.Broker,
    /,
    name: str,
    text: str,
    headers: tuple[tuple[str, str], ...],
    codec: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Put a request into a queue that somebody serves, wait for the reply, and print it.

    An error of the server's is one line on stderr and code 1; no reply in time is code 11.
    """
    try:
        body = decode(os.fsencode(text), codec)
    except ValueError as error:
        raise click.ClickException(f"the request: {error}") from None
    with Stop() as stop, stop.interruptible():
        reply = broker.request(name, body, timeout, codec=codec, headers=dict(headers) or None)
    if as_json:
        show_json(render.as_dict(reply))
    else:
        show(render.as_text(reply))
