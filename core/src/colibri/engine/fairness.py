"""How much of a prompt is computed beside answers that are being written."""

from __future__ import annotations

#: How long a step with a part of a prompt is to take, in steps of the answers alone; drafts may add to it. Nobody who reads
#: an answer shall wait for three.
_AIM = 2.2

#: Rows of a prompt to begin with where nothing is known, and at the least: below that a prompt would take forever.
_FIRST, _LEAST = 8, 4

#: By how much the number of rows may change from one step to the next.
_SHRINK, _GROW = 0.25, 1.5

#: The share of a new measurement in what is taken to be usual.
_NEW = 0.2


class Fairness:
    """Follows the steps, and says how many rows of a prompt the next one may have. Steps without answers count nothing: a
    prompt that nobody waits beside is computed in whole chunks."""

    def __init__(self) -> None:
        self._usual: dict[int, float] = {}  # seconds of a step of so many answers alone
        self._rows: float = _FIRST

    def rows(self, answers: int, chunk: int) -> int:
        """Rows of a prompt, at most `chunk`, in a step with so many answers."""
        return min(chunk, int(self._rows)) if answers else chunk

    def took(self, answers: int, prompt: int, seconds: float) -> None:
        """A step with so many answers and rows of a prompt took so long."""
        if not answers or seconds <= 0:
            return
        if not prompt:
            usual = self._usual.get(answers, seconds)
            # A machine that is suddenly busy makes one step long, not all.
            self._usual[answers] = usual + _NEW * (min(seconds, 2 * usual) - usual)
        elif (known := self._known(answers)) is not None:
            more = seconds / known - 1
            factor = (_AIM - 1) / more if more > 0 else _GROW
            aimed = prompt * min(_GROW, max(_SHRINK, factor))
            # A short rest of a prompt says little about long parts.
            if prompt >= int(self._rows) or factor < 1:
                self._rows = max(_LEAST, aimed)

    def _known(self, answers: int) -> float | None:
        """What is known of the nearest number of answers; fewer take less, which errs on the side of those who read."""
        nearest = min(self._usual, key=lambda count: (abs(count - answers), count), default=None)
        return None if nearest is None else self._usual[nearest]
