"""A job's file: what it may have, and the one error for what it may not."""

from __future__ import annotations

import datetime as dt
import tomllib
from pathlib import Path

import pytest

from shmq import InvalidOption
from shmq.spark.jobs import job as jobs
from shmq.spark.jobs import values
from shmq.spark.jobs.config import Config, read

RIGHT = """
checkpoint = "done"
[source]
subscribe = "results"
[sink]
path = "archive"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "job.toml"
    path.write_text(text)
    return path


def archive(path: Path) -> Config:
    return read(path, jobs.load("archive").tables)


def test_a_file_has_its_values_and_defaults_and_paths_from_where_it_is(tmp_path: Path) -> None:
    config = archive(written(tmp_path, RIGHT))

    assert config[""] == {"checkpoint": str(tmp_path / "done"), "trigger": 10.0}
    assert config["source"]["options"] == {"subscribe": "results"}
    assert config["sink"]["path"] == str(tmp_path / "archive")
    assert config["sink"]["merge_to"] == 128 << 20
    assert config["spark"] == {"master": None, "log": "off", "options": {}}


def test_settings_of_spark_may_be_tables_or_have_dots(tmp_path: Path) -> None:
    text = RIGHT + "[spark]\nspark.executor.memory = '4g'\n'spark.ui.enabled' = true\n"

    options = archive(written(tmp_path, text))["spark"]["options"]

    assert options == {"spark.executor.memory": "4g", "spark.ui.enabled": "true"}


def test_a_place_is_taken_where_the_file_names_none(tmp_path: Path) -> None:
    tables = jobs.load("archive").tables
    place = {"url": "elsewhere", "token": "secret"}

    filled = read(written(tmp_path, RIGHT), tables, place)
    own = read(written(tmp_path, RIGHT.replace("[sink]", 'url = "here"\n[sink]')), tables, place)

    assert filled["source"]["options"] == {"subscribe": "results", **place}
    assert own["source"]["options"] == {"subscribe": "results", "url": "here"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('checkpoint = "done"', ""), "'checkpoint' is missing: Where it remembers"),
        (('checkpoint = "done"', "checkpoint = 7"), "checkpoint = 7 must be a path"),
        (("checkpoint =", "checkpiont ="), "unknown key 'checkpiont': did you mean 'checkpoint'?"),
        (('checkpoint = "done"', 'path = "x"'), "unknown key 'path' at the top: it stands in [s"),
        (("[source]", 'trigger = "now"\n[source]'), "'now' must be \"available-now\", or a time"),
        (("[source]", 'trigger = "-1s"\n[source]'), "'-1s' must be \"available-now\", or a time"),
        (("[sink]", "[snik]"), "unknown table [snik]: did you mean [sink]?"),
        (('path = "archive"', ""), "'path' is missing in [sink]: Their folder."),
        (('path = "archive"', 'path = ""'), "path = '' in [sink] must be a path"),
        (("[sink]", "[sink]\nmerge_too = 1"), "'merge_too' in [sink]: did you mean 'merge_to'?"),
        (("[sink]", '[sink]\nmerge_to = "1X"'), "merge_to = '1X' in [sink] must be a size from"),
        (("[sink]", "[sink]\nmerge_files = 1"), "merge_files = 1 in [sink] must be a whole number"),
        (("[sink]", '[sink]\ncompression = "zip"'), "'zip' in [sink] must be one of zstd, snappy"),
        (("subscribe", "subscirbe"), "[source]: format('shmq') has no option 'subscirbe': did you"),
        (("[sink]", "leaseTimeout = 'long'\n[sink]"), "leaseTimeout='long' must be a time from 1"),
        (("[sink]", "states = 'ready'\n[sink]"), "states='ready' is for spark.read: leave it out"),
        (
            ("[sink]", "kind = 'queue'\nstartingOffsets = 'latest'\n[sink]"),
            "a queue has no offsets to begin",
        ),
        (("[sink]", "[[sink]]"), "sink must be a table, [sink], not ["),
        (("[sink]", "[sink"), "it is not TOML: "),
    ],
)
def test_what_is_wrong_is_one_error_with_the_file_the_key_and_what_to_write(
    tmp_path: Path, change: tuple[str, str], told: str
) -> None:
    path = written(tmp_path, RIGHT.replace(*change))

    with pytest.raises(InvalidOption) as caught:
        archive(path)

    assert str(caught.value).startswith(f"{path}: ")
    assert told in str(caught.value)


def test_a_file_that_is_not_there_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"nowhere\.toml: it cannot be read: No such file"):
        archive(tmp_path / "nowhere.toml")


@pytest.mark.parametrize("name", list(jobs.ABOUT))
def test_the_file_to_begin_with_is_right_but_for_what_it_names(tmp_path: Path, name: str) -> None:
    job = jobs.load(name)
    text = job.template()

    config = read(written(tmp_path, text), job.tables)

    assert config["source"]["options"]
    assert job.about == jobs.ABOUT[name]
    assert job.about in text.splitlines()[0]


@pytest.mark.parametrize("name", list(jobs.ABOUT))
def test_the_file_to_begin_with_has_every_key_and_nothing_else(tmp_path: Path, name: str) -> None:
    job = jobs.load(name)
    text = job.template()
    keys = {(table.name, key.name) for table in job.tables for key in table.keys}

    read_all = tomllib.loads(_uncommented(text))

    loose = {("", key) for key, value in read_all.items() if not isinstance(value, dict)}
    inner = {
        (table, key)
        for table, found in read_all.items()
        if isinstance(found, dict)
        for key in found
    }
    assert keys <= loose | inner
    assert len(loose | inner) <= len(keys) + sum(len(table.examples) for table in job.tables)


def _uncommented(text: str) -> str:
    """The text with the keys in comments brought to life, and no other comment."""
    lines = []
    for line in text.splitlines():
        bare = line.removeprefix("# ")
        if bare.startswith("[") or (" = " in bare and bare.split(" = ")[0].isidentifier()):
            lines.append(bare)
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("2026-11-22T10:00:00+01:00", dt.datetime(2026, 11, 22, 9, tzinfo=dt.UTC)),
        ("2026-11-22", dt.datetime(2026, 11, 22, tzinfo=dt.UTC)),
        (dt.date(2026, 11, 22), dt.datetime(2026, 11, 22, tzinfo=dt.UTC)),
        (
            dt.datetime.fromisoformat("2026-11-22T07:00"),
            dt.datetime(2026, 11, 22, 7, tzinfo=dt.UTC),
        ),
    ],
)
def test_a_moment_is_text_or_a_time_of_toml(value: object, meant: dt.datetime) -> None:
    assert values.moment(value, Path()) == meant


@pytest.mark.parametrize(
    ("check", "value", "meant"),
    [
        (values.size(0, 1 << 40), "64K", 65536),
        (values.size(0, 1 << 40), "1.5G", None),
        (values.size(0, 100), 101, None),
        (values.seconds(0, 1e6), "500ms", 0.5),
        (values.seconds(0, 1e6), "2h", 7200.0),
        (values.seconds(0, 1e6), True, None),
        (values.number(0, 1), 0.25, 0.25),
        (values.number(0, 1), "0.25", None),
        (values.flag, True, True),
        (values.flag, "true", None),
        (values.names, "a", ("a",)),
        (values.names, ["a", "b"], ("a", "b")),
        (values.names, ["a", "a"], None),
        (values.names, [], None),
        (values.function, "app.flights:delays", "app.flights:delays"),
        (values.function, "app.flights", None),
        (values.master, "local", "local"),
        (values.master, "local[*, 3]", "local[*, 3]"),
        (values.master, "local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        (values.master, "spark://a:7077,b:7078", "spark://a:7077,b:7078"),
        (values.master, "yarn", "yarn"),
        (values.master, "spark://a", None),
        (values.master, "mesos://a:1", None),
        (values.master, 7, None),
        (values.path, "hdfs://host/x", "hdfs://host/x"),
        (values.path, "/x", "/x"),
        (values.path, "x", "folder/x"),
        (values.moment, "yesterday", None),
    ],
)
def test_a_value_is_what_is_meant_or_refused_with_what_is_allowed(
    check: values.Check, value: object, meant: object
) -> None:
    if meant is None:
        with pytest.raises(ValueError, match=r"."):
            check(value, Path("folder"))
    else:
        assert check(value, Path("folder")) == meant
