"""Reading tool calls out of a model's raw text: the seam, and the calls that are written as JSON.

A family whose calls look different writes its own `CallReader`; the output engine only cuts the text into runs and
markers, and knows nothing of what is inside a call.
"""

from __future__ import annotations

import json
from typing import Literal, Protocol

import msgspec
from msgspec import Struct

from .jsontext import ValueScanner, blanks


class Part(Struct, frozen=True):
    """Something a reader made of text. `length`: how many characters of the text now being read it stands for,
    beyond those read before it that no part has stood for yet."""

    kind: Literal["tool_start", "tool_args", "tool_end", "tool_cut", "swallowed"]
    text: str = ""
    length: int = 0


class CallReader(Protocol):
    """Reads one call, from the marker that opens it to the one that closes it."""

    def read(self, state: str, text: str) -> tuple[int, list[Part]]:
        """Take text that stands in `state`. Returns how much was taken, and the parts it made.

        In a `field` state the text holds no marker, and all of it must be taken. In a `body` state it is all there is,
        and the reader stops at the first character that cannot belong to the call; only there are markers looked for. A
        control token is one character of it then, a lone surrogate, which parts may hold and which is spelled later.
        """
        ...

    def act(self, action: str) -> list[Part]:
        """A marker with this action has been read."""
        ...

    def close(self, marked: bool) -> list[Part]:
        """The call ends: `marked` by its marker, else because the output does. The last part is a `tool_end`, or a
        `tool_cut` if what was read is no call, or `swallowed` if nobody is to see it."""
        ...


class CallSyntax(Protocol):
    """How a family writes calls."""

    def reader(self, repair: bool) -> CallReader:
        """A reader for one call. Without `repair` it takes only what is written exactly right."""
        ...


class GuessSyntax(Protocol):
    """What held-back text may turn out to be."""

    def guess(self) -> Guess:
        """A fresh guess."""
        ...


class Guess(Protocol):
    """Decides about text that is held back because it may turn out to be something other than text."""

    def read(self, text: str) -> bool:
        """Take more text (it holds no marker of the state); False once it can only be text."""
        ...

    def finish(self) -> tuple[str, str] | None:
        """The output ends: the call the held text is, as its name and its arguments in JSON, or None."""
        ...

    @property
    def cut(self) -> bool:
        """Whether the held text, which is no call, looks like the beginning of one."""
        ...


class JsonCalls(Struct, frozen=True):
    """Calls written as one JSON object: `{"name": "f", "arguments": {…}}`, in either order.

    `name` and `arguments` are the two keys; others are passed over. Arguments stream as they are generated. With
    `quoted`, a string that holds an object counts as that object. A reader that repairs takes null, "" or no arguments
    at all as `{}`, bare line breaks inside strings, and a call whose closing marker is missing; but an object under
    another key and none under `arguments` is something else, such as the declaration of the tool.
    """

    name: str = "name"
    arguments: str = "arguments"
    quoted: bool = True

    def reader(self, repair: bool) -> JsonCall:
        return JsonCall(self, repair)


_Phase = Literal["open", "member", "another", "key", "colon", "begin", "value", "next", "done", "bad"]

#: The outer object: phase and character -> next phase. A quote opens the key that it belongs to.
_OUTER: dict[tuple[_Phase, str], _Phase] = {
    ("open", "{"): "member",
    ("member", '"'): "key",
    ("member", "}"): "done",
    ("another", '"'): "key",
    ("colon", ":"): "begin",
    ("next", ","): "another",
    ("next", "}"): "done",
}


class JsonCall:
    """Reads one call of `JsonCalls`. `name` is set as soon as it is known, `whole` when the object has ended."""

    def __init__(self, syntax: JsonCalls, repair: bool) -> None:
        self.name: str | None = None
        self.whole = False
        self._syntax = syntax
        self._repair = repair
        self._phase: _Phase = "open"
        self._scanner = ValueScanner()
        self._text: list[str] = []  # the key or value being read, where it must be seen whole
        self._key = ""
        self._seen: set[str] = set()
        self._streams = False
        self._strays = False  # an object that is not empty stands under another key
        self._early = ""  # arguments that came before the name

    def read(self, state: str, text: str) -> tuple[int, list[Part]]:
        parts: list[Part] = []
        at = given = 0
        while at < len(text) and self._phase not in ("bad", "done"):
            if self._phase in ("key", "value"):
                out: list[str] = []
                at = self._scanner.scan(text, at, out)
                made = self._scanned(out)
            else:
                behind = blanks(text, at)
                if behind > at:
                    at = behind
                    continue
                made = self._begin(text[at]) if self._phase == "begin" else []
                if self._phase not in ("key", "value"):
                    self._phase = _OUTER.get((self._phase, text[at]), "bad")
                    if self._phase == "key":
                        self._scan("key")
                    elif self._phase != "bad":
                        at += 1
            for part in made:
                parts.append(Part(part.kind, part.text, at - given))
                given = at
        if self._phase == "done":
            self.whole = True
            at = blanks(text, at)
        return at, parts

    def act(self, action: str) -> list[Part]:
        raise ValueError(f"calls written as JSON know no action {action!r}")

    def close(self, marked: bool) -> list[Part]:
        if not self.whole or self.name is None or not (marked or self._repair):
            return [Part("tool_cut")]
        if self._syntax.arguments in self._seen:
            return [Part("tool_end")]
        bare = self._repair and not self._strays
        return [Part("tool_args", "{}"), Part("tool_end")] if bare else [Part("tool_cut")]

    def _scan(self, phase: _Phase) -> None:
        """Begin to read a key or a value."""
        self._phase = phase
        self._scanner = ValueScanner(repair=self._repair and phase == "value")
        self._text.clear()

    def _begin(self, char: str) -> list[Part]:
        """A value begins with `char`: read it, and let it stream if it is the arguments of a call whose name is known."""
        beginnings = {self._syntax.name: '"', self._syntax.arguments: "{" + '"' * self._syntax.quoted + "n" * self._repair}
        if char not in beginnings.get(self._key, char):
            self._phase = "bad"
            return []
        self._scan("value")
        self._streams = self._key == self._syntax.arguments and char == "{" and self.name is not None
        return [Part("swallowed")] if self._streams else []

    def _scanned(self, out: list[str]) -> list[Part]:
        """More of a key or value has been read."""
        made = []
        if self._streams and out:
            made.append(Part("tool_args", "".join(out)))
        elif not self._streams:
            self._text += out
        if self._scanner.bad:
            self._phase = "bad"
        elif self._scanner.done and self._phase == "key":
            self._key = json.loads("".join(self._text))
            repeated = self._key in self._seen
            self._seen.add(self._key)
            self._phase = "bad" if repeated else "colon"
        elif self._scanner.done:
            self._phase = "next"
            if not self._streams:
                made += self._value("".join(self._text))
            self._streams = False
        return made

    def _value(self, text: str) -> list[Part]:
        """A value has been read whole."""
        if self._key == self._syntax.name:
            name = json.loads(text)
            if not isinstance(name, str) or not name:
                self._phase = "bad"
                return []
            self.name = name
            return [Part("tool_start", name), *([Part("tool_args", self._early)] if self._early else [])]
        if self._key == self._syntax.arguments:
            arguments = object_of(text, quoted=self._syntax.quoted, repair=self._repair)
            if arguments is None:
                self._phase = "bad"
            elif self.name is None:
                self._early = arguments
            else:
                return [Part("tool_args", arguments)]
        elif text.startswith("{"):
            self._strays |= text[1:-1].strip() != ""
        return []


def object_of(text: str, *, quoted: bool, repair: bool) -> str | None:
    """The JSON object that `text`, one JSON value without blanks around it, stands for as the arguments of a call, or None:
    the value itself, with `quoted` the object that a string holds, with `repair` no arguments where it is null or ""."""
    if text.startswith("{"):
        return text
    if text.startswith('"') and quoted:
        inner = json.loads(text).strip()
        if not inner and repair:
            return "{}"
        scanner, out = ValueScanner(repair=repair), list[str]()
        end = scanner.scan(inner, 0, out)
        return "".join(out) if inner.startswith("{") and scanner.done and end == len(inner) else None
    return "{}" if text == "null" and repair else None


class BareJson(Struct, frozen=True):
    """A guess for models that leave the markers out: output that is nothing but one call of `syntax`, bare or in a
    code fence, to one of the tools `names`, with an object for its arguments."""

    syntax: JsonCalls
    names: tuple[str, ...]

    def guess(self) -> BareGuess:
        return BareGuess(self)


class BareGuess:
    """Reads text that may be one bare call."""

    def __init__(self, bare: BareJson) -> None:
        self._names = bare.names
        self._call = JsonCall(msgspec.structs.replace(bare.syntax, quoted=False), repair=False)
        self._arguments: list[str] = []
        self._around = ""  # what stands before the object, then what stands behind it; blanks at its end count as one
        self._fence: str | None = None

    def read(self, text: str) -> bool:
        if self._fence is None:
            before, brace, _ = text.partition("{")
            possible = self._surround(before, "```json")
            if not possible or not brace:
                return possible
            opening = self._around.rstrip()
            if opening not in ("", "```", "```json"):
                return False
            self._fence, self._around = opening[:3], ""
            text = text[len(before) :]
        used, parts = self._call.read("", text)
        self._arguments += [part.text for part in parts if part.kind == "tool_args"]
        if self._call.name is not None and self._call.name not in self._names:
            return False
        rest = text[used:]
        return not rest or (self._call.whole and self._surround(rest, self._fence))

    def finish(self) -> tuple[str, str] | None:
        if self._call.name is None or not self._call.whole or not self._arguments:
            return None
        return self._call.name, "".join(self._arguments)

    @property
    def cut(self) -> bool:
        return self._fence is not None and (self._call.name is not None or not self._call.whole)

    def _surround(self, text: str, wanted: str) -> bool:
        """Take text that stands outside the object; False if it is more than `wanted` and blanks around it."""
        around = (self._around + text).lstrip()
        word = around.rstrip()
        self._around = word + around[len(word) :][:1]
        return wanted.startswith(word)
