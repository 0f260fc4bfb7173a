"""How often drafts are right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

#: Measurements that weigh as much as what was known before a request, and as all that came before one.
_BEFORE, _MEMORY = 4, 16

#: How much a single draft changes what is expected of the next request.
_LASTING = 1 / 64

#: Tokens until drafts that are not worth it are tried again, at first and at most.
_FIRST_WAIT, _LONGEST_WAIT = 16, 256


class Odds:
    """Chances by kind of draft, of all requests together."""

    def __init__(self, priors: Iterable[Mapping[str, float]]) -> None:
        self.chances = {kind: chance for each in priors for kind, chance in each.items()}

    def judge(self, kind: str, hit: bool) -> None:
        """A draft of this kind was right or wrong."""
        self.chances[kind] += (hit - self.chances[kind]) * _LASTING


class RequestOdds:
    """Chances by kind of draft, of one request; and when to try again what did not pay."""

    def __init__(self, common: Odds) -> None:
        self._common = common
        self._chances: dict[str, tuple[float, int]] = {}  # the mean, and how many drafts it is of
        self._waits: dict[str, tuple[int, int]] = {}  # by source: tokens to wait, and waited since

    def chance(self, kind: str) -> float:
        """How likely a draft of this kind is right, if those before it are."""
        return self._chances[kind][0] if kind in self._chances else self._common.chances[kind]

    def judge(self, source: str, kinds: Sequence[str], right: int) -> None:
        """The first `right` of a draft of these kinds were right and the one behind was wrong."""
        for i, kind in enumerate(kinds[: right + 1]):
            mean, count = self.chance(kind), self._chances.get(kind, (0, 0))[1]
            hit = i < right
            self._chances[kind] = mean + (hit - mean) / min(count + _BEFORE + 1, _MEMORY), count + 1
            self._common.judge(kind, hit)
        wait, _ = self._waits.get(source, (_FIRST_WAIT, 0))
        self._waits[source] = (1 if right else min(max(2 * wait, _FIRST_WAIT), _LONGEST_WAIT)), 0

    def due(self, source: str, *, hopeful: bool = True) -> bool:
        """Whether drafts that do not pay should be tried nevertheless. Asked once for each such token. `hopeful`: they would
        pay if they were right; else there is only their cost to be measured again."""
        wait, waited = self._waits.get(source, (_FIRST_WAIT, 0))
        self._waits[source] = wait, waited + 1
        return waited + 1 >= (wait if hopeful else _LONGEST_WAIT)
