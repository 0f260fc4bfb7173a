"""Calls that spell their arguments in tags of their own, as Qwen3.6 and Qwen3.8 write them:

    <tool_call>
    <function=look>
    <parameter=place>
    pond
    </parameter>
    </function>
    </tool_call>

A value stands between two line breaks, which are not part of it, and ends at the first closing tag. What type it has is
said by the tool's schema alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from colibri.chat.arguments import ArgumentTypes, ObjectWriter, inside_string
from colibri.chat.calls import Part
from colibri.chat.output import StateKind

_CALL, _CALL_END = "<tool_call>", "</tool_call>"

#: What may be read inside a call, whose states they are too. A block begins in `block` and is left for `between`.
MOVES: dict[tuple[str, str], tuple[str, ...]] = {
    ("block", "<function="): ("name", "begin"),
    ("name", ">"): ("function", "named"),
    ("function", "<parameter="): ("key", "begin"),
    ("key", ">"): ("value", "keyed"),
    ("key", ">\n"): ("value", "keyed"),
    ("value", "</parameter>"): ("function", "valued"),
    ("value", "\n</parameter>"): ("function", "valued"),
    ("function", "</function>"): ("end", "ended"),
    # A value without its end: the next parameter ends it, and so does the end of the whole block.
    ("value", "<parameter="): ("key", "valued", "mended", "begin"),
    ("value", "\n<parameter="): ("key", "valued", "mended", "begin"),
    ("value", f"</function>\n{_CALL_END}"): ("between", "valued", "close"),
    ("value", f"\n</function>\n{_CALL_END}"): ("between", "valued", "close"),
    # A block ends where it says so, or where another begins; whether it is a call is for its reader to say.
    **{(state, _CALL_END): ("between", "close") for state in ("block", "name", "function", "key", "end")},
    **{(state, _CALL): ("block", "open") for state in ("block", "function", "end")},
}

KINDS: dict[str, StateKind] = dict.fromkeys(("block", "name", "function", "key", "value", "end"), "field")


class FunctionCalls(Struct, frozen=True):
    """The syntax of these calls, with the types of the declared tools. A reader that repairs takes a call without its
    last tags, and values that are ended by what follows them."""

    types: Mapping[str, ArgumentTypes]

    def reader(self, repair: bool) -> FunctionCall:
        return FunctionCall(self.types, repair)


class FunctionCall:
    """Reads one call. Strings stream as they come; values of other types are read whole."""

    def __init__(self, types: Mapping[str, ArgumentTypes], repair: bool) -> None:
        self._tools = types
        self._repair = repair
        self._types = ArgumentTypes({})
        self._writer = ObjectWriter()
        self._text: list[str] = []  # the name, key or value being read, where it must be seen whole
        self._key = ""
        self._streams = False
        self._named = False
        self._inside = True  # a tag or a value has begun and not ended
        self._whole = False
        self._exact = True
        self._bad = False

    def read(self, state: str, text: str) -> tuple[int, list[Part]]:
        if state == "value" and self._streams and not self._bad:
            return len(text), [Part("tool_args", inside_string(text), len(text))]
        if state in ("name", "key", "value"):
            self._text.append(text)
        elif text.strip():
            self._bad = True  # between tags there is nothing
        return len(text), []

    def act(self, action: str) -> list[Part]:
        if action == "mended":
            self._exact = False
        elif action == "ended":
            self._whole = True
        word = "".join(self._text)
        self._text.clear()
        self._inside = action in ("begin", "keyed")
        if self._bad or action not in ("named", "keyed", "valued"):
            return []
        if action == "valued":
            return [Part("tool_args", '"' if self._streams else self._member(word))]
        self._bad = not word or "\n" in word
        if self._bad:
            return []
        return self._begin(word) if action == "named" else self._begin_value(word)

    def close(self, marked: bool) -> list[Part]:
        called = self._named and not self._inside and not self._bad
        exact = self._whole and marked and self._exact
        if not called or not (exact or (self._repair and (self._whole or marked))):
            return [Part("tool_cut")]
        return [Part("tool_args", self._writer.end()), Part("tool_end")]

    def _begin(self, name: str) -> list[Part]:
        self._named = True
        self._types = self._tools.get(name, self._types)
        return [Part("tool_start", name)]

    def _begin_value(self, key: str) -> list[Part]:
        self._key, self._streams = key, self._types.is_text(key)
        return [Part("tool_args", self._writer.key(key) + '"')] if self._streams else []

    def _member(self, text: str) -> str:
        """A member of the arguments whose value was read whole."""
        return self._writer.key(self._key) + self._types.value(self._key, text, words=True)
