"""How DeepSeek V4 prompts are written: the official encoder, piece by piece.

Neighbouring user messages and tool results are one user message. The mark that opens an answer stands at the end of the
user message before it, with the mark that says whether the answer begins with reasoning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from colibri.chat.conversation import Conversation, TextPart, Tool, Turn, TurnOptions
from colibri.chat.open_turn import check_open_turn
from colibri.chat.prompt import Piece, Prompt, prompt, template_text
from colibri.chat.tools import active_tools, demands_call
from colibri.errors import BadRequest

from .markup import BOS, DSML, THINK, THINK_END, USER, answer, declare, instruction, opening, text_of, with_system

BLOCK = "tool_calls"

#: What stands in front of everything, by effort. The first is what a model is asked that is asked for none.
_EFFORTS = {
    "low": "",
    "high": (
        "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
        "You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, "
        "rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.\n"
        "Explicitly write out your entire deliberation process, documenting every intermediate step, considered "
        "alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.\n\n"
    ),
    "max": (
        "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\n"
        "You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the "
        "problem into its most fundamental components, trace every causal chain to its root, and resolve the underlying "
        "cause rather than any surface symptom.\n"
        "Do not stop reasoning until you have independently verified the solution from multiple angles and are certain "
        "that no assumption remains unchecked and no error remains undiscovered.\n\n"
    ),
}

_TOOLS_HEAD = template_text(
    """

## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a \
"<｜DSML｜tool_calls>" block like the following:

<｜DSML｜tool_calls>
<｜DSML｜invoke name="$TOOL_NAME">
<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>
...
</｜DSML｜invoke>
<｜DSML｜invoke name="$TOOL_NAME2">
...
</｜DSML｜invoke>
</｜DSML｜tool_calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, \
objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> \
BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

""",
    DSML,
    THINK,
    THINK_END,
)
_TOOLS_TAIL = "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n"

#: Turns of one user message of the template, or one turn of another role.
_Message = list[Turn]


def render(conversation: Conversation, options: TurnOptions) -> Prompt:
    """The prompt of a conversation. Raises BadRequest for what the encoder refuses."""
    check_open_turn(conversation.turns, options)
    if options.effort is not None and options.effort not in _EFFORTS:
        known = ", ".join(_EFFORTS)
        raise BadRequest(f"Invalid reasoning effort: {options.effort}, expected one of {known}", param="reasoning_effort")
    tools = active_tools(conversation, options)
    thinking = options.thinking is not False
    turns = with_system(conversation.turns) if tools else conversation.turns
    messages = _messages(turns)
    # Where tools are declared, nothing of the past is dropped.
    drops = thinking and not tools and not options.preserve_thinking
    if drops:
        last = _last_request(messages)
        messages = [m for index, m in enumerate(messages) if m[0].role != "developer" or index >= last]
    return prompt(_pieces(messages, tools, options, thinking, _last_request(messages) if drops else 0))


def _pieces(
    messages: Sequence[_Message], tools: Sequence[Tool], options: TurnOptions, thinking: bool, kept: int
) -> Iterator[Piece | str]:
    """The pieces of `messages`; reasoning is shown from the message with the number `kept` on."""
    yield BOS
    if thinking:
        yield _EFFORTS[options.effort or "low"]
    order: dict[str, int] = {}
    for index, message in enumerate(messages):
        turn, last = message[0], index == len(messages) - 1
        thinks = thinking and index >= kept
        if turn.role == "system":
            yield text_of(turn)
            if tools:
                yield from declare(_TOOLS_HEAD, tools, _TOOLS_TAIL, demand=demands_call(options))
                tools = ()
            continue
        if turn.role == "assistant":
            yield from answer(turn, BLOCK, thinks=thinks, closed=not last or options.cue != "continue")
            if turn.calls:
                order = {call.id: number for number, call in enumerate(turn.calls) if call.id}
        else:
            yield USER
            yield instruction(turn) if turn.role == "developer" else _request(message, order)
        answered = turn.role != "assistant" and not last and messages[index + 1][0].role == "assistant"
        if answered or (last and options.cue == "new"):
            yield from opening(thinks)


def _messages(turns: Sequence[Turn]) -> list[_Message]:
    messages: list[_Message] = []
    for turn in turns:
        if messages and {turn.role, messages[-1][0].role} <= {"user", "tool"}:
            messages[-1].append(turn)
        else:
            messages.append([turn])
    return messages


def _last_request(messages: Sequence[_Message]) -> int:
    """The number of the last message that asks for an answer, -1 if there is none."""
    numbers = (index for index, message in enumerate(messages) if message[0].role not in ("system", "assistant"))
    return max(numbers, default=-1)


def _request(message: _Message, order: Mapping[str, int]) -> str:
    """A user message: texts where they stand, results in the order of the calls they answer."""
    results = iter(
        sorted((turn for turn in message if turn.role == "tool"), key=lambda turn: order.get(turn.call_id or "", 0))
    )
    return "\n\n".join(_result(next(results)) if turn.role == "tool" else text_of(turn) for turn in message)


def _result(turn: Turn) -> str:
    parts = (part.text if isinstance(part, TextPart) else f"[Unsupported {part.kind}]" for part in turn.content or ())
    return "<tool_result>" + "\n\n".join(parts) + "</tool_result>"
