"""How MiMo writes answers: reasoning in a block that it opens itself, text, and calls whose values are bare text.

    <tool_call><function=NAME><parameter=KEY>VALUE</parameter>…</function></tool_call>

Between the tags nothing stands, or blanks. A value is everything up to `</parameter>`; one whose end is missing ends before
the next parameter, which must be declared, else it is part of the value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from colibri.chat.arguments import ArgumentTypes
from colibri.chat.conversation import Tool
from colibri.chat.output import TEXT, OutputFormat
from colibri.chat.tagged_calls import CALL, KINDS, PARAMETER, PARAMETER_END, TAGS, TaggedCalls

#: An answer may begin with reasoning; without, or behind it, stands text. Blanks in front of that text are not shown.
_TEXT_MOVES: dict[tuple[str, str], tuple[str, ...]] = {
    ("start", "<think>"): ("reasoning",),
    ("start", TEXT): ("content",),
    ("reasoning", "</think>"): ("answer",),
    ("answer", TEXT): ("content",),
}

#: No tag but `</parameter>` ends a value, and `<tool_call>` in reasoning is only thought of.
_CALL_MOVES: dict[tuple[str, str], tuple[str, ...]] = {
    **TAGS,
    **{(state, CALL): ("call", "open") for state in ("start", "answer", "content", "between", "name")},
    ("key", PARAMETER_END): ("inside", "unkeyed", "valued"),
    ("value", PARAMETER): ("key", "begun"),
    ("inside", "</function>"): ("ended", "ended", "written"),
    ("between", TEXT): ("content",),
}

_START = "start"
_STARTS = (("<think></think>", "answer"),)

#: Names hold no tags, and those of functions are not blank.
_NAMES = re.compile(r"(?!\s*\Z)[^<\n]*")
_KEYS = re.compile(r"[^<\n]*")

#: Without tools there are no calls.
PLAIN = OutputFormat(_TEXT_MOVES, {"start": "drop", "answer": "drop"}, _START, _STARTS)


def answer_format(tools: Sequence[Tool]) -> OutputFormat:
    """The format of an answer that may call `tools`."""
    if not tools:
        return PLAIN
    return OutputFormat(
        {**_TEXT_MOVES, **_CALL_MOVES},
        {**PLAIN.kinds, "between": "drop", **KINDS},
        _START,
        _STARTS,
        calls=TaggedCalls(ArgumentTypes.by_tool(tools), _NAMES, _KEYS, once=True, objects=True),
    )
