"""What a family's forward pass has to hold, as a test class.

    class TestMine(ComputeConformance):
        plugin = colibri_mine
        family = "mine"
        models = {"mine-1": DATA / "mine-1"}

A model is a folder with config.json, weights and reference.npz, whose arrays come from another implementation in float32:
`prompt_ids` [P], `logits_full` [P, vocab], `greedy_ids` [G] with the `greedy_logits` [G, vocab] that chose them, and
`alt_ids` [A], which share their first `alt_keep` tokens with the prompt, with `alt_logits` [A, vocab]. `close` is the
largest difference that float32 may show, by model where one needs more. Needs numpy, pytest and hypothesis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ..compute.checkpoint import open_checkpoint
from ..compute.load import declare, load_runtime
from ..compute.runtime import Runtime
from ..engine.drafts.choice import Drafts
from ..engine.drafts.lookup import PromptLookup
from ..engine.frames import Submit
from ..family import Family, Sampling
from .conformance import registered
from .drive import Logits, greedy, logits_of, put_back, together
from .interpreter import InterpretedRuntime
from .speculation import Guesses, answers

#: A busy machine is no fault of the family's.
_patient = settings(deadline=None, max_examples=12)

_CONTEXT, _SLOTS, _ROWS = 256, 3, 64


class ComputeConformance:
    """Subclass this in a plugin's tests."""

    plugin: ClassVar[Any]
    family: ClassVar[str]
    models: ClassVar[Mapping[str, Path]]
    close: ClassVar[float | Mapping[str, float]] = 2e-3

    @pytest.fixture(scope="class")
    @classmethod
    def loaded(cls, model: str) -> Runtime:
        """The model under test, natively, with three slots."""
        return _native(registered(cls.plugin, cls.family), cls.models[model])

    @pytest.fixture(scope="class")
    @classmethod
    def reference(cls, model: str) -> dict[str, np.ndarray]:
        """What the model should compute."""
        return _reference(cls.models[model])

    @pytest.fixture(scope="class")
    @classmethod
    def whole(cls, loaded: Runtime, reference: Mapping[str, np.ndarray]) -> Logits:
        """The logits of the prompt in one piece."""
        return logits_of(loaded, reference["prompt_ids"].tolist())

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Every test for every model."""
        if "model" in metafunc.fixturenames:
            metafunc.parametrize("model", list(self.models), scope="class")

    # The reference.

    def test_logits_are_those_of_the_reference(self, model: str, whole: Logits, reference: Mapping[str, np.ndarray]) -> None:
        assert _distance(whole, reference["logits_full"]) < self._close(model)

    def test_greedy_tokens_are_those_of_the_reference(
        self, model: str, loaded: Runtime, reference: Mapping[str, np.ndarray]
    ) -> None:
        ids, tokens = reference["prompt_ids"].tolist(), reference["greedy_ids"].tolist()
        assert greedy(loaded, ids, len(tokens), slot=1) == tokens
        found = logits_of(loaded, ids + tokens[:-1], slot=2)[len(ids) - 1 :]
        assert _distance(found, reference["greedy_logits"]) < self._close(model)

    def test_the_interpreter_computes_the_same(self, model: str, reference: Mapping[str, np.ndarray]) -> None:
        plan, tensors = declare(registered(self.plugin, self.family), open_checkpoint(self.models[model]))
        made = InterpretedRuntime(plan, tensors, context=_CONTEXT, slots=_SLOTS, max_rows=_ROWS)
        ids = reference["prompt_ids"].tolist()
        assert _distance(logits_of(made, ids, chunks=[7, 1, 5]), reference["logits_full"]) < self._close(model)
        assert greedy(made, ids, 4, slot=1) == reference["greedy_ids"].tolist()[:4]

    # One computation, whichever way it is taken.

    def test_token_by_token(self, loaded: Runtime, whole: Logits, reference: Mapping[str, np.ndarray]) -> None:
        ids = reference["prompt_ids"].tolist()
        assert _same(logits_of(loaded, ids, slot=1, chunks=[1] * len(ids)), whole)

    def test_any_chunks_beside_any_other_rows(
        self, loaded: Runtime, whole: Logits, reference: Mapping[str, np.ndarray]
    ) -> None:
        ids = reference["prompt_ids"].tolist()

        @_patient
        @given(chunks=st.lists(st.integers(1, 20), max_size=12), other=st.integers(1, 20))
        def holds(chunks: list[int], other: int) -> None:
            assert _same(logits_of(loaded, ids, slot=1, chunks=chunks), whole)
            found = together(loaded, {0: ids[::-1], 1: ids}, {0: other, 1: chunks[0] if chunks else 40})
            assert _same(found[1], whole)

        holds()

    def test_two_interleaved_slots(
        self, model: str, loaded: Runtime, whole: Logits, reference: Mapping[str, np.ndarray]
    ) -> None:
        found = together(loaded, {0: reference["prompt_ids"].tolist(), 2: reference["alt_ids"].tolist()})
        assert _same(found[0], whole)
        assert _distance(found[2], reference["alt_logits"]) < self._close(model)

    def test_rows_without_logits_leave_the_same_behind(
        self, loaded: Runtime, whole: Logits, reference: Mapping[str, np.ndarray]
    ) -> None:
        ids = reference["prompt_ids"].tolist()
        greedy(loaded, ids[:-1], 1, slot=1)
        assert _same(logits_of(loaded, ids[-1:], slot=1, start=len(ids) - 1), whole[-1:])

    # Going back, and going over to another slot.

    @pytest.mark.parametrize("remembered", [False, True])
    def test_a_rewound_slot_goes_on_as_a_fresh_one(
        self, model: str, remembered: bool, loaded: Runtime, reference: Mapping[str, np.ndarray]
    ) -> None:
        keep, other = _prompt_with_a_way_back(loaded, reference, slot=0, remembered=remembered)
        back = loaded.rewind(0, keep)
        assert back == keep if remembered else back <= keep
        found = logits_of(loaded, other[back:], slot=0, start=back)
        assert _distance(found, reference["alt_logits"][back:]) < self._close(model)
        assert _same(found, logits_of(loaded, other, slot=1)[back:])

    @pytest.mark.parametrize("remembered", [False, True])
    def test_a_copied_prefix_is_as_good_as_a_computed_one(
        self, remembered: bool, loaded: Runtime, reference: Mapping[str, np.ndarray]
    ) -> None:
        keep, other = _prompt_with_a_way_back(loaded, reference, slot=0, remembered=remembered)
        back = loaded.copy(0, 1, keep)
        assert back == keep if remembered else back <= keep
        found = logits_of(loaded, other[back:], slot=1, start=back)
        assert _same(found, logits_of(loaded, other, slot=2)[back:])

    @pytest.mark.parametrize("remembered", [False, True])
    def test_a_slot_that_was_saved_goes_on_in_another_runtime(
        self, model: str, remembered: bool, loaded: Runtime, reference: Mapping[str, np.ndarray]
    ) -> None:
        keep, other = _prompt_with_a_way_back(loaded, reference, slot=0, remembered=remembered)
        ids, tokens = reference["prompt_ids"].tolist(), reference["greedy_ids"].tolist()
        fresh = _native(registered(self.plugin, self.family), self.models[model])
        assert fresh.identity == loaded.identity
        assert put_back(loaded, 0, len(ids), fresh, 2) == len(ids)
        assert _same(logits_of(fresh, tokens, slot=2, start=len(ids)), logits_of(loaded, tokens, slot=0, start=len(ids)))
        back = fresh.rewind(2, keep)
        assert back == keep if remembered else back <= keep
        assert _same(logits_of(fresh, other[back:], slot=2, start=back), logits_of(loaded, other, slot=1)[back:])

    def test_threads_and_code_paths_change_nothing(
        self, model: str, whole: Logits, reference: Mapping[str, np.ndarray]
    ) -> None:
        from .._native import isas

        ids, family = reference["prompt_ids"].tolist(), registered(self.plugin, self.family)
        for isa, threads in [*((isa, 1) for isa in isas()), ("", 3)]:
            assert _same(logits_of(_native(family, self.models[model], isa=isa, threads=threads), ids), whole)

    def test_drafts_never_show_in_an_answer(self, loaded: Runtime, reference: Mapping[str, np.ndarray]) -> None:
        ids = reference["prompt_ids"].tolist()
        samplings = [
            Sampling(),
            Sampling(temperature=0.9, top_p=0.9, seed=5),
            Sampling(),
            Sampling(temperature=1.2, top_k=9, seed=6),
        ]
        requests = [Submit(n, ids[: 4 + 7 * n], 20, sampling) for n, sampling in enumerate(samplings)]
        plain = answers(loaded, requests)
        texts = [[*request.ids, *plain[request.id]] for request in requests]

        @_patient
        @given(
            luck=st.sampled_from([0.0, 0.5, 0.8, 1.0]),
            seed=st.integers(0, 99),
            chunk=st.integers(1, 20),
            gap=st.integers(0, 4),
        )
        def holds(luck: float, seed: int, chunk: int, gap: int) -> None:
            guesses = Guesses(texts, loaded.vocab, luck=luck, seed=seed)
            drafts = Drafts(loaded, [guesses, PromptLookup(loaded.slots, 4)], gated=False)
            assert answers(loaded, requests, drafts=drafts, chunk=chunk, gap=gap) == plain

        holds()

    def _close(self, model: str) -> float:
        return self.close if isinstance(self.close, float) else self.close.get(model, 2e-3)


def _native(family: Family, folder: Path, **options: Any) -> Runtime:
    return load_runtime(family, open_checkpoint(folder), context=_CONTEXT, slots=_SLOTS, max_rows=_ROWS, **options)


@lru_cache(maxsize=64)
def _reference(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / "reference.npz") as stored:
        return dict(stored)


def _prompt_with_a_way_back(
    runtime: Runtime, reference: Mapping[str, np.ndarray], *, slot: int, remembered: bool
) -> tuple[int, Sequence[int]]:
    """Run the prompt, perhaps with a stop where it parts from the other one; returns that place and the other prompt."""
    ids, keep = reference["prompt_ids"].tolist(), int(reference["alt_keep"])
    logits_of(runtime, ids[:keep], slot=slot)
    if remembered:
        runtime.remember(slot)
    logits_of(runtime, ids[keep:], slot=slot, start=keep)
    return keep, reference["alt_ids"].tolist()


def _distance(found: Logits, expected: np.ndarray) -> float:
    """The largest difference; a reference may go on behind the vocabulary with padding."""
    return float(np.abs(found - expected[:, : found.shape[1]]).max())


def _same(a: Logits, b: Logits) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()
