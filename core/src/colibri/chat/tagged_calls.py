"""Calls that name their function and its parameters in tags, and write values as bare text between them:

    <tool_call><function=look><parameter=place>pond</parameter></function></tool_call>

What type a value has is said by the tool's schema alone. `TAGS` are the rows of an output format for this syntax, and a
family adds those for what its models write besides, such as line breaks that belong to a tag, or a tag left out. The
actions of such rows are what `TaggedCalls` lists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from .arguments import ArgumentTypes, ObjectWriter, inside_string
from .calls import Part
from .jsontext import is_value
from .output import StateKind

CALL, CALL_END = "<tool_call>", "</tool_call>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"

#: What may be read inside a call. It begins in `call` and is left for `between`.
TAGS: dict[tuple[str, str], tuple[str, ...]] = {
    ("call", "<function="): ("name", "begun"),
    ("name", ">"): ("inside", "named"),
    ("inside", PARAMETER): ("key", "begun"),
    ("key", ">"): ("value", "keyed"),
    ("value", PARAMETER_END): ("inside", "valued"),
    ("inside", "</function>"): ("ended", "ended"),
    # A call ends where it says so, or where another begins; whether it is one is for its reader to say.
    **{(state, CALL_END): ("between", "close") for state in ("call", "name", "inside", "ended")},
    **{(state, CALL): ("call", "open") for state in ("call", "inside", "ended")},
}

#: The kinds of these states; that of `between` is the family's to choose.
KINDS: dict[str, StateKind] = dict.fromkeys(("call", "name", "inside", "key", "value", "ended"), "field")

_ONE_LINE = re.compile(r"[^\n]+")


class TaggedCalls(Struct, frozen=True):
    """The syntax of these calls, with the `types` of each declared tool.

    Names of functions match `names`, those of parameters `keys`. Strings stream as they come, values of other types are
    read whole. A reader that repairs takes a call that lacks one of its last two tags; where a parameter counts `once`, it
    takes the first value of one that is given again; and where there may be `objects`, one JSON object in place of all
    parameters. One that does not repair cuts these.

    Actions: `begun` a tag that holds a name, `named` and `keyed` its end; `valued` the end of a value, behind which a row
    says `mended` if no tag of its own has ended it. `keyed` inside a value ends that only for a parameter that is declared
    and not yet given: any other is part of the value, and so is a tag that turns out to be `unkeyed`. `ended` is the end of
    the function; a row that also says `written` hands on the end of the arguments there, not with that of the call.
    """

    types: Mapping[str, ArgumentTypes]
    names: re.Pattern[str] = _ONE_LINE
    keys: re.Pattern[str] = _ONE_LINE
    once: bool = False
    objects: bool = False

    def reader(self, repair: bool) -> TaggedCall:
        return TaggedCall(self, repair)


class TaggedCall:
    """Reads one call of `TaggedCalls`."""

    def __init__(self, syntax: TaggedCalls, repair: bool) -> None:
        self._syntax = syntax
        self._repair = repair
        self._types = ArgumentTypes({})
        self._object = ObjectWriter()
        self._word: list[str] = []  # a name or key as far as it is read
        self._key: str | None = None  # the parameter whose value is being read
        self._value: list[str] = []  # its value, where it must be seen whole
        self._given: set[str] = set()
        self._repeated = False  # the parameter has a value already
        self._loose: list[str] = []  # what stands between the parameters
        self._named = False
        self._inside = False  # a tag or a value has begun and not ended
        self._ended = False
        self._written = False
        self._exact = True
        self._bad = False

    def read(self, state: str, text: str) -> tuple[int, list[Part]]:
        if state == "value":
            return len(text), self._more(text, len(text))
        if state in ("name", "key"):
            self._word.append(text)
        elif state == "inside":
            self._loose.append(text)
        else:
            self._bad |= bool(text.strip())
        return len(text), []

    def act(self, action: str) -> list[Part]:
        word = "".join(self._word)
        self._word.clear()
        self._inside = action in ("begun", "keyed")
        if self._bad:
            return []
        if action == "named":
            return self._begin(word)
        if action == "keyed":
            return self._begin_value(word)
        if action == "unkeyed":
            return self._more(PARAMETER + word)
        if action == "valued":
            return self._end_value()
        if action == "written":
            return self._end_arguments()
        self._exact &= action != "mended"
        self._ended |= action == "ended"
        return []

    def close(self, marked: bool) -> list[Part]:
        called = self._named and not self._inside and not self._bad
        exact = self._ended and marked and self._exact
        if not called or not (exact or (self._repair and (self._ended or marked))):
            return [Part("tool_cut")]
        parts = [] if self._written else self._end_arguments()
        return [*parts, Part("tool_cut" if self._bad else "tool_end")]

    def _begin(self, name: str) -> list[Part]:
        if self._syntax.names.fullmatch(name) is None:
            self._bad = True
            return []
        self._named = True
        self._types = self._syntax.types.get(name, self._types)
        return [Part("tool_start", name)]

    def _begin_value(self, key: str) -> list[Part]:
        parts: list[Part] = []
        if self._key is not None:
            if key in self._given or not self._types.types(key):
                return self._more(f"{PARAMETER}{key}>")
            self._bad = not self._repair
            parts = self._end_value()
        self._repeated = self._syntax.once and key in self._given
        self._bad |= self._syntax.keys.fullmatch(key) is None or "".join(self._loose).strip() != ""
        self._bad |= self._repeated and not self._repair
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
        objects = self._syntax.objects and self._repair and not self._given
        self._bad = loose != "" and not (objects and loose.startswith("{") and is_value(loose))
        if self._bad:
            return []
        self._written = True
        return [Part("tool_args", loose or self._object.end())]
