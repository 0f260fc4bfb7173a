"""How long steps take."""

from __future__ import annotations

from collections.abc import Mapping

#: What a row more adds to a step, as a share of a step of one row, before anything was measured.
_ROW = 0.1

#: What it adds at the least, whatever was measured.
_LEAST = 0.03

#: By how much a single measurement may be too high.
_DOUBT = 0.4

#: Steps of more rows than these are guessed at: they hold prompts.
_MEASURED = 64


class Pace:
    """The time of a step by its number of rows. Machines grow faster and slower as others use them: what counts is how times
    compare. So the present speed is followed from step to step, and a step is compared with it where its number of rows is
    another than the last one's."""

    def __init__(self) -> None:
        self._means: dict[int, tuple[float, int]] = {}  # by rows, and how many steps each is of
        self._curve: dict[int, float] = {}  # what they say together
        self._speed = 0.0
        self._rows = 0  # of the last step

    def cost(self, rows: int) -> float:
        """The time of a step of so many rows, about 1 for a single one: as measured, or between and beyond what was."""
        if rows in self._curve:
            return self._curve[rows]
        below = max((known for known in self._curve if known < rows), default=0)
        above = min((known for known in self._curve if known > rows), default=0)
        if below and above:
            low, high = self._curve[below], self._curve[above]
            return low + (high - low) * (rows - below) / (above - below)
        known = below or above
        start = self._curve[known] if known else 1 - _ROW
        return max(start + _ROW * (rows - known), start / 2)

    def cost_of(self, seconds: float) -> float:
        """What else took so long, as a step's time; 0 before the first measurement."""
        return seconds / self._speed if self._speed else 0.0

    def took(self, rows: int, seconds: float) -> None:
        """A step of so many rows took so long."""
        if rows > _MEASURED or seconds <= 0:
            return
        cost = self._means[rows][0] if rows in self._means else self.cost(rows)
        if self._speed == 0:
            self._speed = seconds / cost
        off = min(3.0, max(1 / 3, seconds / (cost * self._speed)))  # more is not due to rows
        if rows != self._rows:
            self._compare(rows, cost, off)
        self._speed *= off**0.25

    def _compare(self, rows: int, cost: float, off: float) -> None:
        """A step of `rows` took `off` times what was expected, going by the ones before: of the two numbers of rows, the one
        that is known less well is put right more."""
        last, self._rows = self._rows, rows
        mean, steps = self._means.get(rows, (cost, 0))
        other, others = self._means.get(last, (cost, 0))
        step = 1 / min(16, min(steps, others) + 1)
        share = (others + 1) / (steps + others + 2)
        self._means[rows] = mean * off ** (step * share), steps + 1
        if last:
            self._means[last] = other / off ** (step * (1 - share)), others
        self._curve = _rising(self._means)


def _rising(means: Mapping[int, tuple[float, int]]) -> dict[int, float]:
    """What means say together, if each row adds something: those that fall are made one, by how many steps each is of. What
    was seen seldom is taken for less than that, so that one bad moment is no reason not to try it again."""
    runs: list[tuple[float, int, list[int]]] = []
    for rows, (mean, steps) in sorted(means.items()):
        run = (mean * (1 - _DOUBT / (steps + 1)) - _LEAST * rows, steps, [rows])
        while runs and runs[-1][0] > run[0]:
            before = runs.pop()
            both = before[1] + run[1]
            run = ((before[0] * before[1] + run[0] * run[1]) / both, both, [*before[2], *run[2]])
        runs.append(run)
    return {rows: mean + _LEAST * rows for mean, _, run in runs for rows in run}
