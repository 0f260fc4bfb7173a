"""Driving a runtime in all the ways an engine may: whole, in chunks, token by token, several slots at once.

Whichever way is taken, the logits have to be the same; a family's tests compare them with each other and with an oracle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat

import numpy as np
from numpy.typing import NDArray

from ..compute.runtime import Row, Runtime
from ..family import Sampling

Logits = NDArray[np.float32]


def row_of(id: int | bytes, slot: int, position: int, *, logits: bool = True) -> Row:
    """The row of a token, or of codes in place of one (see Row)."""
    if isinstance(id, bytes):
        return Row(0, slot, position, logits=logits, codes=id)
    return Row(id, slot, position, logits=logits)


def logits_of(
    runtime: Runtime, ids: Sequence[int | bytes], *, slot: int = 0, start: int = 0, chunks: Iterable[int] = ()
) -> Logits:
    """Logits [len(ids), vocab] of `ids` at positions `start` and on, in steps of the given `chunks` of rows and then of
    as many as the runtime takes."""
    found: list[Logits] = []
    at = 0
    for size in chain(chunks, repeat(runtime.max_rows)):
        chunk = ids[at : at + min(size, runtime.max_rows)]
        if not chunk:
            break
        found += _step(runtime, [row_of(id, slot, start + at + i) for i, id in enumerate(chunk)])
        at += len(chunk)
    return np.stack(found)


def together(
    runtime: Runtime, prompts: Mapping[int, Sequence[int]], chunks: Mapping[int, int] | None = None
) -> dict[int, Logits]:
    """Logits of several prompts by their slot, all slots in the same steps, each with its own chunk of rows (1).

    The chunks together must fit the runtime's `max_rows`.
    """
    sizes = chunks or {}
    found: dict[int, list[Logits]] = {slot: [] for slot in prompts}
    while rows := list(_next_rows(prompts, found, sizes)):
        for row, logits in zip(rows, _step(runtime, rows), strict=True):
            found[row.slot].append(logits)
    return {slot: np.stack(logits) for slot, logits in found.items()}


def greedy(runtime: Runtime, ids: Sequence[int], count: int, *, slot: int = 0) -> list[int]:
    """The `count` most likely tokens after `ids`, each after the one before."""
    for first in range(0, len(ids) - 1, runtime.max_rows):
        chunk = ids[first : min(first + runtime.max_rows, len(ids) - 1)]
        runtime.step([Row(token, slot, first + i) for i, token in enumerate(chunk)])
    last = Row(ids[-1], slot, len(ids) - 1, sampling=Sampling())
    found: list[int] = []
    while len(found) < count:
        found += runtime.step([last])
        last = Row(found[-1], slot, last.position + 1, sampling=Sampling(), draw=len(found))
    return found


def put_back(source: Runtime, slot: int, length: int, target: Runtime, place: int, *, piece: int = 1 << 20) -> int:
    """Make slot `place` of another runtime what `slot` is at `length`, in pieces of so many numbers; returns the length it
    has now."""
    image = source.image(slot, length)
    if image.length == 0:
        return target.rewind(place, 0)
    blank = target.blank(place, image.length, image.snapshots)
    assert (blank.size, blank.exact) == (image.size, image.exact)
    for begin in range(0, image.size, piece):
        blank.write(begin, image.read(begin, min(piece, image.size - begin)))
    blank.adopt()
    return image.length


def _next_rows(
    prompts: Mapping[int, Sequence[int]], found: Mapping[int, Sequence[Logits]], sizes: Mapping[int, int]
) -> Iterator[Row]:
    for slot, ids in prompts.items():
        at = len(found[slot])
        for i, token in enumerate(ids[at : at + sizes.get(slot, 1)]):
            yield Row(token, slot, at + i, logits=True)


def _step(runtime: Runtime, rows: Sequence[Row]) -> list[Logits]:
    runtime.step(rows)
    return [np.array(runtime.logits(i), np.float32) for i in range(len(rows))]
