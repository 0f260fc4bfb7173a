"""Drafts from the model's own draft head (see family.DraftFamily)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from ...compute.runtime import Row, Runtime
from .source import Ask

#: A head drafts one token ahead. Where its hidden rows can stand for the model's, it goes on from these.
_PRIORS = {f"mtp {ahead}": chance for ahead, chance in enumerate((0.6, 0.45, 0.35, 0.3, 0.25, 0.2, 0.2, 0.2), 1)}


class _Fresh(Struct, frozen=True):
    """A row of the model's last step: the position it computed, and the token behind that."""

    row: int
    position: int
    token: int


class DraftHead:
    """A head with states of its own, kept in step with the model's. A Source.

    A row of the head is a position of the model: its hidden row, and the token behind it. `_positions` says which positions
    a slot of the head holds. It may lack some, such as those of a time when drafts did not pay, or the last one of a prefix
    that was cached, since hidden rows are not kept: it then goes on without them, a few tokens short of context.
    """

    name = "mtp"
    priors: Mapping[str, float] = _PRIORS

    def __init__(self, model: Runtime, head: Runtime, most: int) -> None:
        """`most`: drafts at a time."""
        self._model, self._head = model, head
        self._most = min(most, len(_PRIORS)) if head.gives == head.given else min(most, 1)
        # Slots that were saved hold rows from before.
        self._positions = [list(range(head.reach(slot, head.context))) for slot in range(model.slots)]
        self._fresh: dict[int, list[_Fresh]] = {}

    def outlook(self, ask: Ask) -> Sequence[str]:
        fresh = self._fresh.get(ask.slot)
        if not fresh or fresh[-1].position != len(ask.tokens) - 2:
            return []
        return list(_PRIORS)[: min(self._most, ask.most)]

    def draft(self, wanted: Sequence[tuple[Ask, int]]) -> list[list[int]]:
        asks = {ask.slot: ask for ask, _ in wanted}
        tokens, last = self._learn(asks, list(self._fresh))
        found = {slot: [token] for slot, token in tokens.items()}
        for ahead in range(1, max((count for _, count in wanted), default=0)):
            rows = []
            going = [ask for ask, count in wanted if count > ahead and len(self._positions[ask.slot]) < self._head.context]
            if not going:
                break
            for ask in going:
                given = bytes(self._head.hidden(last[ask.slot]))
                at, draw = len(self._positions[ask.slot]), ask.draw + ahead
                rows.append(Row(found[ask.slot][-1], ask.slot, at, sampling=ask.sampling, draw=draw, given=given))
                self._positions[ask.slot].append(len(ask.tokens) - 2 + ahead)
            last = {ask.slot: i for i, ask in enumerate(going)}
            for ask, token in zip(going, self._head.step(rows), strict=True):
                found[ask.slot].append(token)
        for ask in asks.values():
            self._cut(ask.slot, len(ask.tokens) - 1)  # rows of drafts are the head's own
        return [_before(found[ask.slot], ask.stops) for ask, _ in wanted]

    def follow(self, slot: int, row: int, start: int, count: int, tokens: Sequence[int]) -> None:
        behind = tokens[start + 1 : start + 1 + count]
        self._fresh[slot] = [_Fresh(row + i, start + i, token) for i, token in enumerate(behind) if token >= 0]

    def forget(self, slot: int) -> None:
        self._fresh.pop(slot, None)

    def release(self, slot: int) -> None:
        self._learn({}, [slot])

    def rewind(self, slot: int, length: int) -> None:
        self._cut(slot, length - 1)

    def copy(self, source: int, target: int, length: int) -> None:
        kept = bisect_left(self._positions[source], length - 1)
        reached = self._head.copy(source, target, kept)
        self._positions[target] = self._positions[source][:reached]

    def _learn(self, asks: Mapping[int, Ask], slots: Iterable[int]) -> tuple[dict[int, int], dict[int, int]]:
        """Compute what the model's last step left to learn of `slots`: the draft of each ask, and the row it was made in."""
        rows, last = [], {}
        for slot in slots:
            if not (fresh := self._fresh.pop(slot, [])):
                continue
            self._cut(slot, fresh[0].position)
            positions = self._positions[slot]
            for each in fresh:
                rows.append(Row(each.token, slot, len(positions), given=bytes(self._model.hidden(each.row))))
                positions.append(each.position)
            if slot in asks:
                last[slot] = len(rows) - 1
                ask, row = asks[slot], rows[-1]
                rows[-1] = Row(row.token, slot, row.position, sampling=ask.sampling, draw=ask.draw, given=row.given)
        picked = self._head.step(rows) if rows else []
        return dict(zip(last, picked, strict=True)), last

    def _cut(self, slot: int, position: int) -> None:
        """Only the positions before this one are those of the sequence."""
        positions = self._positions[slot]
        kept = bisect_left(positions, position)
        if kept < len(positions):
            del positions[self._head.rewind(slot, max(kept, 0)) :]


def _before(tokens: list[int], stops: frozenset[int]) -> list[int]:
    """The tokens before the first that is a stop."""
    return tokens[: next((i for i, token in enumerate(tokens) if token in stops), len(tokens))]
