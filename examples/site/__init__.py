"""A shop in Django, with a chat, tasks, Celery, a cache and a lock, in one namespace of shmq."""
