"""Tools for families that have no format for them, on request only: described in words, called in `<tool_call>` blocks.

Nothing here is a family's own format. `in_words` turns a conversation with tools into one without, and
`colibri.chat.blocks.BLOCKS` reads the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from .blocks import print_call
from .conversation import Conversation, TextPart, Tool, Turn, TurnOptions
from .jsontext import dumps
from .tools import DEMAND, active_tools, demands_call


def in_words(conversation: Conversation, options: TurnOptions) -> Conversation:
    """The conversation with its tools described in the system text, its calls written out in their turns, and runs of
    results gathered in user turns."""
    turns = list(_spelled(conversation.turns))
    tools = active_tools(conversation, options)
    if tools:
        text = _described(tools, demands_call(options))
        if turns and turns[0].role == "system":
            turns[0] = _with_text(turns[0], "\n\n".join(filter(None, (turns[0].text, text))))
        else:
            turns.insert(0, Turn("system", (TextPart(text),)))
    return Conversation(tuple(turns))


def _described(tools: Sequence[Tool], demand: bool) -> str:
    lines = [
        "You can call these functions, one JSON object a line:",
        *(dumps(tool.declaration.get("function", tool.declaration)) for tool in tools),
        "",
        "To call one, write a block like this, with the arguments as a JSON object, and nothing after it:",
        "<tool_call>",
        '{"name": "function_name", "arguments": {"parameter": "value"}}',
        "</tool_call>",
        "",
        "The results come back in <tool_response> blocks. Answer in plain text if no function is needed.",
    ]
    return "\n".join([*lines, DEMAND] if demand else lines)


def _spelled(turns: Sequence[Turn]) -> Iterator[Turn]:
    """Turns in which calls and results are text."""
    results: list[str] = []
    for turn in turns:
        if turn.role == "tool":
            results.append(f"<tool_response>\n{turn.text}\n</tool_response>")
            continue
        if results:
            yield Turn("user", (TextPart("\n".join(results)),))
            results.clear()
        if turn.calls:
            blocks = [f"<tool_call>{print_call(call)}</tool_call>" for call in turn.calls]
            turn = _with_text(replace(turn, calls=()), "\n".join(filter(None, (turn.text, *blocks))))
        yield turn
    if results:
        yield Turn("user", (TextPart("\n".join(results)),))


def _with_text(turn: Turn, text: str) -> Turn:
    return replace(turn, content=(TextPart(text),))
