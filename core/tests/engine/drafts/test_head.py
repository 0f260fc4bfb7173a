"""The model's own head through prompts, turns and slots: it may miss some context, and never shows in an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colibri.compute.checkpoint import Checkpoint, open_checkpoint
from colibri.compute.graph import Graph
from colibri.compute.load import load_runtime
from colibri.compute.runtime import Runtime
from colibri.engine.drafts.choice import Drafts
from colibri.engine.drafts.head import DraftHead
from colibri.engine.drafts.lookup import PromptLookup
from colibri.engine.drafts.source import Ask
from colibri.engine.frames import Done, Submit, Tokens
from colibri.engine.planner import Planner
from colibri.family import Sampling
from colibri.testing.checkpoints import seeded_weights, write_checkpoint
from colibri.testing.speculation import Guesses, answers

VOCAB, WIDTH, CONTEXT, SLOTS = 24, 8, 64, 3
SHAPES = {"embed": (VOCAB, WIDTH), "last": (WIDTH,), "head": (VOCAB, WIDTH)}


class Counting:
    """A family whose model writes what its last token's row says, and whose head knows the same: its drafts are right."""

    name = "counting"

    def graph(self, checkpoint: Checkpoint, g: Graph) -> None:
        g.context(CONTEXT)
        x = g.embed(g.tokens, g.w("embed"))
        memory = g.attention(x, x, x, state=g.kv(0, 1, WIDTH)) * 0.0
        x = g.hidden(g.rms_norm(x + memory, g.w("last"), 1e-5))
        g.logits(g.linear(x, g.w("head")))

    def draft(self, checkpoint: Checkpoint, g: Graph) -> bool:
        g.context(CONTEXT)
        token = g.embed(g.tokens, g.w("embed"))
        seen = g.attention(token, token, token, state=g.kv(0, 1, WIDTH, window=9)) * 0.0
        x = g.hidden(g.rms_norm(token + seen + g.given(WIDTH) * 0.0, g.w("last"), 1e-5))
        g.logits(g.linear(x, g.w("head")))
        return True


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    folder: Path = tmp_path_factory.mktemp("model")
    checkpoint = open_checkpoint(write_checkpoint(folder, {"model_type": "counting"}, seeded_weights(SHAPES, 3)))
    family: Any = Counting()
    return load_runtime(family, checkpoint, context=CONTEXT, slots=SLOTS, max_rows=24, threads=1, drafts=True)


def head_of(runtime: Runtime, most: int = 3) -> DraftHead:
    assert runtime.draft is not None
    return DraftHead(runtime, runtime.draft, most)


def told(runtime: Runtime, requests: list[Submit], drafts: Drafts) -> tuple[dict[int, list[int]], dict[int, Done]]:
    tokens: dict[int, list[int]] = {request.id: [] for request in requests}
    ended: dict[int, Done] = {}

    def emit(frame: object) -> None:
        if isinstance(frame, Tokens):
            tokens[frame.id] += frame.ids
        elif isinstance(frame, Done):
            ended[frame.id] = frame

    planner = Planner(runtime, emit, chunk=5, drafts=drafts)
    for request in requests:
        planner.submit(request)
        while planner.busy:
            planner.step()
    return tokens, ended


WARM, HOT = Sampling(temperature=1.3, seed=4), Sampling(temperature=2.0, top_p=0.9, seed=9)


@pytest.mark.parametrize("sampling", [Sampling(), WARM, HOT])
def test_a_head_that_knows_the_model_is_always_right(runtime: Runtime, sampling: Sampling) -> None:
    """Sampled as well: a draft is drawn as the token itself will be, with the same number."""
    request = Submit(1, [1, 2, 3, 4, 5, 6, 7], 30, sampling)
    plain = answers(runtime, [request])[1]
    tokens, ended = told(runtime, [request], Drafts(runtime, [head_of(runtime)], gated=False))
    assert tokens[1] == plain
    drafted, right = ended[1].drafts["mtp"]
    assert drafted == right > 30 / 2


def test_a_head_without_rows_of_its_own_drafts_one_token(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime.draft, "gives", 0)
    tokens, ended = told(runtime, [Submit(1, [1, 2, 3], 21, Sampling())], Drafts(runtime, [head_of(runtime)], gated=False))
    assert len(tokens[1]) == 21
    assert ended[1].drafts["mtp"] == (10, 10)


def test_a_cached_prefix_is_no_end_of_drafts(runtime: Runtime) -> None:
    """The next turn goes on in the slot, another one copies the prefix: the head has nearly all of it."""
    head = head_of(runtime)
    drafts = Drafts(runtime, [head], gated=False)
    first = Submit(1, list(range(1, 12)), 10, Sampling())
    answer = answers(runtime, [first])[1]
    second = Submit(2, [*first.ids, *answer, 3, 4], 10, Sampling())
    third = Submit(3, [*first.ids, 9, 9], 10, Sampling())
    plain = answers(runtime, [first, second, third])
    tokens, ended = told(runtime, [first, second, third], drafts)
    assert tokens == plain
    for id in (1, 2, 3):
        drafted, right = ended[id].drafts["mtp"]
        assert drafted == right >= 6
    for positions in head._positions:
        assert positions == sorted(set(positions))
    longest = max(head._positions, key=len)
    assert len(longest) > 0.8 * longest[-1]


def test_a_head_that_was_left_behind_goes_on_from_where_it_is(runtime: Runtime) -> None:
    head = head_of(runtime)
    drafts = Drafts(runtime, [head], gated=False)
    request = Submit(1, [1, 2, 3], 40, Sampling())
    plain = answers(runtime, [request])[1]
    tokens: list[int] = []
    planner = Planner(runtime, lambda frame: tokens.extend(getattr(frame, "ids", ())), chunk=5, drafts=drafts)
    planner.submit(request)
    turn = 0
    while planner.busy:
        turn += 1
        if turn in (3, 4, 5):
            head.forget(0)
        planner.step()
    assert tokens == plain
    assert drafts.sources == ["mtp"]
    assert len(head._positions[0]) < head._positions[0][-1]


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 12), st.booleans(), st.integers(0, 4)), min_size=1, max_size=6),
    st.integers(1, 9),
    st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_turns_copies_and_rejections(
    runtime: Runtime, asked: list[tuple[int, int, bool, int]], chunk: int, seed: int
) -> None:
    text = [(i * i + i // 5) % 7 for i in range(30)]
    requests = [
        Submit(n, [*text[: shared + 1], n, n + 1], count, Sampling(temperature=0.9, seed=n) if warm else Sampling())
        for n, (shared, count, warm, _) in enumerate(asked)
    ]
    plain = answers(runtime, requests)
    texts = [[*request.ids, *plain[request.id]] for request in requests]
    sources = [head_of(runtime), Guesses(texts, VOCAB, luck=0.6, seed=seed), PromptLookup(SLOTS, 2)]
    drafts = Drafts(runtime, sources, gated=False)
    assert answers(runtime, requests, drafts=drafts, chunk=chunk, gap=asked[0][3]) == plain
    assert len(drafts.sources) == 3


def test_an_outlook_needs_the_last_row(runtime: Runtime) -> None:
    assert not head_of(runtime).outlook(Ask(0, [1, 2, 3], 5))


def test_a_head_goes_on_with_what_its_slots_hold_from_before(runtime: Runtime) -> None:
    """As after a restart: the rows of a saved slot are there, and only what follows is learnt anew."""
    assert runtime.draft is not None
    first = Submit(1, list(range(1, 12)), 10, Sampling())
    answer = answers(runtime, [first], drafts=Drafts(runtime, [head_of(runtime)], gated=False))[1]
    held = runtime.draft.reach(0, CONTEXT)
    assert held >= len(first.ids) + len(answer) - 2
    head = head_of(runtime)
    planner = Planner(runtime, lambda frame: None, chunk=5, drafts=Drafts(runtime, [head], gated=False))
    planner.slots.resume(0, [*first.ids, *answer[:-1]])
    planner.submit(Submit(2, [*first.ids, *answer, 3, 4], 10, Sampling(), slot=0))
    assert len(head._positions[0]) == len(first.ids) + len(answer) - 2
    planner.step()
    planner.step()
    assert len(head._positions[0]) > len(first.ids) + len(answer) - 2
    while planner.busy:
        planner.step()


def test_nothing_of_a_slot_is_computed_once_its_request_is_over(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may read it then, to save it."""
    assert runtime.draft is not None
    steps: list[set[int]] = []
    step = runtime.draft.step
    monkeypatch.setattr(runtime.draft, "step", lambda rows: (steps.append({row.slot for row in rows}), step(rows))[1])
    drafts = Drafts(runtime, [head_of(runtime)], gated=False)
    planner = Planner(runtime, lambda frame: None, chunk=5, drafts=drafts)
    planner.submit(Submit(1, [1, 2, 3], 6, Sampling(), slot=0))
    planner.submit(Submit(2, [4, 5, 6], 40, Sampling(), slot=1))
    planner.submit(Submit(3, [4, 5, 6], 40, Sampling(), slot=2))
    for _ in range(6):
        planner.step()
    planner.cancel(3)
    assert sorted(planner.slots.free()) == [0, 2]
    steps.clear()
    while planner.busy:
        planner.step()
    assert steps
    assert set.union(*steps) == {1}
