"""How DeepSeek V3.2 prompts are written: the official encoder, piece by piece.

Every user message and every finished run of tool results ends with the mark that says whether the answer begins with
reasoning. Reasoning is shown only behind the last user message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from colibri.chat.conversation import Conversation, Tool, Turn, TurnOptions
from colibri.chat.open_turn import check_open_turn
from colibri.chat.prompt import Piece, Prompt, prompt, template_text
from colibri.chat.tools import active_tools, demands_call
from colibri.errors import BadRequest

from .markup import BOS, DSML, THINK, THINK_END, USER, answer, declare, instruction, opening, text_of, with_system

BLOCK = "function_calls"

_TOOLS_HEAD = template_text(
    """

## Tools
You have access to a set of tools you can use to answer the user's question.
You can invoke functions by writing a "<｜DSML｜function_calls>" block like the following as part of your reply to the user:
<｜DSML｜function_calls>
<｜DSML｜invoke name="$FUNCTION_NAME">
<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>
...
</｜DSML｜invoke>
<｜DSML｜invoke name="$FUNCTION_NAME2">
...
</｜DSML｜invoke>
</｜DSML｜function_calls>
String and scalar parameters should be specified as is without any escaping or quotes, while lists and objects should use \
JSON format. The "string" attribute should be set to "true" for string type parameters and "false" for other types \
(numbers, booleans, arrays, objects).
If the thinking_mode is enabled, then after function results you should strongly consider outputting a thinking block. \
Here is an example:
<｜DSML｜function_calls>
...
</｜DSML｜function_calls>
<function_results>
...
</function_results>
<think>...thinking about results</think>
Here are the functions available in JSONSchema format:
<functions>
""",
    DSML,
    THINK,
    THINK_END,
)
_TOOLS_TAIL = "\n</functions>\n"


def render(conversation: Conversation, options: TurnOptions) -> Prompt:
    """The prompt of a conversation. Raises BadRequest for what the encoder refuses."""
    check_open_turn(conversation.turns, options)
    tools = active_tools(conversation, options)
    turns = with_system(conversation.turns) if tools else conversation.turns
    return prompt(_pieces(turns, tools, options))


def _pieces(turns: Sequence[Turn], tools: Sequence[Tool], options: TurnOptions) -> Iterator[Piece | str]:
    yield BOS
    request = _last_request(turns)
    results, calls = 0, 0  # how many results were given for how many calls
    for index, turn in enumerate(turns):
        last = index == len(turns) - 1
        opens = not last or options.cue == "new"
        thinks = options.thinking is True and index >= request
        if turn.role == "system":
            yield text_of(turn)
            if tools:
                yield from declare(_TOOLS_HEAD, tools, _TOOLS_TAIL, demand=demands_call(options))
                tools = ()
        elif turn.role == "assistant":
            closed = not last or options.cue != "continue"
            if thinks and not (turn.reasoning or turn.calls or (turn.spoken and closed)):
                raise BadRequest(
                    "ThinkingMode: thinking, invalid message without reasoning_content/tool_calls after last user message. "
                    "Send its reasoning, or switch thinking off.",
                    param="messages",
                )
            yield from answer(turn, BLOCK, thinks=thinks, closed=closed)
            if last and opens:
                yield from opening(thinks)
        elif turn.role == "tool":
            results += 1
            if results > calls:
                raise BadRequest("No tool calls but found tool output", param="messages")
            yield "\n\n<function_results>" if results == 1 else ""
            yield f"\n<result>{text_of(turn)}</result>"
            if results == calls:
                yield "\n</function_results>"
                if opens:
                    yield "\n\n"
                    yield opening(thinks)[1]
        else:
            yield USER
            yield f"\n\n# The user's message is: {instruction(turn)}" if turn.role == "developer" else text_of(turn)
            if opens:
                yield from opening(thinks)
        if turn.role != "tool":
            results, calls = 0, len(turn.calls)


def _last_request(turns: Sequence[Turn]) -> int:
    """The number of the last turn that asks for an answer, -1 if there is none."""
    numbers = (index for index, turn in enumerate(turns) if turn.role in ("user", "developer"))
    return max(numbers, default=-1)
