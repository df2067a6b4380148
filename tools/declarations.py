"""Declares the C core to Cython: ``python tools/declarations.py`` prints ``core.pxd``.

setup.py writes that file at each build, from the headers of ``shmq/core``. It has what the sources
of ``shmq/native`` name, and the types that this needs. The headers are read with a few expressions,
not with a parser of C: they are well-formed, and what is misread does not compile.

- ``bool`` is ``cbool``, and an enum ``int``. ``_Atomic`` and ``_Alignas`` do not matter to Cython.
- A struct has the members that are named. An array of a size that is not one word is a pointer.
- A function whose name is also that of a struct, such as ``shmq_put``, is called ``c_put``.
- A constant is of type ``int``, or of the type that holds its value.
- Functions of ``server`` call Python, so they need the GIL.
"""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent

HEAD: Final = """# The C core, as its headers declare it. Made by tools/declarations.py.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from posix.uio cimport iovec

from system cimport cbool, sem_t
"""

#: Comments, then directives with their continuation lines.
_UNSEEN: Final = re.compile(r"/\*(?:.|\n)*?\*/|^#(?:.*\\\n)*.*$", re.MULTILINE)
_MACRO: Final = re.compile(r"^#define (SHMQ_\w+) +((?:[^/\n\\]|/(?!\*))+)", re.MULTILINE)
_ENUM: Final = re.compile(r"^enum(?: \w+)? \{(.*?)\};", re.DOTALL | re.MULTILINE)
_STRUCT: Final = re.compile(r"^struct (\w+) \{\n(.*?)^\};", re.DOTALL | re.MULTILINE)
_VARIABLE: Final = re.compile(r"^extern (\w+) (\w+(?:, \w+)*);", re.MULTILINE)
_FUNCTION: Final = re.compile(
    r"^(?:static inline )?(?!static|typedef|extern)((?:const )?(?:struct |enum )?(?:unsigned )?\w+"
    r"(?: const)?[ *]+)(\w+)\(([^()]*)\)(?=[;\n ])",
    re.MULTILINE,
)
_POINTER: Final = re.compile(r"(.*?)\(\*(\w+)\)\((.*)\)")
_DECLARATOR: Final = re.compile(r"(?P<type>.*?)(?P<name>\w+)(?:\[(?P<size>[^\]]*)\])?$", re.DOTALL)
_LEFT_OUT: Final = re.compile(r"\b(?:_Atomic|_Alignas\(\d+\)|struct) ?")
#: The types of constants that do not fit an ``int``, by what tells them.
_WIDE: Final = {
    "UINT64_MAX": "uint64_t", "UINT32_MAX": "uint32_t", "ull": "uint64_t", "ll": "int64_t",
}  # fmt: skip


def declare(core: Path, native: Path) -> str:
    """The declarations of what the sources in ``native`` use of the headers in ``core``."""
    sources = "".join(path.read_text() for path in sorted(native.glob("*.p[yx][xi]")))
    used = set(re.findall(r"\w+", re.sub("#.*", "", sources))) - set(keyword.kwlist)
    headers = {str(path.relative_to(core)): path.read_text() for path in core.glob("*/*.h")}
    return HEAD + "".join(_Declarations(headers, used).blocks())


class _Declarations:
    """The declarations of all headers, by name, and those among them that are needed."""

    def __init__(self, headers: dict[str, str], used: set[str]) -> None:
        self._named = frozenset(used)
        self._used = used
        self._headers = dict(headers)
        self._places: dict[str, tuple[str, Callable[[], str]]] = {}
        self._structs = {name for text in headers.values() for name, _ in _STRUCT.findall(text)}
        for header in sorted(headers):
            self._visit(header)

    def blocks(self) -> Iterator[str]:
        """The block of each header, behind those of the headers that it includes."""
        made: dict[str, str] = {}
        while needed := (self._used & set(self._places)) - set(made):
            made.update((name, self._places[name][1]()) for name in needed)
        blocks: dict[str, list[str]] = {}
        for name, (header, _) in self._places.items():
            if name in made:
                blocks.setdefault(header, []).append(made[name])
        for header, declarations in blocks.items():
            gil = "" if header.startswith("server/") else " nogil"
            yield f'\n\ncdef extern from "{header}"{gil}:\n' + "".join(
                map("    {}\n".format, declarations)
            )

    def _visit(self, header: str) -> None:
        """Read a header once, and first what it includes."""
        if text := self._headers.pop(header, None):
            for included in re.findall(r'^#include "(.*)"', text, re.MULTILINE):
                self._visit(included)
            self._read(header, text)

    def _read(self, header: str, text: str) -> None:
        plain = _UNSEEN.sub("", text)
        for name, value in _MACRO.findall(text):
            self._places[name] = header, partial(_constant, name, value)
        for body in _ENUM.findall(plain):
            for name in re.findall(r"(\w+)(?: = [^,]+)?(?:,|\s*$)", body):
                self._places[name] = header, partial(_constant, name, "")
        for name, body in _STRUCT.findall(plain):
            self._places[name] = header, partial(self._struct, name, body)
        for kind, names in _VARIABLE.findall(plain):
            for name in names.split(", "):
                self._places[name] = header, partial("{} {}".format, kind, name)
        for kind, name, parameters in _FUNCTION.findall(plain):
            called = f"c_{name[5:]}" if name in self._structs else name
            shown = name if called == name else f'{called} "{name}"'
            self._places[called] = header, partial(self._function, kind, shown, parameters)

    def _function(self, kind: str, name: str, parameters: str) -> str:
        return f"{self._type(kind)} {name}({self._parameters(parameters)})"

    def _struct(self, name: str, body: str) -> str:
        members = [
            member
            for statement in re.sub(r"\{[^}]*\}", "", body).split(";")
            for member in self._members(" ".join(statement.split()))
        ]
        return f"struct {name}:" + "".join(f"\n        {each}" for each in members or ["pass"])

    def _members(self, statement: str) -> Iterator[str]:
        """The named ones among the members that a statement declares."""
        if pointer := _POINTER.match(statement):
            kind, name, given = pointer.groups()
            if name in self._named:
                yield f"{self._type(kind)} (*{name})({self._parameters(given)}) noexcept"
            return
        first, *others = statement.split(", ")
        base = re.sub(r"[ *]*\w+(?:\[.*)?$", "", first)
        for declarator in (first, *(f"{base} {other}" for other in others)):
            member = _DECLARATOR.match(declarator)
            if member and member["name"] in self._named:
                yield self._declared(member)

    def _declared(self, member: re.Match[str]) -> str:
        kind, size = self._type(member["type"]), member["size"]
        if size is None:
            return f"{kind} {member['name']}"
        if not re.fullmatch(r"\w+", size):
            return f"{kind} *{member['name']}"
        self._used.add(size)
        return f"{kind} {member['name']}[{size}]"

    def _parameters(self, given: str) -> str:
        if given.strip() in ("", "void"):
            return ""
        return ", ".join(self._parameter(parameter) for parameter in given.split(","))

    def _parameter(self, parameter: str) -> str:
        member = _DECLARATOR.match(parameter.strip())
        assert member is not None, parameter
        pointer = " *" if member["size"] is not None else ""
        return self._type(member["type"]) + pointer

    def _type(self, kind: str) -> str:
        """The type as Cython has it; what it names is needed."""
        for enum in re.findall(r"enum (\w+)", kind):
            kind = kind.replace(f"enum {enum}", "int")
        kind = re.sub(r"\bbool\b", "cbool", _LEFT_OUT.sub("", kind)).replace("clockid_t", "int")
        self._used.update(re.findall(r"\w+", kind))
        return " ".join(kind.split())


def _constant(name: str, value: str) -> str:
    for mark, kind in _WIDE.items():
        if mark in value:
            return f"const {kind} {name}"
    return f"enum: {name}"


if __name__ == "__main__":
    sys.stdout.write(declare(ROOT / "shmq/core", ROOT / "shmq/native"))
