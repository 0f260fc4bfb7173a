"""Slots: which tokens each one holds, and which one a new prompt should go to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

#: Positions compared at once; lists compare at C speed.
_RUN = 512


def shared(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two sequences have in common from the start."""
    limit = min(len(a), len(b))
    at = 0
    while at < limit and a[at : at + _RUN] == b[at : at + _RUN]:
        at += _RUN
    while at < limit and a[at] == b[at]:
        at += 1
    return min(at, limit)


class Ways(Protocol):
    """How slots are taken back and copied: what a runtime does (see compute.runtime.Runtime)."""

    def reach(self, slot: int, length: int) -> int: ...

    def rewind(self, slot: int, length: int) -> int: ...

    def copy(self, source: int, target: int, length: int) -> int: ...


class Slot:
    """One sequence of the runtime: the tokens whose state it holds, in order, from position 0."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.history: list[int] = []
        self.busy = False
        self.used = 0

    def extend(self, tokens: Iterable[int]) -> None:
        """The runtime has computed `tokens` at the next positions."""
        self.history.extend(tokens)

    def cut(self, length: int) -> None:
        """The runtime holds only the first `length` positions."""
        del self.history[length:]


class Slots:
    """All slots of a runtime. The gateway keeps one as well, as an estimate of what the engine holds."""

    def __init__(self, count: int) -> None:
        self.all = [Slot(index) for index in range(count)]
        self._clock = 0

    def free(self) -> list[int]:
        """Indices of the slots that no request is using."""
        return [slot.index for slot in self.all if not slot.busy]

    def nearest(self, ids: Sequence[int], among: Sequence[int]) -> int:
        """Where of the slots `among` (not empty) to put a prompt: the one whose conversation it goes on with, else the
        least recently used.

        A prompt goes on with a slot if it keeps at least three quarters of the slot's tokens. One that shares less,
        say only a system prompt, would destroy more than it saves: the prefix is copied to another slot instead.
        """
        slots = [self.all[index] for index in among]
        lengths = {slot.index: shared(slot.history, ids) for slot in slots}
        kept = [slot for slot in slots if slot.history and lengths[slot.index] * 4 >= len(slot.history) * 3]
        if kept:
            return max(kept, key=lambda slot: (lengths[slot.index], slot.used)).index
        return min(slots, key=lambda slot: (slot.used, slot.index)).index

    def take(self, index: int, ids: Sequence[int], ways: Ways | None = None) -> int:
        """Give a slot to a prompt and return how many of its tokens need no computation.

        The last prompt token is always computed, because its logits choose the first new token. With `ways`, the slot is
        taken back to what it shares with the prompt; if another slot can give more of it, that is copied instead.
        """
        slot = self.all[index]
        limit = len(ids) - 1
        kept = min(shared(slot.history, ids), limit)
        if ways is not None:
            lengths = [ways.reach(other.index, min(shared(other.history, ids), limit)) for other in self.all]
            source = max(range(len(lengths)), key=lengths.__getitem__)
            if lengths[source] > lengths[index]:
                kept = ways.copy(source, index, lengths[source])
            else:
                kept = ways.rewind(index, kept)
        slot.history = list(ids[:kept])
        slot.busy = True
        self._touch(slot)
        return kept

    def release(self, index: int) -> None:
        """The request is over; what the slot holds stays."""
        slot = self.all[index]
        slot.busy = False
        self._touch(slot)

    def resume(self, index: int, ids: Iterable[int]) -> None:
        """The slot holds the state of these tokens, from before."""
        self.all[index].history = list(ids)
        self._touch(self.all[index])

    def _touch(self, slot: Slot) -> None:
        self._clock += 1
        slot.used = self._clock
