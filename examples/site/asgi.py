"""The application that uvicorn or Daphne serves: pages over HTTP, the chat over WebSockets."""

import os

from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.core.asgi import get_asgi_application
from django.urls import path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.site.settings")
pages = get_asgi_application()  # before the chat is imported: it sets up Django

from examples.site.chat import Chat  # noqa: E402

chat = AllowedHostsOriginValidator(URLRouter([path("chat/<slug:room>/", Chat.as_asgi())]))
application = ProtocolTypeRouter({"http": pages, "websocket": chat})
