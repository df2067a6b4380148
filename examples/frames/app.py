"""Image frames from a camera to viewers, written and read in place: no frame is copied.

After ``pip install shmq numpy``, in two terminals, and as many viewers as should share the work:

    python app.py viewer                # tells the mean of each frame, until Ctrl-C
    python app.py camera --frames 100
"""

from __future__ import annotations

import argparse
import contextlib
import time

import numpy as np

import shmq

HEIGHT, WIDTH = 480, 640
BYTES = HEIGHT * WIDTH * 3


def frames(broker: shmq.Broker) -> shmq.Queue:
    """The queue of some 60 frames: the camera never waits, a late viewer misses the oldest."""
    return broker.ensure_queue(
        "frames", if_different="alter", arena_bytes=64 * BYTES, overflow="drop-oldest"
    )


def camera(queue: shmq.Queue, count: int, rate: float) -> None:
    """Put so many frames, at ``rate`` a second."""
    start = time.monotonic()
    for number in range(count):
        headers = {"number": number, "shape": [HEIGHT, WIDTH, 3]}
        with queue.loan(BYTES, headers=headers) as memory:  # an exception here puts nothing
            picture = np.frombuffer(memory, np.uint8).reshape(HEIGHT, WIDTH, 3)
            picture[:] = number % 256  # here a driver would fill it in
            del picture  # the bytes belong to the message from now on
        time.sleep(max(0.0, start + (number + 1) / rate - time.monotonic()))


def viewer(queue: shmq.Queue, idle: float | None) -> None:
    """Tell the mean of each frame; ends when none came for ``idle`` seconds."""
    for message in queue.consume(prefetch=2, timeout=idle):
        with message:
            shape = message.headers["shape"]
            picture = np.frombuffer(message.view, np.uint8).reshape(shape)
            print(f"frame {message.headers['number']}: {picture.mean():.1f}", flush=True)
            del picture  # its place in the queue is free again


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["camera", "viewer"])
    parser.add_argument("--frames", type=int, default=100, help="how many the camera takes")
    parser.add_argument("--rate", type=float, default=30.0, help="frames a second")
    parser.add_argument("--idle", type=float, help="a viewer ends after so many seconds of none")
    given = parser.parse_args()
    with shmq.connect() as broker, contextlib.suppress(KeyboardInterrupt):
        if given.part == "camera":
            camera(frames(broker), given.frames, given.rate)
        else:
            viewer(frames(broker), given.idle)


if __name__ == "__main__":
    main()
