"""Describes a failure within Spark in one line: the root cause, without the stack traces."""

from __future__ import annotations

import re
from typing import Final

from shmq import errors
from shmq.errors import ShmqError

__all__ = ["failure_of"]

#: The last line of a Python traceback, anywhere in Java's text.
_PYTHON: Final = re.compile(r"^((?:\w+\.)*[A-Z]\w+): (.+)$", re.MULTILINE)
_TRACEBACK: Final = "Traceback (most recent call last):"

#: A Java exception and its causes, one line each, as Java prints them. Indented lines are
#: suppressed exceptions, not causes.
_JAVA: Final = re.compile(r"^(?:Caused by)?: ((?:\w+\.)+[\w$]+)(?:: (.*))?$", re.MULTILINE)
#: Py4J's line about a Java exception: it has only a number.
_CALLED: Final = re.compile(r"An error occurred while calling \S+\.$", re.MULTILINE)
#: What Spark adds before and after a message.
_FRAME: Final = re.compile(
    r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: | +SQLSTATE: \w+ *$"
)

_LOG: Final = 'log = "error" in [spark] shows all that Spark says'
#: The advice for a failure, by the text of its root cause; the first match counts.
_ADVICE: Final = tuple(
    (re.compile(pattern), advice)
    for pattern, advice in (
        (r"No space left on device", "free space there, or name another folder"),
        (
            (
                r"Permission denied|AccessDenied|Read-only file system|mkdir of .* failed|"
                r"Mkdirs failed|ParentNotDirectory|FileNotFoundException"
            ),
            "name a folder that can be written by the user who runs the job",
        ),
        (
            r"ClassNotFoundException|NoClassDefFoundError|No FileSystem for scheme",
            (
                "name the package that has it in [spark.conf]: "
                '"spark.jars.packages" = "GROUP:NAME:VERSION"'
            ),
        ),
        (
            r"Python worker failed to connect back",
            "the machine was too busy to start a Python process within 10 s: start the job again",
        ),
        (r"OutOfMemoryError", 'give it more memory in [spark.conf]: "spark.driver.memory" = "4g"'),
        (
            r"UnknownHostException|ConnectException|Failed to connect",
            "check master in [spark], and the hosts of the folders and databases",
        ),
        (
            r"JAVA_GATEWAY_EXITED|Error while sending or receiving|Answer from Java side is empty",
            (
                f"Java has ended: check master, spark.driver.memory and spark.local.dir in "
                f"[spark.conf]; {_LOG}"
            ),
        ),
    )
)


def failure_of(error: Exception) -> Exception:
    """The error itself if it is one of shmq's, else an error that states its root cause.

    A failure in Java becomes one line: the first exception, which says what was being done,
    the root cause, and advice on it.
    """
    if isinstance(error, ShmqError):
        return error
    text = str(error)
    if _TRACEBACK in text:
        last = text[text.rindex(_TRACEBACK) :]
        found = _PYTHON.search(last)
        if found is not None and not _CALLED.search(found[2]):
            return _made(found[1].rpartition(".")[2], found[2].strip())
        text = last
    return ShmqError(f"Spark: {_of_java(text) or type(error).__name__}")


def _of_java(text: str) -> str:
    """What failed, why, and what to do, in one line; empty for an empty text."""
    chain = [(found[1], _plain(found[2] or "")) for found in _JAVA.finditer(text)]
    if not chain:
        lines = (_plain(line) for line in text.splitlines())
        line = next((line for line in lines if line), "")
        return _advised(line, line, "")
    (name, told), (root, why) = chain[0], chain[-1]
    short = f"{root.rpartition('.')[2]}: {why}" if why else root.rpartition(".")[2]
    if told and told not in short and name != root:
        return _advised(f"{told.rstrip('.')}: {short}", f"{root}: {why}", _LOG)
    return _advised(short, f"{root}: {why}", _LOG)


def _advised(told: str, root: str, otherwise: str) -> str:
    """What failed, with advice if the root cause is a known one."""
    advice = next((advice for pattern, advice in _ADVICE if pattern.search(root)), otherwise)
    return f"{told.rstrip('.')}; {advice}" if told and advice else told


def _plain(line: str) -> str:
    return _FRAME.sub("", _FRAME.sub("", line.strip())).strip()


def _made(name: str, told: str) -> ShmqError:
    """One of shmq's errors as its own class, for its exit code; another error with its name."""
    kind = getattr(errors, name, None) if name in errors.__all__ else None
    if kind is None:
        return ShmqError(f"{name}: {told}")
    made: ShmqError = kind.__new__(kind)
    Exception.__init__(made, told)
    return made
