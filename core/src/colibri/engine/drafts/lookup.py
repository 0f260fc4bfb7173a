"""Prompt lookup: an answer that repeats what was said before goes on as that did."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from .source import Ask

#: Matches are measured up to so many tokens, and the latest so many places where the last two tokens stood are tried.
_LONGEST, _TRIED = 16, 16

#: A draft's kind by the length of the match behind it: a longer one is right more often.
_KINDS = [f"lookup {1 << min(length, _LONGEST).bit_length() >> 1}" for length in range(_LONGEST + 1)]


_PRIORS = {"lookup 2": 0.3, "lookup 4": 0.5, "lookup 8": 0.7, "lookup 16": 0.85}


class PromptLookup:
    """Drafts from a request's own tokens. A Source. Memory grows by a word for each token and an entry for each new pair."""

    name = "lookup"
    priors: Mapping[str, float] = _PRIORS

    def __init__(self, slots: int, most: int) -> None:
        """`most`: drafts at a time."""
        self._most = most
        self._pairs = [Pairs() for _ in range(slots)]
        self._found: dict[int, list[int]] = {}

    def outlook(self, ask: Ask) -> Sequence[str]:
        end, length = self._pairs[ask.slot].match(ask.tokens)
        found = self._found[ask.slot] = [] if length == 0 else _continued(ask, end, min(ask.most, self._most))
        return [_KINDS[min(length + i, _LONGEST)] for i in range(len(found))]

    def draft(self, wanted: Sequence[tuple[Ask, int]]) -> list[list[int]]:
        return [self._found[ask.slot][:count] for ask, count in wanted]

    def follow(self, slot: int, row: int, start: int, count: int, tokens: Sequence[int]) -> None:
        """Nothing to learn: the tokens are there when drafts are asked for."""

    def forget(self, slot: int) -> None:
        """Nothing was learnt."""

    def release(self, slot: int) -> None:
        """Nothing is left to do."""

    def rewind(self, slot: int, length: int) -> None:
        self._pairs[slot] = Pairs()

    def copy(self, source: int, target: int, length: int) -> None:
        self._pairs[target] = Pairs()


class Pairs:
    """Where each pair of tokens stands in a growing sequence: the end of the latest one, and from there the end of the one
    before (0: there is none)."""

    def __init__(self) -> None:
        self._latest: dict[tuple[int, int], int] = {}
        self._before = array("q", [0, 0])

    def match(self, tokens: Sequence[int]) -> tuple[int, int]:
        """Where the longest match with the last tokens ends before them, the latest among equals, and how long it is, from 2
        to 16 tokens; (0, 0) if there is none."""
        count = len(tokens)
        for end in range(len(self._before), count):
            pair = (tokens[end - 2], tokens[end - 1])
            self._before.append(self._latest.get(pair, 0))
            self._latest[pair] = end
        at = best = 0
        end = self._latest.get((tokens[-2], tokens[-1]), 0) if count > 1 else 0
        for _ in range(_TRIED):
            if end == 0:
                break
            length = 2
            while length < min(end, _LONGEST) and tokens[end - length - 1] == tokens[count - length - 1]:
                length += 1
            if length > best:
                at, best = end, length
            end = self._before[end]
        return at, best


def _continued(ask: Ask, end: int, most: int) -> list[int]:
    """The tokens from `end` on, over and over: what repeats itself can start before it has been written out."""
    tokens, again = ask.tokens, len(ask.tokens) - end
    found = []
    for token in (tokens[end + i % again] for i in range(most)):
        if token < 0 or token in ask.stops:
            break
        found.append(token)
    return found
