"""JSON as templates print it and as models write it: printing, and checking a value while it arrives."""

from __future__ import annotations

import json
import re
from typing import Any, Literal

#: Deepest nesting a model's JSON may have; deeper text is not JSON.
MAX_DEPTH = 100

_WORD = re.compile(r"(-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false|null)\Z")
_WORD_RUN = re.compile(r"[-+.0-9A-Za-z]+")
_STRING_RUN = re.compile(r'[^"\\\x00-\x1f]+')
_BLANKS = re.compile(r"[ \t\r\n]*")
_HEX = frozenset("0123456789abcdefABCDEF")
_CLOSER = {"{": "}", "[": "]"}

_Expect = Literal["value", "element", "key", "member", "colon", "next", "string", "escape", "hex", "word", "end"]


def dumps(value: Any) -> str:
    """`value` on one line as chat templates print it: ", " and ": ", the given key order, nothing escaped needlessly."""
    return json.dumps(value, ensure_ascii=False)


def blanks(text: str, at: int) -> int:
    """Where JSON white space that starts at `at` ends."""
    match = _BLANKS.match(text, at)
    assert match is not None
    return match.end()


def is_value(text: str) -> bool:
    """Whether `text` is one JSON value, with nothing behind it."""
    scanner = ValueScanner()
    end = scanner.scan(text + " ", 0, [])  # the blank ends a number or a word
    return scanner.done and end == len(text)


class ValueScanner:
    """Reads one JSON value piece by piece and says as soon as the text cannot be JSON any more.

    Every character is looked at once. `done` is set behind the value's last character, `bad` at the first character
    that no JSON value can have there; either way that character is not taken. With `repair`, line breaks and other
    control characters that stand bare inside a string are escaped in what `scan` hands on.
    """

    def __init__(self, *, repair: bool = False) -> None:
        self.done = False
        self.bad = False
        self._repair = repair
        self._stack: list[str] = []
        self._expect: _Expect = "value"
        self._word: list[str] = []
        self._hex = 0
        self._key = False

    def scan(self, text: str, at: int, out: list[str]) -> int:
        """Read `text` from `at` on; append what was read to `out` and return where reading stopped."""
        end = len(text)
        while at < end and not (self.done or self.bad):
            if self._expect == "string":
                run = _STRING_RUN.match(text, at)
                if run is not None:
                    out.append(run.group())
                    at = run.end()
                    continue
            elif self._expect == "word":
                run = _WORD_RUN.match(text, at)
                if run is not None:
                    self._word.append(run.group())
                    out.append(run.group())
                    at = run.end()
                    continue
                self._end_word()
                continue
            elif self._expect not in ("escape", "hex"):
                behind = blanks(text, at)
                if behind > at:
                    out.append(text[at:behind])
                    at = behind
                    continue
            taken = self._take(text[at])
            if taken is None:
                self.bad = True
            else:
                out.append(taken)
                at += 1
        return at

    def _end_word(self) -> None:
        if _WORD.match("".join(self._word)) is None:
            self.bad = True
            return
        self._word.clear()
        self._end_value()

    def _end_value(self) -> None:
        self._expect = "next"
        self.done = not self._stack

    def _take(self, char: str) -> str | None:
        """The text to hand on for `char`, None if it cannot stand here."""
        expect = self._expect
        if expect == "string":
            return self._take_in_string(char)
        if expect == "escape":
            if char == "u":
                self._expect, self._hex = "hex", 4
                return char
            self._expect = "string"
            return char if char in '"\\/bfnrt' else None
        if expect == "hex":
            self._hex -= 1
            if self._hex == 0:
                self._expect = "string"
            return char if char in _HEX else None
        if expect == "colon":
            self._expect = "value"
            return char if char == ":" else None
        if expect == "next":
            return self._take_next(char)
        if expect in ("key", "member"):
            if char == '"':
                self._expect, self._key = "string", True
                return char
            return self._close(char) if expect == "member" else None
        if expect == "element" and char == "]":
            return self._close(char)
        return self._open_value(char)

    def _take_in_string(self, char: str) -> str | None:
        if char == '"':
            if self._key:
                self._expect, self._key = "colon", False
            else:
                self._end_value()
            return char
        if char == "\\":
            self._expect = "escape"
            return char
        return json.dumps(char)[1:-1] if self._repair else None

    def _take_next(self, char: str) -> str | None:
        if char == ",":
            self._expect = "key" if self._stack[-1] == "{" else "value"
            return char
        return self._close(char)

    def _close(self, char: str) -> str | None:
        if char != _CLOSER[self._stack[-1]]:
            return None
        self._stack.pop()
        self._end_value()
        return char

    def _open_value(self, char: str) -> str | None:
        if char in "{[":
            if len(self._stack) == MAX_DEPTH:
                return None
            self._stack.append(char)
            self._expect = "member" if char == "{" else "element"
        elif char == '"':
            self._expect, self._key = "string", False
        elif _WORD_RUN.match(char):
            self._expect = "word"
            self._word.append(char)
        else:
            return None
        return char
