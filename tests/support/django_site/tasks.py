"""The tasks of the project."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from shmq.extras.django.framework import TaskContext, task


@task
def add(a: int, b: int) -> int:
    return a + b


@task(priority=5, queue_name="mails")
async def send(address: str, **more: Any) -> dict[str, Any]:
    return {"to": address, **more}


@task(takes_context=True)
def attempt(context: TaskContext) -> list[Any]:
    return [context.attempt, context.task_result.id]


@task
def fail(text: str) -> None:
    raise ValueError(text)


@task
def leave() -> None:
    raise SystemExit(3)


@task
def return_what_json_has_not() -> object:
    return object()


@task
def note(path: str, text: str) -> None:
    with Path(path).open("a") as file:
        file.write(f"{text}\n")


@task
def die(path: str, times: int) -> int:
    """Kill the process the first so many times."""
    with Path(path).open("a") as file:
        file.write("x")
    begun = len(Path(path).read_text())
    if begun <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return begun


@task
def wait_for(path: str) -> None:
    """Return once the file is there."""
    while not Path(path).exists():
        time.sleep(0.005)


@task
def echo(value: Any) -> Any:
    return value


@task
def repeat(text: str, times: int) -> str:
    """A result that may be larger than the task."""
    return text * times


@task
def fail_at_length(text: str, times: int) -> None:
    """Raise an error that may be larger than the task."""
    raise ValueError(text * times)


@task
def surrogate() -> str:
    """A text that no UTF-8 holds."""
    return "\ud800"


@task
def not_a_number() -> list[float]:
    """Numbers that no JSON holds."""
    return [float("nan"), float("-inf")]


@task
def fail_surrogate() -> None:
    raise ValueError("\ud800")
