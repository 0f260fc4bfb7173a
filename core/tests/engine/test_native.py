"""The planner on the native runtime: a request's tokens are its own, whatever else the engine does."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colibri.compute.native import NativeRuntime
from colibri.compute.runtime import Row
from colibri.engine.drafts.choice import Drafts
from colibri.engine.drafts.source import Ask
from colibri.engine.frames import Accept, Submit, Tokens
from colibri.engine.planner import Planner
from colibri.family import Sampling
from colibri.testing.speculation import Guesses
from colibri.testing.speculation import answers as answers_of

from ..native.plans import Draft

ROPE = {"inv_freq": (1.0, 0.3, 0.1, 0.03), "offset": 0, "factor": 1.0, "interleaved": False}
VOCAB, CONTEXT = 40, 48


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> NativeRuntime:
    draft = Draft(vocab=VOCAB, context=CONTEXT, seed=3)
    x = draft.embed(64, "q8_0")
    x = draft.attend(draft.norm(x), heads=4, kv_heads=2, dim=16, rope=ROPE, dtype="q8_0")
    x = draft.mixture(draft.norm(x), experts=4, top_k=2, inner=32, dtype="q8_0", down="q8_0")
    plan = draft.plan(draft.norm(x), "q8_0")
    tensors = draft.tensors(tmp_path_factory.mktemp("model"))
    return NativeRuntime.load(plan, tensors, slots=3, context=CONTEXT, max_rows=12, threads=1)


def answers(runtime: NativeRuntime, chunk: int, requests: Sequence[Submit], gaps: Sequence[int]) -> dict[int, list[int]]:
    """The tokens of each request, submitted `gaps` steps apart; requests wait for a free slot in between."""
    tokens: dict[int, list[int]] = {request.id: [] for request in requests}

    def emit(frame: object) -> None:
        if isinstance(frame, Tokens):
            tokens[frame.id] += frame.ids
        else:
            assert not hasattr(frame, "code"), frame

    planner = Planner(runtime, emit, chunk=chunk)
    for request, gap in zip(requests, gaps, strict=True):
        while not planner.slots.free():
            planner.step()
        planner.submit(request)
        for _ in range(gap):
            planner.step()
    while planner.busy:
        planner.step()
    return tokens


PROMPTS = st.lists(st.integers(0, 2), min_size=1, max_size=20)
SAMPLINGS = st.just(Sampling()) | st.builds(Sampling, temperature=st.just(0.8), seed=st.integers(0, 9))


@given(
    st.lists(st.tuples(PROMPTS, st.integers(1, 12), SAMPLINGS, st.integers(0, 5)), min_size=1, max_size=6), st.integers(1, 9)
)
@settings(max_examples=40, deadline=None)
def test_alone_or_in_company(runtime: NativeRuntime, asked: list[tuple[list[int], int, Sampling, int]], chunk: int) -> None:
    requests = [Submit(n, ids, count, sampling) for n, (ids, count, sampling, _) in enumerate(asked)]
    together = answers(runtime, chunk, requests, [gap for *_, gap in asked])
    for request in requests:
        assert together[request.id] == answers(runtime, CONTEXT, [request], [0])[request.id]
        assert len(together[request.id]) == request.max_tokens


def test_what_is_cached_is_told(runtime: NativeRuntime) -> None:
    accepted: list[Accept] = []
    planner = Planner(runtime, lambda frame: accepted.append(frame) if isinstance(frame, Accept) else None, chunk=4)
    for id in (1, 2):
        planner.submit(Submit(id, [5, 6, 7, 8], 2, Sampling()))
        while planner.busy:
            planner.step()
    assert [accept.cached for accept in accepted] == [0, 3]


def test_drafts_leave_the_distribution_of_answers_as_it_is(runtime: NativeRuntime) -> None:
    """Without seeds, and with drafts that are often right: pairs of tokens come as often as the model's logits say."""
    random.seed(11)
    sampling, count = Sampling(temperature=1.5, top_k=4), 4000
    shares = pair_shares(runtime, [5, 6, 7], sampling)
    drafts = Drafts(runtime, [Likely([first for first, _ in shares])], gated=False)
    requests = [Submit(n, [5, 6, 7], 4, sampling) for n in range(count)]
    found = Counter(tuple(tokens[:2]) for tokens in answers_of(runtime, requests, drafts=drafts).values())
    assert set(found) <= set(shares)
    expected = {pair: share * count for pair, share in shares.items() if share * count > 5}
    spread = sum((found[pair] - want) ** 2 / want for pair, want in expected.items())
    assert spread < len(expected) + 5 * (2 * len(expected)) ** 0.5


class Likely(Guesses):
    """Three drafts of tokens that may well come."""

    def __init__(self, tokens: list[int]) -> None:
        super().__init__([], VOCAB, seed=2)
        self._tokens = tokens

    def outlook(self, ask: Ask) -> Sequence[str]:
        return ["guess"] * min(ask.most, 3)

    def draft(self, wanted: Sequence[tuple[Ask, int]]) -> list[list[int]]:
        return [self._random.choices(self._tokens, k=count) for _, count in wanted]


def pair_shares(runtime: NativeRuntime, prompt: list[int], sampling: Sampling) -> dict[tuple[int, int], float]:
    """How likely each pair of tokens is behind a prompt, from the logits."""

    def shares(ids: list[int]) -> dict[int, float]:
        runtime.step([Row(id, 0, at, logits=at == len(ids) - 1) for at, id in enumerate(ids)])
        logits = np.array(runtime.logits(0), np.float64)
        best = np.argsort(-logits)[: sampling.top_k]
        weights = np.exp((logits[best] - logits.max()) / sampling.temperature)
        return dict(zip(best.tolist(), (weights / weights.sum()).tolist(), strict=True))

    first = shares(prompt)
    return {(a, b): share * other for a, share in first.items() for b, other in shares([*prompt, a]).items()}
