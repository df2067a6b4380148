"""``python -m shmq`` is the command ``shmq``."""

import gc
import sys

#: The exit code of Ctrl-C: `shmq.cli.shared.exit_codes.Code.INTERRUPTED`, not yet imported.
_INTERRUPTED = 130


def main() -> None:
    """The entry point of the command ``shmq``: Ctrl-C while it is imported needs no words."""
    gc.set_threshold(50_000)  # the imports create many objects, and a short command little garbage
    try:
        from shmq.cli.main import main as run  # noqa: PLC0415 - most of the time of a short command

        run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
