"""From a request to its answer: guard, route, handler, and every error in its envelope."""

from __future__ import annotations

import logging
import re
import secrets

import msgspec

from ..api.app import App
from ..api.message import FAILURE, Headers, Reply, Request, Stream
from ..api.route import Route, openai_envelope
from ..errors import ColibriError, EngineError
from .guard import Guard
from .routing import Match, Router

logger = logging.getLogger("colibri.http")

_SANE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


class Dispatch:
    """An App behind its guard. `check` needs only the head of a request, so a refusal comes before any body is read."""

    def __init__(self, app: App) -> None:
        self.settings = app.settings
        self._guard = Guard(app.settings)
        self._router = Router(app.routes)
        self._app = app

    def identify(self, request: Request) -> Request:
        """`request` with its id (the client's own where it is a sane one) and whether it showed the key."""
        given = request.headers.get("x-request-id", "")
        name = given if _SANE_ID.fullmatch(given) else f"req_{secrets.token_hex(16)}"
        return msgspec.structs.replace(request, id=name, authenticated=self._guard.authenticated(request))

    def check(self, request: Request) -> Match:
        """The route that may answer. Raises ColibriError where host, path, method or key forbid."""
        self._guard.check_host(request)
        if request.method == "OPTIONS":
            return Match(Route("OPTIONS", "*", self._preflight, public=True), {})
        match = self._router.match(request.method, request.path)
        if not match.route.public:
            self._guard.check_key(request)
        return match

    async def answer(self, request: Request, match: Match) -> Reply | Stream:
        """What the handler says, or its error as a reply. Raises nothing but CancelledError."""
        try:
            return await match.route.handler(msgspec.structs.replace(request, params=match.params))
        except ColibriError as error:
            if error.status >= 500:
                logger.error("%s %s: %s", request.method, request.path, error.message)
            return self.refusal(request, error, match.route)
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            return self.refusal(request, EngineError(FAILURE), match.route)

    def refusal(self, request: Request, error: ColibriError, route: Route | None = None) -> Reply:
        """`error` as the reply the route's clients understand."""
        if error.status == 403 and request.method == "OPTIONS":
            return Reply(403)
        envelope = route.envelope if route is not None else openai_envelope
        return Reply(error.status, msgspec.json.encode(envelope(error, request)), error.headers)

    def common_headers(self, request: Request) -> Headers:
        """The headers of every answer to `request`."""
        return (("x-request-id", request.id), *self._guard.cors_headers(request))

    async def _preflight(self, request: Request) -> Reply:
        cors = {name for name, _ in self._guard.cors_headers(request)}
        return Reply(204, headers=tuple(h for h in self._guard.preflight_headers(request) if h[0] not in cors))
