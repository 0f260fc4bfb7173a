"""How MiMo chat prompts are written: the official templates, piece by piece.

Turns stand in ChatML without line breaks between them, and nothing is trimmed. An assistant turn always begins with its
reasoning, in a block that may be empty. V2.6 declares tools in a system turn of their own, before everything; older models
have a system text for conversations without one instead. Of the tags in calls, only `<tool_call>` and its end are tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from colibri.chat.conversation import Conversation, MediaPart, Tool, ToolCall, Turn, TurnOptions
from colibri.chat.jsontext import dumps
from colibri.chat.open_turn import check_open_turn, is_open_turn
from colibri.chat.prompt import Piece, Prompt, Special, prompt
from colibri.chat.tools import DEMAND, active_tools, demands_call
from colibri.errors import BadRequest

IM_START = Special("<|im_start|>")
IM_END = Special("<|im_end|>")
THINK = Special("<think>")
THINK_END = Special("</think>")
CALL = Special("<tool_call>")
CALL_END = Special("</tool_call>")
IMAGE = (Special("<|vision_start|>"), Special("<|image_pad|>"), Special("<|vision_end|>"))


def render(conversation: Conversation, options: TurnOptions, *, thinks: bool, persona: str | None) -> Prompt:
    """The prompt of a conversation. `thinks`: whether the template leaves thinking on where nothing is said; `persona`:
    the system text that stands first where the client sends none. Raises BadRequest for what has no words."""
    turns = conversation.turns
    check_open_turn(turns, options)
    thinking = thinks if options.thinking is None else options.thinking
    return prompt(_pieces(conversation, options, thinking, persona))


def _pieces(conversation: Conversation, options: TurnOptions, thinking: bool, persona: str | None) -> Iterator[Piece | str]:
    turns = conversation.turns
    if persona is not None and (not turns or turns[0].role != "system"):
        yield from _open("system")
        yield persona
        yield IM_END
    if tools := active_tools(conversation, options):
        yield from _declare(tools, demands_call(options))
    for index, turn in enumerate(turns):
        opened = is_open_turn(turns, index, options)
        yield from _open(turn.role)
        if turn.role != "assistant":
            yield from _content(turn, index)
        elif turn.spoken is None or opened:
            yield from _answer(turn, index)
        else:
            # A turn that begins with reasoning was not generated behind the empty block, whatever is asked for now.
            if not thinking and not turn.spoken.text.startswith(THINK.token):
                yield from (THINK, THINK_END)
            yield turn.spoken
        if not opened:
            yield IM_END
    if options.cue == "new":
        yield from _open("assistant")
        if not thinking:
            yield from (THINK, THINK_END)


def _open(role: str) -> Iterator[Piece | str]:
    yield IM_START
    yield f"{role}\n"


def _declare(tools: Sequence[Tool], demand: bool) -> Iterator[Piece | str]:
    yield from _open("system")
    yield "You are provided with the following tools:\n\n<tools>\n"
    yield "\n".join(dumps(tool.declaration) for tool in tools)
    yield "\n</tools>"
    if demand:
        yield "\n" + DEMAND
    yield IM_END


def _content(turn: Turn, index: int) -> Iterator[Piece | str]:
    """What a turn says; its number tells where a part stands that has no words."""
    for part in turn.content or ():
        if not isinstance(part, MediaPart):
            yield part.text
        elif part.kind == "image":
            yield from IMAGE
        else:
            raise BadRequest(f"MiMo has no words for {part.kind} input.", param=f"messages.{index}.content")


def _answer(turn: Turn, index: int) -> Iterator[Piece | str]:
    yield THINK
    yield turn.reasoning or ""
    yield THINK_END
    yield from _content(turn, index)
    for call in turn.calls:
        yield CALL
        yield f"<function={call.name}>{_arguments(call)}</function>"
        yield CALL_END


def _arguments(call: ToolCall) -> str:
    """The arguments one by one, strings as they are; what was no object stays what it was."""
    if isinstance(call.arguments, str):
        return call.arguments
    texts = ((name, value if isinstance(value, str) else dumps(value)) for name, value in call.arguments.items())
    return "".join(f"<parameter={name}>{text}</parameter>" for name, text in texts)
