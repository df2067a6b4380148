"""``shmq completion``: the script by which a shell completes commands, flags and queues."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from shmq.cli.shared.output import show

__all__ = ["completion"]

_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", metavar="SHELL", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a SHELL: bash, zsh or fish.

    It completes commands, flags, and the names of the queues there are. For bash put
    eval "$(shmq completion bash)" into ~/.bashrc.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    made = kind(context.find_root().command, {}, "shmq", "_SHMQ_COMPLETE")
    # Not made.source(), which runs bash to learn its version: the script may be made for
    # another machine.
    show(made.source_template % made.source_vars())
