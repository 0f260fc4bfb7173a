"""How OLMoE writes answers: everything is text, unless tools were described to it in words."""

from __future__ import annotations

from colibri.chat.blocks import BLOCKS
from colibri.chat.output import OutputFormat

PLAIN = OutputFormat()
WITH_TOOLS = BLOCKS
