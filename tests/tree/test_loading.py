"""A process loads what it uses: each command, worker and child of a test pays for it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
import os
import pickle
import pydoc
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq import api, errors

ROOT = Path(__file__).resolve().parents[2]

#: What takes long to load, and of which a process that has queues alone has no use.
HEAVY = {
    "asyncio",
    "click",
    "difflib",
    "hashlib",
    "jsonschema",
    "msgspec",
    "multiprocessing",
    "opentelemetry",
    "rich",
    "secrets",
    "shmq.client.local.exchange",
    "shmq.client.local.group",
    "shmq.client.handles.group",
    "shmq.client.remote",
    "shmq.client.local.stream",
    "shmq.client.local.transaction",
    "shmq.client.handles.typed_queue",
    "shmq.api.group",
    "shmq.api.stream",
    "shmq.native._stream",
    "shmq.native._group",
    "shmq.extras.otel",
    "shmq.server",
    "shmq.model.expression.parse",
    "shmq.workers",
    "socket",
    "ssl",
    "subprocess",
}

#: What a process does with a queue, and with nothing else.
QUEUE = """
with shmq.connect({namespace!r}) as broker:
    queue = broker.ensure_queue("jobs")
    queue.put({{"id": 1}}, headers={{"a": 1}})
    with queue.get() as message:
        assert message.body == {{"id": 1}}
    for message in queue.consume(timeout=0.0):
        message.ack()
    assert not queue.qsize()
    queue.close()
    broker.delete_queue("jobs")
"""


#: The client of this host, which a command loads that works on a namespace.
LOCAL = "shmq.client.local.broker"


def loaded(
    *command: str, environment: dict[str, str] | None = None, heavy: set[str] = HEAVY
) -> set[str]:
    """The heavy modules that a fresh process has loaded in the end."""
    told = subprocess.run(
        [sys.executable, "-X", "importtime", *command],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    lines = [line for line in told.splitlines() if line.startswith("import time:")]
    return heavy & {line.rpartition("|")[2].strip() for line in lines}


def loaded_by(code: str) -> set[str]:
    return loaded("-c", f"import shmq\n{textwrap.dedent(code)}")


def test_the_package_is_imported_without_what_few_use() -> None:
    assert loaded_by("") == set()


def test_the_package_imports_no_module_that_costs_more_than_itself() -> None:
    code = "import sys; before = set(sys.modules); import shmq; print(*set(sys.modules) - before)"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    costly = {"dataclasses", "enum", "inspect", "logging", "pathlib", "re", "typing"}
    assert "shmq.errors" in run.stdout.split()
    assert not costly & set(run.stdout.split())
    assert not any(name.startswith("shmq.native") for name in run.stdout.split())


#: What every installation of shmq has.
INSTALLED = (
    "click", "markdown_it", "mdurl", "msgpack", "prometheus_client", "psutil", "pygments", "rich",
)  # fmt: skip


def plain(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run the code in a process that has shmq, and no package of an extra."""
    for name in INSTALLED:
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.origin is not None
        (folder / name).symlink_to(Path(spec.origin).parent)
    metadata: Any = importlib.metadata.distribution("shmq")
    (folder / "shmq.dist-info").symlink_to(metadata._path)  # the entry points of the extras
    return subprocess.run(
        [sys.executable, "-S", "-c", textwrap.dedent(code)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_command_is_there_without_the_packages_of_an_extra(tmp_path: Path) -> None:
    code = """
    import click
    from shmq.cli.main import cli

    def walk(command):
        if isinstance(command, click.Group):
            for each in command.commands.values():
                walk(each)

    walk(cli)
    print(len(cli.commands))
    """
    run = plain(tmp_path, code)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 30


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("bridge", "--to", "nats://127.0.0.1:4222", "--forward", "jobs"), "nats"),
        (("--url", "nats://127.0.0.1:4222", "cluster", "mirror", "jobs"), "nats"),
        (("--url", "nats://127.0.0.1:4222", "list"), "nats"),
        (("console",), "console"),
        (("serve", "--port", "0", "--console", "127.0.0.1:0"), "console"),
        (("advise", "--defaults", "--plot", "wait.png"), "plot"),
    ],
)
def test_a_command_names_the_extra_that_it_lacks(
    tmp_path: Path, words: tuple[str, ...], extra: str
) -> None:
    code = f"import sys; sys.argv[1:] = {words!r}; from shmq.cli.main import main; main()"
    run = plain(tmp_path, code)
    assert run.returncode == 1, run.stderr
    assert run.stderr.endswith(f": pip install 'shmq[{extra}]'\n")


def test_a_process_with_a_queue_loads_what_queues_take(namespace: str) -> None:
    assert loaded_by(QUEUE.format(namespace=namespace)) == set()


def test_a_process_with_a_stream_loads_streams_and_no_server(namespace: str) -> None:
    code = f"""
    with shmq.connect({namespace!r}) as broker:
        stream = broker.create_stream("s", 1)
        stream.append("one")
        assert [record.body for record in stream.read(0, 0)] == ["one"]
        broker.delete_stream("s")
    """
    found = loaded_by(code)
    assert "shmq.client.local.stream" in found
    assert not found & {"asyncio", "shmq.client.remote", "shmq.workers", "ssl"}


def test_a_command_on_this_host_loads_no_client_of_servers(namespace: str) -> None:
    with shmq.connect(namespace) as broker:
        broker.create_queue("jobs").put("one")
    command = ("-m", "shmq", "-n", namespace)

    assert loaded(*command, "consume", "-q", "jobs") & {"asyncio", "rich", "ssl"} == set()
    assert loaded(*command, "list") & {"asyncio", "shmq.client.remote", "ssl"} == set()
    with shmq.connect(namespace) as broker:
        broker.delete_queue("jobs")


#: What no short command needs, and what takes longest of it.
WAITED_FOR = {
    "asyncio",
    "difflib",
    "email",
    "hashlib",
    "html",
    "http",
    "importlib.metadata",
    "multiprocessing",
    "numpy",
    "psutil",
    "rich",
    "shmq.client.local.stream",
    "shmq.client.remote",
    "shmq.cli.failures",
    "shmq.host.diagnose.activity",
    "shmq.host.supervision.stderr",
    "shmq.model.expression.parse",
    "shmq.model.schema.check",
    "shmq.protocol.opcodes",
    "socket",
    "sqlite3",
    "ssl",
    "subprocess",
    "tempfile",
}


def test_help_and_a_list_load_only_what_they_use(namespace: str) -> None:
    with shmq.connect(namespace) as broker:
        broker.create_queue("jobs", dead_letter=None)
        # Not -n, for which click loads difflib: it tries it as a long option first.
        place, heavy = {"SHMQ_NAMESPACE": namespace}, WAITED_FOR | {LOCAL}
        assert loaded("-m", "shmq", "--help", environment=place, heavy=heavy) == set()
        assert loaded("-m", "shmq", "list", environment=place, heavy=heavy) == {LOCAL}
        broker.delete_queue("jobs")


@pytest.mark.parametrize("package", [shmq, api], ids=lambda package: package.__name__)
def test_a_package_offers_all_its_names_before_they_are_loaded(package: object) -> None:
    name = package.__name__  # type: ignore[attr-defined]
    code = f"""
    import {name} as package
    for each in dir(package):
        assert getattr(package, each) is getattr(package, each), each
    assert {{"Broker", "Queue", "Stream"}} <= set(dir(package))
    """
    loaded_by(code)


def test_help_of_the_package_names_all_that_is_public_and_fits_a_few_screens() -> None:
    shown = pydoc.plain(pydoc.render_doc(shmq))

    assert len(shown.splitlines()) < 120
    names = set(re.findall(r"\w+", shown))
    assert {name for name in dir(shmq) if name not in errors.__all__} <= names


def test_a_star_import_brings_public_names_and_no_other() -> None:
    brought: dict[str, object] = {}
    exec("from shmq import *", brought)
    loaded_by("from shmq import *; connect, ShmqError")
    names = {name for name, value in brought.items() if not inspect.ismodule(value)}
    assert {"connect", *errors.__all__} <= names - {"__builtins__"} <= set(dir(shmq))


def test_the_table_of_the_contract_has_its_names_and_no_other() -> None:
    placed = [name for names in api._MODULES.values() for name in names]
    assert sorted(placed) == sorted(api.__all__)


def test_a_name_that_is_none_is_refused_as_in_any_module() -> None:
    with pytest.raises(AttributeError, match="module 'shmq' has no attribute 'nonsense'"):
        _ = shmq.nonsense  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match="cannot import name 'nonsense' from 'shmq'"):
        exec("from shmq import nonsense")


@pytest.mark.parametrize(
    "name", ["QueueStats", "StreamSummary", "Retry", "StreamOptions", "worker"]
)
def test_what_is_loaded_when_asked_for_can_be_pickled(name: str) -> None:
    value = getattr(shmq, name)
    assert pickle.loads(pickle.dumps(value)) is value
    assert inspect.getdoc(value)


def test_a_handle_of_a_stream_is_unpickled_where_nothing_is_loaded(namespace: str) -> None:
    with shmq.connect(namespace) as broker:
        stream = broker.create_stream("s", 1)
        stream.append("one")
        pickled = pickle.dumps(stream)
        code = f"""
        import pickle
        stream = pickle.loads({pickled!r})
        assert stream.read(0, 0)[0].body == "one"
        assert isinstance(stream, shmq.Stream)
        assert isinstance(stream.read(0, 0)[0], shmq.Record)
        with shmq.connect({namespace!r}) as broker, broker.transaction() as transaction:
            transaction.append("s", "two", partition=0)
        assert stream.read(0, 1)[0].body == "two"
        """
        loaded_by(code)
        broker.delete_stream("s")
