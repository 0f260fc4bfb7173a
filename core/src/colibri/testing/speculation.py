"""Drafts for tests: right and wrong at random, which must never show in an answer."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from ..compute.runtime import Runtime
from ..engine.drafts.choice import Drafts
from ..engine.drafts.source import Ask
from ..engine.frames import Error, Submit, Tokens
from ..engine.planner import Planner

_PRIORS = {"guess": 0.5}


class Guesses:
    """A source of up to six drafts at a time, each of them right with chance `luck`. What is right it knows from `texts`,
    prompts with their answers, which may be added to."""

    name = "guesses"
    priors: Mapping[str, float] = _PRIORS

    def __init__(self, texts: Sequence[Sequence[int]], vocab: int, *, luck: float = 0.7, seed: int = 0) -> None:
        self._texts, self._vocab, self._luck = texts, vocab, luck
        self._random = random.Random(seed)

    def outlook(self, ask: Ask) -> Sequence[str]:
        return ["guess"] * min(ask.most, self._random.randint(0, 6))

    def draft(self, wanted: Sequence[tuple[Ask, int]]) -> list[list[int]]:
        return [[self._guess(ask, len(ask.tokens) + i) for i in range(count)] for ask, count in wanted]

    def _guess(self, ask: Ask, at: int) -> int:
        known = [text for text in self._texts if len(text) > at and list(text[: len(ask.tokens)]) == list(ask.tokens)]
        return known[0][at] if known and self._random.random() < self._luck else self._random.randrange(self._vocab)

    def follow(self, slot: int, row: int, start: int, count: int, tokens: Sequence[int]) -> None:
        """Nothing to learn."""

    def forget(self, slot: int) -> None:
        """Nothing was learnt."""

    def release(self, slot: int) -> None:
        """Nothing is left to do."""

    def rewind(self, slot: int, length: int) -> None:
        """Nothing to take back."""

    def copy(self, source: int, target: int, length: int) -> None:
        """Nothing to copy."""


def answers(
    runtime: Runtime, requests: Sequence[Submit], *, drafts: Drafts | None = None, chunk: int = 8, gap: int = 0
) -> dict[int, list[int]]:
    """The tokens of each request, submitted `gap` steps apart, or when a slot is free. Raises RuntimeError if one fails."""
    found: dict[int, list[int]] = {request.id: [] for request in requests}

    def emit(frame: object) -> None:
        if isinstance(frame, Error):
            raise RuntimeError(frame.message)
        if isinstance(frame, Tokens):
            found[frame.id] += frame.ids

    planner = Planner(runtime, emit, chunk=chunk, drafts=drafts)
    for request in requests:
        while not planner.slots.free():
            planner.step()
        planner.submit(request)
        for _ in range(gap):
            planner.step()
    while planner.busy:
        planner.step()
    return found
