"""The task of Django, which ``manage.py shmq_worker`` runs: it packs the orders."""

import importlib.util

from examples.site.ledger import add_to_ledger

if importlib.util.find_spec("django.tasks") is not None:
    from django.tasks import task
    from django.tasks.exceptions import TaskResultDoesNotExist
else:  # before Django 6
    from django_tasks import task
    from django_tasks.exceptions import TaskResultDoesNotExist

__all__ = ["TaskResultDoesNotExist", "pack"]


@task
def pack(item: str, count: int) -> int:
    """Pack an order; how many of the item were sold so far."""
    return add_to_ledger(item, count)
