"""The settings that Django's own tests of caches need."""

SECRET_KEY = "of tests"
USE_TZ = False
DATABASES = {
    alias: {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    for alias in ("default", "other")
}
INSTALLED_APPS = ["cache"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
