"""How Kimi Linear's prompts are written: the format of the Kimi K2 generation, as far as its turns go.

Kimi Linear is published without a template of its own. The tokens of its vocabulary are those of Kimi K2's format, whose
template these prompts follow; how the model expects tools is known from nowhere, so they are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from colibri.chat.conversation import Conversation, MediaPart, Turn, TurnOptions
from colibri.chat.prompt import Piece, Prompt, Special, prompt
from colibri.errors import BadRequest

SYSTEM = Special("<|im_system|>")
USER = Special("<|im_user|>")
ASSISTANT = Special("<|im_assistant|>")
MIDDLE = Special("<|im_middle|>")
END = Special("<|im_end|>")

#: The system text of a conversation that does not begin with one.
PERSONA = "You are Kimi, an AI assistant created by Moonshot AI."

_OPENERS = {"user": USER, "assistant": ASSISTANT}


def render(conversation: Conversation, options: TurnOptions) -> Prompt:
    """The prompt of a conversation. Raises BadRequest for tools and media, and for a continuation of what is no open
    answer."""
    turns = conversation.turns
    for number, turn in enumerate(turns):
        _check(turn, number)
    if conversation.tools:
        raise BadRequest("Kimi Linear has no known format for tools.", param="tools")
    if options.cue == "continue" and (not turns or turns[-1].role != "assistant"):
        raise BadRequest("Only an assistant message can be continued.", param="messages")
    return prompt(_pieces(turns, options))


def _check(turn: Turn, number: int) -> None:
    if turn.calls or turn.role == "tool":
        raise BadRequest("Kimi Linear has no known format for tool calls and results.", param=f"messages.{number}")
    if any(isinstance(part, MediaPart) for part in turn.content or ()):
        raise BadRequest("Kimi Linear reads only text.", param=f"messages.{number}.content")


def _pieces(turns: Sequence[Turn], options: TurnOptions) -> Iterator[Piece | str]:
    if turns and turns[0].role != "system":
        yield from _open("system", "system")
        yield PERSONA
        yield END
    for number, turn in enumerate(turns):
        is_open = options.cue == "continue" and number == len(turns) - 1
        spoken = None if is_open else turn.spoken
        yield from _open(turn.role, turn.role if spoken else turn.name or turn.role)
        yield spoken or turn.text
        if not is_open:
            yield END
    if options.cue == "new":
        yield from _open("assistant", "assistant")


def _open(role: str, name: str) -> Iterator[Piece | str]:
    yield _OPENERS.get(role, SYSTEM)
    yield name
    yield MIDDLE
