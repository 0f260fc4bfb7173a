"""How answers are written. Qwen2, Qwen2.5 and Qwen3-Next: text, then calls as JSON in `<tool_call>` blocks. Qwen3.6 and
Qwen3.8: reasoning, text, then calls whose arguments stand in tags:

    <tool_call>
    <function=look>
    <parameter=place>
    pond
    </parameter>
    </function>
    </tool_call>

A value stands between two line breaks, which are not part of it, and ends at the first closing tag.
"""

from __future__ import annotations

from collections.abc import Sequence

from colibri.chat.arguments import ArgumentTypes
from colibri.chat.blocks import BLOCKS, blocks_or_bare
from colibri.chat.conversation import Tool
from colibri.chat.output import TEXT, OutputFormat
from colibri.chat.tagged_calls import CALL, CALL_END, KINDS, PARAMETER, PARAMETER_END, TAGS, TaggedCalls

#: Without tools everything is text.
PLAIN = OutputFormat()

#: An answer whose prompt opened the reasoning begins with that; the empty block is closed by the prompt itself.
_STARTS = (("<think>\n", "reasoning"),)
_TRIM = frozenset({"reasoning", "content"})
_REASONS = {("reasoning", "</think>"): ("content",)}

#: A call ends reasoning that was not closed. Text behind a call is a state of its own, since there the blanks that part it
#: from the text before are kept.
_CALLS: dict[tuple[str, str], tuple[str, ...]] = {
    **TAGS,
    **{(state, CALL): ("call", "open") for state in ("reasoning", "content", "between", "more")},
    ("between", TEXT): ("more",),
    ("key", ">\n"): ("value", "keyed"),
    ("key", CALL_END): ("between", "close"),
    ("value", f"\n{PARAMETER_END}"): ("inside", "valued"),
    # A value without its end: the next parameter ends it, and so does the end of the whole call.
    **{("value", lead + PARAMETER): ("key", "valued", "mended", "begun") for lead in ("", "\n")},
    **{("value", f"{lead}</function>\n{CALL_END}"): ("between", "valued", "close") for lead in ("", "\n")},
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
        moves={**_REASONS, **_CALLS},
        kinds={"between": "drop", "more": "content", **KINDS},
        starts=_STARTS,
        trim=_TRIM,
        calls=TaggedCalls(ArgumentTypes.by_tool(tools), once=True),
    )
