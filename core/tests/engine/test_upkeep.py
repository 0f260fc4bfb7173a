"""What is done for streamed experts between steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from colibri.compute.experts import BankFacts, Facts
from colibri.engine import usage
from colibri.engine.upkeep import LOOK, SAVE, Upkeep, upkeep_of
from colibri.settings import Settings
from colibri.testing.runtime import ScriptedRuntime

MIB = 1 << 20
COUNT, ROOM, SIZE = 8, 4, 32 * MIB


class Cache:
    """Two layers of experts, as far as upkeep sees them."""

    identity = "model"
    least = 2 * SIZE
    streamed = (0, 2)

    def __init__(self) -> None:
        self.done: list[tuple[str, int, list[int]]] = []
        self.chosen = {0: [0] * COUNT, 2: [0] * COUNT}
        self.room = ROOM

    def facts(self) -> Facts:
        return Facts((BankFacts(SIZE, COUNT, self.room, 0, 0, 0, 0.0),) * 2, 0, 0.0)

    def limit(self, budget: int) -> None:
        assert self.least <= budget
        self.room = min(ROOM, budget // (2 * SIZE))

    def uses(self, bank: int) -> list[int]:
        return self.chosen[bank]

    def preload(self, bank: int, experts: list[int]) -> None:
        self.done.append(("preload", bank, experts))

    def pin(self, bank: int, experts: list[int]) -> None:
        self.done.append(("pin", bank, experts))


class World:
    def __init__(self, folder: Path | None = None, ram: int = 0) -> None:
        self.cache, self.now, self.free, self.taken = Cache(), 0.0, 100_000 * MIB, 0
        self.upkeep = Upkeep(
            [self.cache],  # type: ignore[list-item]
            folder,
            ram,
            free=lambda: self.free,
            taken=lambda: self.taken,
            clock=lambda: self.now,
        )

    def later(self, seconds: float = LOOK) -> int:
        self.now += seconds
        self.upkeep.look()
        return self.cache.room


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colibri.compute.memory.total", lambda: 8000 * MIB)


def test_without_a_history_room_is_filled(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.upkeep.start()
    assert world.cache.done == [("preload", 0, [0, 1, 2, 3]), ("preload", 2, [0, 1, 2, 3])]


def test_what_was_needed_most_is_read_first_and_half_of_it_pinned(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.cache.chosen = {0: [0, 0, 900, 0, 0, 0, 500, 100], 2: [1, 0, 0, 0, 0, 0, 0, 3]}
    world.later(SAVE)
    again = World(tmp_path)
    again.upkeep.start()
    assert again.cache.done == [
        ("pin", 0, [2, 6]),
        ("preload", 0, [2, 6, 7, 0]),
        ("preload", 2, [7, 0, 1, 2]),  # too few to pin any
    ]


def test_nothing_is_pinned_in_a_cache_that_holds_little(tmp_path: Path) -> None:
    usage.write(tmp_path, "model", ((1000.0,) * COUNT,) * 2)
    world = World(tmp_path)
    world.cache.facts = lambda: Facts((BankFacts(SIZE, COUNT, 0, 0, 0, 0, 0.0),) * 2, 0, 0.0)  # type: ignore[method-assign]
    world.upkeep.start()
    assert {name for name, _, _ in world.cache.done} == {"preload"}


def test_another_model_s_history_is_not_taken(tmp_path: Path) -> None:
    usage.write(tmp_path, "model", ((1000.0, 0.0), (1.0,)))
    world = World(tmp_path)
    world.upkeep.start()
    assert {name for name, _, _ in world.cache.done} == {"preload"}


def test_counts_are_saved_now_and_then_and_grow_from_start_to_start(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert not list(tmp_path.iterdir())
    world.later(SAVE)
    assert not list(tmp_path.iterdir())  # nothing was chosen yet
    world.cache.chosen = {0: [2] * COUNT, 2: [1] * COUNT}
    world.later(SAVE - 1)
    assert not list(tmp_path.iterdir())
    world.later(1)
    again = World(tmp_path)
    again.cache.chosen = {0: [2] * COUNT, 2: [0] * COUNT}
    again.upkeep.save()
    again.upkeep.save()  # saving twice counts nothing twice
    first, second = usage.read(tmp_path, "model")
    assert first == pytest.approx([4] * COUNT, rel=1e-3)
    assert second == pytest.approx([1] * COUNT, rel=1e-3)


def test_nothing_is_saved_where_nobody_wants_it(tmp_path: Path) -> None:
    world = World(None)
    world.cache.chosen = {0: [2] * COUNT, 2: [1] * COUNT}
    world.later(SAVE)
    world.upkeep.save()


def test_memory_is_given_back_when_it_runs_short_and_taken_again(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    assert world.later() == ROOM
    world.free = 256 * MIB - 65 * MIB
    assert world.later(LOOK - 1) == ROOM  # not looked yet
    assert world.later(1) == ROOM - 2
    assert "memory runs short: experts now have 0.13 GB instead of 0.27" in caplog.text
    world.free = 0
    assert world.later() == 1  # no less than what one token takes
    world.free = 2 * 256 * MIB
    assert world.later() == 1
    world.free = 2 * 256 * MIB + 300 * MIB
    assert world.later() > 1
    world.free = 100_000 * MIB
    assert world.later() == ROOM
    caplog.clear()
    assert world.later() == ROOM
    assert not caplog.text


def test_a_process_that_grew_beyond_what_it_was_given_keeps_fewer_experts() -> None:
    world = World(ram=1000 * MIB)
    world.taken = 1049 * MIB
    assert world.later() == ROOM
    world.taken = 1100 * MIB
    assert world.later() < ROOM
    world.taken = 1000 * MIB
    assert world.later() < ROOM  # there is room in the machine, but not in what it was given
    world.taken = 500 * MIB
    assert world.later() == ROOM


def test_a_runtime_that_streams_nothing_needs_none() -> None:
    assert upkeep_of(Settings(), ScriptedRuntime()) is None


def test_facts_add_up() -> None:
    bank = BankFacts(10, 8, 4, 3, 30, 10, 0.5)
    facts = Facts((bank, replace(bank, hits=0, misses=0)), 1, 1.0)
    assert (facts.bytes, facts.hit_rate) == (80, 0.75)
    assert Facts((), 0, 0.0).hit_rate == 1
