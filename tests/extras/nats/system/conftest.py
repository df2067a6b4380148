"""What the tests of commands and of asyncio use."""

from tests.system.cli.conftest import config_home, invoke, queue, quick, shell
from tests.system.client.conftest import run

__all__ = ["config_home", "invoke", "queue", "quick", "run", "shell"]
