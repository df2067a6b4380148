"""``shmq stream append``: append records from the command line, a file or standard input."""

from __future__ import annotations

import itertools
import operator
import os
from collections.abc import Sequence
from typing import Any

import click

import shmq
from shmq.api.options import Confirm
from shmq.cli.shared import params
from shmq.cli.shared.flags import connected, json_flag
from shmq.cli.shared.input_lines import open_lines
from shmq.cli.shared.output import counted, note, show, show_json
from shmq.cli.shared.stream_name import partition_flag, stream_argument

__all__ = ["append"]


@click.command()
@stream_argument
@click.option("-m", "--message", "messages", multiple=True, metavar="TEXT", help="Append TEXT.")
@click.option("--file", "path", metavar="FILE", help="Append each line of FILE; - is stdin.")
@click.option("-k", "--key", type=params.text, metavar="KEY", help="The key: it says where.")
@click.option(
    "--key-separator",
    type=params.delimiter,
    metavar="TEXT",
    help=r"Each line is its key, TEXT and the record; \t is understood.",
)
@click.option(
    "--header",
    "headers",
    type=params.header,
    multiple=True,
    metavar="KEY=VALUE",
    help="A header; may be repeated.",
)
@partition_flag("The partition [where the key says, or in turns].")
@click.option(
    "--timeout", type=params.seconds, metavar="TIME", help="Wait for room at most TIME each time."
)
@click.option(
    "--confirm",
    type=click.Choice(["memory", "disk"]),
    help="Where the records are when it says so [as the stream's option says].",
)
@json_flag
@connected
def append(
    broker: shmq.Broker,
    /,
    name: str,
    messages: tuple[str, ...],
    path: str | None,
    key: str | None,
    key_separator: bytes | None,
    headers: tuple[tuple[str, str], ...],
    partition: int | None,
    timeout: float | None,
    confirm: Confirm | None,
    as_json: bool,
) -> None:
    """Append records, given as flags or lines.

    Each -m TEXT is a record, or else each line of FILE or of standard input.
    """
    if messages and path is not None:
        raise click.UsageError("-m and --file exclude each other: drop one")
    if key is not None and key_separator is not None:
        raise click.UsageError("--key and --key-separator exclude each other: drop one")
    with broker.stream(name) as stream:
        where = {"partition": partition, "timeout": timeout, "confirm": confirm}
        appending = _Appending(stream, key, key_separator, dict(headers) or None, where)
        try:
            if messages:
                appending.append([os.fsencode(text) for text in messages])
            else:
                lines = open_lines(path, stream.options.max_record_bytes)
                if lines.typed:
                    note("each line you type is a record; Ctrl-D ends it")
                for batch in lines:
                    appending.append(batch)
        finally:
            appending.report(as_json)


class _Appending:
    """Appends lines, and knows what was appended."""

    def __init__(
        self,
        stream: shmq.Stream,
        key: str | None,
        separator: bytes | None,
        headers: dict[str, str] | None,
        where: dict[str, Any],
    ) -> None:
        self._stream = stream
        self._key = key
        self._separator = separator
        self._headers = headers
        self._where = where
        self._ranges: list[shmq.AppendedRange] = []

    def append(self, lines: list[bytes]) -> None:
        """Append them, up to the first without a key if they are to have one each.

        What came before a failure is counted.
        """
        if self._separator is None:
            self._put(lines, None if self._key is None else [self._key] * len(lines))
            return
        pairs = [line.partition(self._separator) for line in lines]
        keyed = list(itertools.takewhile(operator.itemgetter(1), pairs))
        self._put([value for _, _, value in keyed], [key for key, _, _ in keyed])
        if len(keyed) < len(pairs):
            raise self._without_key(lines[len(keyed)])

    def _put(self, lines: list[bytes], keys: Sequence[bytes | str] | None) -> None:
        try:
            self._ranges += self._stream.append_many(
                [
                    line.decode(errors="surrogateescape") if _is_text(line) else line
                    for line in lines
                ],
                keys=keys,
                headers=None if self._headers is None else [self._headers] * len(lines),
                **self._where,
            )
        except shmq.ShmqError as error:
            self._ranges += getattr(error, "appended", [])
            raise

    def _without_key(self, line: bytes) -> click.ClickException:
        return click.ClickException(
            f"the line {line[:80]!r} has no {self._separator!r}, so no key: mend it, or drop "
            f"--key-separator; it and what follows was not appended"
        )

    def report(self, as_json: bool) -> None:
        """Say what was appended."""
        count = sum(one.count for one in self._ranges)
        single = self._ranges[0] if count == 1 else None
        if as_json:
            known = {"partition": single.partition, "offset": single.first} if single else {}
            show_json({"stream": self._stream.name, "appended": count, **known})
        elif single is not None:
            show(
                f"record {single.first} appended to partition {single.partition} of stream "
                f"{self._stream.name!r}"
            )
        else:
            show(f"{counted(count, 'record')} appended to stream {self._stream.name!r}")


def _is_text(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
