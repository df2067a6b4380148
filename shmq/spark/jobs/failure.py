"""Describes a failure within Spark in one line: the root cause, without the stack traces."""

from __future__ import annotations

import re
import signal
import subprocess
from typing import Final

from shmq import errors
from shmq.errors import ShmqError

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
    r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ?| *SQLSTATE: \w+ *$|"
    r" Consider setting '.*faulthandler.*"
)
#: What Spark says of a task that failed again and again: its host stays.
_TASK: Final = re.compile(
    r"^Job aborted due to stage failure: .*?Lost task \S+ in stage \S+ \(TID \d+\) "
    r"\((\S+) executor \S+\): (?:org\.apache\.spark\.SparkException: )?"
)
#: A name of an exception at the end, for one whose message is that of its cause.
_CLASS: Final = re.compile(r"(?:\w+\.)+[\w$]+$")
#: Where what a failed streaming query was doing begins, after what failed.
_QUERY: Final = "=== Streaming Query ==="
#: How much of a stack trace shows which part of Spark failed.
_TOP: Final = 1000

#: How long Java may take to end after its connection has broken, in seconds.
_PATIENCE: Final = 5.0
#: Py4J's errors that do not come from Java, besides a ConnectionError.
_BROKEN: Final = frozenset({"Py4JError", "Py4JNetworkError"})
#: What Spark says while Java ends, as after a signal.
_ENDING: Final = re.compile(r"stopped SparkContext|SparkContext (?:was|has been) ?shut ?down")
_AGAIN: Final = "start the job again: one with a checkpoint continues from it"
#: The exit statuses of a Java that was terminated by a signal.
_TOLD: Final = {128 + number: number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}

_LOG: Final = 'log = "error" in [spark] shows all that Spark says'
_CHECK: Final = f"check master, spark.driver.memory and spark.local.dir in [spark.conf]; {_LOG}"
#: The advice for a failure, by the text of its root cause; the first match counts.
_ADVICE: Final = tuple(
    (re.compile(pattern), advice)
    for pattern, advice in (
        (
            r"No space left on device",
            "free space for the checkpoint, the sink and spark.local.dir, or name other folders",
        ),
        (
            r"FileNotFoundException: .*/(?:offsets|commits|state|sources)\b.* does not exist",
            f"it was removed: keep the job's folders, and {_AGAIN}",
        ),
        (
            r"(?:FileNotFoundException|No such file or directory): .*/_staging/",
            "it was removed, as by a second run of the job: let one run at a time",
        ),
        (
            (
                r"Failed to read log file|MALFORMED_LOG_FILE|CHECKPOINT_MISSING_METADATA_FILE|"
                r"AssertionError[\s\S]*?MicroBatchExecution"
            ),
            (
                "the checkpoint is damaged: put back a copy of it, or name a new one, with which "
                "the last batch may come twice"
            ),
        ),
        (
            (
                r"Permission denied|AccessDenied|Read-only file system|mkdir of .* failed|"
                r"Mkdirs failed|ParentNotDirectory|FileNotFoundException|exists and is not a dir"
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
        (
            (
                r"Python worker exited unexpectedly|"
                r"(?:EOFException|Stream closed|Broken pipe|Connection reset)[\s\S]*?\.python\."
            ),
            f"a Python process of Spark's was killed or has crashed: {_AGAIN}",
        ),
        (r"OutOfMemoryError", 'give it more memory in [spark.conf]: "spark.driver.memory" = "4g"'),
        (
            r"UnknownHostException|ConnectException|Failed to connect",
            "check master in [spark], and the hosts of the folders and databases",
        ),
        (
            r"JAVA_GATEWAY_EXITED|Error while sending or receiving|Answer from Java side is empty",
            f"Java has ended: {_CHECK}",
        ),
    )
)


def failure_of(error: Exception) -> Exception:
    """The error itself if it is one of shmq's, else an error that states its root cause.

    A failure in Java becomes one line: the first exception, which says what was being done,
    the root cause, and advice on it. If Java itself has ended, that is the cause.
    """
    if isinstance(error, ShmqError):
        return error
    ended = end_of_java(error)
    if ended is not None:
        return ShmqError(ended)
    text, stack = str(error), str(getattr(error, "_stackTrace", None) or "")
    if _TRACEBACK not in text and _TRACEBACK in stack:
        text = stack
    if _TRACEBACK in text:
        last = text[text.rindex(_TRACEBACK) :]
        found = _PYTHON.search(last)
        if found is not None and not _CALLED.search(found[2]):
            return _make_exception(found[1].rpartition(".")[2], found[2].strip())
        text = last
    return ShmqError(f"Spark: {_describe_java(text, stack) or type(error).__name__}")


def end_of_java(error: Exception) -> str | None:
    """How the Java process of Spark ended, and what to do; None if it runs, or was not started."""
    from pyspark import SparkContext  # noqa: PLC0415 - with Spark alone

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    broken = isinstance(error, ConnectionError) or type(error).__name__ in _BROKEN
    broken = broken or _ENDING.search(str(error)) is not None
    try:
        status = process.wait(_PATIENCE if broken else 0)
    except subprocess.TimeoutExpired:
        return None
    java = f"Java, in which Spark runs (process {process.pid}),"
    number = _TOLD.get(status, -status)
    if number == signal.SIGKILL:
        return f"{java} was killed by SIGKILL, as by a host that has no memory left: {_AGAIN}"
    if number > 0:
        return f"{java} was terminated by {signal.Signals(number).name}: {_AGAIN}"
    return f"{java} ended with status {status}: {_AGAIN}, or {_CHECK}"


def _describe_java(text: str, stack: str) -> str:
    """What failed, why, and what to do, in one line; empty for an empty text."""
    chain = list(_JAVA.finditer(text))
    lines = (_strip_frames(line) for line in text.partition(_QUERY)[0].splitlines())
    first = "" if chain else next((line for line in lines if line), "")
    chain = chain or list(_JAVA.finditer(stack))
    if not chain:
        return _add_advice(first, first, "")
    name, message = (chain[0][1], _strip_frames(chain[0][2] or "")) if not first else ("", first)
    root, why = chain[-1][1], _strip_frames(chain[-1][2] or "")
    short = f"{root.rpartition('.')[2]}: {why}" if why else root.rpartition(".")[2]
    at = chain[-1].string[chain[-1].end() :][:_TOP]
    if why and message.endswith(why):
        message = _CLASS.sub("", message.removesuffix(why).rstrip(" :"))
    if message and message not in short and name != root:
        return _add_advice(f"{message.rstrip('.')}: {short}", f"{root}: {why}{at}", _LOG)
    return _add_advice(short, f"{root}: {why}{at}", _LOG)


def _add_advice(message: str, root: str, otherwise: str) -> str:
    """What failed, with advice if the root cause, or else what failed, is a known one."""
    known = (
        advice for text in (root, message) for pattern, advice in _ADVICE if pattern.search(text)
    )
    advice = next(known, otherwise)
    return f"{message.rstrip('.')}; {advice}" if message and advice else message


def _strip_frames(line: str) -> str:
    return _TASK.sub(r"at \1: ", _FRAME.sub("", _FRAME.sub("", line.strip()))).strip()


def _make_exception(name: str, message: str) -> ShmqError:
    """One of shmq's errors as its own class, for its exit code; another error with its name."""
    kind = getattr(errors, name, None) if name in errors.__all__ else None
    if kind is None:
        return ShmqError(f"{name}: {message}")
    made: ShmqError = kind.__new__(kind)
    Exception.__init__(made, message)
    return made
