"""How Inkling chat prompts are written: the official template, piece by piece.

A prompt is a row of messages: whose it is, perhaps a name, what kind of content it has, the content, and an end. A turn
is one message for each part of its content; one of the model's is also one for what it thought and one for each call.
How much to think is said by a system message of its own, in front of the first turn that is not the system's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from msgspec.structs import replace

from colibri.chat.conversation import Conversation, MediaPart, TextPart, Tool, Turn, TurnOptions
from colibri.chat.open_turn import is_open_turn
from colibri.chat.prompt import Media, Piece, Prompt, Special, prompt
from colibri.chat.tools import DEMAND, active_tools, demands_call
from colibri.errors import BadRequest

USER = Special("<|message_user|>")
MODEL = Special("<|message_model|>")
SYSTEM = Special("<|message_system|>")
TOOL = Special("<|message_tool|>")
TEXT = Special("<|content_text|>")
THINKING = Special("<|content_thinking|>")
DECLARATION = Special("<|content_xml|>")
CALL = Special("<|content_invoke_tool_json|>")
IMAGE = Special("<|content_image|>")
IMAGE_PATCH = Special("<|unused_200054|>")
AUDIO = Special("<|content_audio_input|>")
AUDIO_END = Special("<|audio_end|>")
END = Special("<|end_message|>")
END_SAMPLING = Special("<|content_model_end_sampling|>")

#: The level each effort stands for.
LEVELS = {"none": "0", "minimal": "0.1", "low": "0.2", "medium": "0.7", "high": "0.9", "xhigh": "0.99", "max": "0.99"}

_NUMBER = re.compile(r"0|0?\.[0-9]{1,20}")
_HIGHEST = 0.99

_OWNERS = {"system": SYSTEM, "user": USER, "assistant": MODEL}


def render(conversation: Conversation, options: TurnOptions) -> Prompt:
    """The prompt of a conversation. Raises BadRequest for what the template refuses, and for a continuation of what is
    no open answer."""
    turns = conversation.turns
    _check_continuation(turns, options)
    if options.preserve_thinking is False:
        turns = _without_old_thoughts(turns)
    return prompt(_pieces(turns, active_tools(conversation, options), options))


def _pieces(turns: Sequence[Turn], tools: Sequence[Tool], options: TurnOptions) -> Iterator[Piece | str]:
    if tools:
        yield from _declare(tools, demands_call(options))
    effort = list(_message(SYSTEM, "", TEXT, f"Thinking effort level: {_level(options)}"))
    leading = next((n for n, turn in enumerate(turns) if turn.role != "system"), len(turns))
    refs = list(accumulate((_count_media(turn) for turn in turns), initial=0))
    names: dict[str, str] = {}  # the tool that was called, by the call's id
    for index, turn in enumerate(turns):
        if index == leading:
            yield from effort
        names |= {call.id: call.name for call in turn.calls if call.id is not None}
        if turn.role == "assistant":
            opened = is_open_turn(turns, index, options)
            yield from _answer(turn, refs[index], opened)
        elif turn.role == "tool":
            yield from _result(turn, index, names)
        elif turn.role in _OWNERS:
            yield from _content(turn, refs[index])
        else:
            raise BadRequest(f"Inkling knows no role {turn.role!r}.", param=f"messages.{index}.role")
    if leading == len(turns):
        yield from effort
    if options.cue == "new":
        yield MODEL


def _message(owner: Special, name: str, kind: Special, *body: Piece | str) -> tuple[Piece | str, ...]:
    return (owner, name, kind, *body, END)


def _declare(tools: Sequence[Tool], demand: bool) -> Iterator[Piece | str]:
    specs = [
        {"description": tool.description or "", "name": tool.name, "parameters": tool.parameters, "type": "function"}
        for tool in tools
    ]
    yield from _message(SYSTEM, "tool_declare", DECLARATION, _canonical(specs), f"\n{DEMAND}" if demand else "")


def _content(turn: Turn, ref: int) -> Iterator[Piece | str]:
    """A message for each part; `ref` is the index of the turn's first image or sound."""
    owner = _OWNERS[turn.role]
    for part in turn.content or ():
        if isinstance(part, TextPart):
            yield from _message(owner, "", TEXT, part.text)
            continue
        if part.kind == "audio":
            yield from _message(owner, "", AUDIO, Media(ref), AUDIO_END)
        else:
            yield from _message(owner, "", IMAGE, IMAGE_PATCH)
        ref += 1


def _answer(turn: Turn, ref: int, opened: bool) -> Iterator[Piece | str]:
    """A turn of the model's; an `opened` one ends behind its text."""
    if turn.spoken is not None and not opened:
        yield MODEL
        yield turn.spoken
        if not turn.spoken.text.endswith(END.token):  # it was cut off
            yield END
        yield END_SAMPLING
        return
    if turn.reasoning:
        yield from _message(MODEL, "", THINKING, turn.reasoning)
    content = list(_content(turn, ref))
    if opened:
        yield from content[:-1]
        return
    yield from content
    for call in turn.calls:
        body = f'{{"name":{_canonical(call.name)},"args":{_canonical(call.named)}}}'
        yield from _message(MODEL, call.name, CALL, body)
    yield END_SAMPLING


def _result(turn: Turn, index: int, names: Mapping[str, str]) -> Iterator[Piece | str]:
    """A tool's result, as one text; where nothing says which tool's it is, it has no name."""
    if _count_media(turn):
        raise BadRequest("Inkling takes results of tools as text only.", param=f"messages.{index}.content")
    yield from _message(TOOL, turn.name or names.get(turn.call_id or "", ""), TEXT, turn.text)


def _level(options: TurnOptions) -> str:
    """How much to think: a level by its name, or a number that is one."""
    if options.thinking is False:
        return LEVELS["none"]
    word = options.effort or "high"
    if word in LEVELS:
        return LEVELS[word]
    if _NUMBER.fullmatch(word) is None or float(word) > _HIGHEST:
        raise BadRequest(
            f"Inkling knows the efforts {', '.join(LEVELS)} and numbers from 0 to {_HIGHEST}; {word[:40]!r} is neither.",
            param="reasoning_effort",
        )
    return f"{float(word):.2f}".rstrip("0").rstrip(".")


def _canonical(value: Any) -> str:
    """JSON as the model knows it: keys sorted, no blanks."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _count_media(turn: Turn) -> int:
    return sum(isinstance(part, MediaPart) for part in turn.content or ())


def _without_old_thoughts(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """The turns without what was thought before the last user turn, which is in the model's own tokens as well."""
    last = max((n for n, turn in enumerate(turns) if turn.role == "user"), default=0)
    return tuple(
        replace(turn, reasoning=None, spoken=None) if turn.reasoning and n < last else turn for n, turn in enumerate(turns)
    )


def _check_continuation(turns: Sequence[Turn], options: TurnOptions) -> None:
    if options.cue != "continue":
        return
    last = turns[-1] if turns else None
    if (
        last is None
        or last.role != "assistant"
        or last.calls
        or not last.content
        or not isinstance(last.content[-1], TextPart)
    ):
        raise BadRequest("Only an assistant message that ends in text can be continued.", param="messages")
