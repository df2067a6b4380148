"""The application of Django, which has the command ``shmq_worker``."""

from django.apps import AppConfig


class ShmqConfig(AppConfig):
    """The application that Django loads: docs/integrate/django.md."""

    name = "shmq.extras.django"
    label = "shmq"
    verbose_name = "shmq"
