"""What a server serves: its settings and the routes of every surface."""

from __future__ import annotations

from typing import Protocol

from ..serve.request import Service
from ..settings import Settings
from . import openai
from .route import Envelope, Handler, Route, openai_envelope


class App:
    """Settings and routes, in the order they were added."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.routes: list[Route] = []

    def route(
        self,
        method: str,
        path: str,
        handler: Handler,
        *,
        public: bool = False,
        envelope: Envelope = openai_envelope,
    ) -> None:
        """Add a route; see Route."""
        self.routes.append(Route(method, path, handler, public, envelope))


class RoutePlugins(Protocol):
    """What may add routes of its own."""

    def routes(self, app: App) -> None:
        """Add them with `app.route`."""
        ...


def build(service: Service, settings: Settings, plugins: RoutePlugins | None = None) -> App:
    """The app that serves `service`: the routes of core's surfaces, then those of plugins."""
    app = App(settings)
    app.routes += openai.routes(service, settings)
    if plugins is not None:
        plugins.routes(app)
    return app
