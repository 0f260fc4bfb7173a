"""Stop texts: the output ends before the first of them, and no part of one is ever shown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from .detokenizer import Run


class StopText(Struct, frozen=True):
    """A text that ends the output. A `patient` one is dropped where only blanks stand before it."""

    text: str
    patient: bool = False


class _Matcher:
    """Finds one text in a stream, a character at a time, in linear time (Knuth, Morris, Pratt 1977)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.matched = 0  # how much of the text the stream ends with
        # How long the longest proper prefix is that each prefix ends with. Made as far as it is needed: a client may
        # send megabytes of which no more than the first letters are ever met.
        self._back: list[int] = []

    def step(self, char: str) -> bool:
        """Take a character; True if the text is now complete."""
        n = self._next(self.matched, char)
        if n > len(self._back):
            self._back.append(self._next(self._back[-1], char) if self._back else 0)
        whole = n == len(self.text)
        self.matched = self._back[-1] if whole else n
        return whole

    def _next(self, n: int, char: str) -> int:
        """How much is matched when `char` follows `n` characters that are."""
        while n and self.text[n] != char:
            n = self._back[n - 1]
        return n + (self.text[n] == char)


class StopFilter:
    """Passes output on up to the first stop text.

    It holds back only what may be the beginning of a stop text and, in front of the first character that is not blank,
    the blanks that a patient stop text would take with it. The stop text that begins first wins; among those that begin
    together, the first of the list. `stopped` is then its index, and `tail` all text read from its beginning on.
    """

    def __init__(self, stops: Sequence[StopText]) -> None:
        self.stopped: int | None = None
        self.tail = ""
        self._stops = stops
        self._first = re.compile("[" + "".join(re.escape(stop.text[0]) for stop in stops) + "]") if stops else None
        self._held: list[Run] = []
        self._begin = 0  # position of the first character held
        self._end = 0  # position behind the last character looked at
        self._leading = any(stop.patient for stop in stops)
        self._restart()

    def _restart(self) -> None:
        self._matchers = [_Matcher(stop.text) for stop in self._stops]
        self._found: tuple[int, int] | None = None  # the best match so far: where it begins, its index
        self._unsure = ""  # while leading: what follows the blanks that are certainly no part of a stop text

    def feed(self, run: Run) -> list[Run]:
        """Take output; return what may be passed on, and what is dropped for good."""
        if self.stopped is not None:
            self.tail += run.text
            return []
        if self._first is None:
            return [run]
        return self._work([run])

    def finish(self) -> list[Run]:
        """The output has ended: return what was held back, unless a stop text began in it."""
        out: list[Run] = []
        while self._found is not None and self.stopped is None:
            out += self._work(self._settle(out))
        return out + self._cut(sum(len(run.text) for run in self._held))

    def _work(self, runs: list[Run]) -> list[Run]:
        out: list[Run] = []
        while runs and self.stopped is None:
            run = runs.pop(0)
            self._held.append(run)
            if self._look(run.text):
                runs = self._settle(out) + runs
            elif not self._leading:
                first = self._pending()[0]
                out += self._cut(first - self._begin)
        self.tail += "".join(run.text for run in runs)
        return out

    def _look(self, text: str) -> bool:
        """Look at new text; True as soon as it is certain which stop text comes first."""
        assert self._first is not None
        base = self._end
        at = 0
        while at < len(text):
            if not self._leading and self._found is None and not any(m.matched for m in self._matchers):
                start = self._first.search(text, at)
                if start is None:
                    break
                at = start.start()
            char = text[at]
            at += 1
            self._end = base + at
            for index, matcher in enumerate(self._matchers):
                if matcher.step(char):
                    match = (self._end - len(matcher.text), index)
                    self._found = min(self._found or match, match)
            if self._found is not None and self._found < self._pending():
                return True
            if self._leading:
                self._unsure += char
                sure = len(self._unsure) - (self._end - self._pending()[0])
                self._leading = not self._unsure[:sure].strip()
                self._unsure = self._unsure[sure:]
        self._end = base + len(text)
        return False

    def _pending(self) -> tuple[int, int]:
        """Where the earliest text begins that may become a stop text, and the index of that."""
        starts = ((self._end - matcher.matched, index) for index, matcher in enumerate(self._matchers) if matcher.matched)
        return min(starts, default=(self._end, len(self._matchers)))

    def _settle(self, out: list[Run]) -> list[Run]:
        """A stop text has been found: stop there, or drop it and return what follows it, to be looked at again."""
        assert self._found is not None
        start, index = self._found
        stop = self._stops[index]
        before = self._cut(start - self._begin)
        if self._leading and stop.patient and not "".join(run.text for run in before).strip():
            dropped = before + self._cut(len(stop.text))
            out += [Run(run.text, run.id, dropped=True) for run in dropped]
            rest, self._held = self._held, []
            self._end = self._begin
            self._restart()
            return rest
        out += before
        self.stopped = index
        self.tail = "".join(run.text for run in self._held)
        self._held = []
        return []

    def _cut(self, length: int) -> list[Run]:
        """Take `length` characters from what is held."""
        taken: list[Run] = []
        while length > 0 and self._held:
            run = self._held[0]
            if len(run.text) <= length:
                taken.append(self._held.pop(0))
            else:
                run = Run(run.text[:length])
                self._held[0] = Run(self._held[0].text[length:])
                taken.append(run)
            self._begin += len(run.text)
            length -= len(run.text)
        return taken
