"""The routes of the OpenAI surface."""

from __future__ import annotations

from collections.abc import Callable

from ...serve.request import Service
from ...settings import Settings
from ..app import App
from .chat import Chat
from .completions import Completions
from .health import Health
from .models import Models


def build(service: Service, settings: Settings, plugins: Callable[[App], object] | None = None) -> App:
    """The app that serves `service`. `plugins` may add routes of its own; core's stand first."""
    app = App(settings)
    models = Models(service)
    app.route("GET", "/health", Health(service), public=True)
    app.route("GET", "/v1/models", models.list)
    app.route("GET", "/v1/models/{model*}", models.get)
    app.route("POST", "/v1/chat/completions", Chat(service, settings))
    app.route("POST", "/v1/completions", Completions(service))
    if plugins is not None:
        plugins(app)
    return app
