"""What drafts come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from ...family import Sampling


class Ask(Struct, frozen=True):
    """A request that computes the last of its `tokens` (marks of codes among them are below 0) in the coming step. At most
    `most` drafts make sense, and none of `stops`. The token behind `tokens` will be its `draw`-th."""

    slot: int
    tokens: Sequence[int]
    most: int
    sampling: Sampling = Sampling()
    draw: int = 0
    stops: frozenset[int] = frozenset()


class Draft(Struct, frozen=True):
    """Tokens that may come next, and what each one's chance to be right is known by (see odds.py)."""

    source: str
    tokens: list[int]
    kinds: list[str]


class Source(Protocol):
    """Proposes drafts. Whatever it proposes, answers stay the same."""

    name: str
    priors: Mapping[str, float]  # each kind's chance before anything was measured

    def outlook(self, ask: Ask) -> Sequence[str]:
        """The kinds of the drafts that it could propose now, in order."""
        ...

    def draft(self, wanted: Sequence[tuple[Ask, int]]) -> list[list[int]]:
        """So many drafts for each ask, no more than its last outlook had. Called once before each step."""
        ...

    def follow(self, slot: int, row: int, start: int, count: int, tokens: Sequence[int]) -> None:
        """The last step's rows from `row` on have computed positions `start` to `start + count` of a slot, which stay.
        `tokens` is the whole sequence, with what was picked behind these."""
        ...

    def forget(self, slot: int) -> None:
        """Drafts are not worth it here for now: what was followed since the last step need not be learnt."""
        ...

    def release(self, slot: int) -> None:
        """The slot's request is over; what the last step computed can still be read. Nothing changes the slot until another
        request takes it."""
        ...

    def rewind(self, slot: int, length: int) -> None:
        """Another request goes on from the first `length` positions of the slot."""
        ...

    def copy(self, source: int, target: int, length: int) -> None:
        """Another request goes on in slot `target` from the first `length` positions of slot `source`."""
        ...
