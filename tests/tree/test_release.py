"""What is published: how it is built, what is in it that others made, who signs it."""

from __future__ import annotations

import hashlib
import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tools.release import archives, interpreters, manual, materials

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
STATIC = ROOT / "shmq/extras/console/pages/static"

#: The files of the console that are this project's own.
OWN = {"console.css", "console.js"}


def test_vendored_files_are_as_their_makers_published_them() -> None:
    for component in materials.read_vendored():
        for name, digest in component["files"].items():
            assert hashlib.sha256((ROOT / name).read_bytes()).hexdigest() == digest, name


def test_every_file_that_others_made_is_listed_and_licensed() -> None:
    listed = {name for component in materials.read_vendored() for name in component["files"]}
    there = {str(path.relative_to(ROOT)) for path in STATIC.iterdir() if path.name not in OWN}
    assert there == listed
    assert "shmq/extras/console/pages/static/uPlot.LICENSE" in PROJECT["license-files"]


def test_wheels_are_built_for_each_python_that_the_project_names() -> None:
    named = {
        found[1] for each in PROJECT["classifiers"] if (found := re.search(r" 3\.(\d+)$", each))
    }
    built = PYPROJECT["tool"]["cibuildwheel"]["build"]
    assert {f"cp3{minor}-*" for minor in named} == {name for name in built if "t-" not in name}
    assert "cp314t-*" in built


def test_everything_that_every_installation_gets_is_used_by_the_library() -> None:
    text = "\n".join(path.read_text() for path in (ROOT / "shmq").rglob("*.py"))
    used = set(re.findall(r"^ *(?:import|from) (\w+)", text, re.MULTILINE))
    needed = {re.split(r"\W", requirement)[0] for requirement in PROJECT["dependencies"]}
    assert needed <= used


def test_the_recipe_of_conda_needs_what_the_project_needs() -> None:
    recipe = yaml.safe_load((ROOT / "deploy/conda/recipe.yaml").read_text())
    run = {
        each.replace(" ", "").replace("msgpack-python", "msgpack")
        for each in recipe["requirements"]["run"]
    }
    assert run == {*PROJECT["dependencies"], f"python{PROJECT['requires-python']}"}
    assert recipe["context"]["version"] == PROJECT["version"]


def test_the_workflow_publishes_without_a_secret() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text()
    jobs = yaml.safe_load(text)["jobs"]
    assert "secrets." not in text
    assert "password" not in str(jobs)
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert set(jobs["publish"]["needs"]) == set(jobs) - {"publish"}


def test_each_action_of_the_workflow_is_a_commit() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text()
    used = re.findall(r"uses: (.*)", text)
    assert used
    for action in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v[\d.]+", action), action


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_cibuildwheel_builds_each_wheel_that_is_promised(machine: str) -> None:
    options = ("--platform", "linux", "--archs", machine, "--print-build-identifiers")
    told = archives.run(sys.executable, "-m", "cibuildwheel", *options, ROOT)
    pythons = ("cp311", "cp312", "cp313", "cp314", "cp314t")
    libraries = ("manylinux", "musllinux")
    assert set(told.split()) == {f"{p}-{lib}_{machine}" for p in pythons for lib in libraries}
    # It is the one that the workflow runs.
    (required,) = [
        each for each in PROJECT["optional-dependencies"]["release"] if "cibuildwheel" in each
    ]
    assert f"pipx run {required}\n" in (ROOT / ".github/workflows/release.yml").read_text()


def test_builds_that_differ_are_refused(tmp_path: Path) -> None:
    made = iter([b"one", b"two"])

    def build() -> Path:
        path = tmp_path / f"built-{len(list(tmp_path.iterdir()))}"
        path.write_bytes(next(made))
        return path

    with pytest.raises(SystemExit, match=r"two builds of it differ: compare .*/first"):
        archives.reproduced("it", build, tmp_path)


def test_a_build_that_fails_says_why() -> None:
    with pytest.raises(SystemExit, match=r"(?s)no such thing.*failed with 3"):
        archives.run(sys.executable, "-c", "import sys; print('no such thing'); sys.exit(3)")


def test_a_step_says_that_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    seen = tmp_path / "seen"

    def say(line: str) -> None:
        told.append(line)
        if len(told) == 3:
            seen.touch()

    monkeypatch.setattr(archives, "say", say)
    monkeypatch.setattr(archives, "SILENCE", 0.1)
    wait = "import pathlib, sys; print(len(sys.stdin.read()))\nwhile not pathlib.Path(sys.argv[1])"
    printed = archives.run(
        *(sys.executable, "-c", f"{wait}.exists(): pass", seen), input=b"abc", step="waiting"
    )
    assert printed == "3\n"
    assert told[0] == "waiting …"
    assert re.fullmatch(r"waiting: \d+ s", told[2])


def test_the_hashes_are_those_that_sha256sum_reads(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"a")
    archives.write_hashes(tmp_path)
    archives.run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=tmp_path)


@pytest.mark.filterwarnings("ignore:.*make_default_short_help:DeprecationWarning")
def test_each_command_has_a_manual_page(tmp_path: Path) -> None:
    manual.main(tmp_path)
    assert {"shmq.1", "shmq-serve.1", "shmq-schema-set.1"} <= {
        path.name for path in tmp_path.iterdir()
    }
    assert r"\-\-log\-format" in (tmp_path / "shmq-serve.1").read_text()
    for page in tmp_path.iterdir():
        name = page.read_text().partition(".SH NAME")[2].partition(".SH SYNOPSIS")[0]
        assert not name.rstrip().endswith("..."), f"{page.name} is cut off: {name}"


def test_an_interpreter_that_cannot_build_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python3.12"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}")
    assert broken not in interpreters.found()


#: The extras of those who develop shmq.
DEVELOPMENT = {"bench", "demo", "docs", "release", "test"}
INSTALL = (ROOT / "docs/start/install.md").read_text()


def test_every_extra_is_on_the_page_of_the_installation() -> None:
    listed = re.findall(r"`([\w-]+)`", "".join(re.findall(r"^\| (`.*?) \|", INSTALL, re.MULTILINE)))
    assert sorted(listed) == sorted(set(PROJECT["optional-dependencies"]) - DEVELOPMENT)


@pytest.mark.parametrize(
    "page", ["README.md", "docs/index.md", "docs/start/tutorial.md", "docs/start/install.md"]
)
def test_the_pages_agree_on_the_installation(page: str) -> None:
    text = (ROOT / page).read_text()
    minors = sorted(
        int(found[1])
        for each in PROJECT["classifiers"]
        if (found := re.search(r" 3\.(\d+)$", each))
    )
    assert "pip install shmq" in text
    assert f"CPython 3.{minors[0]} to 3.{minors[-1]}" in text
    assert ("pip install ." in text) or page == "docs/index.md"
    assert (page == "docs/start/install.md") or "install.md" in text
