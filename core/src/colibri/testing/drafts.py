"""What a family's draft heads have to hold, as a test class.

    class TestMyDrafts(DraftConformance):
        plugin = colibri_mine
        family = "mine"
        models = {"mine-1": DATA / "mine-1"}

The folder of a model holds what ComputeConformance reads (see compute.py), but no head. Beside it lie draft.json, which
tells the head's weights (see heads.py), and draft.npz, whose arrays come from another implementation in float32:
`draft_hidden` [P-1, width], the model's hidden rows of the prompt but for the last one, and `draft_logits` [P-1, vocab],
what the head makes of them and of the token behind each. `close` is the largest difference that float32 may show. Needs
numpy and pytest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from msgspec.structs import replace

from ..compute.checkpoint import Checkpoint, open_checkpoint
from ..compute.load import declare, declare_draft, load_runtime
from ..compute.runtime import Row, Runtime
from ..engine.drafts.choice import Drafts
from ..engine.drafts.head import DraftHead
from ..engine.drafts.source import Ask
from ..engine.frames import Submit
from ..engine.kv_files import encode, load
from ..errors import CheckpointError
from ..family import Sampling
from .conformance import registered
from .drive import Logits, logits_of
from .heads import head_of, write_with_head
from .interpreter import InterpretedRuntime
from .speculation import Guesses, answers

_SIZES: dict[str, Any] = {"context": 256, "slots": 2, "max_rows": 64}


class DraftConformance:
    """Subclass this in a plugin's tests."""

    plugin: ClassVar[Any]
    family: ClassVar[str]
    models: ClassVar[Mapping[str, Path]]
    close: ClassVar[float] = 2e-3

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Every test for every model."""
        if "model" in metafunc.fixturenames:
            metafunc.parametrize("model", list(self.models), scope="class")

    @pytest.fixture(scope="class")
    @classmethod
    def checkpoint(cls, model: str, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
        """The model with its head."""
        return open_checkpoint(write_with_head(cls.models[model], tmp_path_factory.mktemp(model)))

    @pytest.fixture(scope="class")
    @classmethod
    def loaded(cls, checkpoint: Checkpoint) -> Runtime:
        """The model and its head, natively."""
        return load_runtime(registered(cls.plugin, cls.family), checkpoint, drafts=True, **_SIZES)

    @pytest.fixture(scope="class")
    @classmethod
    def reference(cls, model: str) -> dict[str, np.ndarray]:
        """The prompt, and what should come of it."""
        found: dict[str, np.ndarray] = {}
        for file in ("reference.npz", "draft.npz"):
            with np.load(cls.models[model] / file) as stored:
                found.update(stored)
        return found

    # The reference.

    def test_drafts_are_those_of_the_reference(self, loaded: Runtime, reference: Mapping[str, np.ndarray]) -> None:
        assert loaded.draft is not None
        self._compare(loaded, loaded.draft, reference)

    def test_the_interpreter_drafts_the_same(self, checkpoint: Checkpoint, reference: Mapping[str, np.ndarray]) -> None:
        family = registered(self.plugin, self.family)
        plan, tensors = declare(family, checkpoint)
        head = declare_draft(family, checkpoint, plan)
        assert head is not None
        runtimes = InterpretedRuntime(plan, tensors, **_SIZES), InterpretedRuntime(*head, **_SIZES)
        self._compare(*runtimes, reference, chunks=[7, 1, 5])

    # One computation, whichever way it is taken.

    def test_chunks_slots_and_going_back_change_nothing(self, loaded: Runtime, reference: Mapping[str, np.ndarray]) -> None:
        ids, draft = reference["prompt_ids"].tolist(), loaded.draft
        assert draft is not None
        whole = hidden_of(loaded, ids)
        assert _same(hidden_of(loaded, ids, chunks=[1] * 9, slot=1), whole)
        drafted = drafts_of(draft, ids[1:], whole[:-1])
        assert _same(drafts_of(draft, ids[1:], whole[:-1], chunks=[1, 7, 2], slot=1), drafted)
        back = draft.rewind(0, 5)
        assert _same(drafts_of(draft, ids[1 + back :], whole[back:-1], start=back), drafted[back:])

    def test_a_slot_that_was_saved_with_its_drafts_goes_on(
        self, checkpoint: Checkpoint, loaded: Runtime, reference: Mapping[str, np.ndarray], tmp_path: Path
    ) -> None:
        ids, path, cut = reference["prompt_ids"].tolist(), tmp_path / "file", 20
        fresh = load_runtime(registered(self.plugin, self.family), checkpoint, drafts=True, **_SIZES)
        assert loaded.draft is not None
        assert fresh.draft is not None
        hidden = hidden_of(loaded, ids[:cut])
        drafts_of(loaded.draft, ids[1:cut], hidden[:-1])
        images = [(runtime.identity, runtime.image(0, cut)) for runtime in (loaded, loaded.draft)]
        path.write_bytes(b"".join(encode(ids[:cut], images, "f32")))
        assert load(path, [fresh, fresh.draft], 1) == ids[:cut]
        rest = hidden_of(fresh, ids[cut:], start=cut, slot=1)
        assert _same(rest, hidden_of(loaded, ids[cut:], start=cut))
        more = np.concatenate([hidden[-1:], rest[:-1]])
        drafted = drafts_of(loaded.draft, ids[cut:], more, start=cut - 1)
        assert _same(drafts_of(fresh.draft, ids[cut:], more, start=cut - 1, slot=1), drafted)

    def test_the_model_computes_the_same_beside_its_head(
        self, checkpoint: Checkpoint, loaded: Runtime, reference: Mapping[str, np.ndarray]
    ) -> None:
        ids = reference["prompt_ids"].tolist()
        alone = load_runtime(registered(self.plugin, self.family), checkpoint, **_SIZES)
        assert _same(logits_of(alone, ids), logits_of(loaded, ids))
        with pytest.raises(ValueError, match="hidden"):
            alone.hidden(0)

    def test_the_head_never_shows_in_an_answer(self, loaded: Runtime, reference: Mapping[str, np.ndarray]) -> None:
        assert loaded.draft is not None
        ids = reference["prompt_ids"].tolist()
        warm = Sampling(temperature=0.7, seed=1)
        requests = [Submit(n, ids[: 8 + 9 * n], 16, sampling) for n, sampling in enumerate((Sampling(), warm, Sampling()))]
        plain = answers(loaded, requests)
        for chunk, gap in ((3, 0), (16, 2)):
            head = DraftHead(loaded, loaded.draft, 3)
            drafts = Drafts(loaded, [head], gated=False)
            assert answers(loaded, requests, drafts=drafts, chunk=chunk, gap=gap) == plain
            assert drafts.sources == ["mtp"]  # it has not failed

    def test_the_head_has_seen_all_that_the_model_has(self, loaded: Runtime, reference: Mapping[str, np.ndarray]) -> None:
        """However the positions came about, a draft is what the head makes of all of them."""
        assert loaded.draft is not None
        ids = reference["prompt_ids"].tolist()[:20]
        request = Submit(0, ids, 24, Sampling())
        text = [*ids, *answers(loaded, [request])[0]]
        for luck in (0.0, 0.6, 1.0):
            head = _Recorded(loaded, loaded.draft, 1)
            answers(loaded, [request], drafts=Drafts(loaded, [head, Guesses([text], loaded.vocab, luck=luck)], gated=False))
            assert head.made
            hidden = hidden_of(loaded, text, slot=1)
            best = drafts_of(loaded.draft, text[1:], hidden[:-1], slot=1).argmax(axis=1)
            assert [draft for _, draft in head.made] == [best[length - 2] for length, _ in head.made]

    # What is there to be declared.

    def test_the_variant_claims_its_head(self, checkpoint: Checkpoint) -> None:
        variant = registered(self.plugin, self.family).variant_for(checkpoint)
        assert variant is None or variant.capabilities.drafts == "mtp"  # None: a model that is computed, but not served

    def test_a_model_without_a_head_has_none(self, model: str) -> None:
        family, checkpoint = registered(self.plugin, self.family), open_checkpoint(self.models[model])
        assert declare_draft(family, checkpoint, declare(family, checkpoint)[0]) is None
        assert load_runtime(family, checkpoint, drafts=True, **_SIZES).draft is None

    def test_a_head_that_lacks_a_tensor_is_refused_by_its_name(self, model: str, checkpoint: Checkpoint) -> None:
        for name in head_of(self.models[model])["shapes"]:
            tensors = {other: tensor for other, tensor in checkpoint.tensors.items() if other != name}
            assert name in self._refusal(replace(checkpoint, tensors=tensors))

    def test_a_head_of_other_shapes_is_refused(self, model: str, checkpoint: Checkpoint) -> None:
        for name in head_of(self.models[model])["shapes"]:
            tensor = checkpoint.tensors[name]
            longer = replace(tensor, shape=(*tensor.shape[:-1], tensor.shape[-1] + 1))
            assert "tensor '" in self._refusal(replace(checkpoint, tensors={**checkpoint.tensors, name: longer}))

    def _refusal(self, checkpoint: Checkpoint) -> str:
        """What is said to a broken head. The model itself is as it was."""
        family = registered(self.plugin, self.family)
        plan, _ = declare(family, checkpoint)
        with pytest.raises(CheckpointError) as caught:
            declare_draft(family, checkpoint, plan)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    def _compare(
        self, main: Runtime, draft: Runtime, reference: Mapping[str, np.ndarray], chunks: Sequence[int] = ()
    ) -> None:
        ids = reference["prompt_ids"].tolist()
        hidden = hidden_of(main, ids, chunks=chunks)[:-1]
        assert np.abs(hidden - reference["draft_hidden"]).max() < self.close
        found = drafts_of(draft, ids[1:], hidden, chunks=chunks)
        assert np.abs(found - reference["draft_logits"]).max() < self.close


class _Recorded(DraftHead):
    """A head that keeps what it made: how many tokens there were, and the first draft."""

    def __init__(self, model: Runtime, head: Runtime, most: int) -> None:
        super().__init__(model, head, most)
        self.made: list[tuple[int, int]] = []

    def draft(self, wanted: Sequence[tuple[Ask, int]]) -> list[list[int]]:
        found = super().draft(wanted)
        self.made += [(len(ask.tokens), tokens[0]) for (ask, _), tokens in zip(wanted, found, strict=True) if tokens]
        return found


def hidden_of(runtime: Runtime, ids: Sequence[int], *, slot: int = 0, start: int = 0, chunks: Iterable[int] = ()) -> Logits:
    """The hidden rows [len(ids), width] of tokens from position `start` on, in steps of the given `chunks` and then of as
    many rows as fit."""
    found = []
    for first, size in _steps(len(ids), runtime.max_rows, chunks):
        runtime.step([Row(id, slot, start + first + i) for i, id in enumerate(ids[first : first + size])])
        found += [np.array(runtime.hidden(row), np.float32) for row in range(size)]
    return np.stack(found)


def drafts_of(
    draft: Runtime, ids: Sequence[int], hidden: Logits, *, slot: int = 0, start: int = 0, chunks: Iterable[int] = ()
) -> Logits:
    """A head's logits [len(ids), vocab] from position `start` on: of each hidden row and the token behind it."""
    found = []
    for first, size in _steps(len(ids), draft.max_rows, chunks):
        rows = range(first, first + size)
        draft.step([Row(ids[i], slot, start + i, logits=True, given=hidden[i].tobytes()) for i in rows])
        found += [np.array(draft.logits(i), np.float32) for i in range(size)]
    return np.stack(found)


def _steps(count: int, most: int, chunks: Iterable[int]) -> Iterable[tuple[int, int]]:
    first = 0
    for chunk in chain(chunks, repeat(most)):
        if first >= count:
            return
        size = min(chunk, most, count - first)
        yield first, size
        first += size


def _same(a: Logits, b: Logits) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()
