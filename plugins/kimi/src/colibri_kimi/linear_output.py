"""How Kimi Linear writes answers: text, then a section of calls. A call has an id, which holds the name of its tool, and
arguments in JSON.

    <|tool_calls_section_begin|><|tool_call_begin|>functions.look:0<|tool_call_argument_begin|>{"place": "pond"}
    <|tool_call_end|><|tool_calls_section_end|>
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from colibri.chat.calls import Part, object_of
from colibri.chat.conversation import Tool
from colibri.chat.jsontext import ValueScanner, blanks
from colibri.chat.output import TEXT, OutputFormat

from .linear import ARGUMENT, CALL, CALL_END, SECTION, SECTION_END

_ID = re.compile(r"functions\.(.+):[0-9]+", re.DOTALL)


class SectionCalls(Struct, frozen=True):
    """Calls in sections. The first one of a section begins where that does.

    A reader that repairs takes an id without its prefix, its number or the blanks around it, null, "" or no arguments at
    all as `{}`, a string that holds an object as that object, bare line breaks inside strings, a call whose closing
    marker is missing, and one that stands outside a section.
    """

    def reader(self, repair: bool) -> SectionCall:
        return SectionCall(repair)


class SectionCall:
    """Reads one call of `SectionCalls`. Arguments stream as they come, except for those that are no bare object."""

    def __init__(self, repair: bool) -> None:
        self._repair = repair
        self._bad = False
        self._strays = False  # other text than blanks stands between the beginnings of section and call
        self._named = False
        self._text: list[str] = []  # the id, then arguments that do not stream
        self._scanner = ValueScanner(repair=repair)  # of the arguments
        self._begun = self._streams = False

    def read(self, state: str, text: str) -> tuple[int, list[Part]]:
        if state == "arguments":
            return len(text), [] if self._bad else self._arguments(text)
        if state == "section":
            self._strays |= bool(text.strip())
            self._bad |= self._strays and not self._repair
        else:
            self._text.append(text)
        return len(text), []

    def act(self, action: str) -> list[Part]:
        """`named` ends the id; `repair` stands for a marker that is only passed over by a reader that repairs."""
        if action == "repair":
            self._bad |= not self._repair
            return []
        name = _name("".join(self._text), self._repair)
        self._text.clear()
        self._named = bool(name) and not self._bad
        self._bad = not self._named
        return [Part("tool_start", name)] if self._named else []

    def close(self, marked: bool) -> list[Part]:
        if marked and self._repair and not (self._named or self._bad or self._strays):
            return [Part("swallowed")]  # a section without any call
        rest = self._rest(marked) if self._named and not self._bad and (marked or self._repair) else None
        if rest is None:
            return [Part("tool_cut")]
        return [*([Part("tool_args", rest)] if rest else []), Part("tool_end")]

    def _arguments(self, text: str) -> list[Part]:
        start = 0 if self._begun else blanks(text, 0)
        if start == len(text):
            return []
        if not self._begun:
            self._begun, self._streams = True, text[start] == "{"
        out: list[str] = []
        end = self._scanner.scan(text, start, out)
        self._bad |= self._scanner.bad or blanks(text, end) < len(text)
        if self._streams:
            return [Part("tool_args", "".join(out), end)] if out else []
        self._text += out
        return []

    def _rest(self, marked: bool) -> str | None:
        """What of the arguments has not been passed on at the end of the call; None if they are no whole object."""
        if self._streams:
            return "" if self._scanner.done else None
        if not self._repair:
            return None
        if not self._begun:
            return "{}" if marked else None
        self._scanner.scan(" ", 0, self._text)  # the blank ends a word
        return object_of("".join(self._text).strip(), quoted=True, repair=True) if self._scanner.done else None


def _name(id: str, repair: bool) -> str:
    """The tool that an id names; "" if it names none."""
    if not repair:
        match = _ID.fullmatch(id)
        return match.group(1) if match else ""
    bare = id.strip().removeprefix("functions.")
    name, colon, number = bare.rpartition(":")
    return (name if colon and (not number or number.strip().isdigit()) else bare).strip()


#: A call ends where the next one or the end of the section shows that it is over. Text behind a call is an answer again.
_MOVES: dict[tuple[str, str], tuple[str, ...]] = {
    ("content", SECTION.token): ("section", "open"),
    ("content", CALL.token): ("id", "open", "repair"),
    ("content", SECTION_END.token): ("after",),
    ("section", CALL.token): ("id",),
    ("section", SECTION_END.token): ("after", "close"),
    ("id", ARGUMENT.token): ("arguments", "named"),
    ("id", CALL_END.token): ("calls", "named", "close"),
    ("id", CALL.token): ("id", "open"),
    ("id", SECTION_END.token): ("after", "repair", "named", "close"),
    ("arguments", CALL_END.token): ("calls", "close"),
    ("arguments", CALL.token): ("id", "open"),
    ("arguments", SECTION_END.token): ("after", "repair", "close"),
    ("calls", CALL.token): ("id", "open"),
    ("calls", SECTION.token): ("section", "open", "repair"),
    ("calls", SECTION_END.token): ("after",),
    ("calls", TEXT): ("content",),
    ("after", SECTION.token): ("section", "open"),
    ("after", CALL.token): ("id", "open", "repair"),
    ("after", SECTION_END.token): ("after",),
    ("after", TEXT): ("content",),
}

FORMAT = OutputFormat(
    moves=_MOVES,
    kinds={"section": "field", "id": "field", "arguments": "field", "calls": "drop", "after": "drop"},
    calls=SectionCalls(),
)

#: Without tools everything is text.
PLAIN = OutputFormat()


def answer_format(tools: Sequence[Tool]) -> OutputFormat:
    """The format of an answer that may call `tools`."""
    return FORMAT if tools else PLAIN
