"""The settings of the project; the environment says where its tasks and its database are."""

import importlib.util
import os

SECRET_KEY = "of tests"
USE_TZ = True
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("SITE_DATABASE", ":memory:"),
    }
}
INSTALLED_APPS = ["django.contrib.sessions", "shmq.extras.django", "tests.support.django_site"]
if importlib.util.find_spec("django.tasks") is None:
    INSTALLED_APPS.insert(0, "django_tasks")
TASKS = {
    "default": {
        "BACKEND": "shmq.extras.django.ShmqBackend",
        "QUEUES": ["default", "mails"],
        "OPTIONS": {"target": os.environ.get("SITE_TARGET"), "max_attempts": 2},
    }
}
