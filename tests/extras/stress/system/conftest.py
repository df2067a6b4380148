"""What the tests of commands use."""

from tests.system.cli.conftest import config_home, invoke, queue, quick, shell

__all__ = ["config_home", "invoke", "queue", "quick", "shell"]
