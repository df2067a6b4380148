"""``shmq pipeline`` as a shell sees it, up to where Spark begins."""

from __future__ import annotations

import importlib.util
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from shmq.cli.shared.exit_codes import Code
from shmq.spark.jobs import catalog as jobs

if importlib.util.find_spec("pyspark") is None:
    pytest.skip("there is no pyspark: pip install 'shmq[spark]'", allow_module_level=True)

Invoke = Callable[..., Result]

RIGHT = """
checkpoint = "done"
[source.options]
subscribe = "results"
[sink]
path = "archive"
"""


@pytest.mark.parametrize("job", list(jobs.ABOUT))
def test_init_prints_a_file_to_begin_with(invoke: Invoke, job: str) -> None:
    done = invoke("pipeline", "init", job)

    assert done.exit_code == Code.OK
    assert done.stdout.startswith(f"# shmq pipeline {job}: ")
    assert "[spark]\n" in done.stdout


@pytest.mark.parametrize("job", list(jobs.ABOUT))
def test_the_file_to_begin_with_is_right(invoke: Invoke, tmp_path: Path, job: str) -> None:
    path = tmp_path / f"{job}.toml"
    path.write_text(invoke("pipeline", "init", job).stdout)

    done = invoke("pipeline", job, str(path), "--check")

    assert (done.stderr, done.exit_code) == ("", Code.OK)


def test_a_master_that_none_is_is_found_by_check(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "archive.toml"
    path.write_text(f'{RIGHT}[spark]\nmaster = "sparc://host:7077"\n')

    done = invoke("pipeline", "archive", str(path), "--check")

    assert done.exit_code == Code.USAGE
    assert "master = 'sparc://host:7077' in [spark] must be \"local[N]\"" in done.stderr


def test_a_master_that_does_not_answer_is_one_line_before_spark_starts(
    invoke: Invoke, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        master = f"spark://127.0.0.1:{server.getsockname()[1]}"
    path = tmp_path / "archive.toml"
    path.write_text(f'{RIGHT}[spark]\nmaster = "{master}"\n')

    done = invoke("pipeline", "archive", str(path))

    assert done.exit_code == Code.UNREACHED
    assert done.stderr.startswith(f"shmq: no master of Spark answers at {master} (")
    assert "Connection refused): start it, or change master in [spark]" in done.stderr


def test_init_of_another_job_is_wrong_usage(invoke: Invoke) -> None:
    done = invoke("pipeline", "init", "archvie")

    assert done.exit_code == Code.USAGE
    assert "'archvie' is not one of " in done.stderr
    assert "'archive'" in done.stderr


def test_check_says_that_a_file_is_right_and_runs_nothing(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "archive.toml"
    path.write_text(RIGHT)

    done = invoke("pipeline", "archive", str(path), "--check")

    assert (done.exit_code, done.stdout) == (Code.OK, f"{path}: valid for archive\n")
    assert sorted(tmp_path.iterdir()) == [path]


def test_a_file_that_is_wrong_is_one_line_and_code_2(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "archive.toml"
    path.write_text(RIGHT.replace("subscribe", "subscirbe"))

    done = invoke("pipeline", "archive", str(path))

    assert done.exit_code == Code.USAGE
    assert done.stderr == (
        f"shmq: {path}: [source]: format('shmq') has no option 'subscirbe': "
        f"did you mean 'subscribe'?\n"
    )


def test_a_function_that_is_not_there_is_found_by_check(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "pipeline_app.py").write_text("same = 7\n")
    path = tmp_path / "transform.toml"

    def check(function: str) -> Result:
        path.write_text(f'{RIGHT}format = "parquet"\n[transform]\nfunction = "{function}"\n')
        return invoke("pipeline", "transform", str(path), "--check")

    assert "module 'pipeline_apt' does not exist here" in check("pipeline_apt:same").stderr
    assert "has no attribute 'some'" in check("pipeline_app:some").stderr
    assert "is of type int: name a function" in check("pipeline_app:same").stderr
    assert check("pipeline_app:same").exit_code == Code.USAGE
    (tmp_path / "pipeline_app.py").write_text("def same(rows):\n    return rows\n")
    sys.modules.pop("pipeline_app")
    importlib.invalidate_caches()
    assert check("pipeline_app:same").exit_code == Code.OK


def test_without_pyspark_it_says_what_to_install(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, package=None: None if name == "pyspark" else real(name, package),
    )

    done = invoke("pipeline", "archive", str(tmp_path / "archive.toml"))

    assert done.exit_code == Code.REFUSED
    assert done.stderr == "shmq: a pipeline runs on Spark: pip install 'shmq[spark]'\n"
