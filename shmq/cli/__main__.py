"""``python -m shmq.cli`` is the command ``shmq``."""

import gc
import signal
import sys

from shmq.lazy_imports import late_imports

#: The exit code of Ctrl-C: `shmq.cli.shared.exit_codes.Code.INTERRUPTED`, not yet imported.
_INTERRUPTED = 130


def main() -> None:
    """The entry point of the command ``shmq``: Ctrl-C while it is imported needs no words."""
    gc.set_threshold(50_000)  # the imports create many objects, and a short command little garbage
    try:
        # What a compiled module raises as it is imported may be lost there.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with late_imports:
                from shmq.cli.main import main as run  # noqa: PLC0415 - most of a command's time
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
