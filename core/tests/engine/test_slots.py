"""Where prompts go, and what they keep."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from colibri.engine.slots import Slots, shared


class Anywhere:
    """Slots that can be taken back to every multiple of `every`."""

    def __init__(self, every: int = 1) -> None:
        self.every = every
        self.done: list[tuple[str | int, ...]] = []

    def reach(self, slot: int, length: int) -> int:
        return length // self.every * self.every

    def rewind(self, slot: int, length: int) -> int:
        self.done.append(("rewind", slot, length))
        return self.reach(slot, length)

    def copy(self, source: int, target: int, length: int) -> int:
        self.done.append(("copy", source, target, length))
        return self.reach(source, length)


@given(st.lists(st.integers(0, 1), max_size=1200), st.lists(st.integers(0, 1), max_size=20), st.data())
def test_shared_prefix(common: list[int], rest: list[int], data: st.DataObject) -> None:
    a, b = common + rest, common + data.draw(st.lists(st.integers(0, 1), max_size=20))
    expected = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    assert shared(a, b) == expected


def used(slots: Slots, index: int, ids: list[int]) -> None:
    kept = slots.take(index, ids)
    slots.all[index].extend(ids[kept:])
    slots.release(index)


def test_a_conversation_goes_on_in_its_slot() -> None:
    slots = Slots(3)
    used(slots, 0, [1, 2, 3, 4])
    used(slots, 1, [5, 6, 7, 8])
    assert slots.nearest([1, 2, 3, 4, 9], [0, 1, 2]) == 0
    assert slots.nearest([5, 6, 7, 8, 9], [0, 1, 2]) == 1
    assert slots.nearest([1, 2, 3, 4, 9], [1, 2]) == 2


def test_the_longest_conversation_wins() -> None:
    slots = Slots(2)
    used(slots, 0, [1, 2])
    used(slots, 1, [1, 2, 3, 4])
    assert slots.nearest([1, 2, 3, 4, 5], [0, 1]) == 1
    assert slots.nearest([1, 2, 9], [0, 1]) == 0


def test_a_new_conversation_takes_the_least_recently_used_slot() -> None:
    slots = Slots(3)
    for index in (2, 0, 1):
        used(slots, index, [index + 1] * 4)
    assert slots.nearest([9, 9], [0, 1, 2]) == 2
    assert slots.nearest([9, 9], [0, 1]) == 0


def test_a_common_opening_does_not_cost_another_conversation_its_tokens() -> None:
    slots = Slots(2)
    system = [7] * 10
    used(slots, 0, [*system, *range(20)])
    assert slots.nearest([*system, 99], [0, 1]) == 1
    ways = Anywhere()
    assert slots.take(1, [*system, 99], ways) == 10
    assert ways.done == [("copy", 0, 1, 10)]
    assert slots.all[1].history == system
    assert slots.all[0].history == [*system, *range(20)]


def test_nothing_is_copied_that_the_slot_has() -> None:
    slots = Slots(2)
    used(slots, 0, [1, 2, 3])
    used(slots, 1, [1, 2, 3, 4])
    ways = Anywhere()
    assert slots.take(0, [1, 2, 3, 9], ways) == 3
    assert ways.done == [("rewind", 0, 3)]
    assert slots.free() == [1]


def test_the_last_token_is_never_taken_as_known() -> None:
    slots = Slots(2)
    used(slots, 0, [1, 2, 3])
    assert slots.take(0, [1, 2, 3]) == 2
    assert slots.all[0].history == [1, 2]
    slots.release(0)
    assert slots.take(1, [1, 2], Anywhere()) == 1


def test_what_cannot_be_reached_is_not_kept() -> None:
    slots = Slots(2)
    used(slots, 0, [1, 2, 3, 4])
    used(slots, 1, [1, 2, 9])
    assert slots.take(0, [1, 2, 3, 7], Anywhere(every=2)) == 2
    assert slots.all[0].history == [1, 2]
    slots.release(0)
    far = Anywhere(every=3)
    assert slots.take(1, [1, 2, 8], far) == 0
    assert far.done == [("rewind", 1, 2)]
