"""Users of one host share the namespaces of a group; others cannot use them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support.users import Host, several_users, shared_host

pytestmark = [several_users, pytest.mark.prove]


@pytest.fixture
def host() -> Iterator[Host]:
    with shared_host() as host:
        yield host


def test_what_one_user_makes_another_uses_and_a_third_deletes(host: Host) -> None:
    host.run(
        "web",
        """
        broker = shmq.connect(name)
        broker.create_queue("q", dead_letter=None).put("tea")
        broker.create_queue("bound", dead_letter=None)
        broker.create_exchange("x", "topic").bind("bound", "#")
        broker.create_stream("s", partitions=1).append("first")
        broker.ensure_table("t").set("a", 1)
        """,
        umask=0o077,
    )
    assert host.run(
        "app",
        """
        broker = shmq.connect(name)
        with broker.queue("q").get(timeout=60) as message:
            bodies = [message.body]
        broker.queue("q").put("coffee")
        broker.exchange("x").publish("routed", "key")
        broker.stream("s").append("second")
        broker.table("t").set("b", 2)
        with broker.transaction() as transaction:
            transaction.put(broker.queue("q"), "both")
        broker.alter_queue("q", retry_delay=7.0)
        print(json.dumps([bodies, broker.table("t").get("a")]))
        """,
        umask=0o000,
    ) == [["tea"], 1]
    assert host.run(
        "cron",
        """
        broker = shmq.connect("orders", group=name.split("/")[0])
        queue, bodies = broker.queue("q"), []
        for message in queue.get_many(2):
            bodies.append(message.body)
            message.ack()
        with broker.queue("bound").get(timeout=60) as message:
            bodies.append(message.body)
        bodies += [record.value.decode() for record in broker.stream("s").read(0, 0)]
        found = [bodies, queue.options.retry_delay, broker.table("t").get("b")]
        broker.delete_queue("q")
        broker.delete_queue("bound")
        broker.delete_exchange("x")
        broker.delete_stream("s")
        broker.delete_table("t")
        print(json.dumps(found))
        """,
    ) == [["coffee", "both", "routed", "first", "second"], 7.0, 2]
    assert host.run("web", "print(json.dumps(shmq.connect(name).queue_names()))") == []
    assert list(host.shared.iterdir()) == []


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_every_file_is_the_groups_whatever_the_umask(host: Host, umask: int) -> None:
    host.run(
        "web",
        """
        broker = shmq.connect(name)
        broker.create_queue("q", durability="snapshot", dead_letter=None).put("tea")
        broker.create_exchange("x", "topic").bind("q", "#")
        broker.create_stream("s", partitions=1)
        broker.stream("s").group("g")
        broker.ensure_table("t").set("a", 1)
        broker.ensure_table("d", "disk").set("a", 1)
        broker.lock("nightly").acquire()
        """,
        umask=umask,
        SHMQ_AUTOSTART="0",
    )
    wrong = {
        path: f"{mode:04o}, {gid}"
        for folder in (host.shared, host.state)
        for path, (mode, gid) in host.modes(folder).items()
        if gid != host.gid or mode not in {0o660, 0o2770}
    }
    assert wrong == {}


def test_a_lock_of_a_user_who_dies_goes_to_another(host: Host) -> None:
    holder = host.hold("web", "lock = shmq.connect(name).lock('nightly'); lock.acquire()")
    held = "lock = shmq.connect(name).lock('nightly'); print(json.dumps(lock.acquire(block=False)))"
    assert host.run("app", held) is False
    holder.kill()
    holder.communicate()
    taken = "lock = shmq.connect(name).lock('nightly'); print(json.dumps(lock.acquire(timeout=60)))"
    assert host.run("app", taken) is True


def test_a_group_of_a_stream_has_members_of_several_users(host: Host) -> None:
    host.run(
        "web", "shmq.connect(name).create_stream('s', partitions=1).append_many(['1', '2', '3'])"
    )
    read = """
with shmq.connect(name).stream('s').group('g').join() as member:
    [records] = member.poll(1, timeout=60)
    member.commit()
    print(json.dumps([record.value.decode() for record in records]))
"""
    assert [host.run(user, read) for user in ("app", "cron", "web")] == [["1"], ["2"], ["3"]]


def test_a_writer_of_one_user_is_followed_by_one_of_another(host: Host) -> None:
    put = "shmq.connect(name).ensure_queue('d', durability='journal').put({}, confirm='disk')"
    starts = "\nprint(json.dumps(shmq.connect(name).queue('d').qsize()))"
    assert host.run("web", put.format(1) + starts) == 1
    assert "'d'" in host.shell("app", "-n", host.namespace, "snapshot")  # its writer is web's
    host.end_writer()
    assert host.run("app", put.format(2) + starts) == 2
    host.end_writer()
    assert host.run("root", put.format(3) + starts) == 3


def test_a_directory_that_only_root_can_make_is_an_error_that_says_how(host: Host) -> None:
    (host.owned).rmdir()
    said = host.fail("web", "shmq.connect(name).ensure_table('t', 'disk')")
    assert f"install -d -g {host.gid} -m 2770 {host.owned}" in said
    host.run("root", "shmq.connect(name).ensure_table('t', 'disk').set('a', 1)")
    assert host.run("web", "print(json.dumps(shmq.connect(name).table('t').get('a')))") == 1


def test_one_opens_a_table_as_another_does(host: Host) -> None:
    host.run("web", "shmq.connect(name).ensure_table('t').set('a', 1)")
    code = """
for _ in range(300):
    with shmq.connect(name) as broker:
        broker.table('t').get('a')
"""
    others = [host.start(user, code, umask=0o077) for user in ("web", "app", "cron")]
    assert [each.communicate(timeout=60)[1] for each in others] == ["", "", ""]


def test_after_the_loss_of_the_memory_another_user_recovers_it(host: Host) -> None:
    put = "shmq.connect(name).ensure_queue('d', durability='journal').put(1, confirm='disk')"
    host.run("web", put)
    host.end_writer()
    for path in host.shared.iterdir():
        path.unlink()
    host.shared.rmdir()
    got = "print(json.dumps(shmq.connect(name).queue('d').get(timeout=60).body))"
    assert host.run("cron", got) == 1


def test_an_outsider_is_told_the_group_and_what_to_do(host: Host) -> None:
    for _ in range(2):  # before there is a folder, and when there is one
        said = host.fail("stranger", "shmq.connect(name)")
        assert said.startswith("shmq.errors.ForeignSegment: user stranger is not in group")
        assert f"usermod -aG {host.group} stranger" in said
        host.run("web", "shmq.connect(name).create_queue('q', dead_letter=None)")
    said = host.fail("stranger", f"os.listdir({str(host.shared)!r})")
    assert said.startswith("PermissionError")


def test_an_unknown_group_is_an_error_with_the_nearest(host: Host) -> None:
    said = host.fail("web", "shmq.connect('orders', group=name.split('/')[0] + 'x')")
    assert f"did you mean {host.group!r}?" in said


@pytest.mark.parametrize("kind", ["directory", "link", "file", "open"])
def test_a_folder_that_is_not_the_groups_is_refused(host: Host, kind: str) -> None:
    if kind == "link":
        host.shared.symlink_to(host.owned)
    elif kind == "file":
        host.shared.touch()
    else:
        host.shared.mkdir()
        if kind == "open":
            os.chown(host.shared, -1, host.gid)
            host.shared.chmod(0o2777)
        else:
            os.chown(host.shared, 60009, 60009)
            host.shared.chmod(0o2770)
    said = host.fail("web", "shmq.connect(name)")
    assert f"{host.shared} is not the folder of group {host.group!r}" in said
    assert "let root remove it" in said
    if kind == "file":
        host.shared.unlink()


def test_the_command_finds_the_namespaces_of_groups(host: Host) -> None:
    host.run("web", "shmq.connect(name).create_queue('q', dead_letter=None).put(1)")
    assert "q" in host.shell("app", "-n", host.namespace, "list")
    assert "q" in host.shell("app", "list", SHMQ_GROUP=host.group, SHMQ_NAMESPACE="orders")
    assert f"{host.namespace}  q" in host.shell("app", "doctor")


def test_who_shows_the_user(host: Host) -> None:
    holder = host.hold("web", "queue = shmq.connect(name).create_queue('q', dead_letter=None)")
    assert "web" in host.shell("app", "-n", host.namespace, "who", "q")
    holder.communicate("\n")
