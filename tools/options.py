"""Writes what is made from the tables of options: ``python tools/options.py``.

The tables are the classes of options, see shmq/api/options.py, and the properties of a message, see
shmq/api/properties.py. What is made of them, for Python,
for Cython and for the pages, is checked in; a test compares. Each part stands between a line with
"NAME: made by tools/options.py" and one with "end", in one of FILES.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, get_args

from shmq.api.environment import VARIABLES
from shmq.api.exchange import ExchangeOptions
from shmq.api.group import GroupOptions
from shmq.api.message import Message
from shmq.api.options import MAX_WHOLE, Option, Options, Part, QueueOptions, options_of
from shmq.api.properties import PROPERTIES, Call, properties_of
from shmq.api.share import ShareOptions
from shmq.api.stream_options import StreamOptions
from shmq.cli.shared.flags import size_in_words
from shmq.native._core import MAX_SECONDS
from shmq.server.config.settings import Limits, Quota

ROOT: Final = Path(__file__).resolve().parent.parent

FILES: Final = (
    "docs/operate/serve.md",
    "docs/reference/options.md",
    "docs/internals/protocol.md",
    "shmq/api/keywords.py",
    "shmq/api/message.py",
    "shmq/api/queue.py",
    "shmq/api/transaction.py",
    "shmq/extras/console/api/messages.py",
    "shmq/extras/faststream/command.py",
    "shmq/extras/faststream/memory_broker.py",
    "shmq/native/message.pxi",
    "shmq/native/remote_message.pxi",
    "shmq/native/segment.pxi",
    "shmq/native/_group.pyx",
    "shmq/native/_stream_segment.pxi",
)

_PART: Final = re.compile(
    r"(?P<begin>^ *(?:# |<!-- )(?P<name>[\w ]+): made by tools/options\.py(?: -->\n)?\n)"
    r"(?P<text>.*?)(?P<end>\n<!-- end|^ *# end)\b",
    re.MULTILINE | re.DOTALL,
)


#: The struct of a group's options, in stream/group_state.h.
GROUP: Final = "shmq_group_state_options"

#: A key of CREATE that is no option.
_OWN: Final = (
    "| `own` | bool: the queue goes with this connection; see "
    "[Requests and replies](#requests-and-replies) | false |\n"
)


def render(text: str) -> str:
    """The text of a file with its parts as the tables are now."""
    return _PART.sub(lambda part: part["begin"] + PARTS[part["name"]]() + part["end"], text)


def parts_of(text: str) -> list[str]:
    """The names of the parts of a file."""
    return [part["name"] for part in _PART.finditer(text)]


def _rows(table: type[Any]) -> Iterator[tuple[str, Option, Any]]:
    """Each option of a dataclass: its name, its row and its default."""
    for field in dataclasses.fields(table):
        if "option" in field.metadata:
            yield field.name, field.metadata["option"], field.default


# ---- pages ----


def _page_of_options(table: type[Any]) -> str:
    head = ("option", "default", "range", "meaning")
    rows = _rows(table)
    return _table(head, *((f"`{n}`", _default(r, d), _range(r), _meaning(r)) for n, r, d in rows))


def _page_of_properties() -> str:
    calls: tuple[Call, ...] = get_args(Call)
    heads = {"transaction": "`Transaction.put`"}
    return _table(
        ("property", *(heads.get(call, f"`{call}`") for call in calls), "meaning"),
        *(
            (f"`{name}`", *("yes" if call in row.calls else "no" for call in calls), row.text)
            for name, row in PROPERTIES.items()
        ),
    )


def _page_of_stored_properties() -> str:
    rows = [row for row in PROPERTIES.values() if row.key]
    return _table(("key", "type", "meaning"), *((f"`{row.key}`", row.stored) for row in rows))


def _page_of_keys(table: type[Options]) -> str:
    types = {"count": "int: ", "bytes": "int, bytes: ", "seconds": "int or float, s: "}
    types["flag"] = "bool: "
    return _table(
        ("key", "value", "default"),
        *(
            (f"`{name}`", types.get(row.kind, "str: ") + _on_wire(_range(row)),
             _on_wire(_default(row, default)))
            for name, row, default in _rows(table)
            if not row.of_cluster
        ),
    )  # fmt: skip


def _on_wire(said: str) -> str:
    """The words of MessagePack."""
    for word, other in (("None", "nil"), ("True", "true"), ("False", "false")):
        said = said.replace(word, other)
    return said


def _table(head: tuple[str, ...], *rows: tuple[str, ...]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _default(row: Option, default: Any) -> str:
    if row.follows:
        return str(row.follows)
    if default is None or row.kind in {"choice", "name"}:
        return "None" if default is None else f'`"{default}"`'
    if row.kind == "flag":
        return str(default)
    return _number(row, default)


def _range(row: Option) -> str:
    if row.kind == "choice":
        return ", ".join(f'`"{word}"`' for word in row.choices)
    if row.kind == "flag":
        return "True, False"
    if row.kind == "name":
        said = f"{'an' if row.noun == 'exchange' else 'a'} {row.noun}'s name"
    elif row.most == MAX_WHOLE and row.kind != "seconds":
        said = f"{_number(row, row.least)} and up"
    else:
        most = MAX_SECONDS if row.kind == "seconds" else row.most
        end = str(most) if isinstance(most, Part) else _number(row, most)
        said = f"{_number(row, row.least)} to {end}"
    return f"{said}, or None" if row.none else said


def _number(row: Option, value: float) -> str:
    if value == MAX_SECONDS:
        return "10⁹"
    if row.kind == "bytes":
        return size_in_words(int(value))
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _meaning(row: Option) -> str:
    said = [
        row.text + (f"; None: {row.none}" if row.none else ""),
        row.more,
        f"`{row.changed_by}` changes it" if row.changed_by else "",
        f"Fixed: {row.fixed}" if row.fixed else "",
    ]
    return ". ".join(filter(None, said))


# ---- Python and Cython ----


def _keywords(table: type[Options], *but: str) -> str:
    rows = options_of(table)
    types = {
        field.name: str(field.type).replace("float", "float | dt.timedelta")
        if rows[field.name].kind == "seconds"
        else field.type
        for field in dataclasses.fields(table)
        if field.name not in but
    }
    return "".join(f"    {name}: {kind}\n" for name, kind in types.items())


def _properties(call: Call, *but: str) -> str:
    rows = [row for row in properties_of(call) if row.name not in but]
    return "".join(f"    {row.name}: {row.type} | None\n" for row in rows)


def _signature(call: Call) -> str:
    rows = properties_of(call)
    return "".join(f"        {row.name}: {row.type} | None = None,\n" for row in rows)


def _texts(head: str, body: str) -> str:
    """An accessor for each property that is a text."""
    made = "\n".join(
        f"    @property\n    def {row.name}(self) -> str | None:\n"
        f'        """{head.format(row.name, row.accessor)}"""\n'
        f"        return {body.format(row.key)}\n"
        for row in PROPERTIES.values()
        if row.accessor
    )
    return f"\n{made}\n"


def _texts_of_a_delivery() -> str:
    text = 'None if self.meta is None else self._all().get("{0}")'
    return _texts("See shmq.api.Message.{0}.", text)


#: The types of the table in JSON: words and ISO 8601 are strings.
_IN_JSON: Final = {
    "int | Level": "int | str",
    "Mapping[str, Any]": "dict[str, Any]",
    "float | dt.timedelta": "float | str",
    "float | dt.datetime": "float | str",
}


def _fields_of_the_console() -> str:
    return "".join(
        f"    {row.name}: {_IN_JSON.get(row.type, row.type)} | None = None\n"
        for row in PROPERTIES.values()
    )


def _fields_of_a_view() -> str:
    return "".join(f"    {row.name}: str | None\n" for row in PROPERTIES.values() if row.accessor)


#: The properties that FastStream names itself.
_OF_FASTSTREAM: Final = ("headers", "codec", "reply_to", "correlation")


def _fields_of_a_fake_message() -> str:
    rows = [row for row in PROPERTIES.values() if row.accessor or not hasattr(Message, row.name)]
    return "".join(f"    {row.name}: {row.type} | None = None\n" for row in rows)


def _names_of(header: str, struct: str) -> list[str]:
    text = (ROOT / "shmq/core" / header).read_text()
    body = text.split(f"\nstruct {struct} {{\n")[1].split("\n};")[0]
    return re.findall(r"^ +\w+ (\w+)(?:\[\w+\])?;", body, re.MULTILINE)


def _transfer(table: type[Options], struct: str, policies: str = "") -> str:
    """The functions that carry options into the struct and out of it.

    Those that can be altered are in a struct ``policies``, of which a new one's is the first.
    """
    rows = [(name, row) for name, row in options_of(table).items() if not row.of_cluster]
    words = [(name, row.choices) for name, row in rows if row.kind == "choice"]
    return (
        "".join(f"_{name.upper()} = {choices}\n" for name, choices in words).replace("'", '"')
        + f"\n\ncdef int _pack_given({struct} *o, dict given) except -1:\n"
        + (f"    cdef {policies} *p = &o.policies[0]\n" if policies else "")
        + "".join(f"    {_packed(name, row)}\n" for name, row in rows)
        + f"    return 0\n\n\ncdef dict _unpack_options(const {struct} *o"
        + (f", const {policies} *p" if policies else "")
        + "):\n    return {\n"
        + "".join(f'        "{name}": {_unpacked(name, row)},\n' for name, row in rows)
        + "    }\n"
    )


def _group_transfer(*tables: type[Options]) -> str:
    """As `_transfer`, for the stored form of a group's options.

    Its keys are the members of the struct, in their order; times are in nanoseconds, and a choice
    whose member is its second word tells whether it is that word. A share group has one more word.
    """
    rows = {row.member: row for table in tables for row in options_of(table).values()}
    names = [name for name in _names_of("stream/group_state.h", GROUP) if name in rows]
    words = {name: rows[name].choices for name in names if _is_word(name, rows[name])}
    return (
        "".join(f"_{n.upper()} = {(*w, 'shared')}\n" for n, w in words.items()).replace("'", '"')
        + f"\n\ncdef int _pack_given({GROUP} *o, dict given) except -1:\n"
        + "".join(f"    {_group_packed(name, rows[name])}\n" for name in names)
        + f"    return 0\n\n\ncdef dict _unpack_options(const {GROUP} *o):\n    return {{\n"
        + "".join(f'        "{name}": {_group_unpacked(name, rows[name])},\n' for name in names)
        + "    }\n"
    )


def _is_word(name: str, row: Option) -> bool:
    """Whether the choice is stored as a word."""
    return row.kind == "choice" and name not in row.choices


def _group_packed(name: str, row: Option) -> str:
    if row.kind == "name" or _is_word(name, row):
        return _packed(name, row)
    return f'o.{name} = given["{name}"]' + (" or 0" if row.none else "")


def _group_unpacked(name: str, row: Option) -> str:
    if row.kind == "choice":
        words = len(row.choices) + 1
        return f"_{name.upper()}[o.{name} % {words}]" if _is_word(name, row) else f"bool(o.{name})"
    return f"o.{name}" if row.kind == "seconds" else _unpacked(name, row)


def _member(row: Option) -> str:
    return f"{'p' if row.changed_by == 'alter_queue' else 'o'}.{row.member}"


def _packed(name: str, row: Option) -> str:
    to, value = _member(row), f'given["{name}"]'
    if row.kind == "name":
        return f'_copy_name({to}, {value} or "")'
    if row.kind == "choice":
        return f"{to} = _{name.upper()}.index({value})"
    if row.kind == "flag":
        return f"{to} = bool({value})"
    value += " or 0" if row.none else ""
    if row.kind == "seconds":
        return f"{to} = <int64_t>(({value}) * 1e9 + 0.5)"
    return f"{to} = {value}"


def _unpacked(name: str, row: Option) -> str:
    value = _member(row)
    if row.kind == "choice":
        return f"_{name.upper()}[{value} % {len(row.choices)}]"
    if row.kind == "flag":
        return f"bool({value})"
    if row.kind == "name":
        return f'{value}.decode("ascii") or None'
    if row.kind == "seconds":
        return f"{value} / 1e9" + (f" if {value} else None" if row.none else "")
    return value + (" or None" if row.none else "")


def _page_of_variables() -> str:
    head = ("variable", "meaning", "without it")
    return _table(head, *((f"`{row.name}`", row.meaning, row.default) for row in VARIABLES))


PARTS: Final[dict[str, Callable[[], str]]] = {
    "options of a queue": lambda: _page_of_options(QueueOptions),
    "options of a stream": lambda: _page_of_options(StreamOptions),
    "options of a group": lambda: _page_of_options(GroupOptions),
    "options of a share": lambda: _page_of_options(ShareOptions),
    "options of an exchange": lambda: _page_of_options(ExchangeOptions),
    "environment": _page_of_variables,
    "limits of a server": lambda: _page_of_options(Limits),
    "quotas of a server": lambda: _page_of_options(Quota),
    "keys of a queue": lambda: _page_of_keys(QueueOptions) + _OWN,
    "keys of a stream": lambda: _page_of_keys(StreamOptions),
    "properties of a put": _page_of_properties,
    "stored properties": _page_of_stored_properties,
    "keywords of a put": lambda: _properties("put"),
    "properties that FastStream does not name": lambda: _properties("put", *_OF_FASTSTREAM),
    "properties of a fake message": _fields_of_a_fake_message,
    "fields of a message": _fields_of_the_console,
    "fields of a view": _fields_of_a_view,
    "signature of a put": lambda: _signature("put"),
    "signature of many puts": lambda: _signature("put_many"),
    "signature of a packed put": lambda: _signature("put_packed"),
    "signature of a transaction": lambda: _signature("transaction"),
    "texts of a message": lambda: _texts("{1}", 'self.properties.get("{0}")'),
    "texts of a local message": _texts_of_a_delivery,
    "texts of a remote message": _texts_of_a_delivery,
    "keywords of many puts": lambda: _properties("put_many"),
    "keywords of a packed put": lambda: _properties("put_packed"),
    "keywords of a queue": lambda: _keywords(QueueOptions),
    "keywords of a stream": lambda: _keywords(StreamOptions, "partitions"),
    "transfer of a queue": lambda: _transfer(QueueOptions, "shmq_options", "shmq_policies"),
    "transfer of a stream": lambda: _transfer(StreamOptions, "shmq_log_options"),
    "transfer of a group": lambda: _group_transfer(GroupOptions, ShareOptions),
}


def main() -> None:
    """Write every part anew."""
    for name in FILES:
        path = ROOT / name
        path.write_text(render(path.read_text()))


if __name__ == "__main__":
    main()
