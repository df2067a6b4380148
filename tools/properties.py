"""Writes what the C core and its binding know of the properties of a message.

It is generated from the table in shmq/api/properties.py, by setup.py at each build: the rows for C,
and the method ``put`` of a handle, whose keywords the properties are.
"""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from typing import Any, Final, get_args

ROOT: Final = Path(__file__).resolve().parent.parent
_SHMQ: Final = ROOT / "shmq"
_MADE: Final = "Made by tools/properties.py from shmq/api/properties.py."

_HEADER: Final = """\
/* {made} */
#pragma once

/* The calls that take properties, as bits. */
enum shmq_property_call {{
{calls}
}};

/* The arguments of a put that describe its message: those that are stored come first. */
enum shmq_property {{
{stored}
    SHMQ_STORED_PROPERTIES,
{others}
    SHMQ_PROPERTIES,
}};

#define SHMQ_PROPERTY_ROWS \\
{rows}
"""

_PUT: Final = '''\
# {made}

cdef class _Putting:
    # The base of Handle.

    def put(self, body, block: bool | None = None, timeout: float | None = None, *, {keywords},
            confirm: str | None = None) -> Put:
        """See shmq.api.Queue.put."""
        cdef PyObject *given[SHMQ_PROPERTIES]
        if {none}:
            if (timeout is None and confirm is None
                    and not shmq_policies_now((<Handle>self).q.h).confirm
                    and type(body) is bytes and PyBytes_GET_SIZE(body) <= SMALL):
                return _put_plain(<Handle>self, <bytes>body, block, None)
            return _put_body(<Handle>self, body, block, timeout, NULL, confirm)
{filled}
        return _put_body(<Handle>self, body, block, timeout, given, confirm)
'''


def _row(row: Any) -> str:
    unit = ", in ms" * bool(row.unit)
    calls = " | ".join(f"SHMQ_CALL_{call.upper()}" for call in row.calls)
    if not row.key:
        return f'{{"{row.name}", "", 0, 0, {calls}, NULL}}'
    reason = f"property {row.key} must be {'an' if row.kind == 'int' else 'a'} {row.kind}{unit}"
    return (
        f'{{"{row.name}", "{row.key}", {len(row.key)}, SHMQ_MSGPACK_{row.kind.upper()}, {calls}, '
        f'"{reason}"}}'
    )


def sources() -> dict[Path, str]:
    """Each generated file with its text."""
    table = run_path(str(_SHMQ / "api/properties.py"))
    rows = [row for row in table["PROPERTIES"].values() if row.name != "confirm"]
    rows.sort(key=lambda row: not row.key)
    number = {row.name: f"SHMQ_P_{row.name.upper()}" for row in rows}
    calls = enumerate(get_args(table["Call"]))
    header = _HEADER.format(
        made=_MADE,
        calls="\n".join(f"    SHMQ_CALL_{call.upper()} = {1 << bit}," for bit, call in calls),
        stored="\n".join(f"    {number[row.name]}," for row in rows if row.key),
        others="\n".join(
            f"    {number[row.name]}{' = SHMQ_STORED_PROPERTIES' * (not at)},"
            for at, row in enumerate(row for row in rows if not row.key)
        ),
        rows=", \\\n".join(f"    {_row(row)}" for row in rows),
    )
    put = _PUT.format(
        made=_MADE,
        keywords=", ".join(f"{name}=None" for name in number),
        none=" and ".join(f"{name} is None" for name in number),
        filled="\n".join(f"        given[{at}] = <PyObject *>{n}" for n, at in number.items()),
    )
    return {_SHMQ / "core/queue/property_table.h": header, _SHMQ / "native/handle_put.pxi": put}


def write_sources() -> None:
    """Write the files that differ from the table."""
    for path, text in sources().items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


if __name__ == "__main__":
    write_sources()
