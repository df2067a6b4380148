"""``shmq dmsq``: looking into files, and what is said of damage."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import Result
from pyarrow import parquet

import shmq
from shmq.cli import dmsq
from shmq.cli.shared.exit_codes import Code
from shmq.disk.persistence.segment_writer import WriteSizes
from shmq.disk.persistence.stream_journal import StreamJournal
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.map_file import write_map
from shmq.disk.storage.paths import CARD, PRODUCERS
from shmq.disk.storage.queue_files import QueueFiles
from shmq.disk.storage.stream_meta import StreamCard, eras_of, write_card
from shmq.disk.storage.stream_segment import StreamSegment
from tests.support.queue_files import WALL, Building, flip, put, settle
from tests.support.stream_entries import IDENTITY, commit
from tests.system.cli.conftest import Quick

LATER = 4_000_000_000_000_000_000


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A snapshot and a segment of a queue: messages 1 (text), 3 (delayed) and 4 (dead)."""
    meta = b"\x82\xa5group\xa1g\xa7headers\x81\xa1k\x01"
    snapshot = Building.snapshot(1).batch(put(1, b"hello", codec=1, meta=meta), put(2)).close()
    segment = Building(number=1).batch(settle(2), put(3, b"\xff\x00", until=LATER))
    segment.batch(put(4, b"{}", codec=3, reason=1, dead_at=WALL, deliveries=2))
    paths = tmp_path / "q.dmsq", tmp_path / "q@0000000000000001.dmsq"
    for path, file in zip(paths, (snapshot, segment), strict=True):
        path.write_bytes(bytes(file))
    return paths


def test_a_dump_is_what_consume_writes(quick: Quick, files: tuple[Path, Path]) -> None:
    first, delayed, dead = map(json.loads, quick("dmsq", "dump", *map(str, files)).lines)
    assert first == {
        "sequence": 1, "priority": 0, "group": "g", "delivery_count": 0, "codec": "text",
        "headers": {"k": 1}, "properties": {}, "dead": None, "last_error": None,
        "body": "hello", "encoding": "text",
    }  # fmt: skip
    assert (delayed["body"], delayed["encoding"]) == ("/wA=", "base64")
    assert (dead["body"], dead["encoding"]) == ({}, "json")
    assert dead["dead"] == {
        "reason": "rejected", "queue": "q", "deliveries": 2, "at": WALL / 1e9, "error": None,
    }  # fmt: skip


def test_a_dumped_message_has_the_shape_of_a_consumed_one(
    quick: Quick, queue: shmq.Queue, files: tuple[Path, Path]
) -> None:
    queue.put("hello", group="g", headers={"k": 1}, priority=0)
    consumed = quick("consume", "-q", "jobs", "--json").json
    dumped = json.loads(quick("dmsq", "dump", str(files[0])).lines[0])
    assert list(dumped) == list(consumed)
    assert dumped == {**consumed, "delivery_count": 0, "properties": {}}


def test_a_file_without_messages_ends_as_an_empty_queue_does(quick: Quick, tmp_path: Path) -> None:
    path = tmp_path / "q.dmsq"
    path.write_bytes(bytes(Building.snapshot(1).close()))
    assert quick("dmsq", "dump", str(path), code=Code.NOTHING).out == b""


def test_inspect_shows_the_header_and_what_is_in_a_file(
    quick: Quick, files: tuple[Path, Path]
) -> None:
    told = quick("dmsq", "inspect", "--json", str(files[1])).json
    assert (told["kind"], told["queue"], told["number"]) == ("journal segment", "q", 1)
    assert told["types"]["put"]["records"] == 2
    each = quick("dmsq", "inspect", "--json", "--records", str(files[0])).json["records"]
    assert [one["type"] for one in each] == ["batch", "put", "put", "end", "index", "footer"]
    assert sum(one["bytes"] for one in each) + each[0]["offset"] == files[0].stat().st_size
    assert "journal segment" in quick("dmsq", "inspect", str(files[1])).text
    lines = quick("dmsq", "inspect", "--records", str(files[1])).lines
    assert any("settle" in line and "1 entry" in line for line in lines)


def test_verify_finds_whole_files_sound(quick: Quick, files: tuple[Path, Path]) -> None:
    assert [line.split(": ")[1] for line in quick("dmsq", "verify", *map(str, files)).lines] == [
        "sound, 2 messages",
        "sound, 2 messages",
    ]


def test_verify_says_where_the_damage_is(quick: Quick, files: tuple[Path, Path]) -> None:
    data = bytearray(files[0].read_bytes())
    at = data.index(b"hello")
    data[at] ^= 1
    files[0].write_bytes(data)
    told = quick("dmsq", "verify", *map(str, files), code=Code.WRONG).lines
    assert f"{files[0]}: damaged at byte" in told[0]
    assert "sound" in told[1]
    one, _ = quick("dmsq", "verify", "--json", *map(str, files), code=Code.WRONG).json
    assert at - 64 < one["offset"] <= at
    assert str(files[0]) in quick("dmsq", "dump", *map(str, files), code=Code.SEGMENT).error
    ran = quick("dmsq", "dump", "--salvage", *map(str, files))
    assert [json.loads(line)["sequence"] for line in ran.lines] == [3, 4]
    assert "bytes skipped" in ran.error


def test_verify_takes_a_torn_end_for_what_it_is(quick: Quick, files: tuple[Path, Path]) -> None:
    files[1].write_bytes(files[1].read_bytes()[:-8])
    (told,) = quick("dmsq", "verify", str(files[1])).lines
    assert told.endswith("sound, 1 message; its last batch is torn and does not count")


def test_a_newer_version_is_refused_with_its_number(quick: Quick, files: tuple[Path, Path]) -> None:
    data = bytearray(files[0].read_bytes())
    data[4] = 9
    files[0].write_bytes(data)
    for command in ("inspect", "verify", "dump"):
        error = quick("dmsq", command, str(files[0]), code=Code.SEGMENT).error
        assert "format version 9" in error


@pytest.mark.parametrize("suffix", [".arrow", ".parquet"])
def test_an_export_is_a_table_of_the_messages(
    quick: Quick, files: tuple[Path, Path], tmp_path: Path, suffix: str
) -> None:
    out = tmp_path / f"out{suffix}"
    ran = quick("dmsq", "export", *map(str, files), "--to", str(out))
    assert ran.lines == [f"3 messages written to {out}"]
    if suffix == ".parquet":
        made = parquet.read_table(out)
    else:
        with pa.ipc.open_file(out) as reader:
            made = reader.read_all()
    assert made.column("sequence").to_pylist() == [1, 3, 4]
    assert made.column("body").to_pylist() == [b"hello", b"\xff\x00", b"{}"]
    assert made.column("group").to_pylist() == ["g", None, None]
    assert made.column("visible_at").cast("int64").to_pylist() == [None, LATER, None]
    assert json.loads(made.column("dead").to_pylist()[2])["reason"] == "rejected"
    assert list(tmp_path.glob("*.part")) == []


def test_an_export_to_another_kind_of_file_is_refused(
    quick: Quick, files: tuple[Path, Path], tmp_path: Path
) -> None:
    ran = quick("dmsq", "export", str(files[0]), "--to", str(tmp_path / "x.csv"), code=Code.USAGE)
    assert "must end in .arrow or .parquet" in ran.error


def test_two_exports_at_once_to_a_file_do_not_write_into_each_other(
    invoke: Callable[..., Result],
    files: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "x.parquet"
    command = ["dmsq", "export", *map(str, files), "--to", str(out)]
    real = dmsq._split_batches

    def between(chain: QueueFiles) -> Iterator[list[dict[str, Any]]]:
        monkeypatch.undo()
        assert invoke(*command).exit_code == 0
        yield from real(chain)

    monkeypatch.setattr(dmsq, "_split_batches", between)
    ran = invoke(*command)
    assert ran.exit_code == 0, ran.output
    assert parquet.read_table(out).num_rows == 3
    assert list(tmp_path.glob("*.part")) == []


@pytest.mark.parametrize("suffix", [".arrow", ".parquet"])
def test_an_export_that_cannot_be_written_names_its_file(
    quick: Quick, files: tuple[Path, Path], tmp_path: Path, suffix: str
) -> None:
    out = tmp_path / f"nowhere/x{suffix}"
    error = quick("dmsq", "export", *map(str, files), "--to", str(out), code=1).error
    assert error.strip() == f"{out}: No such file or directory"


def test_an_export_without_pyarrow_says_what_to_install(
    invoke: Callable[..., Result],
    files: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    ran = invoke("dmsq", "export", str(files[0]), "--to", str(tmp_path / "x.arrow"))
    assert ran.exit_code == Code.REFUSED
    assert "pip install 'shmq[arrow]'" in ran.output


# ---- files of streams ----


@pytest.fixture
def segments(tmp_path: Path) -> list[Path]:
    """A partition with two segments of 100 records, and a card."""
    own = Disk(tmp_path / "streams" / f"s.{IDENTITY.identity:016x}")
    below = own.under("3")
    below.make()
    journal = StreamJournal(below, IDENTITY, 3, 0, WriteSizes(ahead=4 << 10))
    for first in (0, 100):
        journal.append(commit(first, 60))
        journal.append(commit(first + 60, 40))
        if not first:
            journal.roll()
    journal.abandon()
    write_card(own, IDENTITY, StreamCard({}, eras_of([(1, 0)])))
    return [*sorted(below.directory.iterdir()), own.path("stream.dmsq")]


def test_verify_reads_all_of_a_streams_files(quick: Quick, segments: list[Path]) -> None:
    assert [line.split(": ")[1] for line in quick("dmsq", "verify", *map(str, segments)).lines] == [
        "sound, stream 's', partition 3, 100 records from offset 0 on",
        "sound, stream 's', partition 3, 100 records from offset 100 on",
        "sound, stream 's', 1 partition, 0 groups",
    ]


@pytest.mark.parametrize("at", [20, 3000])
def test_verify_says_which_records_of_a_stream_are_damaged(
    quick: Quick, segments: list[Path], at: int
) -> None:
    flip(segments[0], at)
    one, other, _ = quick("dmsq", "verify", "--json", *map(str, segments), code=Code.WRONG).json
    assert (one["sound"], one["partition"], other["sound"]) == (False, 3, True)
    assert one["offset"] <= max(at, 150)
    lost = [] if at < 3000 else [[18, 19]]
    assert one["lost"] == lost
    told = quick("dmsq", "verify", str(segments[0]), code=Code.WRONG).text
    assert f"{segments[0]}: damaged at byte {one['offset']}: " in told
    assert ("partition 3: the offsets 18 to 18 cannot be read" in told) == bool(lost)


@pytest.mark.parametrize("at", [3000, 9000, -2000])
def test_verify_and_a_read_find_the_same_damage_at_the_same_byte(
    quick: Quick, segments: list[Path], at: int
) -> None:
    flip(segments[0], at)
    with pytest.raises(shmq.DamagedFile) as caught:
        read_through(segments[0])
    (one,) = quick("dmsq", "verify", "--json", str(segments[0]), code=Code.WRONG).json
    assert one["offset"] == caught.value.offset


def read_through(path: Path) -> None:
    """Read the records of the first segment of a partition."""
    segment = StreamSegment(Disk(path.parent), 0)
    offset = 0
    while (block := segment.block(offset, 100, 1 << 20, 0)) is not None:
        offset = block.next


def test_verify_finds_what_is_missing_between_two_files(quick: Quick, segments: list[Path]) -> None:
    segments[0].write_bytes(segments[0].read_bytes()[:12_000])
    told = quick("dmsq", "verify", str(segments[0]), code=Code.WRONG).text
    assert "it ends before offset 100, with which the next file begins" in told
    assert "to 99 cannot be read" in told


@pytest.mark.parametrize("command", ["inspect", "dump"])
def test_a_file_of_a_stream_is_not_called_damaged(
    quick: Quick, segments: list[Path], command: str
) -> None:
    told = quick("dmsq", command, str(segments[0]), code=Code.SEGMENT).error
    assert f"{segments[0]} holds records of a stream, and no messages of a queue" in told


def test_a_salvage_passes_over_a_file_whose_header_says_the_wrong_kind(
    quick: Quick, files: tuple[Path, Path]
) -> None:
    data = bytearray(files[1].read_bytes())
    data[6] = 5
    files[1].write_bytes(data)
    ran = quick("dmsq", "dump", "--salvage", *map(str, files))
    assert len(ran.lines) == 2
    assert "the header's checksum" in ran.err.decode()


def test_verify_checks_the_other_files_of_a_stream(quick: Quick, segments: list[Path]) -> None:
    below = Disk(segments[0].parent)
    write_map(below, PRODUCERS, ".new", IDENTITY.producers(3, 100), {"producers": []})
    path = below.path(PRODUCERS)
    told = quick("dmsq", "verify", str(path)).text
    assert told == f"{path}: sound, the producers of a stream's partition\n"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert "damaged at byte" in quick("dmsq", "verify", str(path), code=Code.WRONG).text


@pytest.mark.parametrize("name", [PRODUCERS, CARD, f"{7:020}.dmsq"])
def test_a_queues_file_is_sound_whatever_it_is_called(
    quick: Quick, files: tuple[Path, Path], name: str
) -> None:
    path = files[0].rename(files[0].with_name(name))
    assert quick("dmsq", "verify", str(path)).text == f"{path}: sound, 2 messages\n"


@pytest.mark.parametrize("command", ["inspect", "dump", "verify"])
def test_a_pipe_is_read_once(quick: Quick, files: tuple[Path, Path], command: str) -> None:
    reader, writer = os.pipe()
    os.write(writer, files[0].read_bytes())
    os.close(writer)
    try:
        assert quick("dmsq", command, f"/dev/fd/{reader}").text
    finally:
        os.close(reader)


def test_verify_finds_a_damaged_card(quick: Quick, segments: list[Path]) -> None:
    flip(segments[2], -1)
    assert "checksum" in quick("dmsq", "verify", str(segments[2]), code=Code.WRONG).text
