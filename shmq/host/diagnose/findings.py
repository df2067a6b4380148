"""What is wrong, or will be soon, in what was observed: in plain words."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from shmq.api.names import is_reply_name, shown_name, staging_target
from shmq.api.stats import QueueStats
from shmq.host.diagnose.activity import (
    GroupActivity,
    HostActivity,
    Observation,
    QueueActivity,
    StreamActivity,
)
from shmq.host.diagnose.journal_problem import FREE_SPACE, START_WRITER
from shmq.units import rate as rate_text

Severity = Literal["critical", "warning", "notice"]

#: The severities, the worst first.
SEVERITIES: Final[tuple[Severity, ...]] = ("critical", "warning", "notice")

#: Messages that nobody takes for this many seconds are a finding.
IDLE_SECONDS: Final = 30.0
#: A writer is behind from so many messages on, or so many seconds of puts at the present rate.
BEHIND_MESSAGES: Final = 10_000
BEHIND_SECONDS: Final = 2.0
#: A writer may always be behind by so many messages: it writes several at once.
BEHIND_AT_LEAST: Final = 100
#: A queue, or its room for bodies, is nearly full from this share on.
NEARLY_FULL: Final = 0.9
#: A group holds up the others if so much of what comes next is its own.
ONE_GROUP: Final = 0.9
#: /dev/shm is nearly full, and as good as full, from these shares on.
SHM_WARNING: Final = 0.9
SHM_CRITICAL: Final = 0.97
#: A group with members is far behind from so many records on.
FAR_BEHIND: Final = 100_000

#: Deliveries fail often from the first share on, and mostly from the second.
OFTEN: Final = 0.05
MOSTLY: Final = 0.5

#: Every code, and what it says.
CODES: Final = {
    "broken": "a queue, stream, group or the exchanges cannot be used",
    "not-written": "a durable queue is not being written to disk",
    "writer-behind": "the writer of a durable queue is far behind",
    "full": "a queue takes no more messages",
    "nearly-full": "a queue is about to be full",
    "no-consumer": "messages wait, and nobody gets any",
    "one-group": "nearly all messages that wait are of one group, and are done one at a time",
    "puts-wait": "processes wait for room in a queue",
    "failing": "many deliveries of a queue fail",
    "dead-letters": "a dead-letter queue has messages",
    "only-delayed": "consumers wait, and all messages are delayed",
    "recovered": "processes died inside an operation, and the queue was repaired",
    "group-without-members": "a group of a stream has records to do, and no member",
    "group-behind": "a group of a stream is far behind",
    "hot-partition": "a partition of a stream gets far more records than the others",
    "shm-full": "/dev/shm is nearly full",
}

#: The one thing to do about each, with the name that a shell takes.
ACTIONS: Final = {
    "broken": "check it: shmq fsck",
    "not-written": START_WRITER,
    "writer-behind": "find out what slows its disk: iostat -x",
    "full": "start more consumers",
    "nearly-full": "start more consumers",
    "no-consumer": "start a consumer: shmq worker MODULE:FUNCTION {name}",
    "one-group": "see which group: shmq peek {name}",
    "puts-wait": "start more consumers",
    "failing": "read the errors, and correct the handler: shmq peek {name}",
    "dead-letters": "read the errors, correct the handler, then: shmq redrive {source}",
    "only-delayed": "check the delays of its puts and of its retries",
    "recovered": "find out why the process died: its log, or dmesg",
    "group-without-members": "start a member of the group",
    "group-behind": "start more members of the group",
    "hot-partition": "choose keys that spread better",
    "shm-full": "consume, purge or delete queues, or give it more room",
    "not-observed": "check that the server runs: shmq ping",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that needs attention."""

    #: ``"critical"``: messages may be lost, or work is stopped; ``"warning"``; ``"notice"``.
    severity: Severity
    #: ``"queue"``, ``"stream"``, ``"exchange"`` or ``"host"``.
    kind: str
    #: The name of what it is about.
    subject: str
    #: What was found, as a key of `CODES`.
    code: str
    #: The same in plain words, with the numbers.
    text: str
    #: The one thing to do about it.
    action: str
    #: By how many messages it grows per second, and how many there are; 0 where that is unknown.
    rate: float = 0.0
    count: int = 0
    #: The group of a stream that it is about; None: it is about all of it.
    group: str | None = None


def find(observation: Observation, previous: Observation | None = None) -> list[Finding]:
    """All findings, the worst first; equally severe ones by their rate, then by their count.

    With the ``previous`` observation, totals that have not risen since are no finding, or a
    lesser one.
    """
    before = {one.name: one for one in previous.queues} if previous is not None else {}
    letters = _find_dead_letter_queues(observation)
    found: list[Finding] = []
    for queue in observation.queues:
        found += _check_queue(queue, _match_before(queue, before.get(queue.name)), letters)
    for stream in observation.streams:
        found += _check_stream(stream)
    for exchange in observation.exchanges:
        if exchange.problem is not None:
            found.append(_make_broken("exchange", exchange.name, exchange.problem))
    if observation.host is not None:
        found += _check_host(observation.host)
    found.sort(key=_rank)
    return [_show_subject(one) for one in found]


def _rank(one: Finding) -> tuple[int, float, int, str, str]:
    return SEVERITIES.index(one.severity), -one.rate, -one.count, one.kind, one.subject


def action_of(code: str, name: str, source: str | None = None) -> str:
    """What to do about a finding of that code."""
    shown = {"name": name, "source": source or name}
    return ACTIONS[code].format(**{key: shlex.quote(shown_name(it)) for key, it in shown.items()})


def _show_subject(found: Finding) -> Finding:
    """The finding with the name of its subject as it is shown."""
    text = found.text.replace(repr(found.subject), repr(shown_name(found.subject)))
    return found if text == found.text else dataclasses.replace(found, text=text)


def _find_dead_letter_queues(observation: Observation) -> dict[str, str]:
    """The dead-letter queues, each with the name of a queue whose dead letters it takes."""
    return {
        one.options.dead_letter: one.name
        for one in observation.queues
        if one.options is not None and one.options.dead_letter is not None
    }


def _match_before(queue: QueueActivity, before: QueueActivity | None) -> QueueStats | None:
    """The numbers of the same queue before; None if there are none, or it was recreated."""
    return before.stats if before is not None and before.identity == queue.identity else None


def _make_broken(kind: str, name: str, problem: str) -> Finding:
    return Finding(
        severity="critical",
        kind=kind,
        subject=name,
        code="broken",
        text=f"{kind} {name!r} cannot be used: {problem}",
        action=action_of("broken", name),
    )


# ---- queues ----


def _check_queue(
    queue: QueueActivity, before: QueueStats | None, letters: dict[str, str]
) -> Iterator[Finding]:
    stats = queue.stats
    if queue.problem is not None or stats is None:
        yield _make_broken("queue", queue.name, queue.problem or "it has no numbers")
        return
    rows: list[_QueueFinding | None] = [
        _find_unwritten(queue),
        _find_journal_lag(stats),
        _find_full(queue, stats),
        _find_waiting_puts(stats),
        _find_recovery(stats, before),
        _find_only_delayed(stats),
        _find_dominant_group(queue, stats),
    ]
    source = letters.get(queue.name)
    if source is not None:
        rows.append(_find_dead_letters(queue, stats, source, before))
    elif not is_reply_name(queue.name) and staging_target(queue.name) is None:
        rows += [_find_failures(queue), _find_no_consumer(queue, stats, before)]
    pace = queue.rates
    growth = max(pace.put - pace.acked - pace.dead, 0.0)
    held = stats.depth + stats.delayed + stats.in_flight
    for one in rows:
        if one is not None:
            yield Finding(
                severity=one.severity,
                kind="queue",
                subject=queue.name,
                code=one.code,
                text=one.text,
                action=one.action or action_of(one.code, queue.name, source),
                rate=growth if one.rate is None else one.rate,
                count=held,
            )


class _QueueFinding(NamedTuple):
    """A finding about a queue, before it has the name and the numbers of that queue."""

    severity: Severity
    code: str
    text: str
    #: What to do; empty: that of the code.
    action: str = ""
    #: By how many messages it grows per second; None: as the queue does.
    rate: float | None = None


def _find_unwritten(queue: QueueActivity) -> _QueueFinding | None:
    problem = queue.journal_problem
    if problem is None:
        return None
    action = FREE_SPACE if problem.endswith(FREE_SPACE) else START_WRITER
    text = problem.removesuffix(action).rstrip(":; ")
    return _QueueFinding("critical", "not-written", f"{queue.name!r}: {text}", action)


def _find_journal_lag(stats: QueueStats) -> _QueueFinding | None:
    lag, rate = stats.journal_lag, stats.rate_in
    seconds = lag / rate if rate > 0 else 0.0
    late = lag >= BEHIND_MESSAGES or (lag >= BEHIND_AT_LEAST and seconds >= BEHIND_SECONDS)
    if stats.durability == "memory" or not stats.journal_writer or not late:
        return None
    time = f"{seconds:.1f} s, " if seconds else ""
    held = _format_messages(lag)
    text = f"the writer is behind by {time}{held} of {stats.name!r} that are not on disk"
    return _QueueFinding("warning", "writer-behind", text)


def _find_full(queue: QueueActivity, stats: QueueStats) -> _QueueFinding | None:
    held = stats.depth + stats.delayed + stats.in_flight + stats.dying + stats.journal_waiting
    slots = held / stats.capacity if stats.capacity else 0.0
    room = stats.arena_used / stats.arena_bytes if stats.arena_bytes else 0.0
    if slots >= 1:
        drops = queue.options is not None and queue.options.overflow not in {"reject", "block"}
        what = "each put drops another message" if drops else "it takes no more"
        text = f"{stats.name!r} is full: it holds {_format_messages(held)}, and {what}"
        return _QueueFinding("warning" if drops else "critical", "full", text)
    if max(slots, room) < NEARLY_FULL:
        return None
    of = f"{_format_messages(held)} of {stats.capacity:,}"
    if room > slots:
        of = f"{stats.arena_used:,} of {stats.arena_bytes:,} bytes for bodies"
    return _QueueFinding(
        "warning", "nearly-full", f"{stats.name!r} is {max(slots, room):.0%} full: it holds {of}"
    )


def _find_waiting_puts(stats: QueueStats) -> _QueueFinding | None:
    count = stats.waiting_put
    if not count:
        return None
    waits = "1 put waits" if count == 1 else f"{count:,} puts wait"
    return _QueueFinding("warning", "puts-wait", f"{waits} for room in {stats.name!r}")


def _find_recovery(stats: QueueStats, before: QueueStats | None) -> _QueueFinding | None:
    if not stats.recoveries:
        return None
    times = "once" if stats.recoveries == 1 else f"{stats.recoveries:,} times"
    rises = before is not None and stats.recoveries > before.recoveries
    text = f"{stats.name!r} was repaired {times} after a process died inside an operation"
    return _QueueFinding("warning" if rises else "notice", "recovered", text)


def _find_only_delayed(stats: QueueStats) -> _QueueFinding | None:
    if stats.depth or not stats.waiting_get or not stats.delayed:
        return None
    text = (
        f"consumers of {stats.name!r} wait, and {_wait(stats.delayed)} for a later time: they are "
        f"delayed"
    )
    return _QueueFinding("notice", "only-delayed", text)


def _find_dominant_group(queue: QueueActivity, stats: QueueStats) -> _QueueFinding | None:
    """The group is not named: a finding is shown to those who may not look at messages, too."""
    share = queue.largest_group
    if share is None or not stats.depth or share.messages < ONE_GROUP * share.of:
        return None
    part = share.messages / share.of
    text = (
        f"one group holds {part:.0%} of the next {_format_messages(share.of)} of {stats.name!r}: a "
        f"group's messages are done one after another"
    )
    return _QueueFinding("notice", "one-group", text)


def _find_failures(queue: QueueActivity) -> _QueueFinding | None:
    pace = queue.rates
    failed = pace.failed + pace.expired + pace.rejected
    share = failed / (failed + pace.acked) if failed else 0.0
    if share < OFTEN:
        return None
    each = {"returned": pace.failed, "leases expired": pace.expired, "rejected": pace.rejected}
    parts = ", ".join(f"{rate_text(one)}/s {what}" for what, one in each.items() if one)
    text = f"{queue.name!r} fails {share:.0%} of its deliveries: {parts}"
    return _QueueFinding("warning" if share >= MOSTLY else "notice", "failing", text, "", failed)


def _find_dead_letters(
    queue: QueueActivity, stats: QueueStats, source: str, before: QueueStats | None
) -> _QueueFinding | None:
    count = stats.depth + stats.delayed + stats.in_flight
    if not count:
        return None
    rate = queue.rates.put
    rises = rate > 0 or before is None or stats.put > before.put
    noun = "1 dead letter" if count == 1 else f"{count:,} dead letters"
    text = f"{noun} of {shown_name(source)!r} in {stats.name!r}"
    if rate > 0:
        text += f", {rate_text(rate)}/s more"
    return _QueueFinding("warning" if rises else "notice", "dead-letters", text, "", rate)


def _find_no_consumer(
    queue: QueueActivity, stats: QueueStats, before: QueueStats | None
) -> _QueueFinding | None:
    """No process waits, holds a message or has settled one lately."""
    active = stats.waiting_get or stats.in_flight or stats.rate_out > 0
    settled = before is not None and stats.acked + stats.nacked > before.acked + before.nacked
    if not stats.depth or active or settled or stats.oldest_age < IDLE_SECONDS:
        return None
    attached = len({one.pid for one in queue.attachments if one.alive})
    some = "1 process is" if attached == 1 else f"{attached} processes are"
    verb = "it is" if attached == 1 else "they are"
    who = f"{some} attached, but {verb} not consuming" if attached else "no process is attached"
    text = f"{stats.name!r} has no consumers: {_wait(stats.depth)}, {who}"
    return _QueueFinding("warning", "no-consumer", text)


def _format_messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count:,} messages"


def _wait(count: int) -> str:
    return "1 message is waiting" if count == 1 else f"{count:,} messages are waiting"


# ---- streams, and the host ----


def _check_stream(stream: StreamActivity) -> Iterator[Finding]:
    if stream.problem is not None:
        yield _make_broken("stream", stream.name, stream.problem)
        return
    for group in stream.groups:
        if (found := _check_group(stream, group)) is not None:
            yield found
    if stream.hot:
        numbers = ", ".join(map(str, stream.hot))
        which = f"partition {numbers} gets" if len(stream.hot) == 1 else f"partitions {numbers} get"
        yield Finding(
            severity="notice",
            kind="stream",
            subject=stream.name,
            code="hot-partition",
            text=f"{which} more than 3 times the mean of the {stream.partitions} partitions of "
            f"{stream.name!r}",
            action=action_of("hot-partition", stream.name),
            rate=stream.rate_in,
        )


def _check_group(stream: StreamActivity, group: GroupActivity) -> Finding | None:
    lag = f"{group.total:,} record" + ("" if group.total == 1 else "s")
    severity: Severity = "warning"
    if group.problem is not None:
        severity, code = "critical", "broken"
        text = f"group {group.name!r} of stream {stream.name!r} cannot be used: {group.problem}"
    elif group.total and not group.members:
        code = "group-without-members"
        text = f"group {group.name!r} of stream {stream.name!r} lags by {lag}, and has no member"
    elif group.total >= FAR_BEHIND:
        code = "group-behind"
        members = "1 member" if group.members == 1 else f"{group.members:,} members"
        text = f"group {group.name!r} of stream {stream.name!r}, {members}, lags by {lag}"
    else:
        return None
    return Finding(
        severity=severity,
        kind="stream",
        subject=stream.name,
        code=code,
        text=text,
        action=action_of(code, stream.name),
        rate=stream.rate_in,
        count=group.total,
        group=group.name,
    )


def _check_host(host: HostActivity) -> Iterator[Finding]:
    used = 1 - host.shm_free / host.shm_total if host.shm_total else 0.0
    if used >= SHM_WARNING:
        yield Finding(
            severity="critical" if used >= SHM_CRITICAL else "warning",
            kind="host",
            subject="/dev/shm",
            code="shm-full",
            text=f"/dev/shm is {used:.0%} full: {host.shm_free:,} bytes are free",
            action=action_of("shm-full", "/dev/shm"),
        )
