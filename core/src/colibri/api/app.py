"""The routes of a server, and how each tells an error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from ..errors import ColibriError
from ..settings import Settings
from .message import Reply, Request, Stream

Handler = Callable[[Request], Awaitable[Reply | Stream]]

#: Makes the JSON body of an error answer.
Envelope = Callable[[ColibriError, Request], Any]


def openai_envelope(error: ColibriError, request: Request) -> Any:
    """The error shape of every path that does not choose another."""
    return error.openai()


class Route(Struct, frozen=True):
    """One method of one path. A `{name}` segment matches one segment, a last `{name*}` one or more."""

    method: str
    path: str
    handler: Handler
    public: bool = False
    envelope: Envelope = openai_envelope


class App:
    """What a server serves: its settings and its routes, in the order they were added."""

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
        """Add a route. A `public` one needs no API key and sees `request.authenticated` instead."""
        self.routes.append(Route(method, path, handler, public, envelope))
