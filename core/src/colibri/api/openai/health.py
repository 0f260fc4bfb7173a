"""GET /health: whether requests can be served now."""

from __future__ import annotations

from ...serve.request import Service
from ..message import Reply, Request, json_reply


class Health:
    """The handler. Anyone may ask whether the server is well; the details are for those who know the key."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, request: Request) -> Reply:
        """200 when well, 503 when not."""
        well, details = self._service.health()
        body: dict[str, object] = {"status": "ok" if well else "error"}
        if request.authenticated:
            body |= details
        return json_reply(body, 200 if well else 503, () if well else (("retry-after", "1"),))
