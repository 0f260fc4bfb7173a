"""How answers are written: here, all is text.

A model that thinks or calls tools has a table of moves, (state, marker) -> (next state, actions); `colibri.chat.output` says
how it is read, and `colibri.chat.blocks` has that of calls which are JSON in `<tool_call>` tags. Give the table with calls
only where tools may be used (`colibri.chat.tools.active_tools`).
"""

from __future__ import annotations

from colibri.chat.output import OutputFormat

ANSWER = OutputFormat()
