"""The example of a site: its parts work, and go on working while its processes are killed.

``SITE_SECONDS=300`` makes the kills go on for longer. The counts are printed (``pytest -s``).
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import dataclasses
import html
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

import shmq
from tests.support.celery_worker import celery_environment
from tests.support.ended_processes import kill_groups, runs
from tests.support.processes import ROOT
from tests.support.server import fixed_port
from tests.support.shell import Shell
from tests.support.waiting import PATIENCE, eventually

#: For how long processes are killed, and the longest pause between two kills, in seconds.
SECONDS = float(os.environ.get("SITE_SECONDS", "20"))
PAUSE = 2.0
MEMBERS, SPEAKERS, VISITORS = 6, 3, 3
#: How many orders a visitor places before it waits for them.
ORDERS = 5

COMMANDS = {
    "web": "uvicorn --workers 2 --lifespan off --log-level warning examples.site.asgi:application",
    "tasks": "examples.site.manage shmq_worker --processes 2",
    "celery": "celery -A examples.site worker --concurrency 2",
}


class Site:
    """The processes of the example, as its page starts them."""

    def __init__(self, namespace: str, folder: Path) -> None:
        self.namespace = namespace
        self.port = fixed_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.kills: Counter[str] = Counter()
        self._folder = folder
        self._current: dict[str, psutil.Popen] = {}
        #: Killed ones are reaped at the end, so that their process groups keep their numbers.
        self._started: list[psutil.Popen] = []

    def start(self, part: str) -> None:
        """Start a part; its log goes on."""
        command = COMMANDS[part].split()
        if part == "web":
            command += ["--port", str(self.port)]
        with (self._folder / f"{part}.log").open("ab") as log:
            process = psutil.Popen(
                [sys.executable, "-m", *command],
                cwd=ROOT,
                env=celery_environment(SHMQ_NAMESPACE=self.namespace),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._current[part] = process
        self._started.append(process)

    def _processes(self, part: str) -> list[psutil.Process]:
        """Those that serve the part; of uvicorn, without the one that has the port."""
        main = self._current[part]
        children: list[psutil.Process] = main.children(recursive=True)
        if part != "web":
            return [main, *children]
        return [child for child in children if "spawn_main" in " ".join(child.cmdline())]

    def kill_one(self, chance: random.Random) -> None:
        """Kill a process of any part; a main process is started again."""
        part = chance.choice(list(COMMANDS))
        with contextlib.suppress(psutil.NoSuchProcess):
            if processes := self._processes(part):
                victim = chance.choice(processes)
                os.kill(victim.pid, 9)
                self.kills[part] += 1
                if victim.pid == self._current[part].pid:
                    self.kills[f"{part} (main)"] += 1
                    self.start(part)

    def stop(self) -> None:
        """End all parts as a service manager does; those of killed ones end by themselves."""
        for process in self._current.values():
            process.terminate()
        for part, process in self._current.items():
            assert process.wait(PATIENCE) == 0, part
        pids = {process.pid for process in self._started}

        def left() -> list[int]:
            return [pid for pid in psutil.pids() if runs(pid) and _session(pid) in pids]

        eventually(lambda: not left(), "all processes of the site end", pause=0.1)

    def close(self) -> None:
        """Kill what still runs."""
        kill_groups(self._started)

    def logs(self) -> str:
        """The end of each log."""
        files = sorted(self._folder.glob("*.log"))
        return "\n".join(f"{file}:\n{file.read_text(errors='replace')[-6000:]}" for file in files)


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


@pytest.fixture
def site(namespace: str, tmp_path: Path) -> Iterator[Site]:
    site = Site(namespace, tmp_path)
    try:
        for part in COMMANDS:
            site.start(part)
        yield site
    finally:
        site.close()
        print(site.logs())


# ---- visitors of the chat ----


@dataclasses.dataclass(eq=False)
class Member:
    """A connection to the chat."""

    connection: ClientConnection
    process: int
    is_alive: bool = True
    received: Counter[str] = dataclasses.field(default_factory=Counter)


class Crowd:
    """Members of a room, each of which joins again when its process is killed."""

    def __init__(self, site: Site) -> None:
        self._url = site.url.replace("http", "ws") + "/chat/lobby/"
        self._origin: Any = site.url
        self._changed = asyncio.Condition()
        self.members: list[Member] = []
        #: How many messages their senders have seen, and to how many members they went.
        self.acknowledged = self.delivered = 0
        self._numbers = iter(range(1 << 60))

    @property
    def present(self) -> list[Member]:
        """Those whose connection lives."""
        return [member for member in self.members if member.is_alive]

    async def stay(self) -> None:
        """Be a member, again and again."""
        while True:
            with contextlib.suppress(OSError, WebSocketException):
                async with connect(
                    self._url, origin=self._origin, proxy=None, ping_interval=None
                ) as connection:
                    await self._read(connection)
            await asyncio.sleep(0.05)

    async def _read(self, connection: ClientConnection) -> None:
        member = Member(connection, json.loads(await connection.recv())["process"])
        self.members.append(member)
        try:
            await self._notify()
            async for frame in connection:
                member.received[json.loads(frame)["text"]] += 1
                await self._notify()
        finally:
            member.is_alive = False
            await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Return once the condition holds of the members."""
        try:
            async with asyncio.timeout(PATIENCE), self._changed:
                await self._changed.wait_for(condition)
        except TimeoutError:
            raise AssertionError(f"never happened: {what}") from None

    async def say(self, chance: random.Random) -> bool:
        """Send a message; whether its sender saw it, and then all that are there got it, too."""
        text = f"message {next(self._numbers)}"
        present = self.present
        if not present:
            return False
        sender = chance.choice(present)
        with contextlib.suppress(WebSocketException):
            await sender.connection.send(json.dumps({"text": text}))

        def got(member: Member) -> bool:
            return text in member.received or not member.is_alive

        await self.until(lambda: got(sender), f"the sender sees {text!r}")
        if text not in sender.received:
            return False
        await self.until(lambda: all(map(got, present)), f"all members get {text!r}")
        self.acknowledged += 1
        self.delivered += sum(text in member.received for member in present)
        return True

    def check(self) -> None:
        """No member got a message twice."""
        doubled = [
            Counter(member.received) - Counter(set(member.received)) for member in self.members
        ]
        assert not any(doubled), doubled


# ---- visitors of the shop ----


class Visitor:
    """A visitor with a session, who asks again when a process is killed."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self.visits = self._unknown = 0
        self.done = 0

    async def _ask(self, method: str, path: str, **more: Any) -> httpx.Response | None:
        """The answer; None if the process was killed before it."""
        try:
            answer = await self._client.request(method, path, **more)
        except httpx.TransportError:
            await asyncio.sleep(0.05)
            return None
        assert answer.status_code == 200, answer.text[-3000:]
        return answer

    async def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """The first answer."""
        async with asyncio.timeout(PATIENCE):
            while (answer := await self._ask(method, path, **more)) is None:
                self._unknown += 1
            return answer

    async def visit(self) -> str:
        """The page; the session has counted each visit, if there was one whose answer was lost."""
        self._unknown = 0
        page = (await self.ask("GET", "/")).text
        found = re.search(r"number <b>(\d+)</b>", page)
        assert found, page
        visits = int(found[1])
        assert self.visits < visits <= self.visits + 1 + self._unknown
        self.visits = visits
        return page

    async def order(self, count: int = 1) -> str:
        """Place an order; where it is shown."""
        headers = {"X-CSRFToken": self._client.cookies["csrftoken"]}
        data = {"item": "tea", "count": str(count)}
        return str((await self.ask("POST", "/orders/", data=data, headers=headers)).json()["order"])

    async def follow(self, order: str) -> None:
        """Return once both tasks of the order are done."""
        async with asyncio.timeout(PATIENCE * 2):
            while True:
                state = (await self.ask("GET", order)).json()
                if state == {"packed": "SUCCESSFUL", "paid": "SUCCESS"}:
                    self.done += 1
                    return
                assert not {"FAILED", "FAILURE", "REVOKED"} & set(state.values()), (order, state)
                await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def visitor(site: Site) -> AsyncIterator[Visitor]:
    async with httpx.AsyncClient(base_url=site.url, timeout=PATIENCE, trust_env=False) as client:
        yield Visitor(client)


def _ledger(page: str) -> dict[str, int]:
    found = re.search(r"So far: (.*)</p>", page)
    assert found, page
    return dict(ast.literal_eval(html.unescape(found[1])))


def _is_clean(site: Site) -> None:
    """Nothing is left of processes, neither killed ones nor those that have ended."""
    with shmq.connect(site.namespace) as broker:
        with broker.lock("ledger", timeout=PATIENCE):
            pass
        assert not [found for found in broker.list_locks() if found.holders]
        broker.list_queues()
        names = broker.queue_names()
    assert names == ["celery", "celery.dlq", "django.default", "django.default.dlq"]
    assert "nothing is left behind" in Shell(site.namespace)("doctor").text


def test_the_parts_of_the_site_work_together(site: Site) -> None:
    async def main() -> None:
        crowd = Crowd(site)
        async with asyncio.TaskGroup() as group, visitor(site) as ada:
            staying = [group.create_task(crowd.stay()) for _ in range(MEMBERS)]
            while len({member.process for member in crowd.present}) < 2:
                staying.append(group.create_task(crowd.stay()))
                await crowd.until(lambda: len(crowd.present) == len(staying), "all are there")
            assert await crowd.say(random.Random(1))
            for task in staying:
                task.cancel()
            opened = [re.search("open since .*;", await ada.visit()) for _ in range(5)]
            assert len({found[0] for found in opened if found}) == 1
            assert ada.visits == 5
            await ada.follow(await ada.order(2))
            assert _ledger(await ada.visit()) == {"tea": 2, "turnover": 8}
        crowd.check()

    asyncio.run(main())
    site.stop()
    _is_clean(site)


@pytest.mark.watchdog(SECONDS + 900)
def test_killed_processes_lose_no_message_no_job_and_no_lock(site: Site) -> None:
    chance = random.Random(7)

    async def speak(crowd: Crowd, stopped: asyncio.Event) -> None:
        while not stopped.is_set():
            await crowd.say(chance)
            await asyncio.sleep(0.02)

    async def shop(stopped: asyncio.Event) -> tuple[int, int]:
        async with visitor(site) as each:
            while not stopped.is_set():
                await each.visit()
                for order in [await each.order() for _ in range(ORDERS)]:
                    await each.follow(order)
            return each.done, each.visits

    async def main() -> None:
        crowd, stopped = Crowd(site), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            staying = [group.create_task(crowd.stay()) for _ in range(MEMBERS)]
            await crowd.until(lambda: len(crowd.present) == MEMBERS, "all are there")
            async with visitor(site) as first:
                await first.visit()
                await first.follow(await first.order())  # so all parts run
            speaking = [group.create_task(speak(crowd, stopped)) for _ in range(SPEAKERS)]
            shopping = [group.create_task(shop(stopped)) for _ in range(VISITORS)]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SECONDS):
                    while True:
                        await asyncio.sleep(chance.uniform(0, PAUSE))
                        site.kill_one(chance)
            stopped.set()
            await asyncio.gather(*speaking)
            shopped = await asyncio.gather(*shopping)
            await crowd.until(lambda: len(crowd.present) == MEMBERS, "all are there again")
            assert await crowd.say(chance)
            async with visitor(site) as last:
                ledger = _ledger(await last.visit())
            for task in staying:
                task.cancel()
        crowd.check()
        done = 1 + sum(each for each, _ in shopped)
        assert ledger["tea"] >= done
        assert ledger["turnover"] >= 4 * done
        print(
            f"{dict(site.kills)} killed; {crowd.acknowledged} messages, {crowd.delivered} "
            f"deliveries, {len(crowd.members)} connections; {done} orders ({ledger}), "
            f"{sum(visits for _, visits in shopped)} visits"
        )

    asyncio.run(main())
    site.stop()
    _is_clean(site)
