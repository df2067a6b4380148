"""Writes docs/reference/api.md from the docstrings: ``python tools/reference.py``.

A page has a section for each public name of the modules below, and in it an entry for
each public member, those of a base that is not public included. A field of a dataclass is
described by the ``#:`` comment before it, an option by its row in shmq/api/options.py.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import sys
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shmq.api.options import Option

PAGE = Path(__file__).resolve().parent.parent / "docs/reference/api.md"

#: The width of the page's source.
LONGEST = 96

#: The modules whose public names the page describes, each with a word on it.
MODULES = {
    "shmq": "",
    "shmq.server.keeper": " Does what is due in queues that nobody touches, in a process or a "
    "thread of your own: see [failures.md](../operate/failures.md#a-process-dies).",
    "shmq.extras.cloudevents": " See [cloudevents.md](../integrate/cloudevents.md).",
    "shmq.extras.otel": " See [tracing.md](../operate/tracing.md).",
    "shmq.futures": " See [process-pool.md](../use/process-pool.md).",
    "shmq.mp": " All else in it is multiprocessing's own, and `ShutDown` what `queue` has from "
    "Python 3.13 on: see [multiprocessing.md](../use/multiprocessing.md).",
}

#: What is ours only where the standard library is too old to have it.
BORROWED = {"ShutDown"}

#: Classes that an application does not make itself, although it could.
MADE = {"Worker"}

#: The classes in the order in which one meets them; others follow by name.
FIRST = ("connect", "Broker", "Queue", "Message", "Put", "DeadLetter", "Consumer", "Loan")

HEAD = """# The API, name by name

Made from the docstrings by `make reference`. Times are seconds, as int or float; sizes are bytes,
as int. A number of NumPy's, or of any other type that is a number, is as good; a bool is none. A
value of the wrong type is a `TypeError`, a value out of range
[`InvalidOption`](#invalidoption); both name the argument and the value. What each option of a
queue and each property of a message means at length is in [options.md](options.md).

"""


def render() -> str:
    """The whole page."""
    contents = "".join(_contents(module) for module in MODULES)
    sections = "".join(_section(title, value) for title, value in public().items())
    return (HEAD + contents + sections).rstrip("\n") + "\n"


def public() -> dict[str, Any]:
    """What the page describes, by its title there, in the page's order."""
    return {title_of(module, name): value for module in MODULES for name, value in _own(module)}


def title_of(module: str, name: str) -> str:
    """The name as one writes it behind ``shmq.``."""
    return name if module == "shmq" else f"{module.removeprefix('shmq.')}.{name}"


def names_of(module: types.ModuleType) -> list[str]:
    """The public names of a module: those it lists, or offers on demand, or defines."""
    if hasattr(module, "__all__") or hasattr(module, "__getattr__"):
        return list(getattr(module, "__all__", None) or dir(module))
    own = (name for name, value in vars(module).items() if _defines(module, value))
    return [name for name in own if not name.startswith("_")]


def _defines(module: types.ModuleType, value: object) -> bool:
    return getattr(value, "__module__", None) == module.__name__


def _own(module: str) -> list[tuple[str, Any]]:
    """The public names of a module, but for what it only hands on from elsewhere.

    Those of FIRST come first, then what else there is, constants and errors.
    """
    found = importlib.import_module(module)

    def rank(item: tuple[str, Any]) -> tuple[int, int, str]:
        name, value = item
        is_error = isinstance(value, type) and issubclass(value, Exception)
        first = FIRST.index(name) if name in FIRST else len(FIRST)
        return (2 if is_error else 1 if not callable(value) else 0), first, name

    named = [(name, getattr(found, name)) for name in names_of(found) if name not in BORROWED]
    return sorted(((name, value) for name, value in named if _is_ours(value)), key=rank)


def _is_ours(value: Any) -> bool:
    if inspect.ismodule(value):
        return False
    return str(getattr(value, "__module__", "shmq")).partition(".")[0] == "shmq"


def _contents(module: str) -> str:
    titles = [title_of(module, name) for name, _ in _own(module)]
    links = ", ".join(f"[`{title}`](#{_anchor(title)})" for title in titles)
    return _paragraph(f"`{module}`: {links}.{MODULES[module]}")


def _anchor(title: str) -> str:
    """The name by which GitHub links to a heading: the second of a name gets a number."""
    plain = title.replace(".", "").lower()
    alike = [other for other in public() if other.replace(".", "").lower() == plain]
    before = alike.index(title)
    return f"{plain}-{before}" if before else plain


def _section(title: str, value: Any) -> str:
    head = f"## {title}\n\n"
    if isinstance(value, type):
        return head + _class(title, value)
    if callable(value):
        return head + _signature(value.__name__, value) + _prose(value.__doc__)
    return head + f"`shmq.{title} = {value!r}`: {_comment_of_constant(title)}\n\n"


def _class(title: str, kind: type) -> str:
    members = "".join(_member(title, name, value) for name, value in members_of(kind))
    return _beginning(kind) + _prose(_own_doc(kind)) + _fields(kind) + members


def _beginning(kind: type) -> str:
    """How one is made, for what an application makes itself; of an error, what it is too."""
    made = inspect.isabstract(kind) or dataclasses.is_dataclass(kind) or _is_protocol(kind)
    made = made or kind.__name__ in MADE
    if issubclass(kind, Exception):
        bases = ", ".join(f"`{_base(base)}`" for base in kind.__bases__)
        made = made or "__init__" not in vars(kind)
        return f"Bases: {bases}.\n\n" + ("" if made else _signature(kind.__name__, kind))
    return "" if made else _signature(kind.__name__, kind)


def _base(base: type) -> str:
    module = base.__module__.lstrip("_")
    return base.__name__ if module == "builtins" or _is_ours(base) else f"{module}.{base.__name__}"


def _own_doc(kind: type) -> str:
    """The docstring; none where a dataclass has made one of its signature."""
    doc = kind.__doc__ or ""
    return "" if doc.startswith(f"{kind.__name__}(") else doc


def _is_protocol(kind: type) -> bool:
    return bool(getattr(kind, "_is_protocol", False))


def members_of(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class, in the order of its source.

    Each stands where the last of its bases, or the class itself, defines it.
    """
    fields = {field.name for field in _fields_of(kind)}
    definer = {name: each for each in lineage(kind) for name in vars(each)}
    for each in lineage(kind):
        for name, value in vars(each).items():
            if definer[name] is each and not name.startswith("_") and name not in fields:
                yield name, value


def lineage(kind: type) -> Iterator[type]:
    """The class, after those of its bases that are ours and have no section of their own."""
    shown = set(map(id, public().values()))
    for base in reversed(kind.__mro__):
        if base is kind or (_is_ours(base) and id(base) not in shown):
            yield base


def _fields_of(kind: type) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()


def _member(owner: str, name: str, value: Any) -> str:
    head = f"### {owner}.{name}\n\n"
    if isinstance(value, property):
        assert value.fget is not None
        returned = inspect.signature(value.fget).return_annotation
        return f"{head}```py\n{name}: {returned}\n```\n\n{_prose(value.fget.__doc__)}"
    function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    assert isinstance(function, types.FunctionType), name
    return head + _signature(name, function) + _prose(function.__doc__)


def _signature(name: str, value: Any) -> str:
    """The call with its types, one argument to a line where it is long."""
    signature = inspect.signature(value)
    bare = signature.replace(
        parameters=[a for a in signature.parameters.values() if a.name not in {"self", "cls"}]
    )
    call = _unquoted(f"{name}{bare}")
    if len(call) > LONGEST:
        arguments = _unquoted(str(bare.replace(return_annotation=inspect.Signature.empty)))[1:-1]
        # A comma inside brackets separates nothing here.
        lines = [f"    {a},\n" for a in re.split(r", (?![^\[]*\])", arguments)]
        call = f"{name}(\n{''.join(lines)}){call.removeprefix(f'{name}({arguments})')}"
    return f"```py\n{call}\n```\n\n"


def _unquoted(call: str) -> str:
    """The call without the quotes in which annotations stand."""
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", call)


def _fields(kind: type) -> str:
    """A table of the fields of a dataclass."""
    fields = _fields_of(kind)
    if not fields:
        return ""
    comments = field_comments(kind)
    has_defaults = all(field.default is not dataclasses.MISSING for field in fields)
    head = "| field | type | default | |" if has_defaults else "| field | type | |"
    rows = [head, re.sub(r"[^|]+", " --- ", head)]
    for field in fields:
        cells = [f"`{field.name}`", "`" + str(field.type).replace("|", "\\|") + "`"]
        if has_defaults:
            cells.append(f"`{field.default!r}`")
        row = field.metadata.get("option")
        said = comments[field.name] if row is None else _of_option(row)
        rows.append("| " + " | ".join([*cells, _inline(said)]) + " |")
    return "\n".join(rows) + "\n\n"


def _of_option(row: Option) -> str:
    none = f"; None: {row.none}" if row.none else ""
    return ". ".join(filter(None, (row.text + none, row.more))) + "."


def field_comments(kind: type) -> dict[str, str]:
    """What the ``#:`` comments before a class's fields say, by field."""
    lines = textwrap.dedent(inspect.getsource(kind)).splitlines()
    found: dict[str, str] = {}
    said: list[str] = []
    for line in map(str.strip, lines):
        if line.startswith("#:"):
            said.append(line.removeprefix("#:").strip())
            continue
        field = re.match(r"(\w+): ", line)
        if field and said:
            found[field[1]] = " ".join(said)
        said = []
    return found


def _comment_of_constant(name: str) -> str:
    """What the ``#:`` comment before a constant of shmq.api.options says."""
    source = inspect.getsource(importlib.import_module("shmq.api.options"))
    comment = re.search(
        rf"((?:^#: .*\n)+)(?:^\w+: Final = \w+\n)*?^{name}: Final", source, re.MULTILINE
    )
    assert comment, name
    return _inline(re.sub(r"^#: |\n(?!\Z)", " ", comment[1], flags=re.MULTILINE).strip())


def _prose(doc: str | None) -> str:
    """A docstring as Markdown."""
    assert doc, "nothing public is without a docstring"
    paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(doc))
    return "".join(_paragraph(_inline(paragraph)) for paragraph in paragraphs)


def _paragraph(text: str) -> str:
    joined = " ".join(text.split())
    return textwrap.fill(joined, LONGEST, break_long_words=False, break_on_hyphens=False) + "\n\n"


def _inline(text: str) -> str:
    """Roles and double backticks as Markdown; a public name becomes a link."""
    text = re.sub(r":\w+:`~?([\w.]+)`", _link, text)
    return re.sub(r"``(.+?)``", r"`\1`", text)


def _link(match: re.Match[str]) -> str:
    title = match[1].removeprefix("shmq.")
    return f"[`{title}`](#{_anchor(title)})" if title in public() else f"`{match[1]}`"


if __name__ == "__main__":
    sys.path.insert(0, str(PAGE.parents[2]))
    PAGE.write_text(render())
