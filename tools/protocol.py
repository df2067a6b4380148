"""Makes the protocol's enums and tables from their one definition: ``python tools/protocol.py``.

The definition is ``shmq/protocol/opcodes.toml``. The sources that are generated for Python and C
are not checked in: setup.py and the Makefile write them. The parts of pages are; a test compares
them.
"""

from __future__ import annotations

import itertools
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = ROOT / "shmq/protocol/opcodes.toml"
PYTHON: Final = ROOT / "shmq/protocol/opcodes.py"
MESSAGES: Final = ROOT / "shmq/protocol/messages/numbers.py"
HEADER: Final = ROOT / "shmq/core/protocol/opcodes.h"
PAGE: Final = ROOT / "docs/internals/protocol.md"

Table = dict[str, Any]
Rows = list[tuple[str, ...]]

#: A number of a payload, which is always there: its bits, its name, and more about it.
_NUMBER: Final = re.compile(r"u(8|16|32|64) (\w+)(.*)")
_CODES: Final = {"8": "B", "16": "H", "32": "I", "64": "Q"}
#: What the head of a request of a group's member has, but for the group's name.
_MEMBER: Final = 2 + 8 + 8


def read() -> Table:
    """The definition.

    Raises ValueError for a number that is given twice, or is kept free, and for an operation of
    policy that does not say whether a side thread carries it out, or another one that does.
    """
    table = tomllib.loads(SOURCE.read_text())
    for kind in ("operation", "status"):
        numbers = [each["number"] for each in table[kind].values()]
        if len(set(numbers)) != len(numbers):
            raise ValueError(f"{SOURCE}: two of the kind {kind!r} have one number")
        table[kind] = dict(sorted(table[kind].items(), key=lambda pair: pair[1]["number"]))
    if table["unused"] in [each["number"] for each in table["operation"].values()]:
        raise ValueError(f"{SOURCE}: type {table['unused']:#04x} must stay unused")
    for name, each in table["operation"].items():
        each.setdefault("by", "policy")
        each.setdefault("about", "queue" if each["by"] == "policy" else "")
        if isinstance(each.get("aside"), bool) != (each["by"] == "policy"):
            raise ValueError(f"{SOURCE}: {name}: aside = true or false, of a policy's and no other")
        if isinstance(each.get("again"), bool | str) != (each["by"] != "server"):
            raise ValueError(
                f"{SOURCE}: {name}: again = true, false or words, of a client's request"
            )
    return table


def _is_of_numbers(operation: Table) -> bool:
    """Whether the request has numbers alone, behind the name or the member."""
    behind = _behind(operation)
    return bool(behind) and all(map(_NUMBER.match, behind))


def _rights(operation: Table) -> Table:
    """The rights that the operation may need, each with words that say when."""
    right = operation.get("right", "")
    return right if isinstance(right, dict) else {right: ""} if right else {}


# ---- Python -----------------------------------------------------------------------------


def python(table: Table) -> str:
    """The module ``shmq.protocol.opcodes``."""
    return "".join(
        (
            '"""The numbers of the wire protocol: opcodes.toml, by tools/protocol.py."""\n\n',
            "from __future__ import annotations\n\n",
            "import enum\nimport struct\nfrom typing import Final\n\n",
            "from shmq import errors\n\n",
            *_python_limits(table),
            _enum("Type", "IntEnum", "What a frame is.", _numbers(table["operation"])),
            _enum(
                "Flag",
                "IntEnum",
                "The flags of a payload; which of them it may have depends on the type.",
                [(each["name"], f"{each['value']:#04x}", each["on"]) for each in table["flag"]],
            ),
            _enum(
                "Status",
                "IntEnum",
                "The outcome of a request. From 0x8000 on the server closes the connection.",
                _numbers(table["status"]),
            ),
            _enum(
                "Right",
                "IntEnum",
                "What a token may do to a queue or a stream: bits of a mask.",
                [(name.upper(), str(bit), []) for name, bit in table["right"].items()],
            ),
            *_python_heads(table),
            *_python_again(table),
            *_python_aside(table),
            *_python_audit(table),
            *_python_errors(table),
        )
    )


def _python_limits(table: Table) -> Iterator[str]:
    yield "#: The version that stands in the header of every frame.\n"
    yield f"PROTOCOL_VERSION: Final = {table['version']}\n\n"
    yield f"MAGIC: Final = 0x{table['magic']:X}\n\n"
    yield "#: Bytes of a frame's header.\nHEADER: Final = 16\n\n"
    yield "#: Where a server listens and a client calls, if nothing else is said.\n"
    yield f"DEFAULT_PORT: Final = {table['port']}\n\n"
    yield "#: No operation has this type, and none will.\n"
    yield f"UNUSED_TYPE: Final = 0x{table['unused']:X}\n"
    for name, (number, text) in table["limits"].items():
        yield f"\n#: {text}\n{name}: Final = {number:_}\n"


def _numbers(table: Table) -> list[tuple[str, str, list[str]]]:
    def number(value: int) -> str:
        return f"0x{value:02X}" if "by" in next(iter(table.values())) else str(value)

    return [
        (name, f"0x{each['number']:X}" if each["number"] >= 0x8000 else number(each["number"]), [])
        for name, each in table.items()
    ]


def _enum(name: str, base: str, text: str, members: list[tuple[str, str, list[str]]]) -> str:
    lines = [f"\n\nclass {name}(enum.{base}):", f'    """{text}"""', ""]
    for member, value, on in members:
        lines.append(f"    {member} = {value}" + (f"  # {', '.join(on)}" if on else ""))
    return "\n".join(lines) + "\n"


def _python_heads(table: Table) -> Iterator[str]:
    heads = {
        name: list(itertools.takewhile(bool, map(_NUMBER.match, _behind(each))))
        for name, each in table["operation"].items()
        if each["by"] != "server"
    }
    yield "\n\n#: The numbers that a payload begins with, behind the name or the member.\n"
    yield "HEADS: Final[dict[Type, struct.Struct]] = {\n"
    for name, found in heads.items():
        if codes := "".join(_CODES[number[1]] for number in found if number):
            yield f'    Type.{name}: struct.Struct("!{codes}"),\n'
    for constant, text, mark in (
        ("POSITIVE", "must not be 0", "(≥ 1)"),
        ("SIGNED", "must be less than 2⁶³", "(< 2⁶³)"),
    ):
        yield f"}}\n\n#: Those of them that {text}: the name of each by its index.\n"
        yield f"{constant}: Final[dict[Type, dict[int, str]]] = {{\n"
        for name, found in heads.items():
            if some := [f'{at}: "{n[2]}"' for at, n in enumerate(found) if n and mark in n[3]]:
                yield f"    Type.{name}: {{{', '.join(some)}}},\n"
    yield "}\n"


def _python_again(table: Table) -> Iterator[str]:
    yield "\n#: Whether a request may be sent again if its connection was lost before the answer.\n"
    yield "#: None: that depends on the request.\n"
    yield "AGAIN: Final[dict[Type, bool | None]] = {\n"
    for name, each in table["operation"].items():
        if each["by"] != "server":
            again = each["again"] if isinstance(each["again"], bool) else None
            yield f"    Type.{name}: {again},\n"
    yield "}\n"


def _python_aside(table: Table) -> Iterator[str]:
    yield "\n#: The types that a side thread of the server carries out, not its event loop.\n"
    yield "ASIDE: Final = frozenset(\n    {\n"
    yield from (f"        Type.{name},\n" for name in _names_aside(table))
    yield "    }\n)\n"


def _python_audit(table: Table) -> Iterator[str]:
    yield '\n#: The audit events of a type by the action; "" of a type without actions.\n'
    yield "AUDIT: Final[dict[Type, dict[str, str]]] = {\n"
    for name, each in table["operation"].items():
        event = each.get("audit")
        if event is None:
            continue
        pairs = event if isinstance(event, dict) else {"": event}
        inner = [f'"{action}": "{value}"' for action, value in pairs.items()]
        one = f"    Type.{name}: {{{', '.join(inner)}}},\n"
        many = "".join(f"        {pair},\n" for pair in inner)
        yield one if len(one) <= 101 else f"    Type.{name}: {{\n{many}    }},\n"
    yield "}\n"


def _names_aside(table: Table) -> list[str]:
    return [name for name, each in table["operation"].items() if each.get("aside")]


def _behind(each: Table) -> list[str]:
    """What a payload has behind the name, or behind the member."""
    return [part for part in each["request"] if part not in ("name", "member")]


def _python_errors(table: Table) -> Iterator[str]:
    yield "\n#: The right that every request of the type needs.\n"
    yield "RIGHTS: Final[dict[Type, Right]] = {\n"
    for name, each in table["operation"].items():
        always = [right for right, when in _rights(each).items() if not when and right != "any"]
        if always:
            yield f"    Type.{name}: Right.{always[0].upper()},\n"
    yield "}\n\n"
    yield "#: The errors that a server answers with a status; a client raises the first.\n"
    yield "ERRORS: Final[dict[Status, tuple[type[errors.ShmqError], ...]]] = {\n"
    for name, each in table["status"].items():
        if kinds := [f"errors.{kind}" for kind in each.get("errors", ())]:
            one = f"    Status.{name}: ({', '.join(kinds)}{',' * (len(kinds) == 1)}),\n"
            inner = "".join(f"        {kind},\n" for kind in kinds)
            yield one if len(one) <= 101 else f"    Status.{name}: (\n{inner}    ),\n"
    yield "}\n\n"
    yield "#: What a client says of a status, and whether it says so whatever the server said.\n"
    yield "TEXTS: Final[dict[Status, tuple[str, bool]]] = {\n"
    for name, each in table["status"].items():
        if text := each.get("text"):
            one = f'    Status.{name}: ("{text}", {each.get("fixed", False)}),\n'
            inner = f'        "{text}",\n        {each.get("fixed", False)},\n'
            yield one if len(one) <= 101 else f"    Status.{name}: (\n{inner}    ),\n"
    yield "}\n"


def messages(table: Table) -> str:
    """The module ``shmq.protocol.messages.numbers``."""
    return "".join(
        (
            '"""The requests of numbers alone: opcodes.toml, by tools/protocol.py."""\n\n',
            "from __future__ import annotations\n\n",
            "import dataclasses\n\n",
            "from shmq.protocol.messages.payload import Numbers\n",
            "from shmq.protocol.opcodes import Type\n",
            *(
                _message(name, each["request"])
                for name, each in table["operation"].items()
                if each["by"] == "policy" and _is_of_numbers(each)
            ),
        )
    )


def _message(name: str, request: list[str]) -> str:
    fields = [found for part in request if (found := _NUMBER.match(part))]
    lines = [
        "\n\n@dataclasses.dataclass(frozen=True, slots=True)",
        f"class {name.title().replace('_', '')}(Numbers):",
        f'    """{name}: {" | ".join(request)}."""\n',
        f"    type = Type.{name}",
        *(f"    {each[2]}: {'bool' if each[3].startswith(': 1') else 'int'}" for each in fields),
    ]
    return "\n".join(lines) + "\n"


# ---- C ----------------------------------------------------------------------------------


def header(table: Table) -> str:
    """The header ``protocol/opcodes.h``."""
    limits = {name: value for name, (value, _) in table["limits"].items()}
    return "".join(
        (
            "/* The numbers of the wire protocol: opcodes.toml, by tools/protocol.py. */\n",
            "#pragma once\n\n",
            "#include <stdbool.h>\n#include <stdint.h>\n\n",
            f"#define SHMQ_FRAME_MAGIC 0x{table['magic']:X}u\n",
            f"#define SHMQ_FRAME_VERSION {table['version']}\n",
            "#define SHMQ_FRAME_HEADER 16u\n",
            f"#define SHMQ_FRAME_MAX {limits['MAX_FRAME']}u\n",
            f"#define SHMQ_FRAME_HELLO_MAX {limits['MAX_HELLO']}u\n",
            f"#define SHMQ_FRAME_PING_MAX {limits['MAX_PING']}u\n",
            f"#define SHMQ_FRAME_MORE 0x{limits['MORE']:04X}\n",
            f"#define SHMQ_FRAME_FOREVER 0x{limits['FOREVER']:X}u\n",
            _c_enum("frame_type", "T", table["operation"].items(), "number", "02X"),
            _c_enum("frame_status", "S", table["status"].items(), "number", "d"),
            _c_enum(
                "frame_flag", "FLAG", [(each["name"], each) for each in table["flag"]], "value"
            ),
            _c_enum(
                "right", "MAY", [(n.upper(), {"bit": b}) for n, b in table["right"].items()], "bit"
            ),
            _c_operations(table),
        )
    )


def _c_enum(name: str, prefix: str, rows: Any, key: str, form: str = "02X") -> str:
    lines = [f"\nenum shmq_{name} {{"]
    for member, each in rows:
        number = each[key]
        shown = f"{number:d}" if form == "d" and number < 0x8000 else f"0x{number:02X}"
        on = f" /* {', '.join(each['on'])} */" if "on" in each else ""
        lines.append(f"    SHMQ_{prefix}_{member} = {shown},{on}")
    return "\n".join([*lines, "};\n"])


_C_OPERATION: Final = """
/* Who carries a request out, and how it finds what it is about. */
enum shmq_path {
    SHMQ_PATH_NONE = 0, /* no such type exists, or only a server sends it                */
    SHMQ_PATH_ENGINE,   /* the engine                                                      */
    SHMQ_PATH_POLICY,   /* policy; no name                                                 */
    SHMQ_PATH_QUEUE,    /* policy, by a name that the session must have a right to         */
    SHMQ_PATH_STREAM,   /* policy, by a name; policy checks the rights                     */
};

/* What a request to policy has behind the name, if there is one. */
enum shmq_form {
    SHMQ_FORM_BYTES = 0, /* `least` bytes, or more                                         */
    SHMQ_FORM_NOTHING,
    SHMQ_FORM_MAP,
    SHMQ_FORM_MAP_OR_NOTHING,
};

struct shmq_operation {
    uint8_t path;    /* enum shmq_path                                                     */
    uint8_t form;    /* enum shmq_form                                                     */
    uint8_t least;   /* of SHMQ_FORM_BYTES: how many                                       */
    bool silent;     /* a message id of 0 asks for no answer                               */
    bool draining;   /* carried out while the server shuts down, too                       */
    const char *why; /* what a refusal of another form says                                */
};

/* The operations by type: a `static const struct shmq_operation [256]` is made of it. */
"""


def _c_operations(table: Table) -> str:
    rows = [_c_operation(name, each) for name, each in table["operation"].items()]
    lines = [line for row in rows for line in row]
    width = max(map(len, lines))
    body = "\n".join(f"    {line:{width}} \\" for line in lines[:-1])
    return f"{_C_OPERATION}#define SHMQ_OPERATIONS \\\n{body}\n    {lines[-1]}\n"


def _c_operation(name: str, each: Table) -> list[str]:
    path = _path(each)
    fields = [f".path = SHMQ_PATH_{path}"]
    if path not in ("NONE", "ENGINE"):
        form, least = _form(each)
        fields.append(f".form = SHMQ_FORM_{form}")
        fields += [f".least = {least}"] if least else []
    fields += [f".{key} = true" for key in ("silent", "draining") if each.get(key)]
    lines = [f"[SHMQ_T_{name}] = {{{', '.join(fields)}"]
    if path not in ("NONE", "ENGINE"):
        lines[0] += ","
        lines.append(f'    .why = "{_why(name, each)}"')
    lines[-1] += "},"
    return lines


def _path(each: Table) -> str:
    if each["by"] != "policy":
        return "ENGINE" if each["by"] == "engine" else "NONE"
    return str(each.get("about") or "policy").upper()


def _form(each: Table) -> tuple[str, int]:
    """What stands behind the name: of which form it is, and how many bytes it has at least."""
    behind = [part for part in each["request"] if part != "name"]
    if not behind:
        return "NOTHING", 0
    if len(behind) == 1 and "msgpack map" in behind[0]:
        return ("MAP_OR_NOTHING" if behind[0].startswith("[") else "MAP"), 0
    least = sum(int(found[1]) // 8 for part in behind if (found := _NUMBER.match(part)))
    return "BYTES", least + (_MEMBER if behind[0] == "member" else 0)


def _why(name: str, each: Table) -> str:
    form, least = _form(each)
    where = "behind the name is" if each.get("about") else "this type carries"
    one = "a" if name[0] not in "AEIOU" else "an"
    said = {
        "NOTHING": f"{where} nothing more" if each.get("about") else f"{where} nothing",
        "MAP": f"{where} one msgpack map",
        "MAP_OR_NOTHING": "the options are not one msgpack map"
        if each.get("about")
        else f"{where} one msgpack map",
        "BYTES": f"{one} {name} has at least {least} bytes behind the name",
    }
    return str(each.get("why", said[form]))


# ---- the pages --------------------------------------------------------------------------


def page(table: Table) -> str:
    """The protocol's page, with its tables and the forms of its sections."""
    text = PAGE.read_text()
    for name, make in _TABLES.items():
        pattern = rf"(<!-- {name}: made by tools/protocol.py -->\n\n).*?(\n\n<!-- end -->)"
        made = "\n".join(make(table))
        text, count = re.subn(pattern, _between(made), text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"{PAGE} has {count} places for the table of {name}")
    for name, each in table["operation"].items():
        text = re.sub(
            rf"(^### {name}\n\n)(?: {{4}}.*\n)+()",
            _between(_block(each["request"])),
            text,
            flags=re.MULTILINE,
        )
    return text


def _between(text: str) -> Callable[[re.Match[str]], str]:
    return lambda found: found[1] + text + found[2]


def _block(request: list[str]) -> str:
    """The form of a payload, as the page shows it."""
    form = textwrap.TextWrapper(96, initial_indent=" " * 4, subsequent_indent=" " * 8)
    form.break_long_words = form.break_on_hyphens = False
    kept = [part.replace(" ", "\0") for part in request]
    return form.fill(" | ".join(kept)).replace("\0", " ").rstrip() + "\n"


def _rows(*rows: tuple[str, ...]) -> Iterator[str]:
    for at, row in enumerate(rows):
        yield f"| {' | '.join(row)} |".replace("|  |", "| |")
        if not at:
            yield "| " + " | ".join(["---"] * len(row)) + " |"


def _types(table: Table) -> Iterator[str]:
    rows: Rows = [("type", "name", "payload of the request", "answer")]
    for name, each in table["operation"].items():
        if each["by"] == "server":
            asked = "only ever sent by the server"
        else:
            asked = ", ".join(each["request"]) or "nothing"
        link = name if name == "REPLY" else f"[{name}](#{name.lower()})"
        rows.append((f"0x{each['number']:02X}", link, asked, each["answer"]))
    yield from _rows(*rows)


def _flags(table: Table) -> Iterator[str]:
    rows = [
        (f"0x{each['value']:02X}", ", ".join(each["on"]), each["text"]) for each in table["flag"]
    ]
    yield from _rows(("flag", "on", "meaning"), *rows)


def _statuses(table: Table) -> Iterator[str]:
    more = table["limits"]["MORE"][0]
    meaning = "meaning, and what the payload is where it is not that of OK"
    rows: Rows = [("value", "name", meaning, "what to do")]
    known = [
        (each["number"], name, each["meaning"], each["todo"])
        for name, each in table["status"].items()
    ]
    known.append((more, "MORE", "of a DELIVER: others of the same CONSUME follow", "read on"))
    for number, *row in sorted(known):
        rows.append((f"0x{number:04X}" if number >= more else str(number), *row))
    yield from _rows(*rows)


def _right_table(table: Table) -> Iterator[str]:
    rows: Rows = [("right", "types")]
    for right in (*table["right"], "any"):
        types = [
            f"{name} {when}".strip()
            for name, each in table["operation"].items()
            if (when := _rights(each).get(right)) is not None
        ]
        if right == "any":
            rows.append(
                (
                    "any of these",
                    f"{', '.join(types)}, and to be in the answer to LIST or STREAM_LIST",
                )
            )
        else:
            rows.append((right, ", ".join(types)))
    yield from _rows(*rows)


def _side_threads(table: Table) -> Iterator[str]:
    *others, last = _names_aside(table)
    yield textwrap.fill(
        f"A worker's two side threads carry out {', '.join(others)} and {last}.", 108
    )


def _repetitions(table: Table) -> Iterator[str]:
    said: dict[str, list[str]] = {"yes": [], "no": [], "some": []}
    for name, each in table["operation"].items():
        match each.get("again"):
            case bool(again):
                said["yes" if again else "no"].append(name)
            case str(words):
                said["some"].append(f"{name} {words}")
    yield from _rows(
        ("send it again", "requests"),
        ("yes", ", ".join(said["yes"])),
        ("only a", "; ".join(said["some"])),
        ("no", ", ".join(said["no"])),
    )


_TABLES: Final[dict[str, Callable[[Table], Iterator[str]]]] = {
    "types": _types,
    "side threads": _side_threads,
    "flags": _flags,
    "rights": _right_table,
    "statuses": _statuses,
    "repetitions": _repetitions,
}


def made() -> dict[Path, str]:
    """Each file that is made of the definition, with what is to be in it."""
    table = read()
    return {**_sources(table), PAGE: page(table)}


def _sources(table: Table) -> dict[Path, str]:
    return {PYTHON: python(table), MESSAGES: messages(table), HEADER: header(table)}


def write_sources() -> None:
    """Write the sources that are not as the definition says."""
    for path, text in _sources(read()).items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


if __name__ == "__main__":
    for path, text in made().items():
        path.write_text(text)
