"""How the models that think before they answer are prompted, Qwen3.6 and Qwen3.8: the official templates, piece by piece.

Every text is trimmed at both ends. An answer begins with its reasoning in `<think>` tags, empty where nothing was thought;
in past turns the block is shown or left out as a whole. A call names its function and its arguments in tags of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from colibri.chat.conversation import Conversation, MediaPart, Part, Tool, ToolCall, Turn, TurnOptions
from colibri.chat.jsontext import dumps
from colibri.chat.open_turn import check_open_turn, is_open_turn
from colibri.chat.prompt import Piece, Prompt, Special, Text, prompt, template_text
from colibri.chat.tools import active_tools, demands_call
from colibri.errors import BadRequest

from .chatml import CALL, CALL_END, RESULT, Pieces, closed, declared, is_result, opened, result

THINK = Special("<think>")
THINK_END = Special("</think>")

_IMAGE = (Special("<|vision_start|>"), Special("<|image_pad|>"), Special("<|vision_end|>"))


class Template(Struct, frozen=True):
    """What sets the templates apart.

    `efforts` are the sentences at the beginning of the system turn, by the words for effort, and `effort` is the word of
    those who give none. `preserve`: past reasoning is kept unless the client says otherwise. `inline`: reasoning may come
    back inside the text, in its tags. `blank`: an empty system message makes an empty turn.
    """

    efforts: Mapping[str, str] = {}
    effort: str = ""
    preserve: bool = False
    inline: bool = False
    blank: bool = False


QWEN3_6 = Template(inline=True, blank=True)
QWEN3_8 = Template(
    efforts={
        "low": "Reasoning effort is set to low. Keep your thinking brief and focused, moving directly to the conclusion "
        "without unnecessary elaboration.",
        "medium": "",
        "xhigh": "Reasoning effort is set to xhigh. Please think carefully through the task, validate key assumptions, "
        "consider plausible alternatives, and prioritize correctness, consistency, and clarity in the final answer.",
    },
    effort="xhigh",
    preserve=True,
)

_TOOLS_HEAD = "# Tools\n\nYou have access to the following functions:\n\n<tools>"
_TOOLS_TAIL = template_text(
    "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO suffix:\n\n"
    "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n"
    "<parameter=example_parameter_2>\nThis is the value for the second parameter\nthat can span\nmultiple lines\n"
    "</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\nReminder:\n- Function calls MUST follow the specified format: "
    "an inner <function=...></function> block must be nested within <tool_call></tool_call> XML tags\n- Required parameters "
    "MUST be specified\n- You may provide optional reasoning for your function call in natural language BEFORE the function "
    "call, but NOT after\n- If there is no function call available, answer the question like normal with your current "
    "knowledge and do not tell the user about function calls\n</IMPORTANT>",
    CALL,
    CALL_END,
)


def render(conversation: Conversation, options: TurnOptions, template: Template) -> Prompt:
    """The prompt of a conversation. Raises BadRequest for what the template refuses, mostly in its own words."""
    turns = conversation.turns
    check_open_turn(turns, options)
    if not turns:
        raise BadRequest("No messages provided.", param="messages")
    return prompt(_pieces(turns, active_tools(conversation, options), options, template))


def _pieces(turns: Sequence[Turn], tools: Sequence[Tool], options: TurnOptions, template: Template) -> Pieces:
    yield from _system(turns, tools, options, template)
    query = _last_query(turns)
    keep = template.preserve if options.preserve_thinking is None else options.preserve_thinking
    for index, turn in enumerate(turns):
        if turn.role == "user":
            yield from opened("user")
            yield from _content(turn, index)
            yield from closed()
        elif turn.role == "assistant":
            shown, continued = keep or index > query, is_open_turn(turns, index, options)
            yield from opened("assistant")
            if turn.spoken is not None and not continued and (shown or not turn.reasoning):
                yield from _lead(thinks=_thought(turn, options))
                yield turn.spoken
            else:
                yield from _answer(turn, index, template, shown=shown)
            if not continued:
                yield from closed()
        elif turn.role == "tool":
            begins, ends = index > 0 and not is_result(turns, index - 1), not is_result(turns, index + 1)
            yield from result(_content(turn, index), RESULT, first=begins, last=ends)
        elif turn.role != "system":
            raise BadRequest("Unexpected message role.", param=f"messages.{index}.role")
        elif index > 0:
            raise BadRequest("System message must be at the beginning.", param=f"messages.{index}.role")
    if options.cue == "new":
        yield from opened("assistant")
        yield from _lead(thinks=options.thinking is not False)


def _system(turns: Sequence[Turn], tools: Sequence[Tool], options: TurnOptions, template: Template) -> Pieces:
    """The system turn: how much to think, the tools and the client's text, as far as there are any, an empty line apart."""
    asked = turns[0].role == "system"
    effort, text = _effort(options, template), _content(turns[0], 0) if asked else ()
    parts: list[Sequence[Piece | str] | Pieces] = []
    parts += [(effort,)] if effort else []
    parts += [declared(_TOOLS_HEAD, tools, _TOOLS_TAIL, demand=demands_call(options))] if tools else []
    parts += [text] if text else []
    if not parts and not (asked and template.blank):
        return
    yield from opened("system")
    for number, part in enumerate(parts):
        yield "\n\n" if number else ""
        yield from part
    yield from closed()


def _effort(options: TurnOptions, template: Template) -> str:
    """What the prompt says about effort, if anything."""
    if not template.efforts or options.thinking is False:
        return ""
    word = template.effort if options.effort is None else options.effort
    if word not in template.efforts:
        raise BadRequest(
            f"Unexpected reasoning effort {word}. Supported types are xhigh (default), medium, and low.",
            code="unsupported_value",
            param="reasoning_effort",
        )
    return template.efforts[word]


def _last_query(turns: Sequence[Turn]) -> int:
    """The index of the last thing a user said, results given as user messages aside."""
    for index in reversed(range(len(turns))):
        if turns[index].role == "user":
            text = Prompt(_content(turns[index], index)).text
            if not (text.startswith("<tool_response>") and text.endswith("</tool_response>")):
                return index
    raise BadRequest("No user query found in messages.", param="messages")


def _content(turn: Turn, index: int) -> tuple[Piece, ...]:
    """What a turn says, trimmed."""
    pieces = list(prompt(piece for part in turn.content or () for piece in _part(part, turn, index)).pieces)
    if pieces and isinstance(pieces[0], Text):
        pieces[0] = Text(pieces[0].text.lstrip())
    if pieces and isinstance(pieces[-1], Text):
        pieces[-1] = Text(pieces[-1].text.rstrip())
    return prompt(pieces).pieces


def _part(part: Part, turn: Turn, index: int) -> Sequence[Piece | str]:
    if not isinstance(part, MediaPart):
        return (part.text,)
    if part.kind == "image" and turn.role != "system":
        return _IMAGE
    reason = "System message cannot contain images." if part.kind == "image" else "Unexpected item type in content."
    raise BadRequest(reason, param=f"messages.{index}.content")


def _lead(*, thinks: bool) -> Pieces:
    """What an answer is generated behind: reasoning begun, or the empty block of one that is to begin at once."""
    if thinks:
        yield THINK
        yield "\n"
    else:
        yield from _reasoning("")


def _reasoning(text: str) -> Pieces:
    yield THINK
    yield f"\n{text}\n"
    yield THINK_END
    yield "\n\n"


def _thought(turn: Turn, options: TurnOptions) -> bool:
    """Whether a turn the model wrote was generated behind reasoning begun. Text without any end of reasoning was not;
    a call may end reasoning as well, so that a turn with calls and no reasoning is taken for one made as the next is."""
    assert turn.spoken is not None
    if turn.reasoning or THINK_END.token in turn.spoken.text:
        return True
    return bool(turn.calls) and options.thinking is not False


def _answer(turn: Turn, index: int, template: Template, *, shown: bool) -> Pieces:
    """A past answer: its reasoning, if that is shown, its text and its calls."""
    reasoning, body = (turn.reasoning or "").strip(), _content(turn, index)
    text = Prompt(body).text
    if turn.reasoning is None and template.inline and THINK_END.token in text:
        reasoning = text.partition(THINK_END.token)[0].rpartition(THINK.token)[2].strip()
        text = text.rpartition(THINK_END.token)[2].lstrip("\n")
        body = (Text(text),)
    if shown:
        yield from _reasoning(reasoning)
    yield from body
    lead = "\n\n" if text.strip() else ""
    for call in turn.calls:
        yield lead
        yield from _call(call)
        lead = "\n"


def _call(call: ToolCall) -> Pieces:
    yield CALL
    yield f"\n<function={call.name}>\n"
    for name, value in call.named.items():
        yield f"<parameter={name}>\n{value if isinstance(value, str) else dumps(value)}\n</parameter>\n"
    yield "</function>\n"
    yield CALL_END
