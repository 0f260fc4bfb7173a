"""How GLM-5 chat prompts are written: the official templates, piece by piece.

A turn is its role's marker and its text, with nothing between turns; the next marker ends it. The templates of GLM-5.2 and
GLM-5.3 differ in little more than what they do by themselves: that is a row of `TEMPLATES`. The tags of calls, of their
results and of thinking are control tokens; `<tools>` is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from colibri.chat.conversation import Conversation, TextPart, Tool, ToolCall, Turn, TurnOptions
from colibri.chat.jsontext import dumps
from colibri.chat.open_turn import check_open_turn, is_open_turn
from colibri.chat.prompt import Piece, Prompt, Special, prompt, template_text
from colibri.chat.tools import DEMAND, active_tools, demands_call

SYSTEM, USER, ASSISTANT = Special("<|system|>"), Special("<|user|>"), Special("<|assistant|>")
OBSERVATION = Special("<|observation|>")
THINK, THINK_END = Special("<think>"), Special("</think>")
CALL, CALL_END = Special("<tool_call>"), Special("</tool_call>")
KEY, KEY_END = Special("<arg_key>"), Special("</arg_key>")
VALUE, VALUE_END = Special("<arg_value>"), Special("</arg_value>")
RESULT, RESULT_END = Special("<tool_response>"), Special("</tool_response>")

#: The roles whose turns are a marker and a text.
_MARKERS = {"system": SYSTEM, "user": USER}

_TOOLS_HEAD = (
    "\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
)
_TOOLS_TAIL = template_text(
    "</tools>\n\nFor each function call, output the function name and arguments within the following XML format:\n"
    "<tool_call>{function-name}<arg_key>{arg-key-1}</arg_key><arg_value>{arg-value-1}</arg_value>"
    "<arg_key>{arg-key-2}</arg_key><arg_value>{arg-value-2}</arg_value>...</tool_call>",
    *(CALL, CALL_END, KEY, KEY_END, VALUE, VALUE_END),
)

#: What of a tool's declaration is not printed.
_UNSAID = ("defer_loading", "strict")

_REMINDER = (
    "<reminder>You are unable to process this {} because you don't have multi-modal input ability. "
    "Try different methods.</reminder>"
)


class Template(Struct, frozen=True):
    """What sets the official templates apart.

    `efforts`: the words that are printed as they are; any other means the greatest. `optional`: thinking can be turned
    off. `keeps`: past reasoning is printed unless the client says otherwise. `sorts`: results stand in the order of
    their calls. `media`: what stands for a part that is no text, by its kind.
    """

    efforts: tuple[str, ...]
    optional: bool
    keeps: bool
    sorts: bool
    media: Mapping[str, tuple[Piece | str, ...]]


_GLM_5_2 = Template(
    efforts=("high",),
    optional=True,
    keeps=False,
    sorts=False,
    media={kind: (_REMINDER.format(kind),) for kind in ("image", "audio")},
)
_GLM_5_3 = replace(_GLM_5_2, efforts=("low", "high"), optional=False, keeps=True, sorts=True)
_GLM_5_3_FLASH = replace(
    _GLM_5_3,
    media={
        "image": (Special("<|begin_of_image|>"), Special("<|image|>"), Special("<|end_of_image|>")),
        "audio": (Special("<|begin_of_audio|>"), Special("<|end_of_audio|>")),
    },
)

#: By the name of the variant.
TEMPLATES = {"glm-5.2": _GLM_5_2, "glm-5.3": _GLM_5_3, "glm-5.3-flash": _GLM_5_3_FLASH}


def render(template: Template, conversation: Conversation, options: TurnOptions) -> Prompt:
    """The prompt of a conversation. Raises BadRequest for a continuation of what is no open answer."""
    turns = conversation.turns
    check_open_turn(turns, options)
    return prompt(_pieces(template, turns, active_tools(conversation, options), options))


def _pieces(template: Template, turns: Sequence[Turn], tools: Sequence[Tool], options: TurnOptions) -> Iterator[Piece | str]:
    thinks = not template.optional or options.thinking is not False
    keeps = template.keeps if options.preserve_thinking is None else options.preserve_thinking
    last_user = max((index for index, turn in enumerate(turns) if turn.role == "user"), default=-1)
    yield from (Special("[gMASK]"), Special("<sop>"))
    if thinks:
        yield SYSTEM
        yield f"Reasoning Effort: {options.effort.capitalize() if options.effort in template.efforts else 'Max'}"
    if tools:
        yield SYSTEM
        yield from _declare(tools, demands_call(options))
    for index, turn in enumerate(turns):
        if turn.role == "assistant":
            opened = is_open_turn(turns, index, options)
            yield from _answer(template, turn, keeps=keeps or index > last_user, thinks=thinks, opened=opened)
        elif turn.role in _MARKERS:  # the templates pass developer turns over in silence
            yield _MARKERS[turn.role]
            yield from _visible(template, turn)
        elif turn.role == "tool" and (index == 0 or turns[index - 1].role != "tool"):
            results = list(takewhile(lambda turn: turn.role == "tool", turns[index:]))
            calls = turns[index - 1].calls if index > 0 and template.sorts else ()
            yield from _results(template, _in_call_order(results, calls))
    if options.cue == "new":
        yield from (ASSISTANT, THINK)
        if not thinks:
            yield THINK_END


def _declare(tools: Sequence[Tool], demand: bool) -> Iterator[Piece | str]:
    """The tool block, a system turn of its own."""
    yield _TOOLS_HEAD
    for tool in tools:
        function = tool.declaration.get("function", tool.declaration)
        if not function.get("defer_loading"):
            members = (f'"{key}": {dumps(value)}' for key, value in function.items() if key not in _UNSAID)
            yield f"{{{', '.join(members)}}}\n"
    yield from _TOOLS_TAIL
    if demand:
        yield "\n" + DEMAND


def _visible(template: Template, turn: Turn) -> Iterator[Piece | str]:
    for part in turn.content or ():
        if isinstance(part, TextPart):
            yield part.text
        else:
            yield from template.media[part.kind]


def _answer(template: Template, turn: Turn, *, keeps: bool, thinks: bool, opened: bool) -> Iterator[Piece | str]:
    """A turn of the model. `keeps`: its reasoning is printed. `opened`: it is the one to be continued."""
    yield from (ASSISTANT, THINK)
    if turn.spoken is not None and not opened and (keeps or not turn.reasoning):
        if not _was_thinking(turn, thinks):
            yield THINK_END
        yield turn.spoken
        return
    reasoning, text = turn.reasoning, prompt(_visible(template, turn)).text
    if reasoning is None and THINK_END.token in text:  # some clients send it inside the text
        before, *_, text = text.split(THINK_END.token)
        reasoning = before.split(THINK.token)[-1]
    if keeps and reasoning:
        yield reasoning
    yield THINK_END
    yield text.strip()
    for call in turn.calls:
        yield from _call(call)


def _was_thinking(turn: Turn, thinks: bool) -> bool:
    """Whether the model wrote a turn behind an open thinking block. Where the turn doesn't tell, it was made as the next
    one is to be."""
    assert turn.spoken is not None
    spoken, text = turn.spoken.text.lstrip(), turn.text.strip()
    if turn.reasoning or spoken.startswith(THINK_END.token):
        return True
    return thinks and not (text and spoken.startswith(text))


def _call(call: ToolCall) -> Iterator[Piece | str]:
    yield CALL
    yield call.name
    for key, value in call.named.items():
        yield from (KEY, key, KEY_END, VALUE, value if isinstance(value, str) else dumps(value), VALUE_END)
    yield CALL_END


def _results(template: Template, turns: Sequence[Turn]) -> Iterator[Piece | str]:
    yield OBSERVATION
    for turn in turns:
        yield RESULT
        yield from _visible(template, turn)
        yield RESULT_END


def _in_call_order(results: Sequence[Turn], calls: Sequence[ToolCall]) -> Sequence[Turn]:
    """The results of `calls` in the order of these, if the ids leave no doubt about which belongs to which."""
    order = {call.id or "": place for place, call in enumerate(calls)}
    ids = [turn.call_id or "" for turn in results]
    if "" in order or len(order) < len(calls) or len(set(ids)) < len(ids) or not order.keys() >= set(ids):
        return results
    return [turn for _, turn in sorted(zip(ids, results, strict=True), key=lambda pair: order[pair[0]])]
