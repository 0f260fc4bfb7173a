"""Finding markers in text that arrives in pieces, by their characters or by the ids of control tokens."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping

#: In place of a marker: the first text of a state that is not blank.
TEXT = ""

#: Characters that stand for control tokens: those of markers, and others, the strays. No decoded text holds them.
_FIRST_SYMBOL, _FIRST_STRAY, _STRAYS, _ALL = 0xDC00, 0xD800, "[\ud800-\udbff]", "[\ud800-\udfff]"


class Alphabet:
    """Turns each control token into one character of its own, a lone surrogate: finding tokens is finding characters.

    `specials` are the tokenizer's control tokens by spelling, or None if no ids will be given: then markers are found
    by their characters. Of the tokens that are no part of a marker, those in `hidden` become strays.
    """

    def __init__(self, specials: Mapping[str, int] | None, hidden: Container[int]) -> None:
        self.by_id = specials is not None
        self._specials = sorted((specials or {}).items(), key=lambda item: -len(item[0]))
        self._hidden = hidden
        self._symbols: dict[int, str] = {}
        self._spellings: dict[int, str] = {}  # a translation table back

    def compile(self, marker: str) -> str:
        """A marker in this alphabet."""
        for spelling, id in self._specials:
            if spelling in marker:
                symbol = self._symbols.setdefault(id, chr(_FIRST_SYMBOL + len(self._symbols)))
                self._spellings[ord(symbol)] = spelling
                marker = marker.replace(spelling, symbol)
        return marker

    def read(self, text: str, id: int | None) -> str:
        """Output text in this alphabet; `id` is given if it is one control token."""
        if id is not None and (id in self._symbols or id in self._hidden):
            symbol = self._symbols.setdefault(id, chr(_FIRST_STRAY + len(self._symbols)))
            self._spellings[ord(symbol)] = text
            return symbol
        return re.sub(_ALL, "\ufffd", text) if self.by_id and not text.isascii() else text

    def spell(self, text: str) -> str:
        """Text of this alphabet as it was before."""
        return text.translate(self._spellings) if self._spellings and not text.isascii() else text


def is_stray(marker: str) -> bool:
    """Whether a marker is in truth a control token that marks nothing."""
    return re.match(_STRAYS, marker) is not None


class Rules:
    """The moves of one state, ready to be searched for. With `strays`, stray tokens count as markers."""

    def __init__(self, moves: Mapping[str, tuple[str, ...]], *, strays: bool) -> None:
        markers = sorted((marker for marker in moves if marker != TEXT), key=len, reverse=True)
        patterns = [*map(re.escape, markers), *([_STRAYS] if strays else [])]
        self.moves = moves
        self.text = moves.get(TEXT)
        self._pattern = re.compile("|".join(patterns)) if patterns else None
        self._prefixes = {marker[:n] for marker in markers for n in range(1, len(marker))}
        self._longest = len(markers[0]) if markers else 0

    def next(self, text: str, at: int, final: bool) -> tuple[int, str | None]:
        """Where text that starts at `at` certainly ends, and the marker that ends it, if one is there for certain."""
        if self._pattern is None:
            return len(text), None
        match = self._pattern.search(text, at)
        end = match.start() if match else len(text)
        if not final:
            first = max(at, len(text) - self._longest + 1)
            for start in range(first, min(end + 1, len(text))):
                if text[start:] in self._prefixes:
                    return start, None
        return end, match.group() if match else None

    def here(self, text: str, at: int) -> tuple[str | None, bool]:
        """The marker that stands at `at`, if any, and whether more text may make a marker, or a longer one."""
        if self._pattern is None:
            return None, False
        if len(text) - at < self._longest and text[at:] in self._prefixes:
            return None, True
        match = self._pattern.match(text, at)
        return (match.group() if match else None), False
