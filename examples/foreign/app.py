"""Texts from Python, counted by a program in C: what each puts, the other takes.

After ``pip install shmq``, in three terminals:

    shmq serve                          # for the C program; Python uses the shared memory
    cc -Wall -Werror -O2 -o counter counter.c && ./counter 9999
    python app.py "one cup of tea" "and jam"        # 4: one cup of tea, 2: and jam
"""

from __future__ import annotations

import sys

import shmq

TIMEOUT = 30.0


def main(texts: list[str]) -> int:
    """Put the texts and print the count of each; the exit code."""
    with shmq.connect() as broker:
        waiting, counts = broker.ensure_queue("texts"), broker.ensure_queue("counts")
        # The sequence number of a message names it for both sides.
        asked = {waiting.put(text, timeout=TIMEOUT).sequence: text for text in texts}
        while asked:
            try:
                with counts.get(timeout=TIMEOUT) as message:
                    sequence, words = map(int, bytes(message.view).split())
            except shmq.Empty:
                print(f"no count within {TIMEOUT:g} s: is ./counter running?", file=sys.stderr)
                return 1
            if sequence in asked:  # a count may come twice
                print(f"{words}: {asked.pop(sequence)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
