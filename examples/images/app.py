"""Thumbnails of a folder of pictures, by a pool of processes in which one may be killed.

After ``pip install shmq numpy pillow``:

    python app.py draw pictures --killer        # 20 pictures, and one that kills its worker
    python app.py shrink pictures               # all others are done; pictures/thumbnails has them

With ``concurrent.futures`` that picture would fail all calls that are not done. Here it fails its
own call alone, and the error has the numbers of the process and of the signal.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from concurrent.futures import as_completed
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

import shmq
from shmq.futures import ProcessPoolExecutor

Pixels = npt.NDArray[np.uint8]

#: The largest width and height of a thumbnail, in pixels.
SIZE = 128
#: How long a picture may take, in seconds; its worker is killed after that.
LIMIT = 60.0

# ---- the work, in the processes of the pool ----


def draw(picture: Path, shade: int) -> None:
    """Draw a picture to begin with."""
    pixels = np.full((480, 640, 3), shade % 256, np.uint8)
    Image.fromarray(pixels).save(picture)


def shrink(picture: Path) -> Pixels:
    """The thumbnail. Its pixels reach the process with the pool through shared memory."""
    if picture.stem == "killer":  # in place of a decoder that crashes, or of the OOM killer
        os.kill(os.getpid(), signal.SIGKILL)
    with Image.open(picture) as image:
        thumbnail = image.convert("RGB")
    thumbnail.thumbnail((SIZE, SIZE))
    return np.asarray(thumbnail)


# ---- the process with the pool ----


def draw_all(pool: ProcessPoolExecutor, folder: Path, count: int, killer: bool) -> None:
    """Draw so many pictures, with a bar on a terminal."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"picture-{number}" for number in range(count)] + ["killer"] * killer
    pictures = [folder / f"{name}.png" for name in names]
    for _ in pool.map(draw, pictures, range(len(pictures)), progress=True):
        pass  # reading a result raises the error of its call, if there is one


def shrink_all(pool: ProcessPoolExecutor, folder: Path) -> int:
    """Save the thumbnail of each picture; return how many have none."""
    thumbnails = folder / "thumbnails"
    thumbnails.mkdir(exist_ok=True)
    calls = {pool.submit(shrink, picture): picture for picture in sorted(folder.glob("*.png"))}
    failed = 0
    for call in as_completed(calls):
        picture = calls.pop(call)  # and with it its pixels
        try:
            pixels = call.result()
        except shmq.WorkerDied as error:
            why = f"process {error.pid} died, signal {error.signal}, exit code {error.exit_code}"
        except (OSError, TimeoutError) as error:  # not a picture, or more than LIMIT
            why = str(error)
        else:
            Image.fromarray(pixels).save(thumbnails / picture.name)
            print(f"{picture.name}: {pixels.shape[1]} x {pixels.shape[0]}", flush=True)
            continue
        print(f"{picture.name}: {why}", file=sys.stderr, flush=True)
        failed += 1
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    drawing, shrinking = commands.add_parser("draw"), commands.add_parser("shrink")
    drawing.add_argument("--count", type=int, default=20)
    drawing.add_argument("--killer", action="store_true", help="also one that kills its worker")
    for each in (drawing, shrinking):
        each.add_argument("folder", type=Path)
    given = parser.parse_args()
    with ProcessPoolExecutor(timeout=LIMIT) as pool:
        try:
            if given.command == "draw":
                draw_all(pool, given.folder, given.count, given.killer)
                return 0
            return 1 if shrink_all(pool, given.folder) else 0
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            return 130


if __name__ == "__main__":
    sys.exit(main())
