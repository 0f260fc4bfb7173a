"""How OLMoE-1B-7B-0125-Instruct chat prompts are written: role markers that are plain text, one token around it all."""

from __future__ import annotations

from collections.abc import Iterator

from colibri.chat.conversation import Conversation, TurnOptions
from colibri.chat.fallback import in_words
from colibri.chat.open_turn import check_open_turn, is_open_turn
from colibri.chat.prompt import Piece, Prompt, Special, prompt

#: Begins the text and ends each answer: the token with id 50279, by what the 0125 vocabulary calls it.
EOS = Special("|||IP_ADDRESS|||")
EOS_ID = 50279


def render(conversation: Conversation, options: TurnOptions) -> Prompt:
    """The prompt of a conversation; with the fallback, its tools, calls and results are put into words. Raises BadRequest
    for a continuation of what is no open answer."""
    turns = conversation.turns
    check_open_turn(turns, options)
    return prompt(_pieces(in_words(conversation, options) if options.tool_fallback else conversation, options))


def _pieces(conversation: Conversation, options: TurnOptions) -> Iterator[Piece | str]:
    yield EOS
    for index, turn in enumerate(conversation.turns):
        last = index == len(conversation.turns) - 1
        if turn.role == "assistant":
            open_turn = is_open_turn(conversation.turns, index, options)
            yield "<|assistant|>\n"
            yield turn.text if turn.spoken is None or open_turn else turn.spoken
            if not open_turn:
                yield EOS
            if not last:
                yield "\n"
        elif turn.role in ("system", "user"):
            yield f"<|{turn.role}|>\n{turn.text}\n"
    if options.cue == "new":
        yield "<|assistant|>\n"
