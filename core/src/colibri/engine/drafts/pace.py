"""How long steps take."""

from __future__ import annotations

#: What a row more adds to a step, as a share of a step of one row, before anything was measured.
_ROW = 0.1

#: What it adds at the least, whatever was measured.
_LEAST = 0.03

#: Steps of more rows than these are guessed at: they hold prompts.
_MEASURED = 64


class Pace:
    """The time of a step by its number of rows. Machines grow faster and slower as others use them: what counts is how times
    compare. So the present speed is followed from step to step, and a step is compared with it where its number of rows is
    another than the last one's."""

    def __init__(self) -> None:
        self._costs: dict[int, tuple[float, int]] = {}  # by rows: the mean, and how many steps it is of
        self._speed = 0.0
        self._rows = 0  # of the last step

    def cost(self, rows: int) -> float:
        """The time of a step of so many rows, about 1 for a single one: as measured, or between and beyond what was."""
        least = max((cost + _LEAST * (rows - known) for known, (cost, _) in self._costs.items() if known < rows), default=0.0)
        return max(least, self._estimate(rows))

    def _estimate(self, rows: int) -> float:
        if rows in self._costs:
            return self._costs[rows][0]
        below = max((known for known in self._costs if known < rows), default=0)
        above = min((known for known in self._costs if known > rows), default=0)
        if below and above:
            low, high = self._costs[below][0], self._costs[above][0]
            return low + (high - low) * (rows - below) / (above - below)
        known = below or above
        start = self._costs[known][0] if known else 1 - _ROW
        return max(start + _ROW * (rows - known), start / 2)

    def cost_of(self, seconds: float) -> float:
        """What else took so long, as a step's time; 0 before the first measurement."""
        return seconds / self._speed if self._speed else 0.0

    def took(self, rows: int, seconds: float) -> None:
        """A step of so many rows took so long."""
        if rows > _MEASURED or seconds <= 0:
            return
        cost = self.cost(rows)
        if self._speed == 0:
            self._speed = seconds / cost
        off = min(3.0, max(1 / 3, seconds / (cost * self._speed))) - 1  # the machine did something else meanwhile
        if rows != self._rows:
            _, steps = self._costs.get(rows, (cost, 0))
            self._costs[rows] = cost * (1 + off / min(16, steps + 1)), steps + 1
            self._rows = rows
        self._speed *= 1 + off / 4
