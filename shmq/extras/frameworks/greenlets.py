"""Whether this process runs greenlets of gevent, all of which a wait in C would stop."""

import sys


def has_greenlets() -> bool:
    """Whether gevent has patched this process's threads."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))
