"""How GLM-5 writes answers: reasoning up to `</think>`, text, and calls in `<tool_call>` blocks.

A call is its name and pairs of `<arg_key>` and `<arg_value>`, with nothing or blanks between the tags. A value is bare text
up to the first `</arg_value>`, whatever else stands in it; its type is the one the tool declares.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from colibri.chat.arguments import ArgumentTypes, ObjectWriter, inside_string
from colibri.chat.calls import Part
from colibri.chat.conversation import Tool
from colibri.chat.output import TEXT, OutputFormat, StateKind

#: What can be the name of a tool that is not declared; anything else between the tags is no call.
_NAME = re.compile(r"[\w.:/-]+")

#: Where in a call it may end or another begin: everywhere but in a value, which may hold any tag but its own end.
_BETWEEN = ("name", "key", "keyed", "next")
_TAGS = ("</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")

#: In the `gap` before, between and behind calls blanks are dropped, unless they part two texts.
_TALK = {("reasoning", "</think>"): ("gap",), ("gap", TEXT): ("content",)}
_CALLS = {
    # Some calls are begun while the model still thinks, or before the last one is closed.
    **{(state, "<tool_call>"): ("name", "open") for state in ("reasoning", "gap", "content", *_BETWEEN)},
    ("content", "\n<tool_call>"): ("name", "open"),
    ("name", "<arg_key>"): ("key", "key"),
    ("key", "</arg_key>"): ("keyed", "keyed"),
    ("keyed", "<arg_value>"): ("value", "value"),
    ("value", "</arg_value>"): ("next", "valued"),
    ("next", "<arg_key>"): ("key", "key"),
    **{(state, "</tool_call>"): ("gap", "close") for state in _BETWEEN},
    # A tag outside of any call is a call that is nothing else, which is cut.
    **{(state, tag): ("gap", "open", "close") for state in ("gap", "content") for tag in _TAGS},
}
_KINDS: dict[str, StateKind] = {"gap": "drop"}
_KINDS |= {"name": "field", "key": "field", "keyed": "field", "value": "field", "next": "field"}
_STARTS = (("<think>", "reasoning"),)

#: Without tools nothing is a call.
PLAIN = OutputFormat(moves=_TALK, kinds={"gap": "drop"}, start="gap", starts=_STARTS)


def answer_format(tools: Sequence[Tool]) -> OutputFormat:
    """The format of an answer that may call `tools`."""
    if not tools:
        return PLAIN
    return OutputFormat(moves={**_TALK, **_CALLS}, kinds=_KINDS, start="gap", starts=_STARTS, calls=GlmCalls(tuple(tools)))


class GlmCalls(Struct, frozen=True):
    """Calls to `tools`. A reader that repairs takes a call that is not closed, if it ends behind a whole argument or is
    no more than the name of a declared tool; one that doesn't takes declared tools and arguments only, each once."""

    tools: tuple[Tool, ...]

    def reader(self, repair: bool) -> GlmCall:
        return GlmCall(self.tools, repair)


class GlmCall:
    """Reads one call."""

    def __init__(self, tools: Sequence[Tool], repair: bool) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._repair = repair
        self._tool: Tool | None = None
        self._types = ArgumentTypes({})
        self._writer = ObjectWriter()
        self._text: list[str] = []  # the name, key or value being read, where it must be seen whole
        self._key = ""
        self._keys: set[str] = set()
        self._named = False
        self._inside = False  # an argument has begun and not ended
        self._streams = False  # the value is a string, whatever is written
        self._bad = False

    def read(self, state: str, text: str) -> tuple[int, list[Part]]:
        if self._bad:
            return len(text), []
        if self._streams:
            return len(text), [Part("tool_args", inside_string(text), len(text))]
        if state in ("keyed", "next"):
            self._bad = not text.isspace()
        else:
            self._text.append(text)
        return len(text), []

    def act(self, action: str) -> list[Part]:
        if self._bad:
            return []
        text = "".join(self._text)
        self._text.clear()
        if action == "key":
            self._inside = True
            return [] if self._named else self._name(text, declared=not self._repair)
        if action == "keyed":
            self._key = text.strip()
            self._bad = not self._key or not (self._repair or self._is_new())
            self._keys.add(self._key)
            return []
        if action == "value":
            self._streams = self._types.is_text(self._key)
            return [Part("tool_args", self._writer.key(self._key) + '"')] if self._streams else []
        self._inside = False
        if self._streams:
            self._streams = False
            return [Part("tool_args", '"')]
        return [Part("tool_args", self._writer.key(self._key) + self._types.value(self._key, text))]

    def close(self, marked: bool) -> list[Part]:
        parts: list[Part] = []
        if not self._named and not self._bad:
            parts = self._name("".join(self._text), declared=not (marked and self._repair))
        if self._bad or self._inside or not (marked or self._repair):
            return [Part("tool_cut")]
        return [*parts, Part("tool_args", self._writer.end()), Part("tool_end")]

    def _name(self, text: str, *, declared: bool) -> list[Part]:
        """The name has been read; `declared`: it must be that of a declared tool."""
        name = text.strip()
        self._tool = self._tools.get(name)
        if self._tool is not None:
            self._types = ArgumentTypes(self._tool.parameters)
        elif declared or _NAME.fullmatch(name) is None:
            self._bad = True
            return []
        self._named = True
        return [Part("tool_start", name)]

    def _is_new(self) -> bool:
        """Whether the key has not been given before."""
        return self._key not in self._keys
