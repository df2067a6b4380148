"""Django's tasks in shmq's queues: the extra ``shmq[django]``.

In the settings of Django:

    INSTALLED_APPS = [..., "shmq.integrations.django"]
    TASKS = {"default": {"BACKEND": "shmq.integrations.django.ShmqBackend"}}

``manage.py shmq_worker`` runs the tasks.
"""

from shmq.integrations.django.backend import ShmqBackend

__all__ = ["ShmqBackend"]
