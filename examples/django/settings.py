"""The settings of the shop."""

import importlib.util

SECRET_KEY = "an example has no secret"  # noqa: S105
USE_TZ = True
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
INSTALLED_APPS = ["shmq.extras.django", "examples.django"]
if importlib.util.find_spec("django.tasks") is None:  # before Django 6
    INSTALLED_APPS.append("django_tasks")

TASKS = {
    "default": {
        "BACKEND": "shmq.extras.django.ShmqBackend",
        "QUEUES": ["default", "mails"],
        "OPTIONS": {"result_ttl": 7 * 86_400.0},
    }
}
