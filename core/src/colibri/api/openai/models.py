"""GET /v1/models and /v1/models/{id}: one body that OpenAI's, Anthropic's and TypeSafe's clients all read."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import msgspec

from ...serve.claims import words_of
from ...serve.request import Service
from ..message import Reply, Request, json_reply
from .fields import unknown_model


class Models:
    """The handlers."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def list(self, request: Request) -> Reply:
        """The one model, as a list of each dialect."""
        entry = entry_of(self._service)
        card = {
            "name": entry["id"],
            "description": self._service.variant.title,
            "release_date": entry["created_at"][:10],
        }
        body = {
            "object": "list",
            "data": [entry],
            "has_more": False,
            "first_id": entry["id"],
            "last_id": entry["id"],
            "models": [card],
        }
        return json_reply(body)

    async def get(self, request: Request) -> Reply:
        """The model by its id. Raises NotFound for any other."""
        if request.params["model"] != self._service.model_id:
            raise unknown_model(request.params["model"], self._service)
        return json_reply(entry_of(self._service))


def entry_of(service: Service) -> dict[str, Any]:
    """The model's object: OpenAI's fields, Anthropic's, and what the variant can do."""
    variant = service.variant
    created = datetime.fromtimestamp(service.created, timezone.utc)
    return {
        "id": service.model_id,
        "object": "model",
        "created": service.created,
        "owned_by": "colibri",
        "type": "model",
        "display_name": variant.title,
        "created_at": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "max_tokens": service.max_tokens,
        "input_modalities": list(variant.capabilities.inputs),
        "capabilities": words_of(variant.capabilities),
        "variant": {"name": variant.name, **msgspec.to_builtins(variant.capabilities)},
    }
