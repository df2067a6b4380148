"""``shmq context``: names for addresses, in a file that only its user can read."""

from __future__ import annotations

import json
import multiprocessing
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import shmq
from shmq.cli.main import cli
from shmq.cli.shared import target
from shmq.cli.shared.exit_codes import Code
from shmq.cli.shared.target import Context
from tests.support.shell import ROOT, Shell
from tests.system.cli.conftest import Quick

Invoke = Callable[..., Result]

TOKEN = "s3cret-of-nobody"


@pytest.fixture
def bare(shell: Shell) -> Callable[..., Result]:
    """The command without a namespace in its environment."""
    runner = CliRunner(env={"SHMQ_NAMESPACE": None, "SHMQ_URL": None, "SHMQ_TRACEBACK": None})

    def run(*arguments: str, **extra: object) -> Result:
        return runner.invoke(cli, arguments, **extra)  # type: ignore[arg-type]

    return run


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_context_is_added_listed_shown_and_removed(invoke: Invoke, config_home: Path) -> None:
    added = invoke("context", "add", "prod", "--url", "shmqs://mq.example:9999", "--token", TOKEN)
    assert added.stdout == "context 'prod' is shmqs://mq.example:9999\n"
    assert invoke("context", "add", "lab", "--namespace", "lab").exit_code == 0
    assert invoke("context", "use", "prod").exit_code == 0

    listed = json.loads(invoke("context", "list", "--json").stdout)
    assert [(one["name"], one["current"]) for one in listed] == [("lab", False), ("prod", True)]
    assert json.loads(invoke("context", "show", "--json").stdout) == {
        "name": "prod",
        "current": True,
        "url": "shmqs://mq.example:9999",
        "namespace": None,
        "has_token": True,
        "cafile": None,
        "cert": None,
        "key": None,
    }
    assert invoke("context", "remove", "prod").exit_code == 0

    assert TOKEN not in (config_home / "shmq/target.json").read_text()
    assert target.read_contexts() == target.Contexts(None, {"lab": Context(namespace="lab")})


def test_a_token_is_printed_only_when_it_is_asked_for(invoke: Invoke) -> None:
    invoke("context", "add", "prod", "--url", "shmq://mq.example", "--token", TOKEN, "--use")

    for command in (
        ["list"],
        ["list", "--json"],
        ["show"],
        ["show", "prod", "--json"],
        ["use", "x"],
    ):
        assert TOKEN not in invoke("context", *command).output
    assert TOKEN not in repr(target.read_contexts())
    assert TOKEN in invoke("context", "show", "--show-token").stdout
    shown = json.loads(invoke("context", "show", "prod", "--show-token", "--json").stdout)
    assert shown["token"] == TOKEN


def test_a_token_can_come_from_a_file_or_from_standard_input(
    invoke: Invoke, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")

    invoke("context", "add", "one", "--url", "shmq://a", "--token-file", str(file))
    invoke("context", "add", "two", "--url", "shmq://b", "--token-file", "-", input=f"{TOKEN}2\n")

    known = target.read_contexts().known
    assert (known["one"].token, known["two"].token) == (TOKEN, f"{TOKEN}2")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["--namespace", "x", "--token-file"], "--token-file is for a server"),
        (["--url", "shmq://a", "--token-file"], "--token-file: the token is empty"),
        (["--namespace", "x", "--token"], "--token is for a server"),
        (["--url", "shmq://a", "--token"], "--token: the token is empty"),
    ],
)
def test_an_error_names_the_flag_that_gave_the_token(
    quick: Quick, tmp_path: Path, given: list[str], why: str
) -> None:
    file = tmp_path / "token"
    file.touch()
    value = str(file) if given[-1] == "--token-file" else ""
    assert why in quick("context", "add", "c", *given, value, code=Code.USAGE).error


def test_the_file_and_its_folder_are_for_their_owner_alone(
    invoke: Invoke, config_home: Path
) -> None:
    invoke("context", "add", "prod", "--url", "shmq://mq.example", "--token", TOKEN)
    invoke("context", "add", "lab", "--namespace", "lab")

    folder = config_home / "shmq"
    assert (mode(folder), mode(folder / "target.json")) == (0o700, 0o600)
    assert [path.name for path in folder.iterdir()] == ["target.json"]


def test_the_reference_and_the_help_name_the_file(invoke: Invoke) -> None:
    name = f"$XDG_CONFIG_HOME/shmq/{target.contexts_path().name}"
    assert f"`{name}`" in (ROOT / "docs/reference/cli.md").read_text()
    assert name in invoke("context", "--help").stdout


@pytest.mark.parametrize("given", [0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_may_use_is_refused(
    invoke: Invoke, bare: Invoke, config_home: Path, given: int
) -> None:
    invoke("context", "add", "prod", "--url", "shmq://mq.example", "--token", TOKEN, "--use")
    file = config_home / "shmq/target.json"
    file.chmod(given)

    for refused in (bare("list"), invoke("context", "list"), invoke("context", "use", "prod")):
        assert refused.exit_code == Code.REFUSED
        assert f"{given:04o}" in refused.stderr
        assert f"chmod 600 {file}" in refused.stderr
        assert TOKEN not in refused.output
    file.chmod(0o600)
    assert invoke("context", "list").exit_code == 0


def test_a_folder_that_others_may_write_to_is_refused(invoke: Invoke, config_home: Path) -> None:
    invoke("context", "add", "lab", "--namespace", "lab")
    (config_home / "shmq").chmod(0o770)

    refused = invoke("context", "add", "more", "--namespace", "more")

    assert refused.exit_code == Code.REFUSED
    assert "chmod 700" in refused.stderr
    (config_home / "shmq").chmod(0o700)
    assert list(target.read_contexts().known) == ["lab"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"version": 2, "current": null, "contexts": {}}',
        '{"version": 1, "current": "gone", "contexts": {}}',
        '{"version": 1, "current": null, "contexts": {"a b": {"url": "shmq://x"}}}',
        '{"version": 1, "current": null, "contexts": {"a": {"url": 7}}}',
        '{"version": 1, "current": null, "contexts": {"a": {"colour": "red"}}}',
        '{"version": 1, "current": null, "contexts": []}',
        '{"version": 1, "current": null, "contexts": {"a": {}}}',
        '{"version": 1, "current": null, "contexts": {"a": {"url": "x", "namespace": "y"}}}',
        "[" * 100_000,
    ],
)
def test_a_file_that_is_none_of_contexts_is_refused_and_left_alone(
    invoke: Invoke, config_home: Path, text: str
) -> None:
    file = config_home / "shmq/target.json"
    file.parent.mkdir(mode=0o700, parents=True)
    file.write_text(text)
    file.chmod(0o600)

    for arguments in (["list"], ["add", "a", "--namespace", "a"], ["remove", "a"]):
        refused = invoke("context", *arguments)
        assert refused.exit_code == Code.REFUSED
        assert f"{file} is not a file of contexts" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    assert file.read_text() == text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["add", "a"], "--url"),
        (["add", "a", "--url", "shmq://x", "--namespace", "y"], "--namespace"),
        (["add", "a", "--namespace", "y", "--token", "t"], "--token is for a server"),
        (["add", "a", "--url", "shmq://x", "--token", ""], "empty"),
        (["add", "a", "--url", "http://x"], "shmq://"),
        (["add", "a", "--url", "shmq://x", "--token", "t", "--token-file", "-"], "exclude"),
        (["add", "a b", "--url", "shmq://x"], "context"),
        (["add", "a", "--namespace", "y z"], "namespace"),
        (["use"], "--none"),
        (["use", "a", "--none"], "--none"),
    ],
)
def test_what_cannot_be_a_context_is_wrong_usage(
    invoke: Invoke, arguments: list[str], said: str
) -> None:
    refused = invoke("context", *arguments)

    assert refused.exit_code == Code.USAGE
    assert said in refused.stderr
    assert target.read_contexts().known == {}


def test_a_context_that_is_not_there_is_told_with_those_that_are(invoke: Invoke) -> None:
    invoke("context", "add", "lab", "--namespace", "lab")

    for command in ("use", "show", "remove"):
        refused = invoke("context", command, "prod")
        assert refused.exit_code == Code.NO_QUEUE
        assert "known are lab" in refused.stderr


def test_a_context_is_changed_only_when_that_is_said(invoke: Invoke) -> None:
    invoke("context", "add", "a", "--namespace", "one")

    assert "--replace" in invoke("context", "add", "a", "--namespace", "two").stderr
    assert target.read_contexts().known["a"].namespace == "one"
    assert invoke("context", "add", "a", "--namespace", "two", "--replace").exit_code == 0
    assert target.read_contexts().known["a"].namespace == "two"


def test_a_current_context_that_is_removed_is_no_longer_current(invoke: Invoke) -> None:
    invoke("context", "add", "a", "--namespace", "one", "--use")
    invoke("context", "remove", "a")

    assert target.read_contexts().current is None
    assert invoke("context", "show").exit_code == Code.REFUSED


def test_a_flag_goes_before_the_environment_and_that_before_the_context(
    bare: Invoke, namespace: str
) -> None:
    with shmq.connect(namespace) as broker:
        broker.create_queue("here", dead_letter=None)
    bare("context", "add", "mine", "--namespace", namespace, "--use")
    bare("context", "add", "other", "--namespace", f"{namespace}-other")

    def seen(*arguments: str, **environment: str) -> list[str]:
        ran = bare(*arguments, "list", "--json", env=environment)
        assert ran.exit_code == 0, ran.output
        return [one["name"] for one in json.loads(ran.stdout)]

    other = f"{namespace}-other"
    assert seen() == ["here"]
    assert seen(SHMQ_NAMESPACE=other) == []
    assert seen("-n", namespace, SHMQ_NAMESPACE=other) == ["here"]
    assert seen("--context", "mine", SHMQ_NAMESPACE=other) == ["here"]
    assert seen("--context", "other") == []
    bare("context", "use", "other")
    assert seen() == []


@pytest.mark.parametrize(
    "flags",
    [
        ["--url", "shmq://x", "-n", "y"],
        ["--context", "a", "--url", "shmq://x"],
        ["-n", "y", "--context", "a"],
    ],
)
def test_only_one_flag_can_say_where_to_work(invoke: Invoke, flags: list[str]) -> None:
    refused = invoke(*flags, "list")

    assert refused.exit_code == Code.USAGE
    assert "exclude each other" in refused.stderr


def test_a_token_without_a_server_is_wrong_usage(invoke: Invoke) -> None:
    refused = invoke("--token", TOKEN, "list")

    assert refused.exit_code == Code.USAGE
    assert "--url" in refused.stderr
    assert TOKEN not in refused.output
    assert invoke("list", env={"SHMQ_TOKEN": TOKEN}).exit_code == 0


def test_flags_before_the_command_make_no_context(invoke: Invoke) -> None:
    refused = invoke("--url", "shmq://x", "context", "add", "a")

    assert refused.exit_code == Code.USAGE
    assert "shmq context add NAME --url" in refused.stderr


def test_a_wrong_value_is_named_by_what_set_it(invoke: Invoke) -> None:
    flag = invoke("--url", "http://x", "list", env={"SHMQ_URL": "http://y"})
    variable = invoke("list", env={"SHMQ_URL": "http://y"})

    assert flag.stderr.startswith("shmq: --url 'http://x' must be shmq://")
    assert variable.stderr.startswith("shmq: SHMQ_URL='http://y' must be shmq://")


@pytest.mark.parametrize("command", ["doctor", "fsck", "keeper"])
def test_what_needs_the_host_refuses_a_server(invoke: Invoke, command: str) -> None:
    for given in (["--url", "shmq://far.example", command], [command]):
        refused = invoke(*given, env={"SHMQ_URL": "shmq://far.example"})
        assert refused.exit_code == Code.USAGE
        assert "shmq://far.example" in refused.stderr
        assert "-n NAMESPACE" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1


def test_a_new_file_replaces_the_old_one_whole(config_home: Path) -> None:
    with target.rewriting_contexts() as known:
        known.known["a"] = Context(namespace="a")
    before = (config_home / "shmq/target.json").read_text()

    with pytest.raises(ZeroDivisionError), target.rewriting_contexts() as known:
        known.known["b"] = Context(namespace="b")
        raise ZeroDivisionError

    assert (config_home / "shmq/target.json").read_text() == before


def _add(name: str) -> None:
    with target.rewriting_contexts() as known:
        known.known[name] = Context(namespace=name)


def test_no_context_is_lost_when_many_are_added_at_a_time() -> None:
    fork = multiprocessing.get_context("fork")
    adding = [fork.Process(target=_add, args=(f"n{number}",)) for number in range(12)]
    for one in adding:
        one.start()
    for one in adding:
        one.join()

    assert set(target.read_contexts().known) == {f"n{number}" for number in range(12)}


def test_the_names_of_contexts_are_completed(shell: Shell, invoke: Invoke) -> None:
    invoke("context", "add", "production", "--url", "shmq://x", "--token", TOKEN)
    invoke("context", "add", "lab", "--namespace", "lab")

    def completed(line: str) -> str:
        words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
        ran = shell.pipeline(
            f"export {' '.join(f'{key}={value!r}' for key, value in words.items())}; "
            f"_SHMQ_COMPLETE=bash_complete shmq"
        )
        return ran.text

    assert "production" in completed("shmq context use pro")
    assert "production" in completed("shmq --context pro")
