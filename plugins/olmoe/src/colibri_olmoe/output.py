"""How OLMoE writes answers: everything is text, unless tools were described to it in words."""

from __future__ import annotations

from collections.abc import Sequence

from colibri.chat.blocks import blocks_or_bare
from colibri.chat.conversation import Tool
from colibri.chat.output import OutputFormat

#: Without tools everything is text.
PLAIN = OutputFormat()


def answer_format(tools: Sequence[Tool]) -> OutputFormat:
    """The format of an answer to a prompt that describes `tools`. The model was never taught the blocks that it is asked
    for, so calls without their tags are understood as well."""
    return blocks_or_bare([tool.name for tool in tools]) if tools else PLAIN
