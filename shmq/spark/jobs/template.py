"""The template of a job's file: every key, its purpose, and its default."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from shmq.spark.jobs.config import Key, Table
from shmq.spark.jobs.job import Job

__all__ = ["template"]


def template(job: Job) -> str:
    """A TOML file for the job: required keys are set, the others are commented out."""
    parts = [f"# shmq pipeline {job.name}: {job.about}\n"]
    tables = sorted(job.tables, key=lambda table: bool(table.name))
    parts += ("\n".join(_lines(table)) for table in tables)
    return "\n".join(part for part in parts if part)


def _lines(table: Table) -> Iterator[str]:
    off = "# " if table.optional and not table.begun else ""
    if table.name:
        if table.about:
            yield f"# {table.about}"
        yield f"{off}[{table.name}]"
    for line in table.examples:
        yield f"{off}{line}"
    for key in table.keys:
        yield from _of_key(key, off)
    yield ""


def _of_key(key: Key, off: str) -> Iterator[str]:
    yield f"# {key.about}"
    value = key.example if key.example is not None else key.default
    if key.required:
        yield f"{off}{key.name} = {_toml(value)}"
    elif value is None:
        yield f"# {key.name} = "
    else:
        yield f"# {key.name} = {_toml(value)}"


def _toml(value: Any) -> str:
    """The value in TOML. For plain values and lists of them, JSON's form is also TOML's."""
    return json.dumps(value)
