"""What is reported of a process that died: the text, and whether memory ran out."""

from __future__ import annotations

from pathlib import Path

import pytest

from shmq.workers import deaths
from shmq.workers.deaths import OomKills, describe_death


@pytest.mark.parametrize(
    ("code", "timeout", "after", "out_of_memory", "text"),
    [
        (-9, None, 1.0, False, "killed by signal 9"),
        (-9, None, 1.0, True, "killed by signal 9 (out of memory)"),
        (-11, None, 1.0, True, "killed by signal 11"),
        (-64, None, 1.0, False, "killed by signal 64"),
        (0, None, 1.0, False, "exit code 0"),
        (1, None, 100.0, False, "exit code 1"),
        (1, 1.5, 1.4, False, "exit code 1"),
        (1, 1.5, 1.5, False, "handler timeout (1.5 s)"),
        (1, 60.0, 61.0, False, "handler timeout (60 s)"),
        (2, 1.5, 2.0, False, "exit code 2"),
    ],
)
def test_the_reason(
    code: int, timeout: float | None, after: float, out_of_memory: bool, text: str
) -> None:
    found = describe_death(code, timeout=timeout, after=after, out_of_memory=out_of_memory)
    assert found == text


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this process's cgroup ``/jobs/a``."""
    own = tmp_path / "cgroup"
    own.write_text("4:memory:/other\n0::/jobs/a\n")
    folder = tmp_path / "fs" / "jobs" / "a"
    folder.mkdir(parents=True)
    monkeypatch.setattr(deaths, "_OWN_CGROUP", own)
    monkeypatch.setattr(deaths, "_MOUNTS", (tmp_path / "none", tmp_path / "fs"))
    return folder


def write(folder: Path, count: object, name: str = "memory.events") -> None:
    folder.joinpath(name).write_text(f"low 0\noom 7\noom_kill {count}\noom_group_kill 9\n")


def test_each_kill_of_the_kernel_explains_one_death(cgroup: Path) -> None:
    write(cgroup, 3)
    kills = OomKills()
    before = kills.count()
    assert not kills.explains_death(before)

    write(cgroup, 5)
    assert [kills.explains_death(before) for _ in range(3)] == [True, True, False]

    before = kills.count()
    assert not kills.explains_death(before)
    write(cgroup, 6)
    assert kills.explains_death(before)


def test_those_of_the_cgroup_alone_are_preferred(cgroup: Path) -> None:
    write(cgroup, 3)
    write(cgroup, 1, "memory.events.local")
    kills = OomKills()
    before = kills.count()

    write(cgroup, 4)
    assert not kills.explains_death(before)
    write(cgroup, 2, "memory.events.local")
    assert kills.explains_death(before)


@pytest.mark.parametrize("count", ["", "-1", "1.5", "x", "9" * 100, "\u0663"])
def test_a_counter_that_is_not_a_number_explains_nothing(cgroup: Path, count: str) -> None:
    write(cgroup, count)
    kills = OomKills()
    assert not kills.explains_death(kills.count())


@pytest.mark.parametrize(
    "own", ["", "4:memory:/jobs/a\n", "0::/../a\n", "0::/jobs/../jobs/a\n", "0::/none\n", "\udcff"]
)
def test_without_a_cgroup_that_can_be_read_nothing_is_explained(
    cgroup: Path, tmp_path: Path, own: str
) -> None:
    write(cgroup, 3)
    (tmp_path / "cgroup").write_bytes(own.encode("utf-8", "surrogateescape"))
    kills = OomKills()
    before = kills.count()

    write(cgroup, 4)
    assert not kills.explains_death(before)


def test_a_counter_that_goes_away_explains_nothing(cgroup: Path) -> None:
    write(cgroup, 3)
    kills = OomKills()
    before = kills.count()

    cgroup.joinpath("memory.events").unlink()
    assert not kills.explains_death(before)
