"""Writes the stubs of the compiled modules from the signatures in their sources.

``make stubs``, or ``python tools/stubs.py``, reads ``shmq/native/*.pyx`` with Cython's own parser
and writes a ``.pyi`` beside each. What a stub says of a declaration is

- what its annotations say, and otherwise what its C types mean in Python;
- of a constant of the module, the type that it has in the built module;
- the comment ``#| ...`` in front of it, in place of either. A comment ``#|`` that no
  declaration follows at once goes to the head of the stub, or of the class.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

NATIVE: Final = Path(__file__).resolve().parent.parent / "shmq" / "native"

#: C types by what Python has for them. A class of the module is called as it is.
_PYTHON: Final = {
    "bint": "bool", "double": "float", "object": "Any", "list": "list[Any]",
    "dict": "dict[str, Any]", "tuple": "tuple[Any, ...]", "set": "set[Any]", "size_t": "int",
    "int": "int", "Py_ssize_t": "int", "bytes": "bytes", "str": "str",
}  # fmt: skip
_INTEGER: Final = re.compile(r"u?int\d+_t")

#: The methods with two underscores that a caller has to know.
_SPECIAL: Final = {
    "__init__", "__enter__", "__exit__", "__getitem__", "__iter__", "__len__", "__next__",
}  # fmt: skip
_RETURNS: Final = {
    "__init__": "None", "__enter__": "Self", "__exit__": "None", "__len__": "int",
    "__iter__": "Self",
}  # fmt: skip
_EXIT: Final = (
    "self, kind: type[BaseException] | None, error: BaseException | None, "
    "trace: TracebackType | None"
)

#: Where the names in annotations come from: of Python, of others, our own.
_NAMES: Final = (
    {
        "asyncio": ("AbstractEventLoop", "Future"),
        "collections.abc": ("Callable", "Container", "Iterable", "Iterator", "Mapping", "Sequence"),
        "mmap": ("mmap",),
        "threading": ("RLock",),
        "types": ("TracebackType",),
        "typing": ("Any", "Final", "NamedTuple", "Self", "final", "overload"),
    },
    {"typing_extensions": ("Buffer",)},
    {"shmq": ("api",), "shmq.native": ("_core", "_stream")},
)


def modules() -> list[str]:
    """The names of the compiled modules."""
    return sorted(path.stem for path in NATIVE.glob("*.pyx"))


def stub_of(module: str) -> str:
    """The stub of a compiled module, which has to be built."""
    stub = _Stub(module)
    body = "\n".join(stub.lines())
    text = f'"""{stub.head}"""\n\n{_imports(body)}\n\n{body}\n'
    return subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--stdin-filename", f"{module}.pyi", "-"],
        input=text, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


def _imports(body: str) -> str:
    groups = (
        "".join(
            f"from {source} import {', '.join(used)}\n"
            for source, names in group.items()
            if (used := [name for name in names if re.search(rf"\b{name}\b", body)])
        )
        for group in _NAMES
    )
    return "\n".join(group for group in groups if group)


def _tree(module: str) -> Any:
    main: Any = importlib.import_module("Cython.Compiler.Main")
    scanning: Any = importlib.import_module("Cython.Compiler.Scanning")
    options = main.CompilationOptions(
        main.default_options, include_path=[str(NATIVE)], language_level=3
    )
    context = main.Context.from_options(options)
    source = scanning.FileSourceDescriptor(str(NATIVE / f"{module}.pyx"), f"{module}.pyx")
    scope = context.find_module(module, need_pxd=0)
    return context.parse(source, scope, pxd=0, full_module_name=module)


def _each(body: Any) -> Iterator[Any]:
    """The statements of a body; those of an included file stand in a list of their own."""
    for node in getattr(body, "stats", [body]):
        if type(node).__name__ == "StatListNode":
            yield from _each(node)
        else:
            yield node


class _Stub:
    """The stub of one module."""

    def __init__(self, module: str) -> None:
        tree = _tree(module)
        self._module = importlib.import_module(f"shmq.native.{module}")
        self._nodes = list(_each(tree.body))
        self._sources: dict[str, list[str]] = {}
        self.head = _first_line(tree.doc)
        self._classes = {
            node.class_name: node
            for node in self._nodes
            if type(node).__name__ == "CClassDefNode" and node.body
        }

    def lines(self) -> Iterator[str]:
        """What follows the imports."""
        shown = self._shown()
        yield from self._aliases()
        for node in self._nodes:
            kind = type(node).__name__
            if kind == "SingleAssignmentNode":
                yield from self._constant(node)
            elif kind == "CClassDefNode" and node.body and node.class_name in shown:
                yield from self._class(node)
            elif kind == "PyClassDefNode":
                yield from self._named_tuple(node)
            elif kind in {"DefNode", "CFuncDefNode"}:
                yield from self._function(node, "")

    def _shown(self) -> set[str]:
        """The classes that others see, and those that they are made of."""
        shown = {name for name in self._classes if not name.startswith("_")}
        for name in list(shown):
            for base in self._bases(self._classes[name]):
                shown.update(self._with_bases(base))
        return shown

    def _with_bases(self, name: str) -> Iterator[str]:
        yield name
        for base in self._bases(self._classes[name]):
            yield from self._with_bases(base)

    def _bases(self, node: Any) -> list[str]:
        return [base.name for base in node.bases.args]

    def _aliases(self) -> Iterator[str]:
        """What stands in comments at the head of the module."""
        source = NATIVE / f"{self._module.__name__.rpartition('.')[2]}.pyx"
        for line in source.read_text().splitlines():
            if line.startswith("#| "):
                yield line[3:]

    def _said(self, node: Any) -> list[str]:
        """The comment in front of a declaration, without its marks."""
        source, line, _ = node.pos
        name = source.filename
        if name not in self._sources:
            self._sources[name] = Path(name).read_text().splitlines()
        text = self._sources[name]
        at = line - 2
        said: list[str] = []
        while at >= 0 and text[at].lstrip().startswith(("@", "#| ")):
            if "#| " in text[at]:
                said.insert(0, text[at].lstrip()[3:])
            at -= 1
        return said

    def _constant(self, node: Any) -> Iterator[str]:
        name = getattr(node.lhs, "name", "_")
        if not name.startswith("_"):
            yield f"{name}: Final[{_type_of(getattr(self._module, name))}]"

    def _named_tuple(self, node: Any) -> Iterator[str]:
        yield f"class {node.name}(NamedTuple):"
        yield f'    """{_first_line(node.doc)}"""'
        for field in _each(node.body):
            name: Any = getattr(field, "expr", None)
            if getattr(name, "annotation", None):
                yield f"    {name.name}: {name.annotation.string.value}"

    def _class(self, node: Any) -> Iterator[str]:
        if any(getattr(d.decorator, "attribute", "") == "final" for d in node.decorators or ()):
            yield "@final"
        bases = ", ".join(self._bases(node))
        yield from self._said(node) or [f"class {node.class_name}({bases}):".replace("()", "")]
        if node.doc:
            yield f'    """{_first_line(node.doc)}"""\n'
        members = list(self._members(node))
        yield from members if members or node.doc else ["    ..."]

    def _members(self, node: Any) -> Iterator[str]:
        members = list(_each(node.body))
        names = {getattr(member, "name", None) for member in members}
        for member in members:
            kind = type(member).__name__
            if kind == "CVarDefNode":
                yield from self._attribute(member)
            elif kind in {"DefNode", "CFuncDefNode"}:
                is_made = member_name(member) == "__cinit__" and "__init__" not in names
                yield from self._function(member, "    ", "__init__" if is_made else "")

    def _attribute(self, node: Any) -> Iterator[str]:
        if node.visibility not in {"public", "readonly"}:
            return
        said = dict(line.split(": ", 1) for line in self._said(node))
        for declarator in node.declarators:
            name = declarator.name
            kind = said.get(name) or self._meaning(node.base_type)
            if node.visibility == "public":
                yield f"    {name}: {kind}"
            else:
                yield f"    @property\n    def {name}(self) -> {kind}: ..."

    def _function(self, node: Any, indent: str, name: str = "") -> Iterator[str]:
        name = name or member_name(node)
        if type(node).__name__ == "CFuncDefNode" and not node.overridable:
            return
        if name.startswith("__") and name not in _SPECIAL:
            return
        if not indent and name.startswith("_"):
            return
        if said := self._said(node):
            yield from (indent + line for line in said)
            return
        for decorator in node.decorators or ():
            yield f"{indent}@{_dotted(decorator.decorator)}"
        arguments = self._arguments(node, name)
        if (name, arguments) != ("__init__", "self"):
            yield f"{indent}def {name}({arguments}) -> {self._result(node, name)}: ..."

    def _arguments(self, node: Any, name: str) -> str:
        if name == "__exit__" and not node.star_arg:
            return _EXIT
        if type(node).__name__ == "CFuncDefNode":
            given = list(node.declarator.args)
            keywords, star, stars = 0, None, None
        else:
            given = list(node.args)
            keywords, star, stars = node.num_kwonly_args, node.star_arg, node.starstar_arg
        texts = [self._argument(arg) for arg in given]
        if star:
            texts.insert(len(texts) - keywords, "*" + _annotated(star))
        elif keywords:
            texts.insert(len(texts) - keywords, "*")
        if stars:
            texts.append("**" + _annotated(stars))
        return ", ".join(texts)

    def _argument(self, arg: Any) -> str:
        name = str(arg.declarator.name or arg.base_type.name)
        if name == "self":
            return name
        if arg.annotation:
            kind = arg.annotation.string.value
        else:
            kind = self._meaning(arg.base_type) if arg.declarator.name else "Any"
        return f"{name}: {kind}" + (f" = {_default(arg.default)}" if arg.default else "")

    def _result(self, node: Any, name: str) -> str:
        if type(node).__name__ == "CFuncDefNode":
            return self._meaning(node.base_type)
        if node.return_type_annotation:
            return str(node.return_type_annotation.string.value)
        return _RETURNS.get(name, "None")

    def _meaning(self, base: Any) -> str:
        """What a C type is in Python."""
        if type(base).__name__ == "MemoryViewSliceTypeNode":
            return "Buffer"
        name = str(getattr(base, "name", None) or "object")
        if _INTEGER.fullmatch(name):
            return "int"
        return _PYTHON.get(name, name)


def member_name(node: Any) -> str:
    """What a function is called."""
    if type(node).__name__ != "CFuncDefNode":
        return str(node.name)
    declarator = node.declarator
    while not hasattr(declarator, "name"):
        declarator = declarator.base
    return str(declarator.name)


def _dotted(node: Any) -> str:
    return f"{_dotted(node.obj)}.{node.attribute}" if hasattr(node, "obj") else str(node.name)


def _annotated(star: Any) -> str:
    kind = star.annotation.string.value if star.annotation else "Any"
    return f"{star.name}: {kind}"


def _default(node: Any) -> str:
    """The default as the stub has it: in full where that is plain."""
    kind = type(node).__name__
    if kind in {"IntNode", "FloatNode", "BoolNode"}:
        return str(node.value) if len(str(node.value)) <= 10 else "..."
    return "None" if kind == "NoneNode" else "..."


def _first_line(doc: Any) -> str:
    return str(doc).split("\n", 1)[0]


def _type_of(value: object) -> str:
    """The type of a constant."""
    if isinstance(value, tuple):
        kinds = sorted({_type_of(item) for item in value}, key=lambda kind: (kind == "None", kind))
        if kinds and kinds[0].startswith("tuple"):
            return f"tuple[{kinds[0].replace(', ...', ', str')}, ...]"
        return f"tuple[{' | '.join(kinds)}, ...]"
    if isinstance(value, dict):
        return "dict[str, int]"
    return "None" if value is None else type(value).__name__


def main() -> None:
    """Write every stub."""
    for module in modules():
        (NATIVE / f"{module}.pyi").write_text(stub_of(module))


if __name__ == "__main__":
    main()
