"""``shmq token``: make a token, and what a server stores of it."""

from __future__ import annotations

import json
import sys

import click

from shmq.cli.shared.flags import json_flag
from shmq.server.auth.tokens import hash_of, make_token

__all__ = ["token"]


@click.command(short_help="Make a token for remote clients.")
@click.option("--hash", "given", is_flag=True, help="Read a token instead, and print its hash.")
@json_flag
def token(given: bool, as_json: bool) -> None:
    """Make a token, and the hash of it that a server's configuration has.

    The token is for the client alone: nothing stores it here. With --hash it is read from
    stdin, where a terminal does not show it.
    """
    if not given:
        made = make_token()
        made_and_hash = {"token": made, "hash": hash_of(made)}
        if as_json:
            click.echo(json.dumps(made_and_hash))
        else:
            for name, value in made_and_hash.items():
                click.echo(f"{name}  {value}")
        return
    if sys.stdin.isatty():
        shown = click.prompt("token", hide_input=True, err=True)
    else:
        shown = sys.stdin.readline().rstrip("\r\n")
    hashed = hash_of(shown)
    click.echo(json.dumps({"hash": hashed}) if as_json else hashed)
