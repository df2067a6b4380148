"""``shmq subscribe``: write out the records of a stream whose keys match, as they come."""

from __future__ import annotations

import sys
import time

import click

import shmq
from shmq.api import OnDamage, Policy
from shmq.cli.shared import params, record_render
from shmq.cli.shared.exit_codes import Code
from shmq.cli.shared.flags import connected, count_flag, json_flag
from shmq.cli.shared.output import counted, note
from shmq.cli.shared.stop_signal import Stop
from shmq.cli.shared.stream_name import damage_flag, tell_damage

__all__ = ["subscribe"]

#: How long one wait for a record lasts before the loop looks for signals, in seconds.
SLICE = 0.25


@click.command(short_help="Write out records of a stream whose keys match.")
@click.argument("name", metavar="STREAM", type=params.text)
@click.argument("pattern", metavar="[PATTERN]", type=params.text, default="#", required=False)
@click.option(
    "--history", type=params.or_none(params.whole), default="0", metavar="N|none",
    help="How many of the newest to write first; none: all that there are [0].",
)  # fmt: skip
@click.option(
    "--policy", type=click.Choice(["drop-oldest", "block"]), default="drop-oldest",
    show_default=True, help="Lose what is overwritten, or hold back who appends.",
)  # fmt: skip
@damage_flag()
@count_flag("Stop after COUNT records.")
@click.option(
    "--timeout", type=params.seconds, metavar="TIME", help="Stop when none came for TIME [never]."
)
@click.option("--with-key", is_flag=True, help="Write the key and a tab before each record.")
@json_flag
@click.pass_context
@connected
def subscribe(
    broker: shmq.Broker,
    context: click.Context,
    /,
    name: str,
    pattern: str,
    history: int | params.Nothing,
    policy: Policy,
    on_damage: OnDamage,
    count: int | None,
    timeout: float | None,
    with_key: bool,
    as_json: bool,
) -> None:
    """Write out the records of a stream whose keys match, as they come.

    In the PATTERN, * is one word of the key and # any number of them; without one it is all.
    """
    patience = float("inf") if timeout is None else timeout
    newest = None if isinstance(history, params.Nothing) else history
    write = record_render.writer(as_json, with_key)
    with (
        broker.stream(name) as stream,
        Stop() as stop,
        stream.subscribe(
            pattern, newest, policy=policy, on_lost=_tell, on_damage=on_damage
        ) as subscription,
    ):
        seen, since = 0, time.monotonic()
        while not stop.signal and seen != count:
            left = patience - (time.monotonic() - since)
            found = subscription.poll(min(max(left, 0.0), SLICE))
            for record in found[: None if count is None else count - seen]:
                sys.stdout.buffer.write(write(record))
                seen += 1
            sys.stdout.buffer.flush()
            if not found and left <= 0:
                break
            since = time.monotonic() if found else since
        tell_damage(subscription.damaged)
    context.exit(Code.OK if seen or stop.signal or timeout is None else Code.NOTHING)


def _tell(lost: int) -> None:
    note(f"too slow: {counted(lost, 'record')} were overwritten before they were read")
