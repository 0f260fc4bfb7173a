"""What an engine tells of itself, and what the gateway keeps of it."""

from __future__ import annotations

from typing import Any

from colibri.compute.runtime import Phases
from colibri.engine.figures import TURNS, Figures
from colibri.engine.frames import Accept, Done, ExpertMap, Profile, Submit, Tiers, Tokens
from colibri.engine.planner import Planner
from colibri.engine.telemetry import EVERY, Telemetry
from colibri.family import Sampling
from colibri.testing.runtime import ScriptedRuntime


class Busy(ScriptedRuntime):
    """Two layers of experts; every step takes a tenth of a second."""

    layers = [bytes([64 | 1, 128 | 3]), bytes([0, 64, 128])]

    def phases(self) -> Phases:
        steps = len(self.steps)
        return Phases(attention=0.1 * steps, experts=0.2 * steps, waited=0.05 * steps, steps=steps)

    def expert_map(self) -> list[bytes]:
        now, self.layers = self.layers, [bytes(byte & 127 for byte in layer) for layer in self.layers]
        return now


class World:
    def __init__(self) -> None:
        self.now = 10.0
        self.frames: list[Any] = []
        self.runtime = Busy()
        self.telemetry = Telemetry(self.runtime, self.frames.append, clock=lambda: self.now)

    def told(self, kind: type) -> list[Any]:
        return [frame for frame in self.frames if isinstance(frame, kind)]


def test_a_map_comes_at_the_start_and_when_something_changed() -> None:
    world = World()
    world.telemetry.start()
    expected = ExpertMap(2, 3, bytes([65, 131, 0, 0, 64, 128]))
    assert world.frames == [expected, Tiers(2, 3, 0, 0)]
    world.now += EVERY
    world.telemetry.look()
    assert len(world.frames) == 2  # nothing was chosen since
    world.runtime.layers = [bytes([64, 129]), bytes([0, 64, 1])]
    world.telemetry.look()
    assert len(world.frames) == 2  # not yet
    world.now += EVERY
    world.telemetry.look()
    assert world.told(ExpertMap)[1].map == bytes([64, 129, 0, 0, 64, 1])


def test_a_model_without_experts_tells_of_none() -> None:
    world = World()
    world.runtime.layers = []
    world.telemetry.start()
    assert not world.frames


def test_each_answer_gets_its_profile() -> None:
    world = World()
    planner = Planner(world.runtime, world.telemetry.emit, chunk=4)
    planner.submit(Submit(1, [1, 2, 3], 5, Sampling()))
    planner.submit(Submit(2, [4, 5], 1, Sampling()))
    while planner.busy:
        world.now += 1
        planner.step()
    kinds = [type(frame) for frame in world.frames]
    assert kinds.count(Profile) == kinds.count(Done) == kinds.count(Accept) == 2
    assert kinds.index(Done) + 1 == kinds.index(Profile)
    second, first = world.told(Profile)
    assert (second.prompt, second.completion) == (2, 1)
    assert (first.prompt, first.completion) == (3, sum(len(f.ids) for f in world.told(Tokens) if f.id == 1)) == (3, 5)
    steps = len(world.runtime.steps)
    assert first.wall == steps
    assert first.phases.steps == steps
    assert abs(first.phases.attention - 0.1 * steps) < 1e-9


def test_what_fails_gets_one_too_and_strangers_do_not() -> None:
    world = World()
    planner = Planner(world.runtime, world.telemetry.emit, chunk=4)
    planner.submit(Submit(1, [1, 2, 3], 5, Sampling()))
    planner.fail(1, "engine_error", "it broke")
    planner.fail(7, "bad_frame", "it can't be read")
    assert len(world.told(Profile)) == 1


def test_figures_keep_the_latest() -> None:
    figures = Figures().with_frame(Tiers(1, 2, 3, 4)).with_frame(ExpertMap(1, 1, b"a")).with_frame(ExpertMap(1, 1, b"b"))
    assert (figures.tiers, figures.experts, figures.experts_seq) == (Tiers(1, 2, 3, 4), ExpertMap(1, 1, b"b"), 2)
    for turn in range(TURNS + 5):
        figures = figures.with_frame(Profile(turn, 1, 1, Phases()))
    assert (len(figures.profiles), figures.profiles_seq) == (TURNS, TURNS + 5)
    assert [figures.profiles[0].wall, figures.profiles[-1].wall] == [5, TURNS + 4]
