"""Bringing back the queues whose segments are gone.

What each queue holds is decided from the files alone: `plan`. Then those without a segment
are made anew, under the registry lock, and nobody sees one before it is whole. The files
stay as they are, and the writer goes on behind them, so that a recovery that is killed
begins again with what the last one found.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, field

from shmq.core import _core
from shmq.errors import DamagedFile, ShmqError
from shmq.names import check_name
from shmq.persistence import erasing
from shmq.persistence.catalog import Files, aside, catalog, unfinished
from shmq.persistence.chain import Chain, chain_of
from shmq.persistence.directory import DataDirectory
from shmq.persistence.disk import Disk
from shmq.persistence.rebuilding import rebuild
from shmq.registry import Namespace

__all__ = ["Decision", "plan", "recover"]

log = logging.getLogger("shmq")


@dataclass(slots=True)
class Decision:
    """What the files of one queue come to."""

    queue: str
    files: Files
    chain: Chain | None = None
    #: What it holds; None if nothing was ever finished, or the files are damaged.
    replay: _core.Replay | None = None
    #: What is wrong with them; None if they are whole.
    error: ShmqError | None = None
    #: What was left out, where intact pieces were asked for.
    problems: list[str] = field(default_factory=list)


def plan(
    disk: Disk, queues: Collection[str] | None = None, *, salvage: bool = False
) -> dict[str, Decision]:
    """What the queues of the directory hold, or those of ``queues``, by name.

    Changes nothing, and needs no shared memory. A message that was on its way between two
    queues, and is in the files of both, is where it was going. With ``salvage``, damaged
    files count as far as they are intact.
    """
    found = catalog(disk.names())
    decisions = {
        name: _decide(disk, files, salvage=salvage)
        for name, files in found.items()
        if files.snapshot or files.segments
    }
    _settle_moves(decisions)
    return {name: one for name, one in decisions.items() if queues is None or name in queues}


def _decide(disk: Disk, files: Files, *, salvage: bool) -> Decision:
    decision = Decision(files.queue, files)
    try:
        decision.chain = chain_of(disk, files)
        if decision.chain is not None:
            paths = [str(disk.path(name)) for name in decision.chain.names]
            decision.replay = _core.Replay(paths, salvage)
            decision.problems = decision.replay.problems
    except ShmqError as error:
        decision.error = error
    return decision


def _settle_moves(decisions: dict[str, Decision]) -> None:
    """Let each message that is in two queues be in the one that it went to."""
    whole = [one.replay for one in decisions.values() if one.replay is not None]
    by_id = {queue_id: replay for replay in whole for queue_id in replay.queue_ids}
    for replay in whole:
        for origin_queue, origin_seq in replay.origins():
            source = by_id.get(origin_queue)
            if source is not None and source is not replay:
                source.discard([origin_seq])
