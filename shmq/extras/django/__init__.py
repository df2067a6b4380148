"""Django's tasks in shmq's queues: the extra ``shmq[django]``.

In the settings of Django:

    INSTALLED_APPS = [..., "shmq.extras.django"]
    TASKS = {"default": {"BACKEND": "shmq.extras.django.ShmqBackend"}}

``manage.py shmq_worker`` runs the tasks.
"""

from shmq.extras.django.backend import ShmqBackend as ShmqBackend
