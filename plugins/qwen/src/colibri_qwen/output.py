"""How answers are written. Qwen2, Qwen2.5 and Qwen3-Next: text, then calls as JSON in `<tool_call>` blocks. Qwen3.6 and
Qwen3.8: reasoning, text, then calls whose arguments stand in tags."""

from __future__ import annotations

from collections.abc import Sequence

from colibri.chat.arguments import ArgumentTypes
from colibri.chat.blocks import BLOCKS, blocks_or_bare
from colibri.chat.conversation import Tool
from colibri.chat.output import TEXT, OutputFormat

from .functions import KINDS, MOVES, FunctionCalls

#: Without tools everything is text.
PLAIN = OutputFormat()

#: An answer whose prompt opened the reasoning begins with that; the empty block is closed by the prompt itself.
_STARTS = (("<think>\n", "reasoning"),)
_TRIM = frozenset({"reasoning", "content"})
_REASONS = {("reasoning", "</think>"): ("content",)}

#: A call ends reasoning that was not closed. Text behind a call is a state of its own, since there the blanks that part it
#: from the text before are kept.
_CALLS: dict[tuple[str, str], tuple[str, ...]] = {
    **{(state, "<tool_call>"): ("block", "open") for state in ("reasoning", "content", "between", "more")},
    ("between", TEXT): ("more",),
}


def instruct_format(tools: Sequence[Tool], *, bare: bool) -> OutputFormat:
    """The format of an answer that may call `tools`. With `bare`, calls without their tags are understood as well, as
    the Coder models like to write them."""
    if not tools:
        return PLAIN
    return blocks_or_bare([tool.name for tool in tools]) if bare else BLOCKS


def thinking_format(tools: Sequence[Tool] | None) -> OutputFormat:
    """The format of an answer that may think, and call `tools`; without any declared it may still call what an earlier
    turn has shown it, with strings for arguments. None: no call is to be made, and what looks like one is text."""
    if tools is None:
        return OutputFormat(moves=_REASONS, starts=_STARTS, trim=_TRIM)
    return OutputFormat(
        moves={**_REASONS, **_CALLS, **MOVES},
        kinds={"between": "drop", "more": "content", **KINDS},
        starts=_STARTS,
        trim=_TRIM,
        calls=FunctionCalls(ArgumentTypes.by_tool(tools)),
    )
