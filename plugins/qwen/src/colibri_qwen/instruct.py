"""How the models that answer at once are prompted, Qwen2, Qwen2.5 and Qwen3-Next: the official templates, piece by piece.

Tools are declared in the system turn, and calls are JSON in `<tool_call>` blocks; the template of Qwen2 knows no tools.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from colibri.chat.blocks import print_call
from colibri.chat.conversation import Conversation, Tool, Turn, TurnOptions
from colibri.chat.open_turn import check_open_turn, is_open_turn
from colibri.chat.prompt import Piece, Prompt, prompt, template_text
from colibri.chat.tools import active_tools, demands_call
from colibri.errors import BadRequest

from .chatml import (
    CALL,
    CALL_END,
    IM_START,
    RESULT,
    RESULT_IN_LETTERS,
    Pieces,
    closed,
    declared,
    is_result,
    opened,
    result,
)


class Template(Struct, frozen=True):
    """What sets the templates apart: the system text a conversation without one gets, whether there are words for tools,
    the tags around results, and whether arguments that were no object are printed as they are or as a JSON string."""

    persona: str | None = None
    tools: bool = True
    results: tuple[Piece | str, Piece | str] = RESULT_IN_LETTERS
    raw_arguments: bool = False


QWEN2 = Template(persona="You are a helpful assistant.", tools=False)
QWEN2_5 = Template(persona="You are Qwen, created by Alibaba Cloud. You are a helpful assistant.")
QWEN3_NEXT = Template(results=RESULT, raw_arguments=True)

_TOOLS_HEAD = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_TOOLS_TAIL = template_text(
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>',
    CALL,
    CALL_END,
)


def render(conversation: Conversation, options: TurnOptions, template: Template) -> Prompt:
    """The prompt of a conversation. Raises BadRequest for what the template has no words for."""
    turns = conversation.turns
    check_open_turn(turns, options)
    if not template.tools and (conversation.tools or any(turn.calls or turn.role == "tool" for turn in turns)):
        raise BadRequest("Qwen2 has no words for tools, calls and results.", param="messages")
    return prompt(_pieces(turns, active_tools(conversation, options), options, template))


def _pieces(turns: Sequence[Turn], tools: Sequence[Tool], options: TurnOptions, template: Template) -> Pieces:
    first = turns[0] if turns and turns[0].role == "system" else None
    yield from _system(template.persona if first is None else first.text, tools, demands_call(options))
    for index, turn in enumerate(turns):
        continued = is_open_turn(turns, index, options)
        if turn is first:
            continue
        if turn.role == "tool":
            begins, ends = not is_result(turns, index - 1), not is_result(turns, index + 1)
            yield from result((turn.text,), template.results, first=begins, last=ends)
        elif turn.spoken is not None and not continued:
            yield from opened("assistant")
            yield turn.spoken
            yield from closed()
        elif turn.calls:
            yield from _calls(turn, template)
        elif turn.role != "developer":  # the template passes such turns over in silence
            yield from opened(turn.role)
            yield turn.text
            if not continued:
                yield from closed()
    if options.cue == "new":
        yield from opened("assistant")


def _system(text: str | None, tools: Sequence[Tool], demand: bool) -> Pieces:
    """The system turn, which declares the tools behind its text; none if there are neither."""
    if text is None and not tools:
        return
    yield from opened("system")
    yield text or ""
    if tools:
        yield "" if text is None else "\n\n"
        yield from declared(_TOOLS_HEAD, tools, _TOOLS_TAIL, demand=demand)
    yield from closed()


def _calls(turn: Turn, template: Template) -> Pieces:
    yield IM_START
    yield "assistant"
    if turn.text:
        yield "\n" + turn.text
    for call in turn.calls:
        yield "\n"
        yield CALL
        yield print_call(call, raw=template.raw_arguments)
        yield CALL_END
    yield from closed()
