"""How Kimi K3 writes answers: a `think` element, a `response` element, and calls as elements of a `tools` element."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from colibri.chat.arguments import ObjectWriter, inside_string
from colibri.chat.calls import Part
from colibri.chat.conversation import TurnOptions
from colibri.chat.jsontext import ValueScanner, blanks, dumps
from colibri.chat.output import TEXT, OutputFormat

#: What stands in a tag behind its name.
_TAG = re.compile(r'(?: \w+="[^"]*")*')
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')


class XtmlCalls(Struct, frozen=True):
    """Calls written as elements: `argument` elements that each say the type of their value, or one `json` element.

    A reader that repairs takes a value that cannot be read as a string, closes a call at the beginning of the next one
    or the end of the tools, and passes over a call that names no tool.
    """

    def reader(self, repair: bool) -> XtmlCall:
        return XtmlCall(repair)


class XtmlCall:
    """Reads one call of `XtmlCalls`."""

    def __init__(self, repair: bool) -> None:
        self._repair = repair
        self._named = False
        self._inside = True  # of a tag or a value
        self._ended = False  # what follows shows that the call is over
        self._bad = False
        self._text: list[str] = []  # the tag or the value being read
        self._arguments = ObjectWriter()
        self._type = "string"
        self._given = False  # arguments have begun
        self._scanner: ValueScanner | None = None  # of a json element
        self._begun = False  # the object in it has

    def read(self, state: str, text: str) -> tuple[int, list[Part]]:
        parts: list[Part] = []
        if state == "call":  # between two elements
            self._bad |= not self._repair and bool(text.strip())
        elif not self._named or self._bad:
            self._text.append(text)
        elif state == "json":
            parts = self._scan(text)
        elif state == "value" and self._type == "string":
            parts = [Part("tool_args", inside_string(text), len(text))]
        else:
            self._text.append(text)
        return len(text), parts

    def act(self, action: str) -> list[Part]:
        self._inside = action in ("opened", "keyed", "typed")
        text = "".join(self._text)
        self._text.clear()
        parts: list[Part] = []
        if action == "named":
            name = self._attributes(text).get("tool")
            self._named = bool(name)
            parts = [Part("tool_start", name)] if name else []
        elif action == "keyed":
            parts = [Part("tool_args", self._key(self._attributes(text)))]
        elif action == "valued":
            parts = [Part("tool_args", '"' if self._type == "string" else self._value(text))]
        elif action == "typed":
            self._attributes(text)
            self._bad |= self._given
            self._given = True
            self._scanner = ValueScanner(repair=self._repair)
        elif action == "unclosed":
            self._ended = True
            self._bad |= not self._repair
        return parts if self._named and not self._bad else []

    def close(self, marked: bool) -> list[Part]:
        if self._repair and not self._named and not self._inside:
            return [Part("swallowed")]
        whole = (marked or self._ended) and self._named and not self._inside and not self._bad
        if self._scanner is not None:
            return [Part("tool_end" if whole and self._scanner.done else "tool_cut")]
        return [Part("tool_args", self._arguments.end()), Part("tool_end")] if whole else [Part("tool_cut")]

    def _attributes(self, tag: str) -> Mapping[str, str]:
        """The attributes of a tag, by name."""
        self._bad |= not self._repair and _TAG.fullmatch(tag) is None
        return {name: value.replace("&quot;", '"').replace("&amp;", "&") for name, value in _ATTRIBUTE.findall(tag)}

    def _key(self, attributes: Mapping[str, str]) -> str:
        """What stands before the value of an argument. One that does not say its type is a string."""
        self._bad |= self._scanner is not None or not (self._repair or {"key", "type"} <= attributes.keys())
        self._given = True
        self._type = attributes.get("type", "string")
        return self._arguments.key(attributes.get("key", "")) + ('"' if self._type == "string" else "")

    def _value(self, text: str) -> str:
        """The JSON of a value that is no string."""
        bare, out = text.strip(), list[str]()
        scanner = ValueScanner(repair=self._repair)
        end = scanner.scan(bare + " ", 0, out)  # the blank ends a number or a word
        if scanner.done and end == len(bare):
            return "".join(out)
        self._bad |= not self._repair
        return dumps(text)

    def _scan(self, text: str) -> list[Part]:
        """More of the object that holds all arguments."""
        assert self._scanner is not None
        start = 0 if self._begun else blanks(text, 0)
        if not self._begun and start < len(text):
            self._begun, self._bad = True, text[start] != "{"
        out: list[str] = []
        end = start if self._bad else self._scanner.scan(text, start, out)
        self._bad |= end < len(text) and bool(text[end:].strip())
        return [Part("tool_args", "".join(out), end)] if out else []


#: Elements of a message. Bare text behind the thinking is an answer whose tag the model left out.
_MOVES: dict[tuple[str, str], tuple[str, ...]] = {
    ("opening", "<|open|>think<|sep|>"): ("reasoning",),
    ("opening", "<|close|>think<|sep|>"): ("between",),
    ("opening", "<|open|>response<|sep|>"): ("content",),
    ("opening", "<|open|>tools<|sep|>"): ("tools",),
    ("opening", TEXT): ("reasoning",),
    ("reasoning", "<|close|>think<|sep|>"): ("between",),
    ("content", "<|close|>response<|sep|>"): ("between",),
    ("content", "<|open|>tools<|sep|>"): ("tools",),
    ("content", "<|close|>message<|sep|>"): ("end",),
    ("between", "<|open|>response<|sep|>"): ("content",),
    ("between", "<|open|>tools<|sep|>"): ("tools",),
    ("between", "<|close|>message<|sep|>"): ("end",),
    ("between", TEXT): ("content",),
    ("tools", "<|open|>call"): ("name", "open"),
    ("tools", "<|close|>tools<|sep|>"): ("between",),
    ("tools", "<|close|>message<|sep|>"): ("end",),
    ("name", "<|sep|>"): ("call", "named"),
    ("call", "<|open|>argument"): ("key", "opened"),
    ("key", "<|sep|>"): ("value", "keyed"),
    ("value", "<|close|>argument<|sep|>"): ("call", "valued"),
    ("call", "<|open|>json"): ("type", "opened"),
    ("type", "<|sep|>"): ("json", "typed"),
    ("json", "<|close|>json<|sep|>"): ("call", "scanned"),
    ("call", "<|close|>call<|sep|>"): ("tools", "close"),
    ("call", "<|open|>call"): ("name", "unclosed", "open"),
    ("call", "<|close|>tools<|sep|>"): ("between", "unclosed", "close"),
}

FORMAT = OutputFormat(
    moves=_MOVES,
    kinds={
        "opening": "reasoning",
        "between": "drop",
        "tools": "drop",
        "end": "drop",
        **dict.fromkeys(("name", "call", "key", "value", "type", "json"), "field"),
    },
    starts=(("<|open|>think<|sep|>", "opening"),),
    calls=XtmlCalls(),
)

#: Where no calls may be made, those that the model makes all the same are nobody's.
SILENT = replace(FORMAT, moves={key: move for key, move in _MOVES.items() if key != ("tools", "<|open|>call")})


def answer_format(options: TurnOptions) -> OutputFormat:
    """The format of an answer. Its elements are read with or without tools: the text stands in one of them."""
    return SILENT if options.tool_choice.mode == "none" else FORMAT
