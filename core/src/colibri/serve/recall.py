"""What the model itself wrote in earlier turns, so that a conversation that comes back is the one its slot holds.

A client returns an assistant turn as text and calls. Rendering those anew may spell the turn otherwise than the model
did (a call without its tags, arguments with other blanks, a word in other tokens), and the prefix would end there. So
finished turns are remembered by what the client saw of them, and a turn that comes back unchanged gets its tokens back.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ..chat.answer import Answer
from ..chat.conversation import Conversation, Turn
from ..chat.prompt import Spoken

#: How many tokens of finished turns are remembered; the turns not seen for longest go first.
LIMIT = 1_000_000


class Draft:
    """A turn while the model writes it: its tokens, and what a client is shown of it."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.answer = Answer()

    def key(self) -> bytes | None:
        """What the turn is known by; None for one that clients may show in more ways than one."""
        answer = self.answer
        try:
            calls = [(name, json.loads(arguments)) for name, arguments in answer.made()]
            return None if answer.cut else _key(answer.shown, answer.reasoning, calls)
        except (ValueError, RecursionError):
            return None


class Recall:
    """The finished turns of a server, for all conversations. Nothing is given to anyone who does not send the turn's
    whole text, reasoning included, himself."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._turns: OrderedDict[bytes, Spoken] = OrderedDict()
        self._tokens = 0

    def keep(self, draft: Draft, text: str) -> None:
        """Remember a finished turn; `text` is what its tokens spell."""
        key = draft.key()
        if key is None or not draft.ids or len(draft.ids) > self._limit:
            return
        self._forget(key)
        self._turns[key] = Spoken(tuple(draft.ids), text)
        self._tokens += len(draft.ids)
        while self._tokens > self._limit:
            self._forget(next(iter(self._turns)))

    def restore(self, conversation: Conversation) -> Conversation:
        """The conversation with the tokens of the turns that are remembered."""
        turns = tuple(self._restored(turn) for turn in conversation.turns)
        return conversation if turns == conversation.turns else replace(conversation, turns=turns)

    def _restored(self, turn: Turn) -> Turn:
        if turn.role != "assistant" or any(isinstance(call.arguments, str) for call in turn.calls):
            return turn
        key = _key(turn.text, turn.reasoning or "", [(call.name, call.arguments) for call in turn.calls])
        spoken = self._turns.get(key)
        if spoken is None:
            return turn
        self._turns.move_to_end(key)
        return replace(turn, spoken=spoken)

    def _forget(self, key: bytes) -> None:
        spoken = self._turns.pop(key, None)
        if spoken is not None:
            self._tokens -= len(spoken.ids)


def _key(content: str, reasoning: str, calls: Sequence[tuple[str, Any]]) -> bytes:
    """Clients trim texts and reorder keys; more than that is another turn."""
    seen = [content.strip(), reasoning.strip(), calls]
    return hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).digest()
