"""The OpenAI surface: chat completions, completions, models, health, and figures of the engine."""

from __future__ import annotations

from ...serve.request import Service
from ...settings import Settings
from ..route import Route
from .chat import Chat
from .completions import Completions
from .health import Health
from .models import Models
from .watch import Experts, Profiles


def routes(service: Service, settings: Settings) -> list[Route]:
    """The surface's routes."""
    models = Models(service)
    return [
        Route("GET", "/health", Health(service), public=True),
        Route("GET", "/experts", Experts(service), public=True),
        Route("GET", "/profile", Profiles(service), public=True),
        Route("GET", "/v1/models", models.list),
        Route("GET", "/v1/models/{model*}", models.get),
        Route("POST", "/v1/chat/completions", Chat(service, settings)),
        Route("POST", "/v1/completions", Completions(service)),
    ]
