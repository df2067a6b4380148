"""No descriptor of shmq is 0, 1 or 2: every function that opens one reserves these before.

Files are opened with `open_file`. Whatever else returns a descriptor (a socket, a pipe, a map,
which duplicates its file's, a loop, a database, a child process) follows a call of
`reserve_standard` in the same function. Files that are only read, and closed in the same statement,
are exempt: a write to their descriptor fails.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "shmq"

#: Calls that open a descriptor, by what is called.
OPENERS: Final = re.compile(
    r"""
    os\.(pipe2?|eventfd|memfd_create|dup|pidfd_open|openpty|posix_spawn\w*|popen)
    | socket\.(socket|create_connection|socketpair|create_server|fromfd|recv_fds)
    | .*\.(accept|dup)
    | mmap\.mmap | sqlite3\.connect | select\.epoll | selectors\.\w+Selector
    | asyncio\.(new_event_loop|run|Runner|open_connection|start_server|create_subprocess_\w+)
    | subprocess\.(Popen|run|call|check_call|check_output)
    | tempfile\.(mkstemp|TemporaryFile|NamedTemporaryFile|SpooledTemporaryFile)
    | shutil\.(copy\w*|move|make_archive) | urllib\.request\.urlopen | http\.client\.\w+Connection
    | multiprocessing\.(Pipe|Process|Pool|Manager) | \w*_(SPAWN|FORK)\.\w+ | plain\.Pool
    | .*\.(write_text|write_bytes)
    """,
    re.VERBOSE,
)
#: What reserves 0, 1 and 2.
GUARDS: Final = ("reserve_standard", "open_file", "fill_standard")
#: Modules that call os.open themselves.
BARE: Final = {
    "errors.py": "opens /dev/null and closes it, to find out whether a descriptor is free",
    "native/descriptors.py": "is the helper",
}
#: Calls that look like one of `OPENERS`, and open nothing.
OTHERS: Final = {
    ("extras/console/api/websocket.py", "self._websocket.accept"): "a WebSocket's handshake",
    ("host/diagnose/probe_process.py", "open"): "wraps the end of a pipe",
}

C_OPENERS: Final = re.compile(
    r"(?<![\w.>])(open|openat|fopen|opendir|sem_open|shm_open|memfd_create|inotify_init1?|eventfd"
    r"|c_eventfd|socket|socketpair|accept4?|pipe2?|epoll_create1?|timerfd_create|signalfd|dup)\("
)
C_COMMENT: Final = re.compile(r"/\*.*?\*/|#[^\n]*|\"[^\"\n]*\"", re.DOTALL)
#: Lines before an opener within which C and Cython reserve 0, 1 and 2.
NEAR: Final = 6
#: Sources of C and Cython whose opens need no reservation.
C_BARE: Final = {
    "core/base/descriptor.c": "is the helper",
    "native/common.pxi": "reads the name of the process from /proc",
}


def find_opens(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The line and the name of each call in a module that opens a descriptor unguarded."""
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        name = ast.unparse(call.func)
        if name == "os.open" or (_opens(call, name) and not _is_guarded(call, functions)):
            yield call.lineno, name


def _opens(call: ast.Call, name: str) -> bool:
    if name == "socket.socket" and any(word.arg == "fileno" for word in call.keywords):
        return False
    if name == "mmap.mmap":
        return ast.unparse(call.args[0]) != "-1"
    if name == "open" or name.endswith(".open"):
        return _writes(call, 1 if name == "open" else 0)
    return bool(OPENERS.fullmatch(name))


def _writes(call: ast.Call, at: int) -> bool:
    """Whether the call of open() or Path.open() has a mode that writes, and no opener."""
    given = {word.arg: word.value for word in call.keywords}
    mode = given.get("mode", call.args[at] if len(call.args) > at else None)
    text = mode.value if isinstance(mode, ast.Constant) else None
    is_mode = isinstance(text, str) and re.fullmatch(r"[rwaxbt+]*[wax+][rwaxbt+]*", text)
    return bool(is_mode) and "opener" not in given


def _is_guarded(call: ast.Call, functions: list[ast.FunctionDef | ast.AsyncFunctionDef]) -> bool:
    around = [f for f in functions if f.lineno <= call.lineno <= (f.end_lineno or 0)]
    if not around:
        return False
    guards = [
        node.lineno
        for node in ast.walk(max(around, key=lambda f: f.lineno))
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in GUARDS
    ]
    return any(line < call.lineno for line in guards)


def find_c_opens(text: str) -> Iterator[int]:
    """The lines of C or Cython that open a descriptor unguarded."""
    lines = C_COMMENT.sub(lambda found: "\n" * found[0].count("\n"), text).split("\n")
    for at, line in enumerate(lines):
        is_declared = line.startswith("    ") and line.rstrip().endswith(("...)", "flags)"))
        if not C_OPENERS.search(line) or is_declared:
            continue
        if not any("shmq_reserve_standard()" in near for near in lines[max(0, at - NEAR) : at]):
            yield at + 1


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def sources() -> list[Path]:
    native = [p for kind in ("pyx", "pxi") for p in (PACKAGE / "native").rglob(f"*.{kind}")]
    return sorted([*(PACKAGE / "core").rglob("*.[ch]"), *native])


def test_python_opens_no_descriptor_without_reserving_0_1_and_2() -> None:
    found = {
        f"{name}:{line}: {call}"
        for path in modules()
        if (name := str(path.relative_to(PACKAGE))) not in BARE
        for line, call in find_opens(ast.parse(path.read_text()))
        if (name, call) not in OTHERS
    }
    assert not found


def test_c_and_cython_open_no_descriptor_without_reserving_0_1_and_2() -> None:
    found = {
        f"{name}:{line}"
        for path in sources()
        if (name := str(path.relative_to(PACKAGE))) not in C_BARE
        for line in find_c_opens(path.read_text())
    }
    assert not found
