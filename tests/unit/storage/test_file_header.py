"""The header and the end of a file: what is written is read, and nothing else."""

from __future__ import annotations

import itertools
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shmq
from shmq.disk.storage.file_header import BATCH_BYTES, JOURNAL, FileHeader, read_header
from shmq.native import _core
from shmq.native._core import pack_batch, pack_record, read_record, seal_records
from tests.support.queue_files import SALT, WALL, Building, put, settle

U64 = st.integers(0, 2**64 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
NS = I64.filter(bool)


def test_a_header_is_read_as_it_was_packed() -> None:
    header = Building().header
    raw = header.pack()
    assert len(raw) % 8 == 0
    assert read_header(raw + b"what follows", "f") == (header, len(raw))


@given(U64, U64, U64, U64, I64, st.text(max_size=30))
def test_any_header_is_read_as_it_was_packed(
    queue_id: int, hash_key: int, number: int, end: int, created: int, name: str
) -> None:
    header = FileHeader(
        kind=JOURNAL, name=name, options={"ttl": None, "capacity": 3}, salt=1, queue_id=queue_id,
        hash_key=hash_key, number=number, previous_end=end, created=created, first_batch=end,
    )  # fmt: skip
    assert read_header(header.pack(), "f")[0] == header


def test_no_bit_of_a_header_can_be_flipped_unseen() -> None:
    raw = Building().header.pack()
    for bit in range(len(raw) * 8):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(shmq.FileError, match="f "):
            read_header(flipped, "f")


def test_a_header_that_is_cut_off_says_so() -> None:
    raw = Building().header.pack()
    for cut in range(len(raw)):
        with pytest.raises(shmq.DamagedFile) as caught:
            read_header(raw[:cut], "a/file")
        assert caught.value.path == "a/file"
        assert caught.value.offset <= cut


@pytest.mark.parametrize("raw", [b"", bytes(4096)])
def test_a_file_that_was_never_written_has_no_header(raw: bytes) -> None:
    with pytest.raises(shmq.DamagedFile, match="f is damaged at byte 0: it has no header"):
        read_header(raw, "f")


def test_a_newer_version_is_refused_with_its_number() -> None:
    raw = bytearray(Building().header.pack())
    raw[4:6] = (2).to_bytes(2, "little")
    with pytest.raises(shmq.IncompatibleFile, match="format version 2, and this shmq reads up to"):
        read_header(raw, "f")


def test_another_file_is_refused_with_what_it_begins_with() -> None:
    with pytest.raises(
        shmq.IncompatibleFile, match=r"is not a \.dmsq file: it starts with b'PAR1'"
    ):
        read_header(b"PAR1" + bytes(100), "f")


FIELDS = st.fixed_dictionaries(
    {
        "seq": st.integers(1, 2**64 - 1),
        "deliveries": st.integers(0, 65535),
        "priority": st.integers(0, 15),
        "codec": st.integers(0, 255),
        "put_at": I64,
        "body": st.binary(max_size=100),
        "meta": st.binary(max_size=40),
    },
    optional={
        "group": st.integers(1, 2**64 - 1),
        "expires": NS,
        "origin_queue": st.integers(1, 2**64 - 1),
    },
)
STATE: st.SearchStrategy[dict[str, object]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"until": NS, "holds": st.booleans()}),
    st.fixed_dictionaries({"reason": st.integers(1, 3), "dead_at": NS}),
)


@given(FIELDS, STATE)
def test_any_message_is_read_as_it_was_packed(fields: dict, state: dict) -> None:  # type: ignore[type-arg]
    fields = {**fields, **state}
    if "origin_queue" in fields:
        fields["origin_seq"] = 3
    raw = pack_record("put", SALT, **fields)
    assert read_record(b"x" * 8 + raw, 8, SALT) == ("ok", "put", len(raw), fields)


@given(st.lists(U64), st.lists(st.tuples(U64, U64, U64, I64)))
def test_any_entries_are_read_as_they_were_packed(
    seqs: list[int], taken: list[tuple[int, int, int, int]]
) -> None:
    for kind, entries in (("settle", seqs), ("dedupe", taken)):
        raw = pack_record(kind, SALT, entries=entries)
        assert read_record(raw, 0, SALT)[3] == {"entries": entries}


def test_a_field_that_a_record_has_not_is_refused() -> None:
    with pytest.raises(TypeError, match="a record has no field 'colour'"):
        pack_record("put", SALT, seq=1, colour=2)


def test_entries_of_another_type_are_refused() -> None:
    with pytest.raises(ValueError, match="no entries of a record of type 'dedupe'"):
        pack_record("dedupe", SALT, entries=[1, 2])
    with pytest.raises(ValueError, match="no entries of a record of type 'put'"):
        pack_record("put", SALT, seq=1, entries=[1])


def test_what_is_no_whole_record_is_not_sealed() -> None:
    cut = bytearray(pack_record("settle", 1, entries=[1, 2]))[:-8]
    sealed = bytearray(cut)
    seal_records(sealed, 2)
    assert sealed == cut


def test_records_sealed_anew_are_those_of_the_other_file() -> None:
    records = bytearray(pack_record("put", 1, seq=1, body=b"x") + pack_record("settle", 1))
    assert read_record(records, 0, 2)[0] == "crc"
    seal_records(records, 2)
    assert read_record(records, 0, 2)[:2] == ("ok", "put")
    assert read_record(records, 0, 1)[0] == "crc"


def test_a_batch_says_what_follows_it() -> None:
    records = pack_record("settle", SALT, entries=[1])
    head = pack_batch(records, SALT, 9, WALL, 11)
    assert len(head) == BATCH_BYTES
    assert read_record(head, 0, SALT)[3] == {
        "batch": 9, "wall": WALL, "last_seq": 11, "bytes": 32 - 8, "crc": _core.crc32c(records),
    }  # fmt: skip


def test_a_closed_file_ends_with_where_its_batches_are() -> None:
    file = Building()
    for seq in range(1, 200):
        file.batch(put(seq, bytes(1000)), settle(seq))
    end = len(file.data)
    file.close()
    assert _core.closed_at(file.data, file.start, SALT) == end
    how, kind, size, fields = read_record(file.data, end, SALT)
    assert (how, kind) == ("ok", "end")
    assert fields == {"batch": 199, "last_seq": 199, "batches": 199, "puts": 199}
    places = read_record(file.data, end + size, SALT)[3]["entries"]
    offsets = [place[0] for place in places]
    assert offsets[0] == file.start and len(offsets) == 4
    assert all(later - one >= 65536 for one, later in itertools.pairwise(offsets))
    for offset, batch, _ in places:
        assert read_record(file.data, offset, SALT)[3]["batch"] == batch


def test_an_error_of_a_file_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(shmq.DamagedFile("f", 3, "why")))
    assert (error.path, error.offset, error.what) == ("f", 3, "why")
