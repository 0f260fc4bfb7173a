"""Answers whose calls stand as JSON in `<tool_call>` blocks, one call a block: a format that several families share."""

from __future__ import annotations

from collections.abc import Sequence

from .calls import BareJson, JsonCalls
from .conversation import ToolCall
from .jsontext import dumps
from .output import TEXT, OutputFormat

_CALLS = JsonCalls()

#: The line break in front of a block belongs to the block: a text and its calls are joined with it. So do the blanks
#: behind a block, unless they part it from a text that goes on.
_MOVES = {
    ("content", "\n<tool_call>"): ("call", "open"),
    ("content", "<tool_call>"): ("call", "open"),
    ("call", "</tool_call>"): ("between", "close"),
    ("call", "<tool_call>"): ("call", "open"),
    ("between", "<tool_call>"): ("call", "open"),
    ("between", TEXT): ("content",),
}

BLOCKS = OutputFormat(moves=_MOVES, kinds={"call": "body", "between": "drop"}, calls=_CALLS)


def blocks_or_bare(names: Sequence[str]) -> OutputFormat:
    """The same for models that leave the tags out: a whole answer that is nothing but one call to one of the tools
    `names`, bare or in a code fence, counts as that call."""
    return OutputFormat(
        moves={**_MOVES, ("opening", TEXT): ("content",)},
        kinds={**BLOCKS.kinds, "opening": "guess"},
        start="opening",
        calls=_CALLS,
        guess=BareJson(_CALLS, tuple(names)),
    )


def print_call(call: ToolCall, *, raw: bool = False) -> str:
    """The JSON object between the tags, with the line breaks that stand around it. The name is printed as it is, and
    arguments that were no object become a JSON string, or stay as they were if `raw`."""
    arguments = call.arguments if raw and isinstance(call.arguments, str) else dumps(call.arguments)
    return f'\n{{"name": "{call.name}", "arguments": {arguments}}}\n'
