"""``shmq table``, and tables in ``list``-like commands: backup, restore, fsck, doctor."""

from __future__ import annotations

from pathlib import Path

import pytest

import shmq
from shmq.cli.shared.exit_codes import Code
from shmq.client.local.table import LocalTable
from tests.system.cli.conftest import Quick


@pytest.fixture
def table(broker: shmq.Broker) -> shmq.Table:
    return broker.ensure_table("results")


def file_of(table: shmq.Table) -> Path:
    assert isinstance(table, LocalTable)
    return table.database.path


def test_what_is_made_and_set_is_got_listed_and_deleted(quick: Quick, broker: shmq.Broker) -> None:
    made = quick("table", "create", "limits", "--durability", "disk", "--max-bytes", "1MiB")
    assert made.text.startswith("table 'limits' (disk) is ready in namespace 'test-")
    assert quick("table", "set", "limits", "a", "one").text == "'a' is set in table 'limits'\n"
    quick("table", "set", "limits", "b", "--codec", "json", stdin=b'{"n": [1, null]}')

    assert quick("table", "get", "limits", "a").text == "one\n"
    assert quick("table", "get", "limits", "b", "--json").json == {
        "table": "limits",
        "key": "b",
        "value": {"n": [1, None]},
        "encoding": "json",
    }
    assert quick("table", "list", "--json").json == [
        {"table": "limits", "durability": "disk", "max_bytes": 1 << 20, "keys": 2, "problem": None}
    ]
    assert (
        quick("table", "delete", "limits", "a", "x").text == "1 key deleted from table 'limits'\n"
    )
    assert broker.table("limits").keys() == ["b"]
    assert quick("table", "delete", "limits", "--yes").text == "table 'limits' is deleted\n"
    assert broker.list_tables() == []


def test_what_is_not_there_ends_with_its_code(quick: Quick, table: shmq.Table) -> None:
    assert quick("table", "get", "results", "k", code=Code.NOTHING).text == ""
    assert quick("table", "get", "results", "k", "--wait", "1ms", code=Code.NOTHING).text == ""
    assert quick("table", "keys", "results", code=Code.NOTHING).text == ""
    assert quick("table", "delete", "results", "k", code=Code.NOTHING).text.startswith("0 keys")
    assert (
        "table 'nowhere' does not exist"
        in quick("table", "get", "nowhere", "k", code=Code.NO_QUEUE).error
    )
    assert "--yes" in quick("table", "delete", "results", code=Code.USAGE).error
    table.set("k", 1)
    quick("table", "set", "results", "k", "2", "--add", code=Code.EXISTS)
    assert table.get("k") == 1


def test_keys_come_sorted_by_prefix_and_in_pages(quick: Quick, table: shmq.Table) -> None:
    table.set_many({"job-1": 1, "job-2": 2, "job-3": 3, "other\n": 4})

    assert quick("table", "keys", "results", "--prefix", "job-").text == "job-1\njob-2\njob-3\n"
    paged = quick("table", "keys", "results", "--after", "job-1", "--limit", "1", "--json")
    assert paged.json == ["job-2"]
    assert len(quick("table", "keys", "results").text.splitlines()) == 4


def test_values_are_shown_as_text_bytes_or_json(quick: Quick, table: shmq.Table) -> None:
    table.set_many({"bytes": b"\xff", "map": {"a": 1}, "text": "ä"})

    assert quick("table", "get", "results", "text").text == "ä\n"
    assert quick("table", "get", "results", "map").text == '{"a":1}\n'
    assert quick("table", "get", "results", "bytes", "--json").json["encoding"] == "base64"
    refused = quick("table", "set", "results", "k", "--codec", "json", "{", code=Code.REFUSED)
    assert "not JSON" in refused.error


def test_a_value_expires_after_its_ttl(quick: Quick, table: shmq.Table) -> None:
    quick("table", "set", "results", "k", "x", "--ttl", "1ms")
    quick("table", "set", "results", "kept", "x", "--ttl", "1h")

    assert table.wait("kept", 1.0) == "x"
    assert quick("table", "keys", "results").text == "kept\n"


def test_a_damaged_table_is_listed_with_its_problem_and_deleted(
    quick: Quick, table: shmq.Table
) -> None:
    path = file_of(table)
    table.close()
    path.write_bytes(b"no database" * 1000)

    (listed,) = quick("table", "list", "--json").json
    assert (listed["table"], listed["keys"]) == ("results", None)
    assert "damaged" in listed["problem"]
    assert "damaged" in quick("table", "list").text
    checked = quick("fsck", "--json", code=Code.SEGMENT).json
    assert [(one["name"], one["state"]) for one in checked] == [("tables/results", "damaged")]
    quick("table", "delete", "results", "--yes")


def test_fsck_reads_tables(quick: Quick, broker: shmq.Broker, table: shmq.Table) -> None:
    broker.ensure_table("kept", "disk").set_many({f"k{n}": bytes(500) for n in range(200)})
    table.set("k", 1)
    checked = quick("fsck", "--json").json
    assert [(one["name"], one["state"]) for one in checked] == [
        ("tables/kept", "sound"),
        ("tables/results", "sound"),
    ]
    kept = broker.table("kept")
    path = file_of(kept)
    kept.close()
    broker.close()
    raw = bytearray(path.read_bytes())
    raw[4096 * 8 :] = b"\xa5" * (len(raw) - 4096 * 8)
    path.write_bytes(raw)

    checked = quick("fsck", "--json", code=Code.SEGMENT).json
    assert {one["name"]: one["state"] for one in checked}["tables/kept"] == "damaged"


def test_tables_on_disk_are_backed_up_and_restored(
    quick: Quick, broker: shmq.Broker, table: shmq.Table, tmp_path: Path
) -> None:
    kept = broker.ensure_table("kept", "disk", max_bytes=1 << 20)
    kept.set_many({"a": 1, "b": b"\xff"}, ttl=3600)
    table.set("in memory", 1)
    target = tmp_path / "backup"

    told = quick("backup", str(target), "--json").json
    assert [one["table"] for one in told["tables"]] == ["kept"]
    kept.set("a", 2)
    assert quick("restore", str(target), "--json").json == [
        {"table": "kept", "state": "there", "problems": []}
    ]
    broker.delete_table("kept")
    assert quick("restore", str(target)).text == "table 'kept': restored, with all its keys\n"

    again = broker.table("kept")
    assert again.get_many(["a", "b"]) == {"a": 1, "b": b"\xff"}
    assert (again.durability, again.max_bytes) == ("disk", 1 << 20)
    assert sorted(one.suffix for one in (target / "tables").iterdir()) == [".sqlite"]


def test_a_damaged_copy_is_not_restored(quick: Quick, broker: shmq.Broker, tmp_path: Path) -> None:
    broker.ensure_table("kept", "disk").set_many({f"k{n}": bytes(500) for n in range(200)})
    quick("backup", str(tmp_path / "backup"))
    broker.delete_table("kept")
    (copy,) = (tmp_path / "backup" / "tables").iterdir()
    raw = bytearray(copy.read_bytes())
    raw[4096 * 8 :] = b"\xa5" * (len(raw) - 4096 * 8)
    copy.write_bytes(raw)

    done = quick("restore", str(tmp_path / "backup"), "--json", code=Code.WRONG).json
    assert [(one["table"], one["state"]) for one in done] == [("kept", "damaged")]
    assert broker.list_tables() == []


def test_a_table_that_is_a_link_is_not_restored_and_the_others_are(
    quick: Quick, broker: shmq.Broker, tmp_path: Path
) -> None:
    for name in ("first", "second"):
        broker.ensure_table(name, "disk").set("k", name)
    quick("backup", str(tmp_path / "backup"))
    for name in ("first", "second"):
        broker.delete_table(name)
    (copy,) = (tmp_path / "backup" / "tables").glob("first.*")
    copy.symlink_to(copy.rename(tmp_path / "first"))

    ran = quick("restore", str(tmp_path / "backup"), "--json", code=Code.WRONG).json
    assert [(one["table"], one["state"]) for one in ran] == [
        ("first", "damaged"),
        ("second", "restored"),
    ]
    assert ran[0]["problems"] == [f"{copy} is not a regular file"]
    assert broker.table("second").get("k") == "second"


def test_doctor_removes_what_dead_processes_left_of_tables_and_nothing_else(
    quick: Quick, table: shmq.Table
) -> None:
    table.set("k", 1)
    folder = file_of(table).parent
    left = folder / ".results.00000000000000ff.tmp"
    left.write_bytes(b"left")

    found = quick("doctor", "--json", code=Code.WRONG).json["found"]
    assert [(one["kind"], one["name"], one["fixed"]) for one in found] == [
        ("table", left.name, False)
    ]
    quick("doctor", "--fix")
    assert not left.exists()
    assert quick("doctor", "--json").json["found"] == []
    assert table.get("k") == 1
