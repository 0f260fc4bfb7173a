"""The developer role, which most families have no words for."""

from __future__ import annotations

from msgspec.structs import replace

from ..family import Capabilities
from .conversation import Conversation


def with_known_roles(conversation: Conversation, capabilities: Capabilities) -> Conversation:
    """The conversation as it is rendered: for a family that does not claim the developer role, whose template would drop
    or refuse such turns, they are system turns."""
    if capabilities.developer or all(turn.role != "developer" for turn in conversation.turns):
        return conversation
    turns = (replace(turn, role="system") if turn.role == "developer" else turn for turn in conversation.turns)
    return replace(conversation, turns=tuple(turns))
