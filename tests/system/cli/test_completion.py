"""``shmq completion``, as the shells themselves carry it out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

import shmq
from shmq.cli.main import cli
from shmq.cli.shared.exit_codes import Code
from tests.support.shell import ROOT, Shell, read_until, terminal

BASH = shutil.which("bash") or ""

#: What bash does when the key is pressed: the words so far, the last one to be completed.
PRESS = """
eval "$(shmq completion bash)"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
compopt() { :; }
_shmq_completion shmq
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def environment(shell: Shell, tmp_path: Path) -> dict[str, str]:
    """One in which ``shmq`` is a command."""
    command = tmp_path / "shmq"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m shmq "$@"\n')
    command.chmod(0o700)
    known = shell.environment()
    return {**known, "PATH": f"{tmp_path}{os.pathsep}{known['PATH']}"}


def completed(environment: dict[str, str], *words: str) -> list[str]:
    done = subprocess.run(
        [BASH, "--norc", "-c", PRESS, "bash", *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.prove
@pytest.mark.skipif(not BASH, reason="there is no bash here")
def test_bash_completes_commands_flags_and_queues(
    environment: dict[str, str], queue: shmq.Queue
) -> None:
    assert completed(environment, "shmq", "pe") == ["peek", "persist"]
    assert completed(environment, "shmq", "peek", "--que") == ["--queue"]
    assert completed(environment, "shmq", "peek", "-q", "jo") == ["jobs", "jobs.dlq"]
    assert completed(environment, "shmq", "fsck", "jobs", "jobs.") == ["jobs.dlq"]
    assert completed(environment, "shmq", "-n", "nowhere", "peek", "-q", "") == [""]
    assert completed(environment, "shmq", "completion", "z") == ["zsh"]


@pytest.mark.parametrize(
    ("words", "begun", "completed"),
    [
        ("stats", "", ["clicks", "events", "jobs", "jobs.dlq"]),
        ("stats -q", "c", []),
        ("worker shop:handle", "jobs", ["jobs", "jobs.dlq"]),
        ("snapshot jobs", "jobs.", ["jobs.dlq"]),
        ("stream read", "", ["clicks"]),
        ("subscribe", "cl", ["clicks"]),
        ("stream groups clicks", "", ["billing"]),
        ("stream reset clicks -g", "b", ["billing"]),
        ("stream groups nowhere", "", []),
        ("publish", "", ["events"]),
        ("exchange bind events", "c", ["clicks"]),
        ("exchange bind events --to", "", ["events"]),
        ("schema set", "j", ["jobs", "jobs.dlq"]),
    ],
)
def test_names_are_completed_wherever_a_command_takes_them(
    broker: shmq.Broker, queue: shmq.Queue, monkeypatch: pytest.MonkeyPatch,
    words: str, begun: str, completed: list[str],
) -> None:  # fmt: skip
    with broker.create_stream("clicks", 1) as stream, stream.group("billing").join() as member:
        member.poll()
    broker.create_exchange("events").close()
    monkeypatch.setenv("SHMQ_NAMESPACE", broker.namespace)

    shell = ShellComplete(cli, {}, "shmq", "_SHMQ_COMPLETE")

    assert [found.value for found in shell.get_completions(words.split(), begun)] == completed


@pytest.mark.prove
@pytest.mark.skipif(not BASH, reason="there is no bash here")
def test_the_key_completes_the_name_of_a_queue_in_an_interactive_bash(
    shell: Shell, environment: dict[str, str], broker: shmq.Broker
) -> None:
    broker.create_queue("orders", dead_letter=None).put("tea with milk")

    with terminal() as (ours, theirs):
        bash = subprocess.Popen(
            [BASH, "--norc", "-i"],
            env={**environment, "PS1": "ready> "},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        try:
            read_until(ours, b"ready> ")
            os.write(ours, b'eval "$(shmq completion bash)"\n')
            read_until(ours, b"ready> ")
            os.write(ours, b"shmq consume -q ord\t")
            read_until(ours, b"orders")
            os.write(ours, b"\n")
            read_until(ours, b"tea with milk")
            os.write(ours, b"exit\n")
            assert bash.wait(timeout=60) == 0
        finally:
            bash.kill()
            bash.wait()


@pytest.mark.parametrize(("name", "marks"), [("zsh", "#compdef shmq"), ("fish", "complete")])
def test_the_other_shells_have_a_script_too(shell: Shell, name: str, marks: str) -> None:
    script = shell("completion", name).text

    assert marks in script
    assert f"_SHMQ_COMPLETE={name}_complete" in script
    if shutil.which(name):
        subprocess.run([name, "-n"], input=script, text=True, check=True, timeout=60)


def test_a_shell_without_completion_is_wrong_usage(shell: Shell) -> None:
    assert "'bash', 'zsh', 'fish'" in shell("completion", "tcsh", code=Code.USAGE).error


@pytest.mark.prove
def test_the_package_is_the_command(shell: Shell) -> None:
    for module in ("shmq", "shmq.cli"):
        done = subprocess.run(
            [sys.executable, "-m", module, "--version"],
            env=shell.environment(),
            cwd=ROOT,
            capture_output=True,
            check=True,
            timeout=60,
        )
        assert done.stdout == shell("--version").out
