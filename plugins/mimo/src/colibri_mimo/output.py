"""How MiMo writes answers: reasoning in a block that it opens itself, text, and calls whose values are bare text.

    <tool_call><function=NAME><parameter=KEY>VALUE</parameter>…</function></tool_call>

Between the tags nothing stands, or blanks. A value is everything up to `</parameter>`, and what type it has is known only
from the tool's schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from colibri.chat.arguments import ArgumentTypes, ObjectWriter, inside_string
from colibri.chat.calls import Part
from colibri.chat.conversation import Tool
from colibri.chat.jsontext import ValueScanner
from colibri.chat.output import TEXT, OutputFormat

_PARAMETER = "<parameter="

#: An answer may begin with reasoning; without, or behind it, stands text. Blanks in front of that text are not shown.
_TEXT_MOVES: dict[tuple[str, str], tuple[str, ...]] = {
    ("start", "<think>"): ("reasoning",),
    ("start", TEXT): ("content",),
    ("reasoning", "</think>"): ("answer",),
    ("answer", TEXT): ("content",),
}

#: No tag but `</parameter>` ends a value, and `<tool_call>` in reasoning is only thought of.
_CALL_MOVES: dict[tuple[str, str], tuple[str, ...]] = {
    **{(state, "<tool_call>"): ("call", "open") for state in ("start", "answer", "content", "between")},
    **{(state, "<tool_call>"): ("call", "open") for state in ("call", "name", "inside", "ended")},
    **{(state, "</tool_call>"): ("between", "close") for state in ("call", "name", "inside", "ended")},
    ("call", "<function="): ("name",),
    ("name", ">"): ("inside", "named"),
    ("inside", _PARAMETER): ("key",),
    ("key", ">"): ("value", "keyed"),
    ("key", "</parameter>"): ("inside", "unkeyed", "valued"),
    ("value", _PARAMETER): ("key",),
    ("value", "</parameter>"): ("inside", "valued"),
    ("inside", "</function>"): ("ended", "ended"),
    ("between", TEXT): ("content",),
}

_START = "start"
_STARTS = (("<think></think>", "answer"),)

#: Without tools there are no calls.
PLAIN = OutputFormat(_TEXT_MOVES, {"start": "drop", "answer": "drop"}, _START, _STARTS)


def answer_format(tools: Sequence[Tool]) -> OutputFormat:
    """The format of an answer that may call `tools`."""
    if not tools:
        return PLAIN
    return OutputFormat(
        {**_TEXT_MOVES, **_CALL_MOVES},
        {**PLAIN.kinds, "between": "drop", **dict.fromkeys(("call", "name", "inside", "key", "value", "ended"), "field")},
        _START,
        _STARTS,
        calls=TaggedCalls(ArgumentTypes.by_tool(tools)),
    )


class TaggedCalls(Struct, frozen=True):
    """Calls as MiMo writes them, with the `types` of each tool's parameters.

    String values stream as they are generated, others come whole. A reader that repairs takes a parameter whose end is
    missing before the next one (which must be declared, else it is part of the value), a call without one or both of its
    closing tags, and one JSON object in place of the parameters.
    """

    types: Mapping[str, ArgumentTypes]

    def reader(self, repair: bool) -> TaggedCall:
        return TaggedCall(self.types, repair)


class TaggedCall:
    """Reads one call of `TaggedCalls`."""

    def __init__(self, types: Mapping[str, ArgumentTypes], repair: bool) -> None:
        self._tools = types
        self._repair = repair
        self._types = ArgumentTypes({})
        self._object = ObjectWriter()
        self._name: str | None = None
        self._key: str | None = None  # the parameter whose value is being read
        self._given: set[str] = set()
        self._word: list[str] = []  # a name or key as far as it is read
        self._value: list[str] = []
        self._loose: list[str] = []  # what stands between the parameters
        self._repeated = False
        self._ended = False
        self._bad = False

    def read(self, state: str, text: str) -> tuple[int, list[Part]]:
        parts: list[Part] = []
        if state == "value":
            parts = self._more(text, len(text))
        elif state in ("name", "key"):
            self._word.append(text)
        elif state == "inside":
            self._loose.append(text)
        elif text.strip():
            self._bad = True
        return len(text), parts

    def act(self, action: str) -> list[Part]:
        if self._bad:
            return []
        if action == "valued":
            return self._end_value()
        if action == "ended":
            return self._end_arguments()
        word = "".join(self._word)
        self._word.clear()
        if action == "named":
            return self._begin(word)
        if action == "keyed":
            return self._begin_value(word)
        return self._more(_PARAMETER + word)

    def close(self, marked: bool) -> list[Part]:
        parts: list[Part] = []
        if marked and self._repair and self._name is not None and not self._ended:
            parts = self.act("ended")
        whole = self._ended and not self._bad and (marked or self._repair)
        return [*parts, Part("tool_end" if whole else "tool_cut")]

    def _begin(self, name: str) -> list[Part]:
        if not name.strip() or _breaks(name):
            self._bad = True
            return []
        self._name = name
        self._types = self._tools.get(name, self._types)
        return [Part("tool_start", name)]

    def _begin_value(self, key: str) -> list[Part]:
        parts: list[Part] = []
        if self._key is not None:
            if key in self._given or not self._types.types(key):
                return self._more(f"{_PARAMETER}{key}>")
            self._bad = not self._repair
            parts = self._end_value()
        self._repeated = key in self._given
        self._bad |= _breaks(key) or "".join(self._loose).strip() != "" or (self._repeated and not self._repair)
        if self._bad:
            return []
        self._key = key
        self._given.add(key)
        if self._types.is_text(key) and not self._repeated:
            parts.append(Part("tool_args", self._object.key(key) + '"'))
        return parts

    def _more(self, text: str, length: int = 0) -> list[Part]:
        """More of a value, which stands for `length` characters of the text being read."""
        if self._key is None:
            self._bad = True
        elif self._bad or self._repeated:
            pass
        elif self._types.is_text(self._key):
            return [Part("tool_args", inside_string(text), length)]
        else:
            self._value.append(text)
        return []

    def _end_value(self) -> list[Part]:
        key, text = self._key, "".join(self._value)
        self._key = None
        self._value.clear()
        if key is None or self._bad or self._repeated:
            return []
        if self._types.is_text(key):
            return [Part("tool_args", '"')]
        return [Part("tool_args", self._object.key(key) + self._types.value(key, text, words=True))]

    def _end_arguments(self) -> list[Part]:
        loose = "".join(self._loose).strip()
        self._bad = loose != "" and (bool(self._given) or not self._repair or not _is_object(loose))
        if self._bad:
            return []
        self._ended = True
        return [Part("tool_args", loose or self._object.end())]


def _breaks(word: str) -> bool:
    """Whether a name or key holds what none can hold."""
    return "<" in word or "\n" in word


def _is_object(text: str) -> bool:
    scanner = ValueScanner()
    return text.startswith("{") and scanner.scan(text, 0, []) == len(text) and scanner.done
