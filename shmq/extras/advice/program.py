"""The advice as code: a program in Python, and the command that makes the queue."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Sequence
from typing import Any, Final

from shmq.api.options import Options, QueueOptions, options_of
from shmq.api.stream_options import StreamOptions
from shmq.extras.advice.plan import Plan, Setting
from shmq.extras.advice.text import format_answer

_CONSUMER: Final = """\
import shmq


@shmq.worker("{queue}", processes={consumers}{how})
def handle(message: shmq.Message) -> None:
    print(message.body)  # the work; it may run twice for one message


if __name__ == "__main__":
    with shmq.connect({address}) as broker:
{make}
{server}    shmq.run(handle)
"""

_SERVER: Final = "    # each host of workers has SHMQ_URL={address} in its environment\n"

_READER: Final = """\
import shmq

with shmq.connect({address}) as broker:
{make}
    with stream.group("readers").join() as member:
        for record in member:
            print(record.body)  # the work; it may run twice for one record
            member.commit()
"""

#: A worker has so many processes at most; more consumers are several workers, or coroutines.
_MOST_PROCESSES: Final = 64


def python(plan: Plan, settings: Sequence[Setting], name: str) -> str:
    """A program that makes the place, puts a message there, and handles messages."""
    options = {one.name: one.value for one in settings if one.place == "option"}
    uses = {one.name: one.value for one in settings if one.place == "use"}
    if plan.kind == "stream":
        key = ', key="KEY"' if "key" in uses else ""
        make = _call("stream = broker.ensure_stream", [f'"{name}"'], options)
        make += f'stream.append({{"id": 1}}{key})\n'
        return _READER.format(address=_choose_address(plan), make=_indent(make, 4))
    if plan.kind == "exchange":
        make = _exchange(plan, name, options)
    else:
        make = _call("queue = broker.ensure_queue", [f'"{name}"'], options)
        make += f'queue.put({{"id": 1}}{_format_properties(plan)})\n'
    return _CONSUMER.format(
        queue=f"{name}.1" if plan.kind == "exchange" else name,
        consumers=min(uses["consumers"], _MOST_PROCESSES),
        how=_explain_how(plan, uses),
        address=_choose_address(plan),
        server=_SERVER.format(address=_choose_address(plan).strip('"')) if plan.is_remote else "",
        make=_indent(make, 8),
    )


def command_line(plan: Plan, options: dict[str, Any], name: str) -> str:
    """The commands that make it."""
    if plan.kind == "stream":
        return _format_create("shmq stream create", name, StreamOptions, options)
    if plan.kind == "exchange":
        return "\n".join(
            [
                f"shmq exchange create {shlex.quote(name)} --kind fanout",
                *(
                    line
                    for queue in _name_queues(plan, name)
                    for line in (
                        _format_create("shmq create", queue, QueueOptions, options),
                        f"shmq exchange bind {shlex.quote(name)} --queue {shlex.quote(queue)}",
                    )
                ),
            ]
        )
    return _format_create("shmq create", name, QueueOptions, options)


def _name_queues(plan: Plan, name: str) -> list[str]:
    return [f"{name}.{number}" for number in range(1, plan.workload.groups + 1)]


def _choose_address(plan: Plan) -> str:
    if plan.workload.survives == "host":
        return '"nats://HOST:4222"'
    return '"shmq://HOST:9999"' if plan.is_remote else ""


def _call(function: str, positional: list[str], options: dict[str, Any]) -> str:
    rows = [*positional, *(f"{key}={_format_literal(value)}" for key, value in options.items())]
    return f"{function}(\n" + "".join(f"    {row},\n" for row in rows) + ")\n"


def _format_literal(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:_}"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _format_properties(plan: Plan) -> str:
    """The properties of a put."""
    group = {"key": "KEY", "total": "all"}.get(plan.workload.order)
    how = f', group="{group}"' if group else ""
    if plan.workload.duplicates == "harmful":
        how += ', dedupe_id="ID"'
    return how


def _exchange(plan: Plan, name: str, options: dict[str, Any]) -> str:
    queues = ", ".join(f'"{one}"' for one in _name_queues(plan, name))
    call = _call("broker.ensure_queue", ["name"], options).rstrip("\n")
    return (
        f'exchange = broker.ensure_exchange("{name}", "fanout")\n'
        f"for name in [{queues}]:\n{_indent(call, 4)}.close()\n    exchange.bind(name)\n"
        f'exchange.publish({{"id": 1}}{_format_properties(plan)})\n'
    )


def _explain_how(plan: Plan, uses: dict[str, Any]) -> str:
    mode = "keyed" if plan.workload.order == "key" else uses.get("mode")
    how = f', mode="{mode}"' if mode else ""
    return f"{how}, prefetch={uses['prefetch']}" if uses["prefetch"] > 1 else how


def _indent(text: str, spaces: int) -> str:
    """Spaces before each line, and no newline at the end."""
    return textwrap.indent(text.rstrip("\n"), " " * spaces)


def _format_create(command: str, name: str, table: type[Options], options: dict[str, Any]) -> str:
    rows = options_of(table)
    flags = [
        f"--{rows[key].flag or key.replace('_', '-')} {format_answer(value)}"
        for key, value in options.items()
    ]
    return " ".join([command, shlex.quote(name), *flags])
