"""Messages confirmed on disk: one at a time, from many producers, and 64 per call.

The disk's limit is measured right after what is compared with it: a disk's speed varies.
"""

from __future__ import annotations

from bench.disk import peers
from bench.disk.confirmed import Confirmed
from bench.disk.figures import BATCH, MEDIAN, SIZE
from bench.row import RATE, Row, beside, times

FIGURES = (RATE, MEDIAN)


def row() -> Row:
    """One producer, which waits for each message."""
    ours = Confirmed("shmq put, confirm=disk")
    remote = peers.over_tcp("PRODUCE, flag 0x02")
    others = peers.one_by_one()
    return Row(
        key="disk-one",
        title=f"Put, {SIZE} B, answered once it is on disk, one producer, one at a time",
        contestants=[ours, *peers.raw_one(), remote, *others],
        figures=FIGURES,
        bars=[
            times(ours.label, peers.RAW_ONE, 0.9),
            beside(ours.label, [remote.label, peers.RAW_ZEROS, *peers.labels(others)]),
        ],
        limit="a write and a sync of the disk for each message",
    )


def producers_row() -> Row:
    """64 producers, each waiting for each message; the limit syncs 64 at a time."""
    processes = Confirmed(f"shmq put, confirm=disk, {BATCH} processes", producers=BATCH)
    threads = Confirmed(f"shmq put, confirm=disk, {BATCH} threads", threads=BATCH)
    remote = peers.over_tcp(f"PRODUCE, flag 0x02, {BATCH} connections", connections=BATCH)
    others = peers.producers()
    return Row(
        key="disk-producers",
        title=f"Put, {SIZE} B, answered once it is on disk, {BATCH} producers, one at a time each",
        contestants=[processes, threads, *peers.raw_many(), remote, *others],
        figures=FIGURES,
        bars=[
            beside(processes.label, peers.RAW_MANY),
            beside(threads.label, peers.RAW_MANY),
            beside(processes.label, [remote.label, *peers.labels(others)]),
        ],
        share=2.0,
        limit="a wake-up of each producer, its next call in Python, and the writer's commit, on "
        "two cores: that takes longer than the sync, which they share; threads also hand the "
        "interpreter on. The peers' 64 connections are of one program in C; rows of 1, 8 and 64 "
        "processes compare like with like",
    )


def batch_row() -> Row:
    """One producer with 64 at a time."""
    ours = Confirmed(f"shmq put_many({BATCH}), confirm=disk", batch=BATCH)
    piped = Confirmed(
        f"shmq pipeline({BATCH}), confirm=disk",
        batch=BATCH,
        piped=True,
        note=f"p50 and p99: of {BATCH} puts",
    )
    remote = [
        peers.over_tcp(f"PRODUCE, flag 0x02, {BATCH} in flight", window=BATCH),
        peers.over_tcp(f"PRODUCE_BATCH of {BATCH}, flag 0x02", window=BATCH, batch=BATCH),
    ]
    others = peers.batches()
    return Row(
        key="disk-batch",
        title=f"Put, {SIZE} B, answered once it is on disk, one producer, {BATCH} at a time",
        contestants=[ours, *peers.raw_many(), piped, *remote, *others],
        figures=FIGURES,
        bars=[
            times(ours.label, peers.RAW_MANY, 0.7),
            times(ours.label, peers.labels(others), 2.5),
            beside(piped.label, peers.RAW_MANY),
            *[beside(each.label, peers.RAW_MANY) for each in remote],
        ],
        limit="a write and a sync of the disk for each batch",
    )
