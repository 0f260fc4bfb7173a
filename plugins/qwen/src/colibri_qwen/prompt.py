"""How Qwen2 and Qwen2.5 chat prompts are written: the official templates, piece by piece.

The template of Qwen2.5 (and of its Coder) declares tools in the system turn and writes calls as JSON in `<tool_call>`
blocks; that of Qwen2 knows no tools. Which of the strings the templates print are control tokens is fixed by the
vocabularies: `<tool_call>` and its end are in Qwen2.5's, `<tools>` and `<tool_response>` are in neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from colibri.chat.blocks import print_call
from colibri.chat.conversation import Conversation, Tool, Turn, TurnOptions
from colibri.chat.jsontext import dumps
from colibri.chat.prompt import Piece, Prompt, Special, prompt
from colibri.chat.tools import DEMAND, active_tools, demands_call
from colibri.errors import BadRequest

IM_START = Special("<|im_start|>")
IM_END = Special("<|im_end|>")
CALL = Special("<tool_call>")
CALL_END = Special("</tool_call>")

#: The system text a conversation without one gets.
PERSONA = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
PERSONA_2 = "You are a helpful assistant."

_TOOLS_HEAD = (
    "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_TOOLS_TAIL = "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "


def render(conversation: Conversation, options: TurnOptions, *, persona: str) -> Prompt:
    """The prompt of a conversation. Raises BadRequest for a continuation of what is no open answer."""
    turns = conversation.turns
    _check_continuation(turns, options)
    return prompt(_pieces(turns, active_tools(conversation, options), options, persona))


def _pieces(turns: Sequence[Turn], tools: Sequence[Tool], options: TurnOptions, persona: str) -> Iterator[Piece | str]:
    first = turns[0] if turns and turns[0].role == "system" else None
    yield from _open("system")
    yield first.text if first is not None else persona
    if tools:
        yield from _declare(tools, demands_call(options))
    yield from _close()
    for index, turn in enumerate(turns):
        last = index == len(turns) - 1
        if index == 0 and first is not None:
            continue
        if turn.role == "tool":
            follows = index > 0 and turns[index - 1].role == "tool"
            followed = not last and turns[index + 1].role == "tool"
            yield from _result(turn, follows, followed)
        elif turn.spoken is not None and not (last and options.cue == "continue"):
            yield from _open("assistant")
            yield turn.spoken
            yield from _close()
        elif turn.role == "assistant" and turn.calls:
            yield from _calls(turn)
        elif turn.role != "developer":  # the template passes such turns over in silence
            yield from _open(turn.role)
            yield turn.text
            if not (last and options.cue == "continue"):
                yield from _close()
    if options.cue == "new":
        yield from _open("assistant")


def _open(role: str) -> Iterator[Piece | str]:
    yield IM_START
    yield f"{role}\n"


def _close() -> Iterator[Piece | str]:
    yield IM_END
    yield "\n"


def _declare(tools: Sequence[Tool], demand: bool) -> Iterator[Piece | str]:
    """The tool block, which stands behind the system text."""
    yield _TOOLS_HEAD
    for tool in tools:
        yield "\n" + dumps(tool.declaration)
    yield _TOOLS_TAIL
    yield CALL
    yield CALL_END
    yield " XML tags:\n"
    yield CALL
    yield '\n{"name": <function-name>, "arguments": <args-json-object>}\n'
    yield CALL_END
    if demand:
        yield "\n" + DEMAND


def _calls(turn: Turn) -> Iterator[Piece | str]:
    yield IM_START
    yield "assistant"
    if turn.text:
        yield "\n" + turn.text
    for call in turn.calls:
        yield "\n"
        yield CALL
        yield print_call(call)
        yield CALL_END
    yield from _close()


def _result(turn: Turn, follows: bool, followed: bool) -> Iterator[Piece | str]:
    """A tool's result; neighbouring results share one user turn."""
    if not follows:
        yield IM_START
        yield "user"
    yield f"\n<tool_response>\n{turn.text}\n</tool_response>"
    if not followed:
        yield from _close()


def _check_continuation(turns: Sequence[Turn], options: TurnOptions) -> None:
    if options.cue == "continue" and (not turns or turns[-1].role != "assistant" or turns[-1].calls):
        raise BadRequest("Only an assistant message without tool calls can be continued.", param="messages")
