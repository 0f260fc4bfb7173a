"""How many drafts a step tries, and of which requests."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import TypeVar

from msgspec import Struct

from ...compute.runtime import Runtime
from .odds import Odds, RequestOdds
from .pace import Pace
from .source import Ask, Draft, Source

T = TypeVar("T")

log = logging.getLogger(__name__)

#: What drafts must promise to gain, so that they are not tried for nothing.
_GAIN = 1.05

#: How much longer a step may take for the drafts of one request where others wait for it as well.
_DELAY = 1.5

#: What is known is kept fresh: of so many steps with drafts one tries fewer of them, and of so many, at first and in the
#: end, one has none.
_SHORTER, _FIRST_PLAIN, _PLAIN = 8, 4, 32


class _Choice(Struct, frozen=True):
    """Drafts of these `kinds`, of which `right` are expected to be; then the step makes so many tokens for its time."""

    rate: float
    source: Source | None = None
    kinds: Sequence[str] = ()
    right: float = 0.0


class Drafts:
    """Chooses drafts for each step, by what steps take and how often drafts were right. Implements slots.Ways: what is done
    to the runtime's slots, its sources hear.

    Not `gated`, it tries as many as there are.
    """

    def __init__(
        self,
        runtime: Runtime,
        sources: Sequence[Source],
        *,
        gated: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._runtime = runtime
        self._sources = list(sources)
        self._gated = gated
        self._clock = clock
        self._pace = Pace()
        self._common = Odds(source.priors for source in sources)
        self._odds = [RequestOdds(self._common) for _ in range(runtime.slots)]
        self._efforts = {source.name: 0.0 for source in sources}  # what a draft takes before it is tried, as a step's cost
        self._turn = self._drafted = 0
        self._until_plain = _FIRST_PLAIN

    @property
    def sources(self) -> list[str]:
        """The names of the sources that are in use."""
        return [source.name for source in self._sources]

    # The ways of slots.

    def reach(self, slot: int, length: int) -> int:
        return self._runtime.reach(slot, length)

    def rewind(self, slot: int, length: int) -> int:
        length = self._runtime.rewind(slot, length)
        self._begin(slot, methodcaller("rewind", slot, length))
        return length

    def copy(self, source: int, target: int, length: int) -> int:
        length = self._runtime.copy(source, target, length)
        self._begin(target, methodcaller("copy", source, target, length))
        return length

    def _begin(self, slot: int, tell: Callable[[Source], object]) -> None:
        self._odds[slot] = RequestOdds(self._common)
        for source in list(self._sources):
            self._call(source, tell)

    # Steps.

    def propose(self, asks: Sequence[Ask], rows: int) -> dict[int, Draft]:
        """Drafts by slot for a step that has `rows` rows without them; they fit beside these. To be called before each step,
        whether it is asked for any or not: what the last one computed can be read until then."""
        self._turn += 1
        choices = self._choices(asks, rows)
        found: dict[int, Draft] = {}
        for source in list(self._sources):
            chosen = [(ask, choice) for ask, choice in choices if choice.source is source]
            wanted = [(ask, len(choice.kinds)) for ask, choice in chosen]
            began = self._clock()
            drafted: list[list[int]] = self._call(source, methodcaller("draft", wanted)) or []
            if count := sum(map(len, drafted)):
                effort = self._pace.cost_of(self._clock() - began) / count
                self._efforts[source.name] += (effort - self._efforts[source.name]) / 8
            for (ask, choice), tokens in zip(chosen, drafted, strict=False):
                if tokens:
                    found[ask.slot] = Draft(source.name, tokens, list(choice.kinds[: len(tokens)]))
        self._drafted = self._drafted + 1 if found else 0
        return found

    def follow(self, slot: int, row: int, start: int, count: int, tokens: Sequence[int]) -> None:
        """What a step has computed and kept (see Source.follow)."""
        for source in list(self._sources):
            self._call(source, methodcaller("follow", slot, row, start, count, tokens))

    def release(self, slot: int) -> None:
        """The slot's request is over. To be called between steps or after `follow`."""
        for source in list(self._sources):
            self._call(source, methodcaller("release", slot))

    def judge(self, slot: int, draft: Draft, right: int) -> None:
        """The first `right` tokens of a draft were right, and the one behind, if there is one, was wrong."""
        self._odds[slot].judge(draft.source, draft.kinds, right)

    def took(self, rows: int, seconds: float) -> None:
        """A step of nothing but answers took so long."""
        self._pace.took(rows, seconds)

    def _choices(self, asks: Sequence[Ask], rows: int) -> list[tuple[Ask, _Choice]]:
        """What each request tries, in turns, so that no slot is always the last to get a row."""
        first = self._turn % len(asks) if asks else 0
        limit = _DELAY * self._pace.cost(rows) if len(asks) > 1 else float("inf")
        plain = self._gated and self._drafted >= self._until_plain
        if plain:
            self._until_plain = min(2 * self._until_plain, _PLAIN)
        right = float(len(asks))
        made = []
        for ask in (*asks[first:], *asks[:first]):
            room = 0 if plain else min(ask.most, self._runtime.max_rows - rows)
            choice = self._choose(ask, rows, room, right, limit)
            rows, right = rows + len(choice.kinds), right + choice.right
            made.append((ask, choice))
        return made

    def _choose(self, ask: Ask, rows: int, room: int, right: float, limit: float) -> _Choice:
        options = [(source, source.outlook(ask)[: max(0, room)]) for source in self._sources]
        if not self._gated:
            source, kinds = max(options, key=lambda option: len(option[1]), default=(None, ()))
            return _Choice(0.0, source if kinds else None, kinds)
        none = _Choice(right / self._pace.cost(rows))
        best = none
        for source, kinds in options:
            choice = self._best(ask.slot, source, kinds, rows, right, limit)
            if choice.rate <= none.rate * _GAIN:
                hopeful = (right + 1) / (self._pace.cost(rows + 1) + self._efforts[source.name]) > none.rate * _GAIN
                if best is none and kinds and self._odds[ask.slot].due(source.name, hopeful=hopeful):
                    best = _Choice(none.rate, source, kinds[:1], self._odds[ask.slot].chance(kinds[0]))
                elif room > 0:
                    source.forget(ask.slot)
            elif choice.rate > best.rate:
                best = choice
        return best

    def _best(self, slot: int, source: Source, kinds: Sequence[str], rows: int, right: float, limit: float) -> _Choice:
        """The number of drafts that makes the most of the step's time."""
        cost, effort = self._pace.cost, self._efforts[source.name]
        again = max(0.0, cost(rows + 4) - cost(rows)) / 4 if self._runtime.sequential else 0.0  # a row that is computed anew
        best = _Choice(0.0)
        chance, expected, lost = 1.0, 0.0, 0.0
        for count, kind in enumerate(kinds, 1):
            before, chance = chance, chance * self._odds[slot].chance(kind)
            expected += chance
            lost += (before - chance) * count * again
            if cost(rows + count) > limit:
                break
            rate = (right + expected) / (cost(rows + count) + count * effort + lost)
            if rate > best.rate:
                best = _Choice(rate, source, kinds[:count], expected)
        if self._turn % _SHORTER == 0 and len(best.kinds) > 1:
            count = 1 + self._turn // _SHORTER % (len(best.kinds) - 1)
            return _Choice(best.rate, source, kinds[:count], best.right * count / len(best.kinds))
        return best

    def _call(self, source: Source, call: Callable[[Source], T]) -> T | None:
        """A source that fails is done with; requests are none the worse for it."""
        try:
            return call(source)
        except Exception:
            log.warning("drafts from %s failed and are off from now on", source.name, exc_info=True)
            self._sources.remove(source)
            return None
