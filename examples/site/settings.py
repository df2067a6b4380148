"""The settings of the shop; all of shmq is in one namespace, which `SHMQ_NAMESPACE` names."""

import importlib.util
from pathlib import Path

SECRET_KEY = "an example has no secret"  # noqa: S105
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
TIME_ZONE = "UTC"
ROOT_URLCONF = "examples.site.views"
INSTALLED_APPS = ["shmq.extras.django"]
if importlib.util.find_spec("django.tasks") is None:  # before Django 6
    INSTALLED_APPS.append("django_tasks")
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
]
TEMPLATES = [
    {"BACKEND": "django.template.backends.django.DjangoTemplates", "DIRS": [Path(__file__).parent]}
]

CACHES = {"default": {"BACKEND": "shmq.extras.django.cache.ShmqCache", "LOCATION": "shmq:///cache"}}
SESSION_ENGINE = "django.contrib.sessions.backends.cache"

CHANNEL_LAYERS = {"default": {"BACKEND": "shmq.extras.channels.ShmqChannelLayer"}}

TASKS = {"default": {"BACKEND": "shmq.extras.django.ShmqBackend", "OPTIONS": {"max_attempts": 10}}}

CELERY_BROKER_URL = "shmq://"
CELERY_RESULT_BACKEND = "shmq://"
CELERY_TASK_ACKS_LATE = True  # a task whose worker is killed runs again
CELERY_TASK_REJECT_ON_WORKER_LOST = True
