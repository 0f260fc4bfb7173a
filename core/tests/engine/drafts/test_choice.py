"""How many drafts are tried, on a runtime whose steps take scripted times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest

from colibri.compute.runtime import Row
from colibri.engine.drafts.choice import Drafts
from colibri.engine.drafts.lookup import PromptLookup
from colibri.engine.drafts.source import Ask, Source
from colibri.engine.frames import Done, Error, Submit, Tokens
from colibri.engine.planner import Planner
from colibri.family import Sampling
from colibri.testing.runtime import ScriptedRuntime, alone
from colibri.testing.speculation import Guesses

VOCAB, LENGTH = 1009, 600
Cost = Callable[[int], float]


def cheap(rows: int) -> float:
    """Steps of few rows wait for memory."""
    return 1.0 if rows <= 4 else 0.4 + 0.15 * rows


def dear(rows: int) -> float:
    """Each row brings in experts of its own."""
    return float(rows)


class Machine(ScriptedRuntime):
    """A runtime with a clock, which only its steps move."""

    def __init__(self, cost: Cost, **options: Any) -> None:
        super().__init__(**{"context": 2000, "slots": 1, "vocab": VOCAB, "max_rows": 64, **options})
        self.cost, self.now = cost, 0.0

    def clock(self) -> float:
        return self.now

    def step(self, rows: Sequence[Row]) -> list[int]:
        self.now += self.cost(len(rows))
        return super().step(rows)


class Steady(Guesses):
    """Guesses that there always are, six at a time."""

    def outlook(self, ask: Ask) -> Sequence[str]:
        return ["guess"] * min(ask.most, 6)

    def become(self, luck: float) -> None:
        self._luck = luck


def run(machine: Machine, sources: Sequence[Source], prompts: Sequence[list[int]], gated: bool = True) -> dict[int, Done]:
    """Answer all prompts at once, each as it would be answered alone."""
    tokens: dict[int, list[int]] = {id: [] for id in range(len(prompts))}
    ended: dict[int, Done] = {}

    def emit(frame: object) -> None:
        assert not isinstance(frame, Error), frame
        if isinstance(frame, Tokens):
            tokens[frame.id] += frame.ids
        elif isinstance(frame, Done):
            ended[frame.id] = frame

    drafts = Drafts(machine, sources, gated=gated, clock=machine.clock)
    planner = Planner(machine, emit, chunk=16, drafts=drafts, clock=machine.clock)
    for id, prompt in enumerate(prompts):
        planner.submit(Submit(id, prompt, LENGTH, Sampling()))
    while planner.busy:
        planner.step()
    for id, prompt in enumerate(prompts):
        assert tokens[id] == alone(prompt, LENGTH, vocab=VOCAB)
    return ended


def texts(*prompts: list[int]) -> list[list[int]]:
    return [[*prompt, *alone(prompt, LENGTH, vocab=VOCAB)] for prompt in prompts]


@pytest.mark.parametrize(("luck", "gain"), [(1.0, 4.0), (0.9, 2.5), (0.6, 1.5)])
def test_drafts_that_are_right_make_answers_faster(luck: float, gain: float) -> None:
    machine = Machine(cheap)
    run(machine, [Steady(texts([1]), VOCAB, luck=luck)], [[1]])
    assert LENGTH / machine.now > gain


@pytest.mark.parametrize("cost", [cheap, dear, lambda rows: 0.7 + 0.3 * rows])
def test_drafts_that_are_wrong_cost_next_to_nothing(cost: Cost) -> None:
    machine = Machine(cost)
    run(machine, [Steady([], VOCAB, luck=0.0)], [[1]])
    assert LENGTH / machine.now > 0.95


@pytest.mark.parametrize("luck", [0.3, 0.7, 0.9])
def test_drafts_are_off_where_each_row_costs_a_step(luck: float) -> None:
    machine = Machine(dear)
    ended = run(machine, [Steady(texts([1]), VOCAB, luck=luck)], [[1]])
    assert LENGTH / machine.now > 0.9
    assert ended[0].drafts["guesses"][0] < 0.25 * LENGTH


@pytest.mark.parametrize("luck", [0.2, 0.4, 0.7, 0.95])
@pytest.mark.parametrize("cost", [cheap, dear, lambda rows: 0.7 + 0.3 * rows])
def test_a_memory_that_must_be_computed_again_is_reckoned_with(luck: float, cost: Cost) -> None:
    machine = Machine(cost, sequential=True)
    run(machine, [Steady(texts([1]), VOCAB, luck=luck)], [[1]])
    assert LENGTH / machine.now > 0.9


def test_drafts_come_back_when_they_are_right_again() -> None:
    class Turning(Steady):
        def outlook(self, ask: Ask) -> Sequence[str]:
            self.become(1.0 if len(ask.tokens) > 300 else 0.0)
            return super().outlook(ask)

    machine = Machine(cheap)
    run(machine, [Turning(texts([1]), VOCAB)], [[1]])
    assert machine.now < 300 * 1.05 + 256 + 60


def test_without_the_gate_all_are_tried() -> None:
    machine = Machine(dear)
    ended = run(machine, [Steady([], VOCAB, luck=0.0)], [[1]], gated=False)
    assert ended[0].drafts["guesses"][0] > 5 * LENGTH


def test_one_answer_does_not_hold_up_another() -> None:
    machine = Machine(lambda rows: 0.7 + 0.3 * rows, slots=2)
    run(machine, [Steady(texts([1]), VOCAB, luck=1.0)], [[1], [2]])
    both = [rows for rows in machine.steps if {row.slot for row in rows} == {0, 1}]
    late = both[len(both) // 2 :]
    assert max(len(rows) for rows in late) > 2
    assert max(machine.cost(len(rows)) for rows in late) < 1.7 * machine.cost(2)


def test_slots_take_turns_when_rows_are_few() -> None:
    machine = Machine(lambda rows: 1.0 + 0.01 * rows, slots=2, max_rows=3)
    ended = run(machine, [Steady(texts([1], [2]), VOCAB, luck=1.0)], [[1], [2]])
    first, second = (ended[id].drafts["guesses"][1] for id in (0, 1))
    assert 0.5 < first / second < 2


def test_the_better_source_is_used() -> None:
    class Other(Steady):
        name = "other"
        priors: ClassVar = {"other": 0.5}

        def outlook(self, ask: Ask) -> Sequence[str]:
            return ["other"] * min(ask.most, 6)

    machine = Machine(cheap)
    good, bad = Other(texts([1]), VOCAB, luck=0.95), Steady([], VOCAB, luck=0.0)
    ended = run(machine, [bad, good], [[1]])
    assert ended[0].drafts["other"][1] > 0.5 * LENGTH
    assert ended[0].drafts.get("guesses", (0, 0))[0] < 0.1 * LENGTH


@pytest.mark.parametrize("method", ["draft", "follow", "rewind"])
def test_a_source_that_fails_is_left_out(method: str, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    def fail(*args: object) -> None:
        raise OSError("the head is lost")

    source = Steady(texts([1]), VOCAB, luck=1.0)
    monkeypatch.setattr(source, method, fail)
    machine = Machine(cheap)
    ended = run(machine, [source], [[1]])
    assert "guesses" not in ended[0].drafts
    assert "drafts from guesses failed" in caplog.text


def test_text_that_repeats_is_found() -> None:
    machine = Machine(cheap)
    machine._pick = lambda digest, position, draw: position * position % 31
    tokens: list[int] = []
    drafts = Drafts(machine, [PromptLookup(1, 8)], clock=machine.clock)
    planner = Planner(machine, lambda frame: tokens.extend(getattr(frame, "ids", ())), chunk=64, drafts=drafts)
    planner.submit(Submit(1, [i * i % 31 for i in range(1, 64)], 300, Sampling()))
    while planner.busy:
        planner.step()
    assert len(tokens) == 300
    assert machine.now < 300 / 3
