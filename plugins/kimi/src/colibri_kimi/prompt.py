"""How Kimi K3's prompts are written: the official encoder, piece by piece.

Everything is an element, `<|open|>NAME attribute="value"<|sep|>…<|close|>NAME<|sep|>`, of which only the bars are control
tokens; the names, the attributes and all that stands inside are ordinary text. The encoder splits each piece of text into
tokens by itself, so that none reaches from `="` into a value: pieces that are neighbours are not joined here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from colibri.chat.conversation import Conversation, MediaPart, ToolCall, Turn, TurnOptions
from colibri.chat.jsontext import dumps
from colibri.chat.open_turn import check_open_turn
from colibri.chat.prompt import Piece, Prompt, Special, Spoken, Text
from colibri.chat.tools import active_tools, demands_call
from colibri.errors import BadRequest

from .variants import EFFORTS

OPEN = Special("<|open|>")
CLOSE = Special("<|close|>")
SEP = Special("<|sep|>")
END = Special("<|end_of_msg|>")

#: What stands for an image. It is no token of the vocabulary.
_IMAGE = "<|kimi_image_placeholder|>"

_TOOLS = "# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n{}\n```"
_EFFORT = (
    "`thinking_effort` guides on how much to think in your thinking channel (not including the response channel), "
    "supported values include `low`, `medium`, `high`, and `max`.\nNow the system is invoked with `thinking_effort={}`."
)
_REQUIRED = "The system is invoked with `tool_choice=required`.\nYou MUST call tools in the next message."
_NONE = "The system is invoked with `tool_choice=none`.\nYou MUST NOT call any tools in the next message."

#: The tags of a plain answer in the order in which they come.
_STAGES = (("<|close|>", "think"), ("<|open|>", "response"), ("<|close|>", "response"), ("<|close|>", "message"))


def render(conversation: Conversation, options: TurnOptions) -> Prompt:
    """The prompt of a conversation. Raises BadRequest for what the encoder refuses, and for a continuation of what is no
    open answer."""
    turns = conversation.turns
    check_open_turn(turns, options)
    pieces = _pieces(conversation, options)
    return Prompt(tuple(Text(piece) if isinstance(piece, str) else piece for piece in pieces if piece))


def _pieces(conversation: Conversation, options: TurnOptions) -> Iterator[Piece | str]:
    thinking = options.thinking is not False
    forbidden = options.tool_choice.mode == "none"
    tools = conversation.tools if forbidden else active_tools(conversation, options)
    if tools:
        declared = [tool.declaration for tool in tools]
        listed = json.dumps(declared, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        yield from _instruction("tool-declare", _TOOLS.format(listed))
    if thinking:
        yield from _instruction("thinking-effort", _EFFORT.format(_effort(options)))
    yield from _turns(conversation.turns, thinking, open_end=options.cue == "continue")
    if options.cue == "continue":
        return
    if forbidden or demands_call(options):
        yield from _instruction("tool-choice", _NONE if forbidden else _REQUIRED)
    if options.cue == "new":
        yield from _open("message", role="assistant")
        yield from _open("think" if thinking else "response")


def _effort(options: TurnOptions) -> str:
    if options.effort is not None and options.effort not in EFFORTS:
        raise BadRequest(
            f"Unsupported thinking_effort={options.effort!r}; supported values are {', '.join(EFFORTS)}.",
            param="reasoning_effort",
        )
    return options.effort or EFFORTS[-1]


def _turns(turns: Sequence[Turn], thinking: bool, *, open_end: bool) -> Iterator[Piece | str]:
    calls: tuple[ToolCall, ...] = ()
    results = 0
    for is_run, run in groupby(enumerate(turns), key=lambda numbered: numbered[1].role == "tool"):
        if is_run:
            for number, turn in _in_call_order(list(run), calls):
                results += 1
                name = turn.name if turn.name is not None or results > len(calls) else calls[results - 1].name
                yield from _message(turn, number, role="tool", tool=_known(name, number), index=results)
            continue
        for number, turn in run:
            if turn.role == "assistant":
                calls, results = turn.calls, 0
                yield from _assistant(turn, number, thinking, is_open=open_end and number == len(turns) - 1)
            elif turn.role != "developer":  # the encoder passes over it
                yield from _message(turn, number, role=turn.role, **_named(turn))


def _in_call_order(run: list[tuple[int, Turn]], calls: Sequence[ToolCall]) -> list[tuple[int, Turn]]:
    """A run of numbered results: if each belongs to one of the calls, in their order and by their names."""
    positions: dict[str | None, int] = {}
    for position, call in enumerate(calls):
        if call.id is not None:
            positions.setdefault(call.id, position)
    if any(turn.call_id not in positions for _, turn in run):
        return run
    run.sort(key=lambda numbered: positions[numbered[1].call_id])
    return [(number, replace(turn, name=calls[positions[turn.call_id]].name)) for number, turn in run]


def _known(name: str | None, number: int) -> str:
    if name is None:
        raise BadRequest(
            "Kimi K3 tool messages need a resolvable tool name: give the `tool_call_id` of a call of the assistant "
            "message before it, or a `name`.",
            param=f"messages.{number}.tool_call_id",
        )
    return name


def _message(turn: Turn, number: int, **attributes: Any) -> Iterator[Piece | str]:
    yield from _open("message", **attributes)
    yield from _content(turn, number)
    yield from _close("message")
    yield END


def _assistant(turn: Turn, number: int, thinking: bool, *, is_open: bool) -> Iterator[Piece | str]:
    if turn.spoken is not None and not is_open and _answered_at_once(turn, turn.spoken) is not thinking:
        yield from _open("message", role="assistant")
        yield from _spoken(turn.spoken, thinking)
        yield END
        return
    yield from _open("message", role="assistant", **_named(turn))
    if thinking:
        reasoning = turn.reasoning or ""
        yield from _element("think", reasoning if reasoning.strip() else "")
    yield from _open("response")
    yield from _content(turn, number)
    if is_open:
        return
    yield from _close("response")
    if turn.calls:
        yield from _open("tools")
        for index, call in enumerate(turn.calls):
            yield from _call(call, index)
        yield from _close("tools")
    yield from _close("message")
    yield END


def _answered_at_once(turn: Turn, spoken: Spoken) -> bool:
    """Whether the model wrote the turn behind a cue that opened the response: then it cannot stand behind one that opens
    the thinking, nor the other way round."""
    response, _, _ = spoken.text.partition("<|close|>response<|sep|>")
    return response.strip() == turn.text.strip()


def _spoken(spoken: Spoken, thinking: bool) -> Iterator[Piece | str]:
    """What the model wrote, and the tags that are missing where it was cut off."""
    yield from _open("think" if thinking else "response")
    yield spoken
    reached = [n for n, (bar, tag) in enumerate(_STAGES) if f"{bar}{tag}{SEP.token}" in spoken.text]
    for bar, tag in _STAGES[max(reached, default=-1 if thinking else 1) + 1 :]:
        yield from (Special(bar), tag, SEP)


def _call(call: ToolCall, index: int) -> Iterator[Piece | str]:
    yield from _open("call", tool=call.name, index=index + 1)
    if isinstance(call.arguments, dict):
        for key, value in call.arguments.items():
            text = value if isinstance(value, str) else dumps(value)
            yield from _element("argument", text, key=key, type=_type(value))
    elif not _is_json(call.arguments):
        yield from _element("json", call.arguments, type="object")
    yield from _close("call")


def _is_json(arguments: str) -> bool:
    """Whether arguments that are no object are JSON, or nothing, all the same: then they have no place. Other text stands
    as it is."""
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return not arguments.strip()
    return True


def _type(value: Any) -> str:
    kinds = {bool: "boolean", type(None): "null", int: "number", float: "number", str: "string", dict: "object"}
    return kinds.get(type(value), "array")


def _content(turn: Turn, number: int) -> Iterator[str]:
    for index, part in enumerate(turn.content or ()):
        if not isinstance(part, MediaPart):
            yield part.text
        elif part.kind == "image":
            yield _IMAGE
        else:
            raise BadRequest(f"Kimi K3 has no words for {part.kind} input.", param=f"messages.{number}.content.{index}")


def _named(turn: Turn) -> dict[str, str]:
    return {"name": turn.name} if turn.name else {}


def _instruction(kind: str, body: str) -> Iterator[Piece | str]:
    yield from _element("message", body, role="system", type=kind)
    yield END


def _element(tag: str, body: str, **attributes: Any) -> Iterator[Piece | str]:
    yield from _open(tag, **attributes)
    yield body
    yield from _close(tag)


def _open(tag: str, **attributes: Any) -> Iterator[Piece | str]:
    yield OPEN
    yield tag
    for key, value in attributes.items():
        yield from (f" {key}", '="', _escape(str(value)), '"')
    yield SEP


def _close(tag: str) -> Iterator[Piece | str]:
    yield CLOSE
    yield tag
    yield SEP


def _escape(value: str) -> str:
    return value.replace("&", "&amp;").replace('"', "&quot;")
