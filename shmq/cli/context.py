"""``shmq context``: saved servers and namespaces."""

from __future__ import annotations

import sys
from typing import Any, TextIO

import click

from shmq.api.names import check_name, default_namespace
from shmq.cli.shared.flags import Group, json_flag
from shmq.cli.shared.output import cell, note, show, show_json, show_table, table
from shmq.cli.shared.target import (
    FILE,
    Context,
    ContextsError,
    complete_contexts,
    contexts_path,
    read_contexts,
    rewriting_contexts,
    typed,
)
from shmq.client.remote.address import Address
from shmq.plugins import find_transport

_YES_NO = {True: "yes", False: "no"}

_name = click.argument("name", metavar="NAME", shell_complete=complete_contexts)
_perhaps_name = click.argument(
    "name", metavar="[NAME]", required=False, shell_complete=complete_contexts
)


@click.group(cls=Group, epilog="Example: shmq context add prod --url shmqs://mq.example.org --use")
@click.pass_context
def context(here: click.Context) -> None:
    """Save servers and namespaces, with their tokens, under names.

    A command works on the current context unless -n, --url, --context, SHMQ_URL or
    SHMQ_NAMESPACE says otherwise. The file is $XDG_CONFIG_HOME/shmq/target.json, readable
    by you alone.
    """
    for flag in ("url", "namespace", "token"):
        if typed(here.find_root(), flag):
            raise click.UsageError(
                f"put --{flag} after the command: shmq context add NAME --{flag} …"
            )


@context.command(epilog="Example: shmq context add prod --url shmqs://mq.example.org --use")
@click.argument("name", metavar="NAME")
@click.option("--url", metavar="URL", help="A server: shmq://HOST:PORT, or shmqs:// with TLS.")
@click.option("--namespace", metavar="NAME", help="A namespace of this host instead.")
@click.option(
    "--token", metavar="TOKEN", help="The token; other users can see it in the process list."
)
@click.option(
    "--token-file",
    type=click.File(),
    metavar="FILE",
    help="Read the token from the first line of FILE; - is standard input.",
)
@click.option(
    "--cafile", type=FILE, metavar="FILE", help="TLS: the certificates of the trusted CAs."
)
@click.option(
    "--cert", type=FILE, metavar="FILE", help="Mutual TLS: the certificate of this client."
)
@click.option("--key", type=FILE, metavar="FILE", help="Mutual TLS: the key of that certificate.")
@click.option("--replace", is_flag=True, help="Replace a context of the same name.")
@click.option("--use", is_flag=True, help="Make it the current context.")
def add(
    name: str, replace: bool, use: bool, token_file: TextIO | None, **given: str | None
) -> None:
    """Save a server or a namespace as the context NAME."""
    check_name(name, "context")
    if given["token"] is not None and token_file is not None:
        raise click.UsageError("--token and --token-file exclude each other: drop one")
    if token_file is not None:
        given["token"] = _read_token(token_file)
    made = _check(Context(**given), "--token" if token_file is None else "--token-file")
    with rewriting_contexts() as known:
        if name in known.known and not replace:
            raise ContextsError(f"there is a context {name!r} already: add --replace to change it")
        known.known[name] = made
        if use:
            known.current = name
    show(f"context {name!r} is {_format_place(made)}")


@context.command("list", epilog="Example: shmq context list")
@json_flag
def list_contexts(as_json: bool) -> None:
    """List the target, without tokens; a star marks the current one."""
    known = read_contexts()
    found = sorted(known.known.items())
    if as_json:
        show_json([_format(name, one, current=name == known.current) for name, one in found])
    elif found:
        made = table(["", "context", "where", "token", "tls files"])
        for name, one in found:
            star = "*" if name == known.current else ""
            files = [key for key in ("cafile", "cert", "key") if getattr(one, key)]
            row = (
                star,
                name,
                _format_place(one),
                "yes" if one.token else "no",
                ", ".join(files) or "no",
            )
            made.add_row(*(cell(value) for value in row))
        show_table(made)
    else:
        note(f"no contexts in {contexts_path()}: make one with shmq context add NAME --url URL")


@context.command("show", epilog="Example: shmq context show staging")
@_perhaps_name
@click.option("--show-token", is_flag=True, help="Print the token too.")
@json_flag
def show_context(name: str | None, show_token: bool, as_json: bool) -> None:
    """Show the context NAME, or the current one."""
    known = read_contexts()
    name = name if name is not None else known.current
    if name is None:
        raise ContextsError("no context is current: name one, or choose it with shmq context use")
    one = known.get(name)
    shown = _format(name, one, current=name == known.current)
    if show_token:
        shown["token"] = one.token
    if as_json:
        show_json(shown)
        return
    made = table(["context", name])
    for key, value in shown.items():
        if key != "name" and value is not None:
            made.add_row(cell(key.replace("_", " ")), cell(_YES_NO.get(value, value)))
    show_table(made)


@context.command(epilog="Example: shmq context use staging")
@_perhaps_name
@click.option("--none", is_flag=True, help="Have no current context: commands work on this host.")
def use(name: str | None, none: bool) -> None:
    """Make NAME the current context."""
    if (name is None) is not none:
        raise click.UsageError("give the NAME of a context, or --none")
    with rewriting_contexts() as known:
        chosen = Context(namespace=default_namespace()) if name is None else known.get(name)
        known.current = name
    show(f"commands work on {_format_place(chosen)}")


@context.command(epilog="Example: shmq context remove staging")
@_name
def remove(name: str) -> None:
    """Remove the context NAME and its token."""
    with rewriting_contexts() as known:
        known.get(name)
        del known.known[name]
        if known.current == name:
            known.current = None
    show(f"context {name!r} is forgotten")


def _check(made: Context, token_flag: str) -> Context:
    """The context, checked; ``token_flag``: what its token was given with.

    Raises an error that says what is wrong with it.
    """
    if (made.url is None) is (made.namespace is None):
        raise click.UsageError("give the --url of a server, or the --namespace of this host")
    if made.namespace is not None:
        check_name(made.namespace, "namespace")
        others = [key for key in made.as_dict() if key != "namespace"]
        if others:
            flag = token_flag if others[0] == "token" else f"--{others[0]}"
            raise click.UsageError(f"{flag} is for a server, not for a namespace: drop it")
    if made.url is not None:
        transport = find_transport(made.url)
        if transport is not None:
            transport.check_url(made.url)
        else:
            Address.parse(made.url)
    if made.token == "":
        raise click.UsageError(
            f"{token_flag}: the token is empty: leave it out if the server asks for none"
        )
    return made


def _read_token(file: TextIO) -> str:
    if file is sys.stdin and file.isatty():
        return str(click.prompt("token", hide_input=True, err=True))
    return file.readline().strip()


def _format_place(one: Context) -> str:
    return one.url or f"namespace {one.namespace!r} of this host"


def _format(name: str, one: Context, *, current: bool) -> dict[str, Any]:
    """The context as it is shown, without its token."""
    return {
        "name": name,
        "current": current,
        "url": one.url,
        "namespace": one.namespace,
        "has_token": one.token is not None,
        "cafile": one.cafile,
        "cert": one.cert,
        "key": one.key,
    }
