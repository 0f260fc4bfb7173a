"""How Qwen2 and Qwen2.5 write answers: text, then calls as JSON in `<tool_call>` blocks."""

from __future__ import annotations

from collections.abc import Sequence

from colibri.chat.blocks import BLOCKS, blocks_or_bare
from colibri.chat.conversation import Tool
from colibri.chat.output import OutputFormat

#: Without tools everything is text.
PLAIN = OutputFormat()


def answer_format(tools: Sequence[Tool], *, bare: bool) -> OutputFormat:
    """The format of an answer that may call `tools`. With `bare`, calls without their tags are understood as well, as
    the Coder models like to write them."""
    if not tools:
        return PLAIN
    return blocks_or_bare([tool.name for tool in tools]) if bare else BLOCKS
