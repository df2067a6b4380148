"""A job's file: what it may have, and the one error for what it may not."""

from __future__ import annotations

import datetime as dt
import tomllib
from pathlib import Path
from typing import Any

import pytest

from shmq import InvalidOption
from shmq.spark.jobs import catalog, values
from shmq.spark.jobs.archive import Archive

RIGHT = """
checkpoint = "done"
[source.options]
subscribe = "results"
[sink]
path = "archive"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "job.toml"
    path.write_text(text)
    return path


def archive(path: Path) -> Archive:
    config = catalog.load("archive").read(path)
    assert isinstance(config, Archive)
    return config


def test_a_file_has_its_values_and_defaults_and_paths_from_where_it_is(tmp_path: Path) -> None:
    config = archive(written(tmp_path, RIGHT))

    assert config.checkpoint == str(tmp_path / "done")
    assert config.trigger.seconds == 10.0
    assert config.source.format == "shmq"
    assert config.source.options == {"subscribe": "results"}
    assert (config.sink.format, config.sink.mode) == ("parquet", "append")
    assert config.sink.path == str(tmp_path / "archive")
    assert (config.spark.master, config.spark.log, config.spark.conf) == (None, "off", {})


def test_settings_of_spark_may_be_tables_or_have_dots(tmp_path: Path) -> None:
    text = RIGHT + "[spark.conf]\nspark.executor.memory = '4g'\n'spark.ui.enabled' = true\n"

    conf = archive(written(tmp_path, text)).spark.conf

    assert conf == {"spark.executor.memory": "4g", "spark.ui.enabled": "true"}


def test_a_place_is_taken_where_the_file_names_none(tmp_path: Path) -> None:
    job = catalog.load("archive")
    place = {"url": "elsewhere", "token": "secret"}

    filled = job.read(written(tmp_path, RIGHT), place)
    own = job.read(written(tmp_path, RIGHT.replace("[sink]", 'url = "here"\n[sink]')), place)

    assert filled.source.options == {"subscribe": "results", **place}
    assert own.source.options == {"subscribe": "results", "url": "here"}
    assert filled.sink.options == {}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('checkpoint = "done"', ""), "'checkpoint' is missing: Where it remembers"),
        (('checkpoint = "done"', "checkpoint = 7"), "checkpoint = 7 must be a path"),
        (("checkpoint =", "checkpiont ="), "unknown key 'checkpiont': did you mean 'checkpoint'?"),
        (('checkpoint = "done"', 'path = "x"'), "unknown key 'path': it stands in [source]"),
        (("[source", 'trigger = "now"\n[source'), "'now' must be \"available-now\", or a time"),
        (("[source", 'trigger = "-1s"\n[source'), "'-1s' must be \"available-now\", or a time"),
        (("[sink]", "[snik]"), "unknown key 'snik': did you mean 'sink'?"),
        (('path = "archive"', ""), "[sink]: 'path' is missing: the folder of the files in parquet"),
        (('path = "archive"', 'path = ""'), "path = '' in [sink] must be a path"),
        (("[sink]", "[sink]\nmod = 1"), "unknown key 'mod' in [sink]: did you mean 'mode'?"),
        (("[sink]", "[sink]\nmode = 1"), "mode = 1 in [sink] must be one of append, overwrite"),
        (("[sink]", "[sink]\npartition_by = []"), "partition_by = [] in [sink] must be a name"),
        (("[sink]", "[sink]\nformat = 7"), "format = 7 in [sink] must be text"),
        (("[source.options]", "[source]"), "options of the format stand in [source.options]"),
        (("[source.options]", "[sorce.options]"), "unknown key 'sorce': did you mean 'source'?"),
        (("subscribe", "subscirbe"), "[source]: format('shmq') has no option 'subscirbe': did you"),
        (("[sink]", "leaseTimeout = 'long'\n[sink]"), "leaseTimeout='long' must be a time from 1"),
        (("[sink]", "states = 'ready'\n[sink]"), "states='ready' is for spark.read: leave it out"),
        (("[sink]", "minPartitions = [1]\n[sink]"), "minPartitions = [1] is not text, a number"),
        (
            ("[sink]", "kind = 'queue'\nstartingOffsets = 'latest'\n[sink]"),
            "a queue has no offsets to begin",
        ),
        (("[sink]", "[[sink]]"), "sink = [{'path': 'archive'}] must be a table"),
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
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("job", "text", "told"),
    [
        ("triage", "[source]\n[triage]\nlimit = 0", "limit = 0 in [triage] must be a whole number"),
        ("triage", "[source]\n[triage]\nlimit = 'a'", "limit = 'a' in [triage] must be a whole n"),
        ("compact", "[table]\npath='a'\nsize = '1X'", "size = '1X' in [table] must be a size of"),
        ("compact", "[table]\npath='a'\nformat = 'delta'", "format = 'delta' in [table] must be"),
        ("compact", "[spark]\nlog = 'off'", "'table' is missing: What is compacted."),
        ("compact", "[table]\npath='a'\n[spark]\nlog = 'all'", "[spark] must be one of off, error"),
        ("compact", "[table]\npath='a'\n[spark]\nmaster = 'm'", "master = 'm' in [spark] must be"),
    ],
)
def test_a_value_out_of_its_bounds_is_told_with_them(
    tmp_path: Path, job: str, text: str, told: str
) -> None:
    with pytest.raises(InvalidOption) as caught:
        catalog.load(job).read(written(tmp_path, text))
    assert told in str(caught.value)


def test_a_file_that_is_not_there_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"nowhere\.toml: it cannot be read: No such file"):
        archive(tmp_path / "nowhere.toml")


@pytest.mark.parametrize("name", list(catalog.ABOUT))
def test_the_file_to_begin_with_is_right(tmp_path: Path, name: str) -> None:
    job = catalog.load(name)
    text = catalog.template(name)

    job.read(written(tmp_path, text))

    assert catalog.ABOUT[name] in text.splitlines()[0]


@pytest.mark.parametrize("name", list(catalog.ABOUT))
def test_the_file_to_begin_with_has_every_key_and_each_is_right(tmp_path: Path, name: str) -> None:
    job = catalog.load(name)
    lines = []
    for line in catalog.template(name).splitlines():
        bare = line.removeprefix("# ")
        key = bare.split(" = ")[0].strip('"').replace(".", "")
        if bare.startswith("[") or (" = " in bare and key.isidentifier()):
            lines.append(bare)
    everything = "\n".join(lines)

    found = tomllib.loads(everything)

    assert found.keys() == set(job.config.__struct_fields__)
    read_all(job, written(tmp_path, everything))


def read_all(job: Any, path: Path) -> None:
    """Read a file that has every key: keys that exclude each other may be refused, no others."""
    try:
        job.read(path)
    except InvalidOption as error:
        assert "must be" not in str(error)
        assert "unknown" not in str(error)


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
    assert values.Moment.of(value, Path()).at == meant


@pytest.mark.parametrize(
    ("kind", "value", "meant"),
    [
        (values.Size, "64K", 65536),
        (values.Size, 4096, 4096),
        (values.Size, 0, None),
        (values.Size, "1.5", None),
        (values.Seconds, "500ms", 0.5),
        (values.Seconds, "2h", 7200.0),
        (values.Seconds, True, None),
        (values.Seconds, float("nan"), None),
        (values.Seconds, -1, None),
        (values.Names, "a", ("a",)),
        (values.Names, ["a", "b"], ("a", "b")),
        (values.Names, ["a", "a"], None),
        (values.Names, [], None),
        (values.FunctionName, "app.flights:delays", "app.flights:delays"),
        (values.FunctionName, "app.flights", None),
        (values.Master, "local", "local"),
        (values.Master, "local[*, 3]", "local[*, 3]"),
        (values.Master, "local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        (values.Master, "spark://a:7077,b:7078", "spark://a:7077,b:7078"),
        (values.Master, "yarn", "yarn"),
        (values.Master, "spark://a", None),
        (values.Master, "mesos://a:1", None),
        (values.Master, 7, None),
        (values.Location, "hdfs://host/x", "hdfs://host/x"),
        (values.Location, "/x", "/x"),
        (values.Location, "x", "folder/x"),
        (values.Moment, "yesterday", None),
    ],
)
def test_a_value_is_what_is_meant_or_refused_with_what_is_allowed(
    kind: Any, value: object, meant: object
) -> None:
    if meant is None:
        with pytest.raises(ValueError, match=r"."):
            kind.of(value, Path("folder"))
    else:
        assert kind.of(value, Path("folder")) == meant
