"""Where later prompts are likely to part from this one: an engine whose state can't be cut anywhere remembers it there."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from ..chat.conversation import Conversation, TextPart, Turn, TurnOptions
from ..chat.prompt import Prompt
from ..errors import ColibriError

Render = Callable[[Conversation, TurnOptions], Prompt]

#: Stands for another conversation with the same opening.
_OTHER = (Turn("user", (TextPart("?"),)),)


def ways_back(render: Render, conversation: Conversation, options: TurnOptions, prompt: Prompt) -> tuple[int, ...]:
    """How many of the prompt's pieces it shares with another conversation of the same opening (system turns and tools),
    and with its own next prompt, where this answer's cue will be a past turn's beginning."""
    turns = conversation.turns
    opening = next((i for i, turn in enumerate(turns) if turn.role not in ("system", "developer")), len(turns))
    others = [(replace(conversation, turns=(*turns[:opening], *_OTHER)), replace(options, cue="new"))]
    if options.cue == "new":
        others.append((conversation, replace(options, cue="none")))
    shared: set[int] = set()
    for other in others:
        try:
            shared.add(_common(prompt, render(*other)))
        except ColibriError:
            continue  # what can't be said has no prompt to share with
    return tuple(sorted(shared - {0}))


def _common(a: Prompt, b: Prompt) -> int:
    """How many pieces two prompts begin with alike."""
    return next(
        (i for i, (x, y) in enumerate(zip(a.pieces, b.pieces, strict=False)) if x != y), min(len(a.pieces), len(b.pieces))
    )
