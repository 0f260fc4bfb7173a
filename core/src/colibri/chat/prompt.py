"""A rendered prompt: pieces, not a string, so that user text can never spell a control token."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct


class Text(Struct, frozen=True):
    """Ordinary text: encoded without control tokens, whatever it spells."""

    text: str


class Special(Struct, frozen=True):
    """One control token, by its exact spelling in the tokenizer."""

    token: str


class Media(Struct, frozen=True):
    """Encoded media: `ref` is the index of the media part in the conversation, in order of appearance."""

    ref: int


class Spoken(Struct, frozen=True):
    """What the model itself wrote in an earlier turn: its tokens, whatever they are, and the text they spell."""

    ids: tuple[int, ...]
    text: str


Piece = Text | Special | Media | Spoken


class Prompt(Struct, frozen=True):
    """The pieces of a prompt in order. Each `Text` is split into tokens by itself; `prompt` joins neighbours."""

    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        """All pieces joined, as the official template would print them. For tests, logs and start states."""
        return "".join(_spelling(piece) for piece in self.pieces)


def prompt(pieces: Iterable[Piece | str]) -> Prompt:
    """A Prompt of `pieces`: strings become `Text`, neighbouring text is merged, empty text is dropped."""
    merged: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str):
            piece = Text(piece)
        if isinstance(piece, Text):
            if not piece.text:
                continue
            if merged and isinstance(merged[-1], Text):
                merged[-1] = Text(merged[-1].text + piece.text)
                continue
        merged.append(piece)
    return Prompt(tuple(merged))


def template_text(text: str, *specials: Special) -> tuple[Piece | str, ...]:
    """A text of a template's own, in which what spells one of `specials` is meant as that token."""
    by_spelling = {special.token: special for special in specials}
    spellings = "|".join(re.escape(spelling) for spelling in sorted(by_spelling, key=len, reverse=True))
    return tuple(by_spelling.get(part, part) for part in re.split(f"({spellings})", text))


def _spelling(piece: Piece) -> str:
    if isinstance(piece, Media):
        return ""
    return piece.token if isinstance(piece, Special) else piece.text
