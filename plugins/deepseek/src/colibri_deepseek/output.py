"""How DeepSeek models write answers: reasoning, text, then calls in one DSML block.

    <｜DSML｜tool_calls>
    <｜DSML｜invoke name="look">
    <｜DSML｜parameter name="place" string="true">pond</｜DSML｜parameter>
    </｜DSML｜invoke>
    </｜DSML｜tool_calls>

Values are raw text or JSON, as the attribute says. Blocks of V4 and V3.2 differ in name only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from msgspec import Struct

from colibri.chat.arguments import ArgumentTypes, ObjectWriter, inside_string
from colibri.chat.calls import Part
from colibri.chat.conversation import Tool
from colibri.chat.jsontext import dumps, is_value
from colibri.chat.output import OutputFormat, StateKind

_STARTS = (("<think>", "reasoning"),)

#: Without tools there are no calls.
PLAIN = OutputFormat(moves={("reasoning", "</think>"): ("content",)}, starts=_STARTS)

_KINDS: dict[str, StateKind] = {
    **dict.fromkeys(("block", "name", "parameters", "key", "value", "between"), "field"),
    "after": "drop",
}

#: Line breaks in front of a block, or of a tag that stands where another is missing, are no part of what they follow.
_LEADS = ("", "\n", "\n\n")


def answer_format(tools: Sequence[Tool], block: str) -> OutputFormat:
    """The format of an answer that may call `tools`, in a block of the given name."""
    if not tools:
        return PLAIN
    return OutputFormat(moves=_moves(block), kinds=_KINDS, starts=_STARTS, calls=DsmlCalls(ArgumentTypes.by_tool(tools)))


@cache
def _moves(block: str) -> dict[tuple[str, str], tuple[str, ...]]:
    """The table. A move with the action `repair` is one that only a reader that repairs makes."""
    open_block, close_block = f"<｜DSML｜{block}>", f"</｜DSML｜{block}>"
    invoke, close_invoke = '<｜DSML｜invoke name="', "</｜DSML｜invoke>"
    parameter, close_parameter = '<｜DSML｜parameter name="', "</｜DSML｜parameter>"
    moves: dict[tuple[str, str], tuple[str, ...]] = {
        ("reasoning", "</think>"): ("content",),
        ("block", invoke): ("name",),
        ("block", close_block): ("after", "close"),
        ("name", '">'): ("parameters", "named"),
        ("parameters", parameter): ("key",),
        ("parameters", close_invoke): ("between", "whole"),
        ("parameters", invoke): ("name", "repair", "whole", "open"),
        ("parameters", close_block): ("after", "repair", "whole", "close"),
        ("key", '" string="true">'): ("value", "string"),
        ("key", '" string="false">'): ("value", "json"),
        ("key", '">'): ("value", "repair", "declared"),
        ("value", close_parameter): ("parameters", "valued"),
        ("between", invoke): ("name", "followed", "open"),
        ("between", open_block): ("block", "repair", "open"),
        ("between", close_block): ("after", "close"),
        ("after", open_block): ("block", "open"),
    }
    for lead in _LEADS:
        moves["content", lead + open_block] = ("block", "open")
        moves["content", lead + invoke] = ("name", "open", "repair")
        moves["reasoning", lead + open_block] = ("block", "open", "repair")
    for lead in _LEADS[:2]:
        moves["value", lead + parameter] = ("key", "repair", "valued")
        moves["value", lead + close_invoke] = ("between", "repair", "valued", "whole")
        moves["value", lead + close_block] = ("after", "repair", "valued", "whole", "close")
    return moves


class DsmlCalls(Struct, frozen=True):
    """Calls in DSML. `types` are those of the declared tools, for values that do not say what they are."""

    types: Mapping[str, ArgumentTypes]

    def reader(self, repair: bool) -> DsmlCall:
        return DsmlCall(self.types, repair)


class DsmlCall:
    """Reads one call. Strings stream as they come, other values when they are whole."""

    def __init__(self, types: Mapping[str, ArgumentTypes], repair: bool) -> None:
        self._declared = types
        self._types = ArgumentTypes({})
        self._repair = repair
        self._writer = ObjectWriter()
        self._text: list[str] = []  # what is being read and has to be seen whole
        self._key = ""
        self._kind = ""  # of the value being read: string, json, or as declared
        self._bad = self._whole = self._followed = False

    def read(self, state: str, text: str) -> tuple[int, list[Part]]:
        if state == "value" and self._kind == "string":
            return len(text), [Part("tool_args", inside_string(text), len(text))]
        if state in ("name", "key", "value"):
            self._text.append(text)
        elif text.strip():
            self._bad |= not self._repair
        return len(text), []

    def act(self, action: str) -> list[Part]:
        if action == "repair":
            self._bad |= not self._repair
        elif action == "whole":
            self._whole = True
            return [Part("tool_args", self._writer.end())]
        elif action == "followed":
            self._followed = True
        elif action == "named":
            name = self._taken()
            self._bad |= not name
            self._types = self._declared.get(name, self._types)
            return [Part("tool_start", name)]
        elif action == "valued":
            return [Part("tool_args", '"' if self._kind == "string" else self._value())]
        else:
            return [Part("tool_args", self._begin(action))]
        return []

    def close(self, marked: bool) -> list[Part]:
        """The call is whole if its end was seen; behind that, a block may go on, or be cut if that is repaired."""
        whole = self._whole and not self._bad and (marked or self._followed or self._repair)
        return [Part("tool_end" if whole else "tool_cut")]

    def _begin(self, kind: str) -> str:
        """A value begins: what is written in front of it."""
        name = self._taken()
        # What follows the name, where there is no readable type, means nothing.
        self._key = name.partition('"')[0] if kind == "declared" else name
        self._kind = "string" if kind == "declared" and self._types.is_text(self._key) else kind
        return self._writer.key(self._key) + ('"' if self._kind == "string" else "")

    def _value(self) -> str:
        text = self._taken()
        if self._kind == "declared":
            return self._types.value(self._key, text)
        return text.strip() if is_value(text.strip()) else dumps(text)

    def _taken(self) -> str:
        text = "".join(self._text)
        self._text.clear()
        return text
