"""``order ITEM``: orders something, and waits until it is packed."""

from __future__ import annotations

import argparse
import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from examples.django.tasks import pack


class Command(BaseCommand):
    """Enqueues a task, and shows its result."""

    help = "Order something."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The arguments of the command."""
        parser.add_argument("item")
        parser.add_argument("--count", type=int, default=1)

    def handle(self, *_: Any, **given: Any) -> None:
        """Order it. Raises CommandError if it cannot be packed."""
        result = pack.enqueue(given["item"], given["count"])
        while not result.is_finished:
            time.sleep(0.05)
            result.refresh()
        if result.errors:
            raise CommandError(f"it cannot be packed: {result.errors[0].exception_class_path}")
        self.stdout.write(f"packed: {result.return_value}")
