"""How prompts are written: each turn stands between `<|turn|>` and `<|end|>`, behind a line that says whose it is."""

from __future__ import annotations

from collections.abc import Iterator

from colibri.chat.conversation import Conversation, TurnOptions
from colibri.chat.open_turn import check_open_turn, is_open_turn
from colibri.chat.prompt import Piece, Prompt, Special, prompt
from colibri.errors import BadRequest

TURN = Special("<|turn|>")
END = Special("<|end|>")

#: What a turn of each role begins with.
_OPENINGS: dict[str, tuple[Piece | str, ...]] = {
    "system": (TURN, "system\n"),
    "user": (TURN, "user\n"),
    "assistant": (TURN, "assistant\n"),
}

#: What a turn ends with.
_CLOSING: tuple[Piece | str, ...] = (END, "\n")


def render(conversation: Conversation, options: TurnOptions) -> Prompt:
    """The prompt of a conversation. Raises BadRequest for what the format has no words for."""
    check_open_turn(conversation.turns, options)
    return prompt(_pieces(conversation, options))


def _pieces(conversation: Conversation, options: TurnOptions) -> Iterator[Piece | str]:
    turns = conversation.turns
    for index, turn in enumerate(turns):
        if turn.role not in _OPENINGS:
            raise BadRequest(f"There is no {turn.role} role in this chat format.", param=f"messages.{index}.role")
        continued = is_open_turn(turns, index, options)
        yield from _OPENINGS[turn.role]
        # What the model wrote itself comes back as its own tokens, so that they need not be computed again.
        yield turn.text if turn.spoken is None or continued else turn.spoken
        if not continued:
            yield from _CLOSING
    if options.cue == "new":
        yield from _OPENINGS["assistant"]
